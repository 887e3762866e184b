"""Dead letters of pipelines beyond `limits.dead_letter_bytes` and `dead_letter_total`."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import load
from bridge.config.models import LimitsConfig
from bridge.config.operations import AuditLogConfig
from bridge.config.problems import ConfigurationError
from bridge.mq.dead_letter import characters
from bridge.security import audit_log
from bridge.service import problems
from bridge.service.problems import PipelineDiscards, _of_pipelines
from bridge.spark.administration import read_status
from bridge.spark.dead_letter_limits import DeadLetterLimits
from bridge.spark.environment import LetterCounts
from bridge.wire.mq import decode_mqdlh
from tests.helpers.mosquitto import Mosquitto, publish
from tests.helpers.patience import until
from tests.spark.flow.conftest import Bench

#: how a message becomes a dead letter -> SELECT, and the body of such a message
WAYS = {
    "payload": ("SELECT body FROM input", b"no JSON"),
    "name": ("SELECT payload:q::string AS queue, body FROM input", b'{"q": "SYSTEM.A"}'),
}
CONFIG = """
limits: {dead_letter_bytes: $bytes}
pipelines:
  limited:
    from: {mq: {queue: $queue}}
    payload: json
    select: "$select"
    to: {mq: $mq}
    dead_letters: {queue: $dead}
    dead_letters_full: $full
"""


def write(bench: Bench, way: str, **names: Any) -> tuple[str, str, str]:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    select, _ = WAYS[way]
    mq = f"{{queue: {out}}}" if way == "payload" else ""
    text = CONFIG if way == "payload" else CONFIG.replace("    payload: json\n", "")
    bench.write(
        text, **{"queue": queue, "select": select, "mq": mq, "dead": dead, "bytes": 1024, "full": "null", **names}
    )
    return queue, out, dead


def good(out: str) -> bytes:
    return json.dumps({"q": out}).encode()


@pytest.mark.parametrize("way", WAYS)
def test_a_pipeline_pauses_and_continues_after_dead_letters_are_removed(bench: Bench, way: str) -> None:
    queue, out, dead = write(bench, way)
    _, bad = WAYS[way]
    bench.queues.put(queue, bad, bad, good(out))  # a batch may exceed the limit
    bench.run()
    assert len(bench.queues.bodies(out)) == 1
    bench.queues.put(queue, bad, good(out))
    thread = threading.Thread(target=bench.runner().run)
    thread.start()
    until(lambda: any("next attempt" in line for line in bench.lines), lambda: bench.lines)
    (line,) = [line for line in bench.lines if "next attempt" in line][:1]
    assert f"too many dead letters of the pipeline are on queue {dead} (limits.dead_letter_bytes)" in line
    assert "hint: retry or delete some of them (mqbridge dlq list), or set dead_letters_full: discard" in line
    status = read_status(bench.directory / "state" / "limited")
    assert status is not None and status.state == "failing"
    letters = bench.queues.take(dead)
    assert {characters(decode_mqdlh(letter.data).PutApplName) for letter in letters} == {"pipeline limited"}
    assert len(letters) == 2
    thread.join()
    assert len(bench.queues.bodies(dead)) == 1
    assert len(bench.queues.bodies(out)) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_pipeline_discards_further_dead_letters(bench: Bench, way: str) -> None:
    queue, out, dead = write(bench, way, full="discard")
    _, bad = WAYS[way]
    for _ in range(3):
        bench.queues.put(queue, bad, bad, good(out))
        bench.run()
    assert len(bench.queues.bodies(out)) == 3
    assert len(bench.queues.bodies(dead)) == 2
    assert [(batch.dead_letters, batch.discarded) for batch in bench.batches] == [(2, 0), (0, 2), (0, 2)]
    assert any("2 discarded, because too many dead letters are on the queue" in line for line in bench.lines)
    status = read_status(bench.directory / "state" / "limited")
    assert status is not None and status.discarded == 2 and time.time() - status.discarded_at < 60


def test_pipelines_from_topics_discard_by_default(bench: Bench, broker: Mosquitto) -> None:
    out, dead = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        limits: {dead_letter_bytes: 0}
        links: {b: {host: 127.0.0.1, port: $port}}
        pipelines:
          one: {from: {mqtt: limited/+, link: b}, schema: {n: int}, to: {mq: {queue: $out}}, dead_letters: {queue: $dead}}
        """,
        port=broker.port, out=out, dead=dead,
    )  # fmt: skip
    bench.run()  # creates the session
    publish(broker.port, "limited/a", "no JSON", qos=1)
    publish(broker.port, "limited/a", '{"n": 1}', qos=1)
    bench.run()
    assert len(bench.queues.bodies(out)) == 1
    assert bench.queues.bodies(dead) == []
    assert sum(batch.discarded for batch in bench.batches) == 1


