"""The audit: checks whether all messages of an archive were delivered, once, in time, and in order.

A publication (row `in`) is expected by each client whose subscriptions match its topic. A delivery (row `out`) matches the
publication if client, publisher, topic, the publisher's message identifier and the hash of the payload agree. If several
match, the k-th delivery belongs to the k-th expected one. QoS 1 is delivered at least once, QoS 2 exactly once, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.archive.completeness import Loss, refuse
from bridge.archive.database import MEMORY, Database, moment, opened
from bridge.archive.history import NEVER, SessionHistory
from bridge.mqtt.topics import FilterTree


class MappingCounts(msgspec.Struct):
    """Numbers of messages of one mapping. `slowest` is in seconds from put or receipt to commit."""

    mapping: str
    #: in committed units of work
    taken: int = 0
    #: put to MQ, or published to a link
    put: int = 0
    dead_lettered: int = 0
    #: filtered out, stopped because of a loop, or dropped with guarantee at-most-once
    discarded: int = 0
    #: duplicates among those put: the same MsgId from MQ, or from a link the same publisher, message id, topic and payload
    #: with DUP
    doubled: int = 0
    #: those put after the time limit
    late: int = 0
    slowest: float | None = None


# Message identifiers are reused. Without DUP, the same identifier is another message.
_COUNTS = """
WITH mapped AS (
    SELECT *, outcome IN ('put', 'acknowledged', 'delivered') AS arrived, epoch_us(settled) - epoch_us(received) AS taken,
        CASE WHEN msg_id IS NULL THEN (publisher, publisher_message_id, payload_hash, topic) END AS identity,
        msg_id IS NOT NULL OR (publisher_message_id > 0 AND times_sent > 1) AS repeatable
    FROM archive
    WHERE direction = 'mapped' AND received >= make_timestamptz($start) AND received < make_timestamptz($end)
),
repeated AS (
    SELECT client_id, sum(repetitions) AS doubled
    FROM (
        SELECT client_id, count(*) FILTER (repeatable) - arg_min(repeatable, sequence)::INTEGER AS repetitions
        FROM mapped WHERE arrived
        GROUP BY client_id, msg_id, identity
    )
    GROUP BY client_id
)
SELECT client_id AS mapping, count(*) AS taken, count(*) FILTER (arrived) AS put,
    count(*) FILTER (outcome = 'dead-lettered') AS dead_lettered,
    count(*) FILTER (outcome IN ('discarded', 'refused')) AS discarded,
    coalesce(any_value(doubled), 0)::BIGINT AS doubled,
    count(*) FILTER (arrived AND taken > $late) AS late,
    max(taken) FILTER (arrived) / 1000000 AS slowest
