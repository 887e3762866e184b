"""Publications and sessions that pipelines leave behind when they are renamed, or read something else.

What came from a broker is acknowledged and in the spool of a pipeline, and its session there takes more, durable as it is,
until somebody ends it. Both stay with the directory of the pipeline: nobody is to lose them unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bridge.config import PipelineConfig
from bridge.pipeline.errors import OptionError
from bridge.pipeline.flow.environment import PipelineEnvironment
from bridge.pipeline.flow.sources.mqtt import mqtt_source_options
from bridge.pipeline.mqtt.spool import SessionAtBroker
from bridge.pipeline.mqtt.spool_contents import SpoolContents, spools_below

SPOOL = "spool"


def left_behind(pipelines: Mapping[str, PipelineConfig], environment: PipelineEnvironment) -> list[str]:
    """Return a line for each spool or session that no pipeline of the file goes on with. Raises OSError, SpoolDamaged."""
    own = {environment.directory_of(name, config): name for name, config in pipelines.items()}
    used = {session for directory, name in own.items() for session in _sessions(pipelines[name], environment, directory)}
    lines: list[str] = []
    for directory, name in own.items():
        config = pipelines[name]
        for spool in spools_below(directory / SPOOL):
            if spool.topic_filter != config.source.mqtt:
                now = f"MQTT {config.source.mqtt}" if config.source.mqtt is not None else "no broker"
                again = f"to have them, let it read {spool.topic_filter} again, and mqbridge pipeline run {name} --once"
                lines += _told(f"pipeline {name} reads {now} now", spool, used, again)
            else:
                lines += _told(f"pipeline {name} has another session now", spool, used, None)
    for directory in _others(environment, own):
        for spool in spools_below(directory / SPOOL):
            again = f"to go on with them, write checkpoint: {directory} in the pipeline that reads {spool.topic_filter} now"
            lines += _told(f"{directory} is of no pipeline (renamed, or taken out?)", spool, used, again)
    return lines


def _others(environment: PipelineEnvironment, own: Mapping[Path, str]) -> list[Path]:
    if environment.directory is None or not environment.directory.is_dir():
        return []
    return sorted(one for one in environment.directory.iterdir() if one.is_dir() and one not in own)


def _sessions(
    config: PipelineConfig, environment: PipelineEnvironment, directory: Path
) -> Iterator[SessionAtBroker]:
    """Yield the sessions that a pipeline has, or will have, as the configuration is now; none where that has mistakes."""
    source = config.source
    if source.mqtt is None:
        return
    given = {**source.options, **environment.broker(source.link), "topic": source.mqtt, "spool": "-"}
    try:
        broker = mqtt_source_options(given).broker
    except OptionError:
        return
    found = [spool.id for spool in spools_below(directory / SPOOL) if spool.topic_filter == source.mqtt]
    for one in found or [""]:  # a name of its own the session has before there is a spool
        yield SessionAtBroker(broker.place, broker.client_id(f"spark-{one}"))


def _told(why: str, spool: SpoolContents, used: set[SessionAtBroker], again: str | None) -> Iterator[str]:
    """Yield a line on what is left of a spool, where anything is; `again` says how to have its publications."""
    old = [session for session in spool.sessions if session not in used]
    waiting = spool.waiting if again is not None else 0
    if not waiting and not old:
        return
    parts = []
    if waiting:
        count = "1 publication" if waiting == 1 else f"up to {waiting} publications"
        parts.append(f"{count} of {spool.topic_filter} that no batch has lie in {spool.directory} ({again})")
    for session in old:
        host, _, port = session.broker.rpartition(":")
        ended = f"mosquitto_sub -h {host} -p {port} -i '{session.client_id}' -t x -E ends it"
        parts.append(f"session {session.client_id} at {session.broker} still takes what is published ({ended})")
    if old:
        parts.append(f"remove {spool.directory / 'sessions.json'} when that is done")
    yield f"{why}: {'; '.join(parts)}"