def test_a_mapping_in_a_pipeline(bench: Bench) -> None:
    queue, dead = bench.queues.queue(), bench.queues.queue()
    archive = bench.directory / "archive"
    rows = [(b'{"n": 1}', "t/a"), (b"no JSON", "t/b")]
    bench.spark.createDataFrame(rows, "payload binary, topic string").write.parquet(str(archive))
    bench.write(
        """
        limits: {dead_letter_bytes: 0}
        mappings:
          m: {enabled: false, from: {mqtt: "t/#"}, to: {queue: $queue}, payload: {type: json}}
        pipelines:
          one: {from: {archive: $archive}, mapping: m, dead_letters: {queue: $dead}, dead_letters_full: discard}
        """,
        queue=queue, dead=dead, archive=archive,
    )  # fmt: skip
    bench.run()
    assert len(bench.queues.bodies(queue)) == 1
    assert bench.queues.bodies(dead) == []
    assert [(batch.dead_letters, batch.discarded) for batch in bench.batches] == [(0, 1)]


def test_only_messages_of_the_bridge_and_its_pipelines_count_towards_the_total(bench: Bench) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    text = CONFIG.replace("dead_letter_bytes: $bytes", "dead_letter_total: 1024")
    select, _ = WAYS["payload"]
    bench.write(text, queue=queue, select=select, mq=f"{{queue: {out}}}", dead=dead, full="discard")
    bench.queues.put(dead, b"of an application", b"of an application", b"of an application")
    bench.queues.put(queue, b"no JSON", b"no JSON")
    bench.run()
    bench.queues.put(queue, b"no JSON")
    bench.run()
    assert [(batch.dead_letters, batch.discarded) for batch in bench.batches] == [(2, 0), (0, 1)]
    assert len(bench.queues.bodies(dead)) == 5


def test_mistakes_are_reported(bench: Bench) -> None:
    file = bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: Q}}
            to: {mq: {queue: R}}
            dead_letters: {archive: a}
            dead_letters_full: pause
          two: {from: {mq: {queue: Q2}}, to: {mq: {queue: R}}, dead_letters_full: wait}
        """
    )
    with pytest.raises(ConfigurationError) as refused:
        load(file)
    lines = str(refused.value)
    assert f"{file}:7:" in lines and "no dead_letters_full, because an archive of dead letters has no limit" in lines
    assert f"{file}:8:" in lines and "pause or discard" in lines


def test_discards_are_a_problem_and_an_audit_record(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, _, _ = write(bench, "payload", full="discard", bytes=0)
    bench.queues.put(queue, b"no JSON")
    bench.run()
    text = bench.file.read_text().replace("    from:", f"    checkpoint: {bench.directory}/state/limited\n    from:")
    bench.file.write_text(text)
    discards, file = PipelineDiscards(), tmp_path / "audit"
    audit_log.begin(AuditLogConfig(file=file))
    try:
        for _ in range(2):
            (problem,) = _of_pipelines(load(bench.file), discards)
        # Further ones are in the record of the next minute.
        bench.queues.put(queue, b"no JSON", b"no JSON")
        bench.run()
        _of_pipelines(load(bench.file), discards)
        assert file.read_text().count('"messages discarded"') == 1
        monkeypatch.setattr(problems, "QUIET_PERIOD", 0.0)
        _of_pipelines(load(bench.file), discards)
    finally:
        audit_log.end()
    records = [json.loads(line) for line in file.read_text().splitlines() if '"messages discarded"' in line]
    facts = [(record["event"], record["pipeline"], record["number_since_start"]) for record in records]
    assert facts == [("messages discarded", "limited", number) for number in (1, 2)]
    assert "the payload is not JSON" in records[0]["why"]
    assert (problem.kind, problem.subject, problem.severity) == ("limit", "pipeline limited", "error")
    assert "pipeline limited has discarded 1 message that it cannot process" in problem.what
    assert "the payload is not JSON" in problem.what
    assert "mqbridge dlq list" in problem.remedy


def test_limits_apply_to_later_dead_letters_if_the_queue_cannot_be_browsed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """As for a user without INQ or BROWSE. The pipeline does not stop."""
    counts = LetterCounts(LimitsConfig(dead_letter_bytes=1024), "mqbridge")
    limits = DeadLetterLimits("limited", "NO.SUCH.QUEUE", bench.queues.options, counts, "discard")
    assert [limits.admit(1, 600), limits.admit(1, 600), limits.admit(2, 0)] == [True, False, False]
    assert limits.discarded == 3
    assert [record.getMessage().split()[0] for record in caplog.records].count("MQB9104W") == 1