FROM mapped LEFT JOIN repeated USING (client_id) GROUP BY client_id ORDER BY client_id
"""


def mapping_counts(database: Database, *, start: int, end: int, late: int | None) -> list[MappingCounts]:
    """Count the messages put or received from `start` up to, but not including, `end`.

    Times, and the limit `late`, are in microseconds.
    """
    return [MappingCounts(**row) for row in database.records(_COUNTS, start=start, end=end, late=late)]


#: Seconds for which a message to a connected client may be pending at the end of the archive, unless --late is given.
TIMEOUT: Final = 60.0


class Counts(msgspec.Struct):
    """Numbers of deliveries. `lost`, `doubled`, `disordered` (and `late`, if a limit is given) are breaches."""

    #: deliveries that were required
    expected: int = 0
    #: delivered to the client: acknowledged, or written with QoS 0
    delivered: int = 0
    #: QoS 1 and 2: acknowledged to the publisher, but not delivered
    lost: int = 0
    #: QoS 0 or 2: delivered again
    doubled: int = 0
    #: delivered after a later message of the same publisher, topic and QoS
    disordered: int = 0
    #: delivered after the time limit, which starts when the client is connected
    late: int = 0
    #: QoS 0: not delivered, which is allowed
    missing: int = 0
    #: QoS 1: delivered again, which is allowed
    repeated: int = 0
    #: still waiting for the client, or in transit
    pending: int = 0
    #: the session ended before the delivery
    ended: int = 0
    #: on the dead-letter queue
    dead_lettered: int = 0
    #: expired, or (QoS 0) the client was too slow
    discarded: int = 0
    #: apparently not delivered, or delivered again, but rows are missing in that period
    unknown: int = 0
    #: delivered, but the publication is not in the examined part of the archive
    unmatched: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of `other` to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


#: The kinds of breaches that do not depend on options. Each is reported with an example.
BROKEN: Final = ("lost", "doubled", "disordered")


class AuditFinding(msgspec.Struct):
    """The counts of one client, topic and QoS. `slowest` is in seconds from commit to acknowledgement, or None."""

    client_id: str
    topic: str
    qos: int
    counts: Counts
    slowest: float | None
    #: kind of breach -> number of its first row
    first: dict[str, int] = {}

    @property
    def _order(self) -> tuple[int, int, str, str, int]:
        counts = self.counts
        return -counts.lost - counts.doubled - counts.disordered, -counts.expected, self.client_id, self.topic, self.qos


# Client identifiers and topics become numbers, which are small and fast to compare.
_NAMES = """
CREATE TYPE name AS ENUM (
    SELECT DISTINCT unnest([client_id, publisher, topic]) FROM archive WHERE {near} AND direction IN ('in', 'out')
    -- A type has at least one value.
    UNION SELECT client FROM clients UNION SELECT ''
)
"""

# One row for each expected and each actual delivery, with null in the columns of the other kind. A client with several
# subscriptions for a topic must get one delivery, and may get one for each (MQTT-3.3.5-1). Rank 0 is the required one.
_DELIVERIES = """
CREATE VIEW deliveries AS
WITH messages AS (
    SELECT direction, outcome, client_id, publisher::name AS publisher, topic::name AS topic, retain, replayed, qos,
        publisher_message_id AS message_id, payload_hash, sequence, epoch_us(received) AS received,
        epoch_us(settled) AS settled
    FROM archive WHERE {near}
),
matched AS (
    SELECT *, received > certain_from AND settled < certain_to AS certain
    FROM messages JOIN matches USING (topic) JOIN subscriptions USING (subscription)
    WHERE direction = 'in' AND outcome = 'put' AND settled >= possible_from AND received <= possible_to
),
overlapping AS (
    SELECT client, publisher, topic, message_id, payload_hash, sequence, received, settled, count(*) AS copies,
        bool_or(certain) AS required, least(qos, coalesce(max(granted) FILTER (certain), max(granted))) AS qos
    FROM matched WHERE NOT alone
    GROUP BY client, publisher, topic, message_id, payload_hash, sequence, received, settled, matched.qos
),
expected AS (
    SELECT client, publisher, topic, message_id, payload_hash, (NOT certain)::BIGINT AS rank, least(qos, granted) AS qos,
        sequence, received, settled
    FROM matched WHERE alone
    UNION ALL
    SELECT client, publisher, topic, message_id, payload_hash, CASE WHEN required AND copy = 1 THEN 0 ELSE copy END, qos,
        sequence, received, settled
    FROM overlapping, range(1, copies + 1) AS numbers(copy)
)
SELECT client, publisher, topic, message_id, payload_hash, rank AS in_rank, qos AS in_qos, sequence AS in_sequence,
    received AS in_received, settled AS in_settled, NULL::kind AS out_fate, NULL::TINYINT AS out_qos,
    NULL::BIGINT AS out_sequence, NULL::BIGINT AS out_received, NULL::BIGINT AS out_settled
FROM expected
UNION ALL
SELECT client_id::name, publisher, topic, message_id, payload_hash, NULL, NULL, NULL, NULL, NULL,
    CASE outcome WHEN 'dead-lettered' THEN 'dead_lettered' WHEN 'discarded' THEN 'discarded' ELSE 'delivered' END::kind,
    qos, sequence, received, settled
