"""The figures of a report: one pass over the archive, a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.history import NEVER
from bridge.archive.report.latency import ARRIVED, Latency
from bridge.archive.report.section import Report, Section
from bridge.archive.report.sums import Sums
from bridge.archive.scan import NoRows, Scan, Within, moment
from bridge.archive.schema import Direction, Outcome

#: Upper ends of the classes of sizes, in bytes, with their names; what is above the last is `more`.
SIZES: Final = ((0, "empty"), (64, "to 64 B"), (1 << 10, "to 1 KiB"), (1 << 14, "to 16 KiB"), (1 << 18, "to 256 KiB"),
                (1 << 20, "to 1 MiB"))  # fmt: skip
LARGER: Final = "more"
#: A delivery may be settled so long before the end of the last hour of a report and be written in the next.
_LAG: Final = timedelta(hours=1)

_MOVED: Final = (Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED)
_TRAFFIC: Final = ("published", "published bytes", "delivered", "delivered bytes")
#: Columns of the archive that are needed.
_NEEDED: Final = (
    "direction", "outcome", "reason", "client_id", "topic", "qos", "retain", "size", "received", "settled",
)  # fmt: skip
#: What the report tells apart, each for itself.
_APART: Final = ("hour", "branch", "client_id", "qos", "size_class")
_HOUR: Final = 3_600_000_000


def report(
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    levels: int = 2,
    top: int = 20,
) -> Report:
    """Return the figures of what was settled from `start` to before `end`.

    Topics are cut to `levels`, long lists to `top`. Raises bridge.archive.scan.NoRows, and OSError.
    """
    scan = Scan(directories, start, None if end is None else end + _LAG)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    traffic = {name: Sums([name], ["messages", *_TRAFFIC]) for name in _APART}
    reasons = Sums(["outcome", "reason"], ["messages"])
    taken = Sums(["client_id", "outcome", "reason"], ["messages", "size"])
    latency = Latency()
    for rows in scan.tables(_NEEDED, Within("settled", low, high - 1)):
        rows = rows.append_column("messages", pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
        taken.add(rows.filter(pc.equal(rows["direction"], str(Direction.MAPPED))))
        rows = rows.filter(pc.is_in(rows["direction"], pa.array([str(Direction.IN), str(Direction.OUT)])))
        reasons.add(rows)
        latency.add(rows)
        marked = _marked(rows, levels)
        for sums in traffic.values():
            sums.add(marked)
    found = {name: sums.rows() for name, sums in traffic.items()}
    total = sum(one["messages"] for one in found["qos"])
    mappings = taken.rows()
    if not total and not mappings:
        raise NoRows("the archive has no messages in that time")
    for one in found["hour"]:
        one["hour"] = f"{moment(one['hour'] * _HOUR):%Y-%m-%d %H:00}"
    sections = [
        _traffic("hour", "Messages by hour (UTC)", found["hour"]),
        _top("topics", f"Messages by topic, {levels} levels", found["branch"], top),
        _top("clients", "Top talkers: messages by client", found["client_id"], top),
        _traffic("qos", "Messages by QoS", found["qos"]),
        _sizes(found["size_class"]),
        latency.section(),
        _reasons("dead_letters", "Dead letters by reason", reasons.rows(), Outcome.DEAD_LETTERED),
        _reasons("refused", "Publications refused, by reason", reasons.rows(), Outcome.REFUSED),
        _reasons("discarded", "Discarded, by reason", reasons.rows(), Outcome.DISCARDED),
        _mappings(mappings),
        _mapping_reasons(mappings),
    ]
    return Report(start, end, total, sections)


def _marked(rows: Any, levels: int) -> Any:
    """Return the rows with what the report tells apart, and what it sums."""
    size = rows["size"]
    put, arrived = pc.equal(rows["outcome"], str(Outcome.PUT)), pc.is_in(rows["outcome"], pa.array(ARRIVED))
    size_class = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for limit, _ in SIZES:
        size_class = pc.add(size_class, pc.greater(size, limit).cast(pa.int64()))
    return pa.table(
        {
            "hour": pc.divide(rows["settled"], _HOUR),
            "branch": pc.replace_substring_regex(rows["topic"], rf"(?s)^((?:[^/]*/){{{levels - 1}}}[^/]*)/.*$", r"\1"),
            "client_id": rows["client_id"],
            "qos": rows["qos"],
            "size_class": size_class,
            "messages": rows["messages"],
            "published": put.cast(pa.int64()),
            "published bytes": pc.if_else(put, size, 0),
            "delivered": arrived.cast(pa.int64()),
            "delivered bytes": pc.if_else(arrived, size, 0),
        }
    )


def _line(one: dict[str, Any], column: str) -> list[Any]:
    return [one[column], *(one[name] for name in _TRAFFIC)]


def _section(key: str, title: str, rows: list[list[Any]]) -> Section:
    return Section(key, title, [key, *_TRAFFIC], rows, ["published", "delivered"], "messages")


def _traffic(key: str, title: str, found: list[dict[str, Any]]) -> Section:
    return _section(key, title, sorted(_line(one, key) for one in found))


def _top(key: str, title: str, found: list[dict[str, Any]], top: int) -> Section:
    column = {"topics": "branch", "clients": "client_id"}[key]
    found = sorted(found, key=lambda one: (-one["published"] - one["delivered"], one[column]))
    return _section(key, title, [_line(one, column) for one in found[:top]])


def _sizes(found: list[dict[str, Any]]) -> Section:
    names = [*(name for _, name in SIZES), LARGER]
    found = sorted(found, key=lambda one: one["size_class"])
    rows = [[names[one["size_class"]], *_line(one, "size_class")[1:]] for one in found]
    return _section("size", "Messages by size", rows)


def _reasons(key: str, title: str, found: list[dict[str, Any]], outcome: Outcome) -> Section:
    rows = [[one["reason"], one["messages"]] for one in found if one["outcome"] == outcome]
    rows.sort(key=lambda row: (-row[1], str(row[0])))
    return Section(key, title, ["reason", "messages"], rows, ["messages"], "messages")


def _mappings(found: list[dict[str, Any]]) -> Section:
    """Return the section of what each mapping took, and what became of it."""
    rows = []
    for mapping in sorted({one["client_id"] for one in found}):
        own = [one for one in found if one["client_id"] == mapping]

        def count(*outcomes: Outcome, own: list[dict[str, Any]] = own, what: str = "messages") -> int:
            return sum(one[what] for one in own if not outcomes or one["outcome"] in outcomes)

        rows.append(
            [
                mapping, count(), count(*_MOVED), count(*_MOVED, what="size"), count(Outcome.DEAD_LETTERED),
                count(Outcome.DISCARDED, Outcome.REFUSED),
            ]
        )  # fmt: skip
    columns = ["mapping", "taken", "put", "put bytes", "dead-lettered", "discarded"]
    return Section("mappings", "Messages by mapping", columns, rows, ["taken", "put"], "messages")


def _mapping_reasons(found: list[dict[str, Any]]) -> Section:
    """Return the section of why mappings did not put what they took."""
    rows = [
        [one["client_id"], one["outcome"], one["reason"], one["messages"]] for one in found if one["outcome"] not in _MOVED
    ]
    rows.sort(key=lambda row: (-row[3], *map(str, row[:3])))
    columns = ["mapping", "outcome", "reason", "messages"]
    return Section("mapping_reasons", "Not put by mappings, by reason", columns, rows, ["messages"], "messages")
