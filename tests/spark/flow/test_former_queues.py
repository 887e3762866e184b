"""A pipeline whose queue was changed while its spool had messages: they are an error, listed, put back, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli.pipeline import _note_unread
from bridge.cli.program import program
from bridge.config.document import load
from bridge.spark.environment import environment_of
from tests.helpers.mosquitto import Mosquitto, publish
from tests.spark.flow.conftest import Bench
from tests.spark.test_spool_return import take

TEXT = """
pipelines:
  events:
    from: {mq: {queue: $queue}, options: {failOnDataLoss: $fails}}
    to: {mq: {queue: $out}}
    checkpoint: $directory
"""


def mqbridge(bench: Bench, *words: object) -> str:
    """Run a command that must succeed, and return its output."""
    place = ("--config", bench.file, "--data-dir", bench.queues.directory)
    result = CliRunner().invoke(program, [*map(str, words), *map(str, place)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def former(bench: Bench) -> tuple[str, str, Path]:
    """A queue with three messages in the spool of the pipeline, which now reads another queue, its target and its
    directory.
    """
    queue, out, directory = bench.queues.queue(), bench.queues.queue(), bench.directory / "events"
    bench.write(TEXT, queue=queue, out=out, directory=directory, fails="true")
    bench.queues.put(queue, b"0")
    bench.run()
    bench.queues.put(queue, b"1", b"2", b"3")
    take(bench.queues, queue, directory / "spool")
    bench.write(TEXT, queue=bench.queues.queue(), out=out, directory=directory, fails="true")
    return queue, out, directory


def test_the_pipeline_is_rejected_until_the_messages_are_put_back(bench: Bench, former: tuple[str, str, Path]) -> None:
    queue, out, _ = former
    assert bench.runner("events", attempts=8).run() == ["events"]
    assert f"stopped: spool {bench.directory / 'events' / 'spool'} has 3 messages of {queue}" in bench.lines[-1]
    records: list[dict[str, Any]] = json.loads(mqbridge(bench, "pipeline", "spool", "list", "-o", "json"))
    assert [(record["source"], record["read"], record["messages"]) for record in records if record["messages"]] == [
        (queue, False, 3)
    ]
    assert f"{queue} no" in " ".join(mqbridge(bench, "pipeline", "spool", "list").split())
    (details,) = json.loads(mqbridge(bench, "pipeline", "show", "-o", "json"))
    assert (details["spool_messages"], details["unread_messages"]) == (3, 3)
    assert f"3 messages of {queue}" in mqbridge(bench, "pipeline", "show")
    assert "put 3 messages" in mqbridge(bench, "pipeline", "spool", "return", queue, "--yes")
    bench.run("events")
    assert (bench.queues.bodies(queue), bench.queues.bodies(out)) == ([b"1", b"2", b"3"], [b"0"])
    (details,) = json.loads(mqbridge(bench, "pipeline", "show", "-o", "json"))
    assert (details["spool_messages"], details["unread_messages"]) == (0, 0)


@pytest.mark.parametrize(("fails", "then"), [("true", "it does not start"), ("false", "they stay there")])
def test_a_check_notes_the_messages(
    fails: str, then: str, bench: Bench, former: tuple[str, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`pipeline check` would stop the Spark session of the tests."""
    queue, out, directory = former
    bench.write(TEXT, queue=bench.queues.queue(), out=out, directory=directory, fails=fails)
    environment = environment_of(load(bench.file), bench.file, bench.queues.directory)
    _note_unread(bench.plan("events", reads=False), environment)
    assert capsys.readouterr().out == (
        f"note: pipeline events: its spool has 3 messages of {queue}, which it no longer reads, so {then}; hint: mqbridge"
        f" pipeline spool return {queue}\n"
    )


def test_the_queue_is_read_again(bench: Bench, former: tuple[str, str, Path]) -> None:
    queue, out, directory = former
    bench.write(TEXT, queue=queue, out=out, directory=directory, fails="true")
    bench.run("events")
    assert bench.queues.bodies(out) == [b"0", b"1", b"2", b"3"]


def test_without_fail_on_data_loss_the_pipeline_runs(bench: Bench, former: tuple[str, str, Path]) -> None:
    queue, out, directory = former
    bench.write(TEXT, queue=bench.queues.queue(), out=out, directory=directory, fails="false")
    bench.run("events")
    (details,) = json.loads(mqbridge(bench, "pipeline", "show", "-o", "json"))
    assert (bench.queues.bodies(out), details["unread_messages"]) == ([b"0"], 3)
    records = json.loads(mqbridge(bench, "pipeline", "spool", "list", "-o", "json"))
    assert [record["messages"] for record in records if record["source"] == queue] == [3]


