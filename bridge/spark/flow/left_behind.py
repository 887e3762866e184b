"""Publications and sessions that pipelines leave behind when they are renamed, or read something else.

What came from a broker is acknowledged and in the spool of a pipeline, and its session there takes more, durable as it is,
until somebody ends it. Both stay with the directory of the pipeline: nobody is to lose them unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bridge.config import PipelineConfig
from bridge.config.link import LOCAL
from bridge.spark.errors import OptionError
from bridge.spark.flow.environment import PipelineEnvironment
from bridge.spark.flow.sources.mqtt import mqtt_source_options
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.mqtt.session_end import SessionNotEnded, end_session
from bridge.spark.options import Options
from bridge.spark.spool import SessionAtBroker, SpoolContents, spools_below

SPOOL = "spool"


class LeftBehind(msgspec.Struct, frozen=True):
    """What is left of a spool that no pipeline of the file goes on with."""

    #: why, in words
    why: str
    spool: SpoolContents
    #: that no pipeline has any more
    sessions: list[SessionAtBroker]
    #: how to have the publications that wait in the spool; None: the pipeline goes on with them
    again: str | None

    def __str__(self) -> str:
        parts = []
        if self.again is not None and (waiting := self.spool.waiting):
            count = "1 publication" if waiting == 1 else f"up to {waiting} publications"
            where = f"of {self.spool.source} that no batch has lie in {self.spool.directory}"
            parts.append(f"{count} {where} ({self.again})")
        for session in self.sessions:
            ended = f"mqbridge pipeline end-session {session.client_id} ends it"
            parts.append(f"session {session.client_id} at {session.broker} still takes what is published ({ended})")
        return f"{self.why}: {'; '.join(parts)}"


def left_behind(pipelines: Mapping[str, PipelineConfig], environment: PipelineEnvironment) -> list[LeftBehind]:
    """Return what is left of spools and sessions that no pipeline of the file goes on with. Raises OSError, SpoolDamaged."""
    own = {environment.directory_of(name, config): name for name, config in pipelines.items()}
    used = {session for directory, name in own.items() for session in _sessions(pipelines[name], environment, directory)}
    found: list[LeftBehind] = []

    def add(why: str, spool: SpoolContents, again: str | None) -> None:
        old = [session for session in spool.sessions if session not in used]
        if old or (spool.waiting and again is not None):
            found.append(LeftBehind(why, spool, old, again))

    for directory, name in own.items():
        config = pipelines[name]
        for spool in spools_below(directory / SPOOL):
            if spool.source != config.source.mqtt:
                now = f"MQTT {config.source.mqtt}" if config.source.mqtt is not None else "no broker"
                again = f"to have them, let it read {spool.source} again, and mqbridge pipeline run {name} --once"
                add(f"pipeline {name} reads {now} now", spool, again)
            else:
                add(f"pipeline {name} has another session now", spool, None)
    for directory in _others(environment, own):
        for spool in spools_below(directory / SPOOL):
            again = f"to go on with them, write checkpoint: {directory} in the pipeline that reads {spool.source} now"
            add(f"{directory} is of no pipeline (renamed, or taken out?)", spool, again)
    return found


def end_sessions(client_ids: Sequence[str], found: Sequence[LeftBehind], environment: PipelineEnvironment) -> Iterator[str]:
    """End sessions that are left behind, and yield a line for each that has ended.

    Raises SessionNotEnded for one that is not left behind, before any is ended, and for one that cannot be ended; OSError.
    """
    left = {session.client_id: (session, one.spool.directory) for one in found for session in one.sessions}
    if unknown := [one for one in client_ids if one not in left]:
        raise SessionNotEnded(
            f"no session {', '.join(unknown)} that is left behind (by what this file says); there are"
            f" {', '.join(left) or 'none'}"
        )
    for client_id in client_ids:
        session, spool = left[client_id]
        end_session(_broker_at(session.broker, environment), session, spool)
        yield f"session {client_id} at {session.broker} has ended"


def _broker_at(place: str, environment: PipelineEnvironment) -> Broker:
    """Return the broker at `host:port`, by the link of the file that leads there. Raises SessionNotEnded."""
    for name in (*environment.links, LOCAL):
        try:
            broker = broker_of(Options(f"link {name}", environment.broker(name), BROKER_OPTIONS))
        except OptionError:
            continue  # the bridge itself has no channel for it
        if broker.place == place:
            return broker
    raise SessionNotEnded(f"no link of the file leads to {place}: write one with that host and port, until this is done")


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
    found = [spool.id for spool in spools_below(directory / SPOOL) if spool.source == source.mqtt]
    for one in found or [""]:  # a name of its own the session has before there is a spool
        yield SessionAtBroker(broker.place, broker.client_id(f"spark-{one}"))
