"""Pipelines that are ended, that fail, and that are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.link import LinkConfig
from bridge.files import lock
from bridge.link.connection import LinkConnection
from bridge.spark.flow.administration.lag import waiting
from bridge.spark.flow.administration.request import ask
from bridge.spark.flow.administration.status import LOCK, read_status, runs
from bridge.spark.flow.progress import Batch
from bridge.spark.flow.runner import Runner
from bridge.spark.flow.sink import BatchFailed, BatchWriter, Written
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.telemetry.message import Publication
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE, until
from tests.spark.conftest import ROOT
from tests.spark.faults import Fault, fault, is_marker, kill_driver
from tests.spark.flow.conftest import Bench

MOVE = """
    queue_manager: {data_directory: $data}
    pipelines:
      move:
        from: {mq: {queue: $source}}
        payload: bytes
        select: SELECT body, md FROM input
        to: {mq: {queue: $target}}
        trigger: 0
        batch: 10
        checkpoint: $checkpoint
"""


def queues_of(bench: Bench, text: str = MOVE) -> tuple[str, str]:
    """A source and a target, and a pipeline between them."""
    source, target = bench.queues.queue(), bench.queues.queue()
    bench.write(
        text, source=source, target=target, data=bench.queues.directory, checkpoint=bench.directory / "checkpoint"
    )
    return source, target


BODIES = [b"%03d" % number for number in range(100)]


def test_a_pipeline_that_is_stopped_ends_what_it_has_begun(bench: Bench) -> None:
    source, target = queues_of(bench)
    bench.queues.put(source, *BODIES)
    runners: list[Runner] = []

    def seen(batch: Batch) -> None:
        bench.batches.append(batch)
        runners[0].stop()

    runners.append(bench.runner(once=False, seen=seen))
    assert runners[0].run() == []
    moved, left = bench.queues.bodies(target), bench.queues.depth(source)
    assert moved and left  # there was more to do
    # Nothing is at both places, nor under way.
    assert len(moved) + left == len(BODIES)
    assert bench.lines[-1] == "move: stopped"
    bench.run()
    assert sorted(moved + bench.queues.bodies(target)) == BODIES
    # Progress is told batch by batch, with what waits behind.
    first, last = bench.batches[0], bench.batches[-1]
    assert (first.waiting, last.waiting, last.oldest) == (len(BODIES) - 10, 0, None)
    assert first.oldest is not None and re.search(r"s, 90 waiting, the oldest [0-9]+ s$", str(first))
    assert "the oldest 3 min" in str(msgspec.structs.replace(first, oldest=215.0))
    assert sum(batch.rows for batch in bench.batches) == len(BODIES)


def test_a_pipeline_that_browses_leaves_the_messages_where_they_are(bench: Bench) -> None:
    source, target = queues_of(bench)
    text = bench.file.read_text(encoding="utf-8")
    bench.file.write_text(text.replace(f"{source}}}", f"{source}}}, options: {{browse: true}}"), encoding="utf-8")
    bench.queues.put(source, *BODIES[:25])
    runners: list[Runner] = []
    runners.append(bench.runner(once=False, seen=lambda batch: runners[0].stop()))
    assert runners[0].run() == [] and bench.lines[-1] == "move: stopped", bench.lines
    bench.run()
    assert (bench.queues.depth(source), bench.queues.bodies(target)) == (25, BODIES[:25])
    made = bench.plan("move")
    assert waiting("move", made.config, made.environment) is None  # CURDEPTH does not tell


#: For a message it computes half a second or so.
LONG = MOVE.replace(
    "FROM input", "FROM input WHERE aggregate(sequence(1, 2000000 + length(body)), 0L, (a, x) -> a + x % 7) > 0"
)
CUT = "move: stopped in the middle of a batch, which is run again at the next start"


def test_a_pipeline_that_is_stopped_in_the_middle_of_a_batch(bench: Bench) -> None:
    source, target = queues_of(bench, LONG)
    bench.queues.put(source, *BODIES[:5])
    runner = bench.runner(patience=0.0)
    planned = bench.plan("move").directory / "checkpoint" / "offsets" / "0"

    def stop() -> None:
        until(planned.exists)
        runner.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    assert runner.run() == [] and bench.lines[-1] == CUT
    stopping.join()
    bench.run()
    assert sorted(bench.queues.bodies(target)) == BODIES[:5] and bench.queues.depth(source) == 0


class Refusing:
    """A destination that says much of what ends a batch."""

    def write_batch(self, frame: object, batch: int) -> Written:
        raise ValueError("x" * 100_000)


def test_spark_is_told_little_of_a_batch_that_fails() -> None:
    """By a long text, such as a stack, its own thread fails when the query is stopped: Java's stack overflows."""
    writer = BatchWriter([Refusing()])  # type: ignore[list-item]
    with pytest.raises(BatchFailed) as failed:
        writer(None, 0)  # type: ignore[arg-type]
    assert len("".join(traceback.format_exception(failed.value))) < 1_000 and isinstance(writer.error, ValueError)