def test_a_removed_pipeline_is_listed(bench: Bench, former: tuple[str, str, Path]) -> None:
    """Its spool is no longer in the configuration, so the directory names it."""
    queue, _, directory = former
    listed = mqbridge(bench, "pipeline", "spool", "list", "--spool", directory / "spool")
    assert queue in listed
    assert "put 3 messages" in mqbridge(
        bench, "pipeline", "spool", "return", queue, "--yes", "--spool", directory / "spool"
    )


SOURCES = """
links: {b: {host: 127.0.0.1, port: $port}}
pipelines:
  events:
    from: {$from}
    schema: {v: int}
    select: SELECT payload:v AS v FROM input
    to: {mq: {queue: $out}}
    checkpoint: $directory
"""


def test_a_link_replaces_the_queue_and_the_queue_replaces_the_link(bench: Bench, broker: Mosquitto) -> None:
    """A spool without unread messages does not stop the pipeline, whatever its source was."""
    queue, out, directory = bench.queues.queue(), bench.queues.queue(), bench.directory / "events"

    def run(source: str) -> None:
        bench.write(SOURCES, **{"from": source}, port=broker.port, out=out, directory=directory)
        bench.run("events")

    from_queue, from_link = f"mq: {{queue: {queue}}}", "mqtt: replaced/#, link: b, options: {qos: 1}"
    bench.queues.put(queue, b'{"v": 1}')
    run(from_queue)
    run(from_link)  # creates the session
    for number, source in enumerate((from_link, from_queue, from_link), 2):
        if source == from_link:
            publish(broker.port, "replaced/a", f'{{"v": {number}}}', qos=1)
        else:
            bench.queues.put(queue, f'{{"v": {number}}}'.encode())
        run(source)
    assert bench.queues.bodies(out) == [f'{{"v":{number}}}'.encode() for number in range(1, 5)]


def test_a_link_that_replaces_a_queue_whose_messages_were_lost(
    bench: Bench, former: tuple[str, str, Path], broker: Mosquitto
) -> None:
    """A missing file of the spool is noticed, although only the queue manager has the state of the spool."""
    queue, out, directory = former
    for file in (directory / "spool").rglob("*.arrow"):
        file.unlink()
    bench.write(SOURCES, **{"from": "mqtt: replaced/#, link: b"}, port=broker.port, out=out, directory=directory)
    assert bench.runner("events").run() == ["events"]
    assert f"so messages of {queue} are lost" in bench.lines[-1]


def test_a_link_that_replaces_a_queue_after_a_kill(
    bench: Bench, former: tuple[str, str, Path], broker: Mosquitto
) -> None:
    """The query was killed before the unit of work of its last segment was committed, so the messages are on the queue."""
    queue, out, directory = former
    segment = max((directory / "spool").rglob("*.arrow"))
    number, rows, rest = segment.name.split("-", 2)
    (segment.parent / f"{int(number) + 1:012d}-{rows}-{rest}").write_bytes(segment.read_bytes())
    bench.write(SOURCES, **{"from": "mqtt: replaced/#, link: b"}, port=broker.port, out=out, directory=directory)
    assert bench.runner("events").run() == ["events"]
    # The additional segment counts until the queue manager is asked.
    assert f"{3 + int(rows)} messages of {queue}" in bench.lines[-1]
    assert "put 3 messages" in mqbridge(bench, "pipeline", "spool", "return", queue, "--yes")
    bench.run("events")
    assert bench.queues.bodies(queue) == [b"1", b"2", b"3"]


def test_a_link_and_a_queue_of_the_same_name(bench: Bench, former: tuple[str, str, Path], broker: Mosquitto) -> None:
    queue, out, directory = former
    for place, failed in ((directory, ["events"]), (directory.with_name("other"), [])):
        bench.write(SOURCES, **{"from": f"mqtt: {queue}, link: b"}, port=broker.port, out=out, directory=place)
        assert bench.runner("events").run() == failed
    assert any("is a spool of the source mq, not mqtt; hint: start with a new spool" in line for line in bench.lines)


def test_a_link_is_rejected_while_the_spool_has_messages_of_the_queue(
    bench: Bench, former: tuple[str, str, Path], broker: Mosquitto
) -> None:
    queue, out, directory = former
    bench.write(SOURCES, **{"from": "mqtt: replaced/#, link: b"}, port=broker.port, out=out, directory=directory)
    assert bench.runner("events").run() == ["events"]
    assert f"stopped: spool {directory / 'spool'} has 3 messages of {queue}" in bench.lines[-1]
    assert "put 3 messages" in mqbridge(bench, "pipeline", "spool", "return", queue, "--yes")
    bench.run("events")
    assert bench.queues.bodies(queue) == [b"1", b"2", b"3"]
