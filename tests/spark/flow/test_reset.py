"""Checkpoints that are given up, and SELECTs that do not go on with the state of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bridge.spark.mqtt.spool import Spool
from bridge.spark.mqtt.spool_contents import spools_below
from tests.spark.mqtt.test_spool import append

from bridge.config import load
from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.spark.flow.administration.reset import Reset
from bridge.spark.flow.environment import environment_of
from bridge.spark.flow.mistake import Mistake
from bridge.spark.flow.runner import Runner
from bridge.spark.mq.queue_manager import APPLICATION_NAME
from tests.spark.conftest import Queues
from tests.spark.faults import Fault, fault, is_marker, is_removal
from tests.spark.flow.conftest import Bench

WINDOW = 'window(put_time, "1 hour")'


def reset_of(bench: Bench, name: str) -> Reset:
    return Reset(name, load(bench.file).pipelines[name], bench.plan(name).environment)


def test_a_select_with_other_state(bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    text = "pipelines: {hours: {from: {mq: {queue: $source}}, payload: bytes, to: {mq: {queue: $target}}, select: '$select'}}"

    def write(what: str, by: str = WINDOW) -> None:
        select = f"SELECT {what} FROM input GROUP BY {by}" if by else f"SELECT {what} FROM input"
        bench.write(text, source=source, target=target, select=select)

    write(f"{WINDOW}.start AS hour, count(*) AS n")
    bench.queues.put(source, b"1", b"2")
    bench.run()
    write(f"{WINDOW}.start AS at, count(*) AS messages")  # the state is the same
    bench.plan("hours")
    for what, by, words in (
        (f"{WINDOW}.start AS hour, count(*) AS n, max(priority) AS p", WINDOW, "new value_schema=.*max"),
        (f"queue, {WINDOW}.start AS hour, count(*) AS n", f"queue, {WINDOW}", "new key_schema=.*queue"),
        ("body", "", r"stateStoreSave.* in current batch: \[\]"),
    ):
        write(what.replace("priority", "md.Priority"), by)
        with pytest.raises(Mistake, match=words) as refused:
            bench.plan("hours")
        assert refused.value.location == ("select",) and "mqbridge pipeline reset hours" in refused.value.expected
    write(f"{WINDOW}.start AS hour, count(*) AS n")
    reset = reset_of(bench, "hours")
    write("body", "")
    assert reset.needed and [line.split()[:2] for line in reset.losses()] == [["the", "numbers"], ["the", "state"]]
    reset.do()
    bench.queues.put(source, b"3")
    bench.run()
    assert bench.queues.bodies(target) == [b"3"]
    write(f"{WINDOW}.start AS hour, count(*) AS n")
    with pytest.raises(Mistake, match="one with state, and a checkpoint without"):
        bench.plan("hours")


def stopped_by(bench: Bench, wanted: Callable[[str, list[Any]], bool]) -> None:
    """Run, and have a connection lost at the first verb that is wanted; then the pipeline is stopped."""
    runners: list[Runner] = []
    step = Fault(wanted, action=lambda _: runners[0].stop())
    runners.append(bench.runner())
    with fault(APPLICATION_NAME, step):
        assert runners[0].run() == []
    assert step.happened and "stopped, after it had failed" in bench.lines[-1]


def test_a_pipeline_that_browses_no_more(bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    text = "pipelines: {p: {from: {mq: {queue: $source}$options}, payload: bytes, select: $select, to: {mq: {queue: $to}}}}"

    def write(options: str) -> None:
        bench.write(text, source=source, to=target, select="'SELECT body FROM input'", options=options)

    write(", options: {browse: true}")
    bench.queues.put(source, b"1", b"2")
    bench.run()
    assert any("which messages of its queue it has browsed" in line for line in reset_of(bench, "p").losses())
    write("")
    assert bench.runner().run() == ["p"] and "the checkpoint is of a query that browses" in bench.lines[-1]
    reset_of(bench, "p").do()
    assert bench.queues.depth(source) == 2
    bench.run()
    assert (bench.queues.depth(source), bench.queues.bodies(target)) == (0, [b"1", b"2"] * 2)


def test_another_source_than_that_of_the_checkpoint(queues: Queues, tmp_path: Path) -> None:
    """The very reason for a reset: offsets of the old source are none of the new one."""
    file = tmp_path / "bridge.yaml"
    sources = {"mq: {queue: Q}": {"version": 2, "number": 1, "partitions": 1, "messages": {}, "reader": ""}}
    sources |= {"mqtt: a/#": {"a/#": ["spool", 3]}, f"archive: {tmp_path}": {"logOffset": 0}}
    for source in sources:
        for other, offset in sources.items():
            one = f"{{from: {{{source}}}, select: SELECT body FROM input, to: {{mq: {{queue: R}}}}, checkpoint: one}}"
            file.write_text(f"pipelines: {{one: {one}}}")
            text = f"v1\n{{}}\n{msgspec.json.encode(offset).decode()}"
            for name in ("offsets/0", "offsets/1", "commits/0"):
                path = tmp_path / "one" / "checkpoint" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            configuration = load(file)
            reset = Reset("one", configuration.pipelines["one"], environment_of(configuration, file, queues.directory))
            lines = [*reset.losses()]
            assert any("from another source" in line for line in lines) == (source != other)
            if source != other:
                assert reset.do() == 0


def test_what_a_crash_has_left(bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    bench.write(
        "pipelines: {move: {from: {mq: {queue: $source}}, payload: bytes, to: {mq: {queue: $target}}, select: $select}}",
        source=source,
        target=target,
        select="'SELECT body, md FROM input'",
    )
    bodies = [b"%d" % number for number in range(5)]
    bench.queues.put(source, *bodies[:3])
    stopped_by(bench, lambda verb, request: verb == "MQGET" and is_removal(request) and any(request[1]["MsgId"]))
    assert bench.queues.depth(source) == bench.queues.depth(target) == 3  # the batch is done, and not removed
    reset = reset_of(bench, "move")
    assert [line.split()[:2] for line in reset.losses()] == [["the", "numbers"]]
    kept = bench.queues.depth(MAPPING_STATE_QUEUE)
    assert reset.do() == 2  # the anchor and the state of its partition, by which the writer knows the batch
    assert bench.queues.depth(MAPPING_STATE_QUEUE) == kept - 2
    assert bench.queues.depth(source) == 0 and not reset_of(bench, "move").needed
    bench.queues.put(source, *bodies[3:])
    stopped_by(bench, lambda verb, request: verb == "MQPUT" and not is_marker(request))
    reset = reset_of(bench, "move")
    assert "batch 0 was begun and is not done (2 messages): it is read again" in next(reset.losses())
    reset.do()
    bench.run()
    assert sorted(bench.queues.bodies(target)) == bodies and bench.queues.depth(source) == 0


def test_publications_that_no_batch_has_stay(queues: Queues, tmp_path: Path) -> None:
    """The checkpoint is a batch further than the spool: what is in that batch goes, and the rest is for the next run."""
    file = tmp_path / "bridge.yaml"
    one = "{from: {mqtt: a/#, link: l}, select: SELECT body FROM input, to: {mq: {queue: R}}, checkpoint: one}"
    file.write_text(f"links: {{l: {{host: h}}}}\npipelines: {{one: {one}}}")
    spool = Spool(tmp_path / "one" / "spool", "a/#")
    append(spool, *[b"x"] * 5)
    spool.commit(1)
    spool.close()
    offset = msgspec.json.encode({"a/#": [spool.id, 3]}).decode()
    for name, text in (("offsets/0", f"v1\n{{}}\n{offset}"), ("commits/0", "v1\n{}"), ("metadata", '{"id": "q"}')):
        path = tmp_path / "one" / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    configuration = load(file)
    reset = Reset("one", configuration.pipelines["one"], environment_of(configuration, file, queues.directory))
    assert "kept, for the next run: up to 4 publications of a/#" in [*reset.losses()][-1]
    assert reset.do() == 0
    (left,) = spools_below(tmp_path / "one" / "spool")
    assert left.waiting == 2 and not (tmp_path / "one" / "checkpoint").exists()