def test_a_pipeline_that_fails_is_started_again(bench: Bench) -> None:
    source, target = queues_of(bench)
    bench.queues.put(source, *BODIES[:30])
    bench.queues.mqsc(f"ALTER QLOCAL('{target}') PUT(DISABLED)")
    # What a person can mend is no reason to give up: one attempt is for what nobody understands.
    lines = bench.run_mended(f"ALTER QLOCAL('{target}') PUT(ENABLED)")
    assert "MQRC_PUT_INHIBITED" in lines[1] and "PUT(ENABLED)" in lines[1] and lines[-1] == "move: done"
    status = read_status(bench.plan("move").directory)
    assert status is not None and status.last_error is not None and status.state == "done"
    assert "MQRC_PUT_INHIBITED" in status.last_error.what and "PUT(ENABLED)" in status.last_error.remedy
    assert sorted(bench.queues.bodies(target)) == BODIES[:30]


def test_a_pipeline_that_goes_on_failing_for_reasons_that_nobody_knows_is_given_up(bench: Bench) -> None:
    source, _ = queues_of(bench)
    bench.queues.put(source, *BODIES[:3])
    offsets = bench.directory / "checkpoint" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("this is no offset")
    assert bench.runner(attempts=2).run() == ["move"]
    assert any("tried again in" in line for line in bench.lines)
    assert bench.lines[-1].startswith("move: given up, and needs a person: ")
    assert bench.queues.depth(source) == 3


def test_a_pipeline_that_another_process_runs_is_not_started(bench: Bench) -> None:
    source, _ = queues_of(bench)
    bench.queues.put(source, *BODIES[:3])
    directory = bench.plan("move").directory
    directory.mkdir(parents=True)
    with lock(directory / LOCK):
        assert bench.runner().run() == ["move"]
    said = f"process {os.getpid()} runs it already ({directory / LOCK}); end that first"
    assert bench.lines == [f"move: not started: {said}"]
    bench.run()
    assert bench.queues.depth(source) == 0


def test_another_process_stops_one_and_has_the_other_drained(bench: Bench) -> None:
    queues = [bench.queues.queue() for _ in range(4)]
    one = 'from: {mq: {queue: %s}}, payload: bytes, select: "SELECT body, md FROM input", to: {mq: {queue: %s}}, batch: 10'
    pipelines = f"a: {{{one % (queues[0], queues[1])}, trigger: 0}}, b: {{{one % (queues[2], queues[3])}, trigger: 0}}"
    bench.write(f"pipelines: {{{pipelines}}}")
    a, b = bench.plan("a").directory, bench.plan("b").directory
    bench.queues.put(queues[0], *BODIES)
    bench.queues.put(queues[2], *BODIES[:5])

    def seen(batch: Batch) -> None:
        bench.batches.append(batch)
        if batch.pipeline == "a":
            ask(a, "stop")

    a.mkdir(parents=True)
    ask(a, "drain")  # of a process that is no more: not for this one
    runner = bench.runner(once=False, seen=seen)
    thread = threading.Thread(target=runner.run)
    thread.start()
    until(lambda: "a: stopped" in bench.lines and runs(a) is None)
    status = read_status(a)
    assert status is not None and status.last_batch is not None
    assert status.state == "stopped" and status.until and status.rows_in == status.rows_out == bench.queues.depth(queues[1])
    bench.queues.put(queues[0], b"after the stop")
    left = len(BODIES) - status.rows_in + 1
    assert bench.queues.depth(queues[0]) == left
    until(lambda: any(batch.pipeline == "b" for batch in bench.batches))
    assert runs(b) == str(os.getpid())
    bench.queues.put(queues[2], *BODIES[5:35])
    ask(b, "drain")
    thread.join(PATIENCE)
    assert bench.lines[-1] == "b: done" and "b: stopped, to be drained" in bench.lines
    assert bench.queues.depth(queues[0]) == left
    assert sorted(bench.queues.bodies(queues[3])) == BODIES[:35]
    status = read_status(b)
    assert status is not None and (status.state, status.rows_out, status.last_error) == ("done", 35, None)


def started(bench: Bench, name: str = "move") -> subprocess.Popen[bytes]:
    """`mqbridge pipeline run`, with its JVM in a process group of its own. (Python workers leave that group.)"""
    command: list[str | Path] = [Path(sys.executable).with_name("mqbridge"), "pipeline", "run", name]
    command += ["--config", bench.file, "--master", "local[1]"]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_in_the_middle_and_ended_by_sigterm(bench: Bench) -> None:
    source, target = queues_of(bench)
    bench.queues.put(source, *BODIES)
    process = started(bench)
    # Units of work with messages, and the removals of those that are done, by turns: some way into it.
    committed = Fault(lambda verb, request: verb == "MQCMIT", 6, action=lambda _: kill_driver(process.pid), after=True)
    with fault(APPLICATION_NAME, committed):
        assert process.wait(PATIENCE) == -signal.SIGKILL
    process.communicate()
    assert committed.happened and 0 < bench.queues.depth(target) < len(BODIES)
    process = started(bench)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if bench.queues.depth(target) == len(BODIES):
            break
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read().decode()
    assert process.wait(PATIENCE) == 0, lines
    assert any(": batch " in line and "in, " in line for line in (*lines, rest)) and "move: stopped" in rest
    assert sorted(bench.queues.bodies(target)) == BODIES
    assert bench.queues.depth(source) == 0


