"""Comparison of expected and actual deliveries: QoS 1 at least once, QoS 2 exactly once, in order.

A publication (row `in`) is expected by each client whose subscriptions match its topic. A delivery (row `out`) matches the
publication if client, publisher, topic, the publisher's message identifier and the hash of the payload agree. If several
match, the k-th delivery belongs to the k-th expected one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from bridge.archive.database import Database
from bridge.archive.filter_tree import FilterTree
from bridge.archive.history import History

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


class Finding(msgspec.Struct):
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
    database: Database, history: History, *, near: str, start: int, end: int, archive_end: int, late: int | None
) -> list[Finding]:
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
        connections = "ASOF LEFT JOIN connections ON pairs.client = connections.client AND out_settled >= connections.time"
    found: dict[tuple[str, str, int], Finding] = {}
    for row in database.records(
        _FINDINGS.format(in_gap=in_gap, late=is_late, connections=connections),
        start=start, end=end, archive_end=archive_end,
        grace=int(TIMEOUT * 1_000_000) if late is None else late,
        last_gap=max((gap.end for gap in history.gaps), default=-1),
    ):  # fmt: skip
        key = row["client"], row["topic"], row["qos"]
        finding = found.setdefault(key, Finding(*key, Counts(), None))
        number = {name: row[name] for name in ("expected", "late", "disordered")} | {row["kind"]: row["count"]}
        finding.counts.add(Counts(**number))
        for kind, first in ((row["kind"], row["first"]), ("disordered", row["first_disordered"])):
            if kind in BROKEN and first is not None:
                finding.first[kind] = min(first, finding.first.get(kind, first))
        finding.slowest = max((one for one in (finding.slowest, row["slowest"]) if one is not None), default=None)
    return sorted(found.values(), key=lambda finding: finding._order)


def _create_tables(database: Database, history: History, near: str) -> None:
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
            (number, one.client_id, one.qos, *(getattr(one, name) for name in intervals))
            for number, one in enumerate(history.intervals)
        ],
    )
    tree: FilterTree[tuple[int, str]] = FilterTree()
    for number, one in enumerate(history.intervals):
        tree.add(one.topic_filter, (number, one.client_id))
    matches = []
    query = f"SELECT DISTINCT topic FROM archive WHERE {near} AND direction = 'in' AND outcome = 'put'"
    for (topic,) in database.rows(query):
        found = tree.find(topic)
        copies = Counter(client for _, client in found)
        matches += [(topic, number, copies[client] == 1) for number, client in found]
    database.create_table("matches", {"topic": "name", "subscription": "BIGINT", "alone": "BOOLEAN"}, matches)
