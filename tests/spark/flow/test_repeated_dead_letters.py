"""Batches that failed between their rows and their dead letters, and whose settings change before the repetition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from tests.spark.faults import Fault, fault, is_state
from tests.spark.flow.conftest import Bench

TEXT = """
pipelines:
  checked:
    from: {mq: {queue: $queue}}
    schema: {$field: int}
    select: SELECT CAST(body AS STRING) AS body, $ccsid AS ccsid FROM input
    to: $to
    dead_letters: $letters
"""
WINDOWS = """
pipelines:
  checked:
    from: {mq: {queue: $queue}}
    schema: {$field: int}
    select: SELECT count(*) AS n FROM input GROUP BY window(put_time, '1 minute')
    to: $to
    dead_letters: $letters
"""
#: Valid with both schemas, with `n: int` only, and with `m: int` only.
BOTH, N, M = b'{"n": 1, "m": 1}', b'{"n": 1, "m": "no number"}', b'{"n": "no number", "m": 1}'

#: Text that only CCSID 819 or only CCSID 915 contains.
LATIN, CYRILLIC = '{"v": "\u00e9"}', '{"v": "\u0431"}'


class Checked:
    """A pipeline with destinations for rows and dead letters, each of them a queue or an archive."""

    def __init__(self, bench: Bench, to: str = "queue", letters: str = "queue", text: str = TEXT) -> None:
        self.bench = bench
        self.text = text
        self.kinds = {"rows": to, "letters": letters}
        self.queues = {name: bench.queues.queue() for name in ("in", "rows", "letters")}

    def configure(self, field: str, ccsid: int = 1208) -> None:
        """Declare the field `n` or `m` as an int."""
        to, letters = (
            f"{{queue: {self.queues[name]}}}" if kind == "queue" else f"{{archive: {self.bench.directory / name}}}"
            for name, kind in self.kinds.items()
        )
        to = f"{{mq: {to}}}" if self.kinds["rows"] == "queue" else to
        self.bench.write(self.text, queue=self.queues["in"], field=field, ccsid=ccsid, to=to, letters=letters)

    def put(self, *bodies: bytes) -> None:
        self.bench.queues.put(self.queues["in"], *bodies, Format=b"MQSTR   ", CodedCharSetId=1208)

    def fail(self, lost: Fault) -> None:
        """Run, lose the connection to the queue manager, and stop."""
        with fault(APPLICATION_NAME, lost):
            self.stop_at_error()
        assert lost.happened

    def stop_at_error(self) -> None:
        def report(line: str) -> None:
            self.bench.lines.append(line)
            if "next attempt in" in line:
                runner.stop()

        runner = self.bench.runner(report=report)
        assert runner.run() == []
        assert "next attempt in" in self.bench.lines[-1], self.bench.lines

    def bodies(self, name: str) -> list[bytes]:
        """Return the rows or the dead letters, and remove them from their queue."""
        if self.kinds[name] == "queue":
            bodies = self.bench.queues.bodies(self.queues[name])
            return sorted(body[body.index(b"{") :] for body in bodies)
        rows = self.bench.spark.read.parquet(str(self.bench.directory / name)).selectExpr("CAST(body AS BINARY) body")
        return sorted(bytes(row.body) for row in rows.collect())


def at_state(number: int) -> Fault:
    """Return the loss of the connection when a state is put: the first two of a writer, and one per unit of work."""
    return Fault(lambda verb, request: verb == "MQPUT" and is_state(request), number)


def letters_fail(checked: Checked, states: int) -> None:
    """End a run between rows and dead letters, at a state of a writer or (0) by a lost directory."""
    if states:
        checked.fail(at_state(states))
        return
    letters = checked.bench.directory / "letters"
    letters.write_text("no directory")
    checked.stop_at_error()
    letters.unlink()


@pytest.mark.parametrize(
    ("to", "letters", "states"),
    [
        ("queue", "queue", 4),
        ("queue", "archive", 0),
        ("archive", "queue", 1),
    ],
)
def test_dead_letters_belong_to_the_attempt_that_wrote_the_rows(
    to: str, letters: str, states: int, bench: Bench
) -> None:
    checked = Checked(bench, to, letters)
    checked.configure("n")
    checked.put(BOTH, N, M)
    letters_fail(checked, states)
    checked.configure("m")
    bench.run()
    assert (checked.bodies("rows"), checked.bodies("letters")) == (sorted([BOTH, N]), [M])
    checked.put(N, M)  # in a batch that starts with the new settings
    bench.run()
    assert M in checked.bodies("rows") and N in checked.bodies("letters")


def test_a_batch_without_written_rows_uses_the_new_settings(bench: Bench) -> None:
    checked = Checked(bench)
    checked.configure("n")
    checked.put(BOTH, N, M)
    checked.fail(at_state(3))  # the state of the rows
    checked.configure("m")
    bench.run()
    assert (checked.bodies("rows"), checked.bodies("letters")) == (sorted([BOTH, M]), [N])


def test_windows_stop_until_the_batch_is_finished_with_its_old_settings(bench: Bench) -> None:
    checked = Checked(bench, text=WINDOWS)
    checked.configure("n")
    checked.put(BOTH, N, M)
    # After the dead letters. The batch has no rows: their first states are those of an empty batch.
    checked.fail(at_state(4))
    checked.configure("m")
    assert bench.runner().run() == ["checked"]
    assert "stopped: batch 0 began with other settings (payload: json, schema: {n: int}); hint: " in bench.lines[-1]
    checked.configure("n")
    bench.run()
    checked.configure("m")
    checked.put(N)
    bench.run()
    assert checked.bodies("letters") == sorted([M, N])


def after_commit() -> Fault:
    """Return the loss of the connection after the commit of the first unit of work with rows."""
    states = 0

    def wanted(verb: str, request: list[Any]) -> bool:
        nonlocal states
        states += verb == "MQPUT" and is_state(request)
        return verb == "MQCMIT" and states == 3

    return Fault(wanted, after=True)


@pytest.mark.parametrize(
    ("lost", "put", "rejected"),
    [(lambda: at_state(3), CYRILLIC, LATIN), (after_commit, LATIN, CYRILLIC)],
    ids=["before the rows are put", "after the rows are put"],
)
def test_text_that_cannot_be_encoded(lost: Callable[[], Fault], put: str, rejected: str, bench: Bench) -> None:
    """The dead letter belongs to the attempt whose rows are put, even if another attempt rejects other text."""
    checked = Checked(bench, letters="archive")
    checked.configure("n", ccsid=819)
    checked.put(LATIN.encode(), CYRILLIC.encode())
    checked.fail(lost())
    checked.configure("n", ccsid=915)
    bench.run()
    encoding = "iso8859-5" if put == CYRILLIC else "latin-1"
    assert (checked.bodies("rows"), checked.bodies("letters")) == ([put.encode(encoding)], [rejected.encode()])
