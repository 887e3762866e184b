"""The audit in plain Python, row by row, for comparison with the columnar one."""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import Any, NamedTuple

from bridge.archive.audit import BROKEN, MARGIN, TIMEOUT, Counts, MappingCounts
from bridge.archive.history import SessionHistory
from bridge.archive.schema import Direction
from bridge.mqtt.topics import matches
from bridge.telemetry.outcome import Outcome

Row = dict[str, Any]
Key = tuple[str, str, int]


class Wanted(NamedTuple):
    """A delivery that a publication allows. `rank` is 0 if it is required."""

    rank: int
    row: Row
    qos: int


def history_of(rows: list[Row]) -> SessionHistory:
    history = SessionHistory()
    history.read(row for row in rows if row["direction"] in (Direction.SUBSCRIPTION, Direction.ARCHIVE))
    for gap in history.gaps:
        if gap.rows is None:
            gap.start = max((row["settled"] for row in rows if row["sequence"] < gap.sequence), default=gap.start)
    return history


def wanted(rows: list[Row], history: SessionHistory) -> dict[Any, list[Wanted]]:
    copies: dict[Any, list[Wanted]] = defaultdict(list)
    for row in rows:
        if row["direction"] != Direction.IN or row["outcome"] != Outcome.PUT:
            continue
        held = [interval for interval in history.intervals if matches(interval.topic_filter, row["topic"])]
        for client_id in {interval.client_id for interval in held}:
            own = [interval for interval in held if interval.client_id == client_id]
            own = [
                interval
                for interval in own
                if interval.possible_from <= row["settled"] and row["received"] <= interval.possible_to
            ]
            certain = [
                interval
                for interval in own
                if interval.certain_from < row["received"] and row["settled"] < interval.certain_to
            ]
            for copy, _ in enumerate(own, 1):
                qos = min(row["qos"], max(interval.qos for interval in certain or own))
                rank = 0 if certain and copy == 1 else copy
                copies[(client_id, *identity(row))].append(Wanted(rank, row, qos))
    return copies


def identity(row: Row) -> tuple[Any, ...]:
    return row["publisher"], row["topic"], row["publisher_message_id"], row["payload_hash"]


def deliveries_of(rows: list[Row]) -> dict[Any, list[Row]]:
    by_identity: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row["direction"] == Direction.OUT and row["publisher"] and not row["retain"] and row["replayed"] is None:
            by_identity[(row["client_id"], *identity(row))].append(row)
    return by_identity


