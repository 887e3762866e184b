"""What was found for each client, topic and QoS."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bridge.archive.audit.names import Names
from bridge.archive.audit.verdict import BROKEN, Counts


class Finding(msgspec.Struct):
    """The counts of one client, topic and QoS; `slowest` in seconds from commit to acknowledgement, None without any."""

    client_id: str
    topic: str
    qos: int
    counts: Counts
    slowest: float | None
    first: dict[str, int] = {}

    def add(self, kind: str, number: int) -> None:
        """Count so many more of a kind."""
        setattr(self.counts, kind, getattr(self.counts, kind) + number)

    def see(self, kind: str, row: int) -> None:
        """Remember the first row of a breach."""
        if kind in BROKEN:
            self.first[kind] = min(row, self.first.get(kind, row))


class Findings:
    """Adds up what the parts of an archive say. What it is given names client, topic and QoS by number."""

    def __init__(self, names: Names) -> None:
        self._names = names.names
        self._found: dict[tuple[int, int, int], Finding] = {}

    def add(self, counted: Iterable[dict[str, Any]]) -> None:
        """Add what `counted` returns."""
        for one in counted:
            finding = self._of(one)
            finding.add(one["kind"], one["count"])
            finding.see(one["kind"], one["row"])
            for name in ("expected", "late"):
                finding.add(name, one[name])
            if one["slowest"] is not None:
                taken = one["slowest"] / 1_000_000
                finding.slowest = taken if finding.slowest is None else max(taken, finding.slowest)

    def add_disordered(self, disordered: Iterable[dict[str, Any]]) -> None:
        """Add deliveries that are counted already, and came behind a later one."""
        for one in disordered:
            finding = self._of(one)
            finding.add("disordered", one["count"])
            finding.see("disordered", one["row"])

    def add_lost(self, overtaken: Iterable[dict[str, Any]]) -> None:
        """Have deliveries lost that were counted as pending."""
        for one in overtaken:
            finding = self._of(one)
            finding.add("pending", -one["count"])
            finding.add("lost", one["count"])
            finding.see("lost", one["row"])

    def worst_first(self) -> list[Finding]:
        """Return the findings, those with breaches first, then by number of deliveries."""
        return sorted(self._found.values(), key=_worst)

    def _of(self, one: dict[str, Any]) -> Finding:
        key = one["client"], one["topic"], one["qos"]
        found = self._found.get(key)
        if found is None:
            found = Finding(self._names[one["client"]], self._names[one["topic"]], one["qos"], Counts(), None)
            self._found[key] = found
        return found


def _worst(one: Finding) -> tuple[int, int, str, str, int]:
    counts = one.counts
    broken = counts.lost + counts.doubled + counts.disordered
    return -broken, -counts.expected, one.client_id, one.topic, one.qos