#: A driver is started, on what may be a busy machine.
DRIVER_PATIENCE = 150


@pytest.mark.slow
@pytest.mark.timeout(DRIVER_PATIENCE * 2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle_of_a_long_batch_it_says_no_more_than_that(bench: Bench, number: int) -> None:
    source, _ = queues_of(bench, LONG.replace("2000000", "20000000"))
    bench.queues.put(source, *BODIES)
    process = started(bench)
    until((bench.directory / "checkpoint" / "checkpoint" / "offsets" / "0").exists)
    process.send_signal(number)
    _, told = process.communicate(timeout=DRIVER_PATIENCE)
    lines = told.decode().splitlines()
    assert (process.returncode, lines[0], lines[-1]) == (0, "starting Spark for move", CUT)
    assert len(lines) == 3 and lines[1].startswith("move: started; ")


def ended(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process that ends; what it has told where it does not."""
    try:
        process.communicate(timeout=DRIVER_PATIENCE)
    except subprocess.TimeoutExpired:
        kill_driver(process.pid)
        pytest.fail(f"it goes on: {process.communicate()[1].decode()}")
    return process.returncode


#: Verbs of the driver's workers, at the n-th of which it is killed, before it is done or after.
STEPS: list[tuple[str, int, bool]] = [
    ("MQPUT", 5, False),  # some of a batch are put, and nothing is committed
    ("MQCMIT", 2, False),  # the second of its units of work (the first has dead letters) is whole, and not committed
    ("MQCMIT", 1, True),  # it is committed, and Spark does not know
]


@pytest.mark.slow
@pytest.mark.timeout(DRIVER_PATIENCE * 4)
def test_from_mqtt_to_mq_with_the_driver_killed(bench: Bench, broker: Mosquitto) -> None:
    """Whatever is killed when, each publication of QoS 2 is one message, or one dead letter."""
    target, dead = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        queue_manager: {data_directory: $data}
        links: {plant: {host: 127.0.0.1, port: $port}}
        pipelines:
          in:
            from: {mqtt: killed/#, link: plant}
            select: SELECT payload:n::int AS n FROM input
            to: {mq: {queue: $target}}
            dead_letters: {queue: $dead}
            trigger: 0
            batch: 20
            checkpoint: state
        """,
        port=broker.port,
        data=bench.queues.directory,
        target=target,
        dead=dead,
    )
    bench.run()  # the session at the broker begins
    sender = LinkConnection("test", LinkConfig(host="127.0.0.1", port=broker.port), "killed-sender", clean=True)
    sender.start()
    assert sender.wait_connected(PATIENCE)
    expected: list[bytes] = []
    bad: list[bytes] = []
    for number, (verb, count, after) in enumerate(STEPS):
        new = [b'{"n":%d}' % n for n in range(number * 100, number * 100 + 30)]
        wrong = [b"no JSON %d" % number]
        publications = [Publication(topic="killed/x", payload=one, qos=2) for one in (*wrong, *new)]
        assert sender.publish(publications) == {}
        expected += new
        bad += wrong
        killed: list[subprocess.Popen[bytes]] = []

        def wanted(asked: str, request: list[Any], verb: str = verb) -> bool:
            return asked == verb and not (verb == "MQPUT" and is_marker(request))

        step = Fault(wanted, count, after=after, action=lambda _: kill_driver(killed[0].pid))  # noqa: B023
        with fault(APPLICATION_NAME, step):
            killed.append(started(bench, "in"))
            assert ended(killed[0]) == -signal.SIGKILL
        assert step.happened
    sender.stop(PATIENCE)
    bench.run()
    assert sorted(bench.queues.bodies(target)) == sorted(expected)
    assert sorted(body[-9:] for body in bench.queues.bodies(dead)) == bad


def test_dead_letters_of_a_batch_that_is_run_again_come_once(bench: Bench) -> None:
    source, target, dead = (bench.queues.queue() for _ in range(3))
    bench.write(
        """
        pipelines:
          once:
            from: {mq: {queue: $source}}
            select: SELECT payload:n::int AS n FROM input
            to: {mq: {queue: $target}, archive: table}
            dead_letters: {queue: $dead}
        """,
        source=source,
        target=target,
        dead=dead,
    )
    bench.queues.put(source, b'{"n": 1}', b"bad", b'{"n": 2}')
    # The dead letter is committed, and the message behind it is not: the connection breaks, and the query with it.
    second = Fault(lambda verb, request: verb == "MQCMIT", 2)
    with fault(APPLICATION_NAME, second):
        assert bench.runner(attempts=2).run() == []
    assert second.happened and any("tried again in" in line for line in bench.lines)
    assert sorted(bench.queues.bodies(target)) == [b'{"n":1}', b'{"n":2}']
    assert len(bench.queues.bodies(dead)) == 1 and bench.queues.depth(source) == 0
    assert len(list((bench.directory / "table").glob("*/*/*.parquet"))) == 1