FROM messages WHERE direction = 'out' AND NOT retain AND publisher <> '' AND replayed IS NULL
"""

# Sorting is slow, so only rows with duplicates are numbered.
_FINDINGS = """
WITH alike AS MATERIALIZED (
    SELECT client, publisher, topic, message_id, payload_hash FROM deliveries GROUP BY ALL
    HAVING count(in_sequence) > 1 OR count(out_sequence) > 1
),
numbered AS (
    SELECT *, 1 AS k FROM deliveries ANTI JOIN alike USING (client, publisher, topic, message_id, payload_hash)
    UNION ALL
    SELECT *, row_number() OVER (
        PARTITION BY client, publisher, topic, message_id, payload_hash, in_sequence IS NULL
        ORDER BY in_rank, in_sequence, out_sequence
    )
    FROM deliveries SEMI JOIN alike USING (client, publisher, topic, message_id, payload_hash)
),
pairs AS (
    SELECT client, publisher, topic, max(in_rank) AS in_rank, max(in_qos) AS in_qos, max(in_sequence) AS in_sequence,
        max(in_received) AS in_received, max(in_settled) AS in_settled, max(out_fate) AS out_fate, max(out_qos) AS out_qos,
        max(out_sequence) AS out_sequence, max(out_received) AS out_received, max(out_settled) AS out_settled,
        k > 1 AND max(in_sequence) IS NULL AND max(out_fate) = 'delivered' AS again
    FROM numbered GROUP BY client, publisher, topic, message_id, payload_hash, k
    HAVING max(out_sequence) IS NOT NULL OR max(in_rank) = 0
),
judged AS (
    SELECT client, publisher, topic, in_sequence, out_sequence,
        coalesce(out_qos, in_qos) AS qos,
        CASE
            WHEN out_sequence IS NULL THEN CASE
                WHEN in_qos = 0 THEN 'missing'
                WHEN in_received <= last_end THEN 'ended'
                WHEN in_received <= $last_gap THEN 'unknown'
                WHEN connected IS NULL OR $archive_end - greatest(in_settled, connected) < $grace THEN 'pending'
                ELSE 'lost'
            END::kind
            WHEN again THEN CASE WHEN {in_gap} THEN 'unknown' WHEN out_qos = 1 THEN 'repeated' ELSE 'doubled' END::kind
            WHEN in_sequence IS NULL THEN 'unmatched'::kind
            ELSE out_fate
        END AS kind,
        coalesce(in_rank = 0, false) AS expected,
        CASE WHEN out_fate = 'delivered' THEN out_settled - in_settled END AS taken,
        {late} AS late,
        coalesce(out_fate = 'delivered' AND in_rank <= 1, false) AS ordered,
        coalesce(in_received, out_received) BETWEEN $start AND $end - 1 AS published
    FROM pairs LEFT JOIN clients USING (client) {connections}
),
flows AS (
    SELECT *, max(in_sequence) FILTER (ordered) OVER (flow ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
        max(in_sequence) FILTER (ordered) OVER (flow ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS latest
    FROM judged WINDOW flow AS (PARTITION BY client, publisher, topic, qos ORDER BY out_sequence)
),
verdicts AS (
    SELECT *, ordered AND coalesce(before > in_sequence, false) AS disordered,
        coalesce(out_sequence, in_sequence) AS sequence,
        -- A later message of the flow has arrived: this one is not under way.
        CASE WHEN kind = 'pending' AND latest > in_sequence THEN 'lost'::kind ELSE kind END AS verdict
    FROM flows WHERE published
)
SELECT client::VARCHAR AS client, topic::VARCHAR AS topic, qos, verdict::VARCHAR AS kind, count(*) AS count,
    min(sequence) AS first, count(*) FILTER (expected) AS expected, count(*) FILTER (late) AS late,
    count(*) FILTER (disordered) AS disordered, min(sequence) FILTER (disordered) AS first_disordered,
    max(taken) / 1000000 AS slowest
FROM verdicts GROUP BY client, topic, qos, verdict
"""


def findings(
    database: Database, history: SessionHistory, *, near: str, start: int, end: int, archive_end: int, late: int | None
) -> list[AuditFinding]:
    """Return the findings for publications from `start` up to, but not including, `end`.

    Findings with breaches come first, then those with the most deliveries. `near` is an SQL condition that selects the rows
    to pair, and `archive_end` is the end of the archive. Times, and the limit `late`, are in microseconds.
    """
    kinds = ", ".join(f"'{kind}'" for kind in Counts.__struct_fields__)
    database.run(f"CREATE TYPE kind AS ENUM ({kinds})")
    _create_tables(database, history, near)
    database.run(_DELIVERIES.format(near=near))
    # A missing row may be the delivery (after the publication) or the publication (before the delivery).
    in_gap = " OR ".join(f"out_received BETWEEN {gap.start} AND {gap.end}" for gap in history.gaps) or "false"
    is_late, connections = "false", ""
    if late is not None:
        is_late = f"coalesce(taken > {late} AND out_settled - greatest(in_settled, connections.time) > {late}, false)"
        connections = (
            "ASOF LEFT JOIN connections ON pairs.client = connections.client AND out_settled >= connections.time"
        )
    by_key: dict[tuple[str, str, int], AuditFinding] = {}
    for row in database.records(
        _FINDINGS.format(in_gap=in_gap, late=is_late, connections=connections),
        start=start,
        end=end,
        archive_end=archive_end,
        grace=int(TIMEOUT * 1_000_000) if late is None else late,
        last_gap=max((gap.end for gap in history.gaps), default=-1),
    ):
        key = row["client"], row["topic"], row["qos"]
        finding = by_key.setdefault(key, AuditFinding(*key, Counts(), None))
        number = {name: row[name] for name in ("expected", "late", "disordered")} | {row["kind"]: row["count"]}
        finding.counts.add(Counts(**number))
        for kind, first in ((row["kind"], row["first"]), ("disordered", row["first_disordered"])):
            if kind in BROKEN and first is not None:
                finding.first[kind] = min(first, finding.first.get(kind, first))
        finding.slowest = max(
            (duration for duration in (finding.slowest, row["slowest"]) if duration is not None), default=None
        )
    return sorted(by_key.values(), key=lambda finding: finding._order)


def _create_tables(database: Database, history: SessionHistory, near: str) -> None:
    """Create the tables of clients, of their connections, and of their subscriptions by topic."""
    clients = history.clients.items()
    database.create_table(
        "clients",
        {"client": "VARCHAR", "last_end": "BIGINT", "connected": "BIGINT"},
        [(name, max(client.ends, default=0), client.connected) for name, client in clients],
    )
    database.run(_NAMES.format(near=near))
    database.run("ALTER TABLE clients ALTER client TYPE name")
    database.create_table(
        "connections",
        {"client": "name", "time": "BIGINT"},
        [(name, time) for name, client in clients for time in client.connects],
    )
    intervals = ("possible_from", "certain_from", "certain_to", "possible_to")
    database.create_table(
        "subscriptions",
        {"subscription": "BIGINT", "client": "name", "granted": "TINYINT", **dict.fromkeys(intervals, "BIGINT")},
        [
            (number, interval.client_id, interval.qos, *(getattr(interval, name) for name in intervals))
            for number, interval in enumerate(history.intervals)
        ],
    )
    tree: FilterTree[tuple[int, str]] = FilterTree()
    for number, interval in enumerate(history.intervals):
        tree.add(interval.topic_filter, (number, interval.client_id))
    matches = []
    query = f"SELECT DISTINCT topic FROM archive WHERE {near} AND direction = 'in' AND outcome = 'put'"
    for (topic,) in database.rows(query):
        entries = tree.find(topic)
        copies = Counter(client for _, client in entries)
        matches += [(topic, number, copies[client] == 1) for number, client in entries]
    database.create_table("matches", {"topic": "name", "subscription": "BIGINT", "alone": "BOOLEAN"}, matches)


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
    findings: list[AuditFinding]
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
    report: Callable[[Loss], None] = refuse,
) -> Audit:
    """Audit the publications from `start` up to, but not including, `end` (None: no limit). `late` is in seconds.

    Several directories count as one archive. `report` is called for each file that is missing or damaged. Raises
    bridge.archive.database.NoRows, bridge.archive.completeness.ArchiveDamaged, OSError and duckdb.Error.
    """
    # Each day starts with rows of the current subscriptions. Deliveries may be long after `end`.
    since = None if start is None else (start - MARGIN).replace(hour=0, minute=0, second=0, microsecond=0)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    limit = None if late is None else int(late * 1_000_000)
    margin = MARGIN // timedelta(microseconds=1)
    near = f"received BETWEEN make_timestamptz({low - margin}) AND make_timestamptz({high + margin})"
    with opened(directories, since, memory=memory, report=report) as database:
        history = _history(database)
        ((count, last),) = database.rows(
            f"SELECT count(*), coalesce(max(epoch_us(settled)), 0) FROM archive WHERE {near} AND direction IN ('in', 'out')"
        )
        archive_end = max(last, history.last)
        audit_findings = findings(
            database, history, near=near, start=low, end=high, archive_end=archive_end, late=limit
        )
        totals = Counts()
        by_qos: dict[str, Counts] = {}
        for finding in audit_findings:
            totals.add(finding.counts)
            by_qos.setdefault(str(finding.qos), Counts()).add(finding.counts)
        return Audit(
            held=not (totals.lost or totals.doubled or totals.disordered or (late is not None and totals.late)),
            rows=count,
            start=start,
            end=end,
            late_limit=late,
            totals=totals,
            by_qos=dict(sorted(by_qos.items())),
            findings=audit_findings,
            examples=_examples(database, audit_findings),
            gaps=[{"from": moment(gap.start), "to": moment(gap.end), "rows": gap.rows} for gap in history.gaps],
            mappings=mapping_counts(database, start=low, end=high, late=limit),
        )


def _history(database: Database) -> SessionHistory:
    history = SessionHistory()
    history.read(database.records(_HISTORY))
    # The last row before the bridge was killed may be that of a message, which the history does not contain.
    for gap in history.gaps:
        if gap.rows is None:
            query = "SELECT max(epoch_us(settled)) FROM archive WHERE sequence < $sequence"
            ((last,),) = database.rows(query, sequence=gap.sequence)
            gap.start = gap.start if last is None else last
    return history


def _examples(database: Database, audit_findings: list[AuditFinding]) -> list[Example]:
    breaches = [(number, name) for finding in audit_findings for name, number in finding.first.items()][:EXAMPLES]
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
