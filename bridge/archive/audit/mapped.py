"""Counts of the messages that each mapping took, and of their outcomes. They do not affect the result of the audit."""

from __future__ import annotations

import msgspec

from bridge.archive.database import Database


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
