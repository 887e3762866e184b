"""What a renamed pipeline, or one that reads something else now, leaves behind is said, with what there is to do."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from bridge.spark.mqtt.spool import SessionAtBroker, Spool
from tests.spark.mqtt.test_spool import append

from bridge.config import load
from bridge.config.link import LinkConfig
from bridge.link.connection import LinkConnection
from bridge.spark.flow.environment import PipelineEnvironment, environment_of
from bridge.spark.flow.left_behind import LeftBehind, end_sessions, left_behind
from bridge.spark.mqtt.session_end import SessionNotEnded
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.spark.mqtt.spooler import spooling

PLAIN = "{from: {mqtt: a/#, link: l}, select: SELECT body FROM input, to: {mq: {queue: R}}}"
NAMED = "{from: {mqtt: a/#, link: l, options: {clientId: me}}, select: SELECT body FROM input, to: {mq: {queue: R}}}"


def filled(directory: Path, client_id: str | None = None, *, count: int = 3, committed: int = 1) -> Spool:
    """A spool of a/# that nobody has open."""
    spool = Spool(directory / "data" / "pipelines" / "old" / "spool", "a/#")
    spool.note_session(SessionAtBroker("h:1883", client_id or f"mqbridge-spark-{spool.id}"))
    append(spool, *[b"x"] * count)
    spool.commit(committed)
    spool.close()
    return spool


def looked_at(directory: Path, pipelines: str, link: str = "{host: h}") -> tuple[list[LeftBehind], PipelineEnvironment]:
    file = directory / "bridge.yaml"
    file.write_text(f"links: {{l: {link}, m: {{host: other}}}}\npipelines: {{{pipelines}}}", encoding="utf-8")
    configuration = load(file)
    environment = environment_of(configuration, file, directory / "data")
    return left_behind(configuration.pipelines, environment), environment


def told(directory: Path, pipelines: str) -> list[str]:
    return list(map(str, looked_at(directory, pipelines)[0]))


def test_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, f"old: {PLAIN}") == []
    filled(tmp_path)
    assert told(tmp_path, f"old: {PLAIN}") == []


def test_a_renamed_pipeline(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    (line,) = told(tmp_path, f"new: {PLAIN}")
    directory = tmp_path / "data" / "pipelines" / "old"
    assert line == (
        f"{directory} is of no pipeline (renamed, or taken out?): up to 2 publications of a/# that no batch has lie in"
        f" {spool.directory} (to go on with them, write checkpoint: {directory} in the pipeline that reads a/# now); session"
        f" mqbridge-spark-{spool.id} at h:1883 still takes what is published (mqbridge pipeline end-session"
        f" mqbridge-spark-{spool.id} ends it)"
    )
    # Which is what is to be done.
    assert told(tmp_path, f"new: {PLAIN[:-1]}, checkpoint: data/pipelines/old}}") == []


def test_a_session_that_the_user_names_goes_on(tmp_path: Path) -> None:
    filled(tmp_path, "me", committed=3)
    assert told(tmp_path, f"new: {NAMED}") == []


@pytest.mark.parametrize(
    "pipeline, said",
    [
        (PLAIN.replace("a/#", "b/#"), "pipeline old reads MQTT b/# now: up to 2 publications of a/# .* run old --once"),
        (PLAIN.replace("mqtt: a/#, link: l", "mq: {queue: Q}"), "pipeline old reads no broker now: up to 2 publications"),
        (PLAIN.replace("link: l", "link: m"), "pipeline old has another session now: session mqbridge-spark-.* at h:1883"),
        (NAMED, "pipeline old has another session now: session mqbridge-spark-.* at h:1883 still takes"),
    ],
)
def test_a_pipeline_that_reads_something_else(tmp_path: Path, pipeline: str, said: str) -> None:
    filled(tmp_path)
    (line,) = told(tmp_path, f"old: {pipeline}")
    assert re.search(said, line), line


def test_a_session_is_ended_at_its_broker(broker: Mosquitto, tmp_path: Path) -> None:
    spools = tmp_path / "data" / "pipelines" / "old" / "spool"
    with spooling(broker.port, spools, "left/#") as spool:
        client_id = f"mqbridge-spark-{spool.id}"
        place = f"{{host: 127.0.0.1, port: {broker.port}}}"
        found, environment = looked_at(tmp_path, f"new: {PLAIN}", place)
        with pytest.raises(SessionNotEnded, match=rf"process {os.getpid()} reads .*: end its query first"):
            list(end_sessions([client_id], found, environment))
    with pytest.raises(SessionNotEnded, match=f"no session other that is left behind .*; there are {client_id}"):
        list(end_sessions([client_id, "other"], found, environment))
    with pytest.raises(SessionNotEnded, match=f"no link of the file leads to 127.0.0.1:{broker.port}: write one"):
        list(end_sessions([client_id], *looked_at(tmp_path, f"new: {PLAIN}")))
    found, environment = looked_at(tmp_path, f"new: {PLAIN}", place)
    assert list(end_sessions([client_id], found, environment)) == [
        f"session {client_id} at 127.0.0.1:{broker.port} has ended"
    ]
    assert looked_at(tmp_path, f"new: {PLAIN}", place)[0] == []
    client = LinkConnection("test", LinkConfig(host="127.0.0.1", port=broker.port), client_id)
    client.start()
    assert client.wait_connected(PATIENCE) and client.session_present is False
    client.stop(PATIENCE)
