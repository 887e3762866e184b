"""The audit as a whole: reads an archive, judges each client, topic and QoS, and tells what broke the promise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f

from bridge.archive.history import NEVER, Gap, History
from bridge.archive.schema import Direction
from bridge.pipeline.archive import moment, read
from bridge.pipeline.audit.mapped import MappingCounts, mapped
from bridge.pipeline.audit.pairing import delivered, expected, hash_of, matches, pairs
from bridge.pipeline.audit.verdict import BROKEN, COUNTS, Counts, classified, client_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What was published so long before and after the time asked for is paired as well, so that its edges are not taken for
#: losses: clocks differ, and messages that are alike are told apart by their order only.
MARGIN: Final = timedelta(minutes=5)
#: Examples of breaches that are looked up.
EXAMPLES: Final = 10

_HISTORY: Final = (
    "sequence", "direction", "outcome", "client_id", "topic", "qos", "durable", "received", "settled", "size",
)  # fmt: skip


class Finding(msgspec.Struct):
    """The counts of one client, topic and QoS; `slowest` in seconds from commit to acknowledgement, None without any."""

    client_id: str
    topic: str
    qos: int
    counts: Counts
    slowest: float | None
    first: dict[str, int] = {}


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
    spark: SparkSession,
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    late: float | None = None,
) -> Audit:
    """Judge what was published from `start` to before `end` (None: all there is); `late` is a limit in seconds.

    Several directories count as one archive. Raises bridge.pipeline.archive.NoRows.
    """
    # Each day begins with the subscriptions that stand; deliveries may come long after `end`.
    since = None if start is None else (start - MARGIN).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = read(spark, directories, since)
    history = _history(rows)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    margin = int(MARGIN.total_seconds() * 1_000_000)
    near = rows.where(f.col("received").between(low - margin, high + margin))

    topics, names, archive_end, count = _topics(near)
    clients = _clients(spark, near, history)
    matched = matches(spark, topics, history.tree(), clients)
    paired = pairs(expected(near, matched), delivered(near))
    judged = classified(
        paired, client_frame(spark, history, clients), history.gaps,
        start=low, end=high, archive_end=max(archive_end, history.last), late=late,
    )  # fmt: skip
    findings = _findings(judged, names, {number: client_id for client_id, number in clients.items()})
    result = _summary(rows, findings, history.gaps, start=start, end=end, late=late, count=count)
    result.mappings = mapped(near, start=low, end=high, late=late)
    return result


def _history(rows: DataFrame) -> History:
    wanted = (str(Direction.SUBSCRIPTION), str(Direction.ARCHIVE))
    table = rows.where(f.col("direction").isin(*wanted)).select(*_HISTORY).toArrow().sort_by("sequence")
    history = History()
    for batch in table.to_batches():
        history.read(batch.to_pylist())
    killed = [gap for gap in history.gaps if gap.rows is None]
    if killed:
        # What the bridge wrote last before it was killed; the rows above are not all that it wrote.
        last = [f.max(f.when(f.col("sequence") < gap.sequence, f.col("settled"))) for gap in killed]
        for gap, value in zip(killed, rows.select(*last).first() or (), strict=True):
            gap.start = gap.start if value is None else value
    return history


def _topics(rows: DataFrame) -> tuple[list[str], dict[int, str], int, int]:
    """Return topics published to; topic by hash, of deliveries as well; when the archive ends; number of rows."""
    messages = rows.where(f.col("direction").isin(str(Direction.IN), str(Direction.OUT)))
    grouped = messages.groupBy("topic", hash_of("topic").alias("hash")).agg(
        f.max(f.col("direction") == Direction.IN).alias("published"),
        f.max("settled").alias("last"),
        f.count("*").alias("rows"),
    )
    found = grouped.toArrow().to_pydict()
    published = [topic for topic, one in zip(found["topic"], found["published"], strict=True) if one]
    names = dict(zip(found["hash"], found["topic"], strict=True))
    return published, names, max(found["last"], default=0), sum(found["rows"])


def _clients(spark: SparkSession, rows: DataFrame, history: History) -> dict[str, int]:
    """Return the client identifiers that subscribed or got something, with the hashes that stand for them."""
    subscribers = spark.createDataFrame(pa.table({"client_id": pa.array(list(history.clients), pa.string())}))
    receivers = rows.where(f.col("direction") == Direction.OUT).select("client_id").distinct()
    both = subscribers.union(receivers).distinct()
    found = both.select("client_id", hash_of("client_id").alias("hash")).toArrow().to_pydict()
    return dict(zip(found["client_id"], found["hash"], strict=True))


def _findings(result: DataFrame, topics: dict[int, str], clients: dict[int, str]) -> list[Finding]:
    findings = []
    for batch in result.toArrow().to_batches():
        for one in batch.to_pylist():
            counts = Counts(**{name: one[name] for name in COUNTS})
            slowest = None if one["slowest"] is None else one["slowest"] / 1_000_000
            first = {name: one[f"first_{name}"] for name in BROKEN if one[f"first_{name}"] is not None}
            client_id = clients.get(one["client"], "?")
            findings.append(Finding(client_id, topics.get(one["topic"], "?"), one["qos"], counts, slowest, first))

    def worst(one: Finding) -> tuple[int, int, str, str]:
        counts = one.counts
        return -(counts.lost + counts.doubled + counts.disordered), -counts.expected, one.client_id, one.topic

    return sorted(findings, key=worst)


def _summary(
    rows: DataFrame,
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
        examples=_examples(rows, findings),
        gaps=[{"from": moment(gap.start), "to": moment(gap.end), "rows": gap.rows} for gap in gaps],
    )


def _examples(rows: DataFrame, findings: list[Finding]) -> list[Example]:
    breaches = [(number, name) for one in findings for name, number in one.first.items()][:EXAMPLES]
    if not breaches:
        return []
    wanted = rows.where(f.col("sequence").isin([number for number, _ in breaches])).drop("payload")
    by_number = {one["sequence"]: one for one in wanted.toArrow().to_pylist()}
    found = []
    for number, name in breaches:
        row = {key: value for key, value in by_number[number].items() if value not in (None, "")}
        for key in ("received", "sent", "settled"):
            if key in row:
                row[key] = moment(row[key])
        found.append(Example(name, row))
    return found