def audit(
    rows: list[Row], low: int, high: int, late: float | None
) -> dict[Key, tuple[Counts, dict[str, int], float | None]]:
    """Return counts, first rows of breaches and the longest time, by client, topic and QoS."""
    rows = sorted(rows, key=lambda row: row["sequence"])
    history = history_of(rows)
    margin = MARGIN.total_seconds() * 1_000_000
    near = [row for row in rows if low - margin <= row["received"] <= high + margin]
    moved = [row["settled"] for row in near if row["direction"] in (Direction.IN, Direction.OUT)]
    archive_end = max([history.last, *moved])
    expected, delivered = wanted(near, history), deliveries_of(near)
    pairs = []
    for key in expected.keys() | delivered.keys():
        both = zip_longest(
            sorted(expected[key], key=lambda expected: (expected.rank, expected.row["sequence"])), delivered[key]
        )
        for place, (wanted_row, out) in enumerate(both):
            if out is not None or (wanted_row is not None and wanted_row.rank == 0):
                pairs.append((key, place, wanted_row, out))
    flows: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, _, wanted_row, out in pairs:
        if wanted_row is not None and out is not None and wanted_row.rank <= 1 and fate(out) == "delivered":
            flows[(*key[:3], out["qos"])].append((out["sequence"], wanted_row.row["sequence"]))
    totals: dict[Key, tuple[Counts, dict[str, int], float | None]] = {}
    for key, place, wanted_row, out in pairs:
        if not low <= (wanted_row.row if wanted_row is not None else out)["received"] < high:
            continue
        qos = out["qos"] if out is not None else wanted_row.qos
        flow = flows[(*key[:3], qos)]
        counts, first, slowest = totals.get((key[0], key[2], qos), (Counts(), {}, None))
        kinds = []
        if wanted_row is not None and wanted_row.rank == 0:
            kinds.append("expected")
        if out is None:
            overtaken = any(number > wanted_row.row["sequence"] for _, number in flow)
            kinds.append(
                absence(wanted_row, history, key[0], overtaken, archive_end, TIMEOUT if late is None else late)
            )
        elif wanted_row is None:
            kinds.append(surplus(out, place, history))
        else:
            kinds.append(fate(out))
            if fate(out) == "delivered":
                latency = (out["settled"] - wanted_row.row["settled"]) / 1_000_000
                slowest = latency if slowest is None else max(slowest, latency)
                connects = [time for time in history.clients[key[0]].connects if time <= out["settled"]]
                there = max(connects, default=wanted_row.row["settled"])
                if late is not None and (out["settled"] - max(there, wanted_row.row["settled"])) > late * 1_000_000:
                    kinds.append("late")
                earlier = [number for sent, number in flow if sent < out["sequence"]]
                if wanted_row.rank <= 1 and any(number > wanted_row.row["sequence"] for number in earlier):
                    kinds.append("disordered")
        for kind in kinds:
            setattr(counts, kind, getattr(counts, kind) + 1)
            if kind in BROKEN:
                number = (out or wanted_row.row)["sequence"]
                first[kind] = min(number, first.get(kind, number))
        totals[key[0], key[2], qos] = counts, first, slowest
    return totals


def fate(out: Row) -> str:
    return {Outcome.DEAD_LETTERED: "dead_lettered", Outcome.DISCARDED: "discarded"}.get(out["outcome"], "delivered")


def absence(
    expected: Wanted, history: SessionHistory, client_id: str, overtaken: bool, archive_end: int, patience: float
) -> str:
    client = history.clients[client_id]
    if expected.qos == 0:
        return "missing"
    if max(client.ends, default=0) >= expected.row["received"]:
        return "ended"
    if any(expected.row["received"] <= gap.end for gap in history.gaps):
        return "unknown"
    if not overtaken:
        since = max(expected.row["settled"], client.connected or 0)
        if client.connected is None or archive_end - since < patience * 1_000_000:
            return "pending"
    return "lost"


def surplus(out: Row, place: int, history: SessionHistory) -> str:
    if fate(out) != "delivered" or not place:
        return "unmatched"
    if any(gap.start <= out["received"] <= gap.end for gap in history.gaps):
        return "unknown"
    return "repeated" if out["qos"] == 1 else "doubled"


def mappings(rows: list[Row], low: int, high: int, late: float | None) -> list[MappingCounts]:
    """Return the counts of each mapping."""
    totals: dict[str, MappingCounts] = {}
    earlier_keys: set[Any] = set()
    for row in sorted(rows, key=lambda row: row["sequence"]):
        if row["direction"] != Direction.MAPPED or not low <= row["received"] < high:
            continue
        counts = totals.setdefault(row["client_id"], MappingCounts(row["client_id"]))
        counts.taken += 1
        if row["outcome"] == Outcome.DEAD_LETTERED:
            counts.dead_lettered += 1
        elif row["outcome"] in (Outcome.DISCARDED, Outcome.REFUSED):
            counts.discarded += 1
        else:
            counts.put += 1
            latency = row["settled"] - row["received"]
            counts.late += late is not None and latency > late * 1_000_000
            seconds = latency / 1_000_000
            counts.slowest = seconds if counts.slowest is None else max(seconds, counts.slowest)
            by_id = row["msg_id"] is not None
            key = row["client_id"], row["msg_id"] if by_id else identity(row)
            dup = row["publisher_message_id"] > 0 and row["times_sent"] > 1
            counts.doubled += key in earlier_keys and (by_id or dup)
            earlier_keys.add(key)
    return sorted(totals.values(), key=lambda counts: counts.mapping)
