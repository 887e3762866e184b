"""What a renamed pipeline, or one that reads something else now, leaves behind is said, with what there is to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.config import load
from bridge.pipeline.flow.environment import environment_of
from bridge.pipeline.flow.left_behind import left_behind
from bridge.pipeline.mqtt.spool import SessionAtBroker, Spool
from tests.pipeline.mqtt.test_spool import append

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


def told(directory: Path, pipelines: str) -> list[str]:
    file = directory / "bridge.yaml"
    file.write_text(f"links: {{l: {{host: h}}, m: {{host: other}}}}\npipelines: {{{pipelines}}}", encoding="utf-8")
    configuration = load(file)
    return left_behind(configuration.pipelines, environment_of(configuration, file, directory / "data"))


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
        f" mqbridge-spark-{spool.id} at h:1883 still takes what is published (mosquitto_sub -h h -p 1883 -i"
        f" 'mqbridge-spark-{spool.id}' -t x -E ends it); remove {spool.directory}/sessions.json when that is done"
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
