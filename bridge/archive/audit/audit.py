"""The audit as a whole: reads an archive, judges each client, topic and QoS, and tells what broke the promise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit import deliveries, mapped
from bridge.archive.audit.findings import Finding, Findings
from bridge.archive.audit.mapped import MappingCounts
from bridge.archive.audit.names import Names
from bridge.archive.audit.order import Order
from bridge.archive.audit.pairing import pairs
from bridge.archive.audit.verdict import Counts, Verdict, counted
from bridge.archive.division import MOST_ROWS, Division
from bridge.archive.history import NEVER, Gap, History
from bridge.archive.scan import Only, Scan, Within, moment
from bridge.archive.schema import NAMES, Direction

#: What was published so long before and after the time asked for is paired as well, so that its edges are not taken for
#: losses: clocks differ, and messages that are alike are told apart by their order only.
MARGIN: Final = timedelta(minutes=5)
#: Examples of breaches that are looked up.
EXAMPLES: Final = 10

_HISTORY: Final = (
    "sequence", "direction", "outcome", "client_id", "topic", "qos", "durable", "received", "settled", "size",
)  # fmt: skip
_NEEDED: Final = tuple(dict.fromkeys((*deliveries.COLUMNS, *mapped.COLUMNS)))


class Example(msgspec.Struct):
    """A row of the archive that shows a breach."""

    breach: str
    row: dict[str, Any]


class Audit(msgspec.Struct):
    """The result. `held` is the answer: nothing was lost, doubled, out of order, or (where a limit was set) late."""

    held: bool
    #: rows of the archive in that time
    rows: int
    start: datetime | None
    end: datetime | None
    late_limit: float | None
    totals: Counts
    by_qos: dict[str, Counts]
    #: those with breaches first, then by number of deliveries
    findings: list[Finding]
    examples: list[Example]
    #: times in which rows are missing in the archive
    gaps: list[dict[str, Any]]
    #: by mapping; they have no part in `held`
    mappings: list[MappingCounts] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no client had to get a message, and none got one."""
        return self.totals == Counts()


def audit(
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    late: float | None = None,
    most: int = MOST_ROWS,
) -> Audit:
    """Judge what was published from `start` to before `end` (None: all there is); `late` is a limit in seconds.

    Several directories count as one archive. More than `most` rows are not paired at once, unless one client got them with
    one payload and message id from one publisher on one topic. Raises bridge.archive.scan.NoRows, and OSError.
    """
    # Each day begins with the subscriptions that stand; deliveries may come long after `end`.
    since = None if start is None else (start - MARGIN).replace(hour=0, minute=0, second=0, microsecond=0)
    scan = Scan(directories, since)
    history = _history(scan)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    margin = int(MARGIN.total_seconds() * 1_000_000)
    names = Names()
    count, archive_end = 0, history.last
    first, last = NEVER, 0
    found = Findings(names)
    with Division(most) as division, Division(most) as taken:
        mappings = mapped.Mapped(taken, start=low, end=high, late=late)
        reader = deliveries.Deliveries(history.tree(), names)
        for rows in scan.tables(_NEEDED, Within("received", low - margin, high + margin)):
            mappings.add(rows)
            messages = rows.filter(pc.is_in(rows["direction"], pa.array([str(Direction.IN), str(Direction.OUT)])))
            if not messages.num_rows:
                continue
            count += messages.num_rows
            archive_end = max(archive_end, pc.max(messages["settled"]).as_py())
            numbers = pc.min_max(messages["sequence"]).as_py()
            first, last = min(first, numbers["min"]), max(last, numbers["max"])
            for expected in reader.expected(messages):
                division.add(expected)
            division.add(reader.delivered(messages))
        verdict = Verdict(history, names, start=low, end=high, archive_end=archive_end, late=late)
        with Order(most, min(first, last), last) as order:
            for part in division.tables():
                judged = verdict.judged(pairs(part))
                order.add(judged)
                found.add(counted(judged))
            found.add_disordered(order.disordered())
            found.add_lost(order.overtaken())
        taken_by = mappings.counts()
    result = _summary(scan, found.worst_first(), history.gaps, start=start, end=end, late=late, count=count)
    result.mappings = taken_by
    return result


def _history(scan: Scan) -> History:
    wanted = Only("direction", [str(Direction.SUBSCRIPTION), str(Direction.ARCHIVE)])
    tables = list(scan.tables(_HISTORY, only=wanted))
    history = History()
    if tables:
        for batch in pa.concat_tables(tables).sort_by("sequence").to_batches(max_chunksize=10_000):
            history.read(batch.to_pylist())
    killed = [gap for gap in history.gaps if gap.rows is None]
    if killed:
        # What the bridge wrote last before it was killed; the rows above are not all that it wrote.
        last: list[int | None] = [None] * len(killed)
        for rows in scan.tables(["sequence", "settled"]):
            for place, gap in enumerate(killed):
                settled = pc.max(rows["settled"].filter(pc.less(rows["sequence"], gap.sequence))).as_py()
                last[place] = max((one for one in (last[place], settled) if one is not None), default=None)
        for gap, value in zip(killed, last, strict=True):
            gap.start = gap.start if value is None else value
    return history


def _summary(
    scan: Scan,
    findings: list[Finding],
    gaps: list[Gap],
    *,
    start: datetime | None,
    end: datetime | None,
    late: float | None,
    count: int,
) -> Audit:
    totals = Counts()
    by_qos: dict[str, Counts] = {}
    for one in findings:
        totals.add(one.counts)
        by_qos.setdefault(str(one.qos), Counts()).add(one.counts)
    return Audit(
        held=not (totals.lost or totals.doubled or totals.disordered or (late is not None and totals.late)),
        rows=count,
        start=start,
        end=end,
        late_limit=late,
        totals=totals,
        by_qos=dict(sorted(by_qos.items())),
        findings=findings,
        examples=_examples(scan, findings),
        gaps=[{"from": moment(gap.start), "to": moment(gap.end), "rows": gap.rows} for gap in gaps],
    )


def _examples(scan: Scan, findings: list[Finding]) -> list[Example]:
    breaches = [(number, name) for one in findings for name, number in one.first.items()][:EXAMPLES]
    if not breaches:
        return []
    wanted = sorted(number for number, _ in breaches)
    columns = [name for name in NAMES if name != "payload"]
    tables = scan.tables(columns, Within("sequence", wanted[0], wanted[-1]), Only("sequence", wanted))
    by_number = {one["sequence"]: one for table in tables for one in table.to_pylist()}
    found = []
    for number, name in breaches:
        row = {key: value for key, value in by_number[number].items() if value not in (None, "")}
        for key in ("received", "sent", "settled"):
            if key in row:
                row[key] = moment(row[key])
        found.append(Example(name, row))
    return found
