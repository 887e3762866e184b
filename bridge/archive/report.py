"""The figures of a report: one query per section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from bridge.archive.completeness import Loss, refuse
from bridge.archive.database import Database, NoRows, moment, opened
from bridge.archive.history import NEVER
from bridge.archive.report_page import Report, Section
from bridge.telemetry.outcome import Outcome

#: Upper bounds of the size classes in bytes, and their names. The class above the last is `more`.
SIZES: Final = (
    (0, "empty"),
    (64, "to 64 B"),
    (1 << 10, "to 1 KiB"),
    (1 << 14, "to 16 KiB"),
    (1 << 18, "to 256 KiB"),
    (1 << 20, "to 1 MiB"),
)
LARGER: Final = "more"
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
#: Maximum time between settling a delivery and writing it. Deliveries of the last hour may be in files of the next.
_LAG: Final = timedelta(hours=1)
_HOUR: Final = 3_600_000_000

_TRAFFIC: Final = {
    "published": "count(*) FILTER (outcome = 'put')",
    "published bytes": "coalesce(sum(size) FILTER (outcome = 'put'), 0)",
    "delivered": "count(*) FILTER (outcome IN ('delivered', 'acknowledged'))",
    "delivered bytes": "coalesce(sum(size) FILTER (outcome IN ('delivered', 'acknowledged')), 0)",
}
_SIZE_CLASS: Final = (
    f"CASE {' '.join(f'WHEN size <= {most} THEN {name!r}' for most, name in SIZES)} ELSE '{LARGER}' END"
)
# The time from put to acknowledgement (QoS 0: to write), including the time that the client was disconnected. Times are
# rounded to four digits, to limit the number of distinct values.
_LATENCY: Final = f"""
WITH deliveries AS (
    SELECT qos, greatest(epoch_us(settled) - epoch_us(received), 0) AS taken
    FROM messages WHERE direction = 'out' AND NOT retain AND outcome IN ('delivered', 'acknowledged')
),
counts AS (
    SELECT qos, (taken + unit // 2) // unit * unit AS rounded, count(*) AS count, max(taken) AS longest
    FROM (SELECT *, (10 ** greatest(length(taken::VARCHAR) - 4, 0))::BIGINT AS unit FROM deliveries)
    GROUP BY qos, rounded
),
sums AS (
    SELECT *, sum(count) OVER (PARTITION BY qos ORDER BY rounded) AS up_to_here, sum(count) OVER (PARTITION BY qos) AS total
    FROM counts
)
SELECT qos, total,
    {
    ", ".join(
        f"least(min(rounded) FILTER (up_to_here >= {part} * total - 1e-6), max(longest)) / 1000 AS p{part * 1000:g}"
        for part in PERCENTILES
    )
},
    max(longest) / 1000 AS longest
FROM sums GROUP BY qos, total ORDER BY qos
"""
_PUT: Final = "outcome IN ('put', 'delivered', 'acknowledged')"
_MAPPINGS: Final = f"""
SELECT client_id, count(*), count(*) FILTER ({_PUT}), coalesce(sum(size) FILTER ({_PUT}), 0),
    count(*) FILTER (outcome = 'dead-lettered'), count(*) FILTER (outcome IN ('discarded', 'refused'))
FROM mapped GROUP BY client_id ORDER BY client_id
"""
_MAPPING_REASONS: Final = f"""
SELECT client_id, outcome, reason, count(*) AS count FROM mapped WHERE NOT {_PUT}
GROUP BY client_id, outcome, reason ORDER BY count DESC, client_id, outcome, coalesce(reason, 'None')
"""


def report(
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    levels: int = 2,
    top: int = 20,
    report: Callable[[Loss], None] = refuse,
) -> Report:
    """Return the figures of all messages settled from `start` up to, but not including, `end` (None: no limit).

    Topics are truncated to `levels`, long lists to `top` rows. `report` is called for each file that is missing or damaged.
    Raises bridge.archive.database.NoRows, bridge.archive.completeness.ArchiveDamaged, OSError and duckdb.Error.
    """
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    branch = f"array_to_string(string_split(topic, '/')[:{levels}], '/')"
    longest_lists = f"ORDER BY published + delivered DESC, key LIMIT {top}"
    with opened(directories, start, None if end is None else end + _LAG, report=report) as database:
        for view, directions in (("messages", "('in', 'out')"), ("mapped", "('mapped')")):
            database.run(
                f"CREATE VIEW {view} AS SELECT * FROM archive WHERE direction IN {directions}"
                f" AND settled >= make_timestamptz({low}) AND settled < make_timestamptz({high})"
            )
        hours = _traffic(database, "hour", "Messages by hour (UTC)", f"epoch_us(settled) // {_HOUR}", "ORDER BY key")
        for row in hours.rows:
            row[0] = f"{moment(row[0] * _HOUR):%Y-%m-%d %H:00}"
        sections = [
            hours,
            _traffic(database, "topics", f"Messages by topic, {levels} levels", branch, longest_lists),
            _traffic(database, "clients", "Top talkers: messages by client", "client_id", longest_lists),
            _traffic(database, "qos", "Messages by QoS", "qos", "ORDER BY key"),
            _traffic(database, "size", "Messages by size", _SIZE_CLASS, "ORDER BY min(size)"),
            latency(database),
            _reasons(database, "dead_letters", "Dead letters by reason", Outcome.DEAD_LETTERED),
            _reasons(database, "refused", "Publications refused, by reason", Outcome.REFUSED),
            _reasons(database, "discarded", "Discarded, by reason", Outcome.DISCARDED),
            _section(
                database, "mappings", "Messages by mapping",
                ["mapping", "taken", "put", "put bytes", "dead-lettered", "discarded"], _MAPPINGS, ["taken", "put"],
            ),
            _section(
                database, "mapping_reasons", "Not put by mappings, by reason", ["mapping", "outcome", "reason", "messages"],
                _MAPPING_REASONS, ["messages"],
            ),
        ]  # fmt: skip
        ((total,),) = database.rows("SELECT count(*) FROM messages")
        if not total and not any(section.key == "mappings" and section.rows for section in sections):
            raise NoRows("the archive has no messages in that time")
    return Report(start, end, total, sections)


def latency(database: Database) -> Section:
    """Return the percentiles of delivery times, by QoS."""
    names = [f"p{part * 100:g}" for part in PERCENTILES]
    title = "Milliseconds from put to acknowledgement (QoS 0: until written), by QoS"
    return _section(database, "latency", title, ["qos", "messages", *names, "longest"], _LATENCY, names[:3], "ms")


def _section(
    database: Database, key: str, title: str, columns: list[str], query: str, chart: list[str], unit: str = "messages"
) -> Section:
    return Section(key, title, columns, [list(row) for row in database.rows(query)], chart, unit)


def _traffic(database: Database, key: str, title: str, expression: str, order: str) -> Section:
    sums = ", ".join(f'{value} AS "{name}"' for name, value in _TRAFFIC.items())
    query = f"SELECT {expression} AS key, {sums} FROM messages GROUP BY key {order}"
    return _section(database, key, title, [key, *_TRAFFIC], query, ["published", "delivered"])


def _reasons(database: Database, key: str, title: str, outcome: Outcome) -> Section:
    query = (
        f"SELECT reason, count(*) AS count FROM messages WHERE outcome = '{outcome}'"
        " GROUP BY reason ORDER BY count DESC, coalesce(reason, 'None')"
    )
    return _section(database, key, title, ["reason", "messages"], query, ["messages"])
