"""The audit: reads an archive, checks the deliveries of each client, topic and QoS, and reports breaches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.archive.audit.mapped import MappingCounts, mapping_counts
from bridge.archive.audit.verdict import Counts, Finding, findings
from bridge.archive.database import MEMORY, Database, moment, opened
from bridge.archive.history import NEVER, History

#: Publications this long before and after the requested time are paired as well. Otherwise, clock differences would look like
#: losses, and identical messages, which are distinguished only by their order, would be paired incorrectly.
MARGIN: Final = timedelta(minutes=5)
#: Maximum number of examples.
EXAMPLES: Final = 10

_HISTORY: Final = """
SELECT sequence, direction, outcome, client_id, topic, qos, durable, epoch_us(received) AS received,
    epoch_us(settled) AS settled, size
FROM archive WHERE direction IN ('subscription', 'archive') ORDER BY sequence
"""
_TIMES: Final = ("received", "sent", "settled")
_ROWS: Final = f"""
SELECT * EXCLUDE (payload) REPLACE ({", ".join(f"epoch_us({name}) AS {name}" for name in _TIMES)})
FROM archive WHERE sequence BETWEEN $least AND $most AND sequence IN $numbers
"""


class Example(msgspec.Struct):
    """A row of the archive that demonstrates a breach."""

    breach: str
    row: dict[str, Any]


class Audit(msgspec.Struct):
    """The result. `held` means that no message was lost, duplicated, out of order, or (if there is a limit) late."""

    held: bool
    #: number of examined rows
    rows: int
    start: datetime | None
    end: datetime | None
    late_limit: float | None
    totals: Counts
    by_qos: dict[str, Counts]
    #: those with breaches first, then those with the most deliveries
    findings: list[Finding]
    examples: list[Example]
    #: periods with missing rows
    gaps: list[dict[str, Any]]
    #: by mapping. They do not affect `held`
    mappings: list[MappingCounts] = []

    @property
    def is_empty(self) -> bool:
        """Whether no delivery was expected, and none found."""
        return self.totals == Counts()


def audit(
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    late: float | None = None,
    memory: str = MEMORY,
) -> Audit:
    """Audit the publications from `start` up to, but not including, `end` (None: no limit). `late` is in seconds.

    Several directories count as one archive. Raises bridge.archive.database.NoRows and duckdb.Error.
    """
    # Each day starts with rows of the current subscriptions. Deliveries may be long after `end`.
    since = None if start is None else (start - MARGIN).replace(hour=0, minute=0, second=0, microsecond=0)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    limit = None if late is None else int(late * 1_000_000)
    margin = MARGIN // timedelta(microseconds=1)
    near = f"received BETWEEN make_timestamptz({low - margin}) AND make_timestamptz({high + margin})"
    with opened(directories, since, memory=memory) as database:
        history = _history(database)
        ((count, last),) = database.rows(
            "SELECT count(*), coalesce(max(epoch_us(settled)), 0) FROM archive"
            f" WHERE {near} AND direction IN ('in', 'out')"
        )
        archive_end = max(last, history.last)
        found = findings(database, history, near=near, start=low, end=high, archive_end=archive_end, late=limit)
        totals = Counts()
        by_qos: dict[str, Counts] = {}
        for one in found:
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
            findings=found,
            examples=_examples(database, found),
            gaps=[{"from": moment(gap.start), "to": moment(gap.end), "rows": gap.rows} for gap in history.gaps],
            mappings=mapping_counts(database, start=low, end=high, late=limit),
        )


def _history(database: Database) -> History:
    history = History()
    history.read(database.records(_HISTORY))
    # The last row before the bridge was killed may be that of a message, which the history does not contain.
    for gap in history.gaps:
        if gap.rows is None:
            query = "SELECT max(epoch_us(settled)) FROM archive WHERE sequence < $sequence"
            ((last,),) = database.rows(query, sequence=gap.sequence)
            gap.start = gap.start if last is None else last
    return history


def _examples(database: Database, found: list[Finding]) -> list[Example]:
    breaches = [(number, name) for one in found for name, number in one.first.items()][:EXAMPLES]
    if not breaches:
        return []
    numbers = [number for number, _ in breaches]
    found_rows = database.records(_ROWS, numbers=numbers, least=min(numbers), most=max(numbers))
    rows = {row["sequence"]: row for row in found_rows}
    examples = []
    for number, name in breaches:
        row = {key: value for key, value in rows[number].items() if value not in (None, "")}
        row |= {key: moment(row[key]) for key in _TIMES if key in row}
        examples.append(Example(name, row))
    return examples
