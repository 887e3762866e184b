"""The history of subscriptions, sessions and connections, reconstructed from the rows of an archive.

Times are microseconds since the epoch. A subscription starts at an unknown time between its SUBSCRIBE and its SUBACK. A
publication received after the SUBACK must be delivered, and one committed before the SUBSCRIBE must not. For publications in
between, both are correct. The same applies to the end of a subscription.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from bridge.archive.schema import Direction
from bridge.telemetry.outcome import Outcome

#: The end of an interval that has not ended.
NEVER: Final = 2**62


class Interval(msgspec.Struct):
    """A subscription of a client, from its start to its end."""

    client_id: str
    topic_filter: str
    qos: int
    durable: bool
    possible_from: int
    certain_from: int
    certain_to: int = NEVER
    possible_to: int = NEVER


class ClientHistory(msgspec.Struct):
    """The connections and session ends of a client identifier."""

    connects: list[int] = []
    #: session ends, at which the backlog is discarded legitimately
    ends: list[int] = []
    #: start of the current connection. None: not connected
    connected: int | None = None


class Gap(msgspec.Struct):
    """A period with missing rows. `rows` is their number, or None if it is unknown because the bridge was killed."""

    start: int
    end: int
    rows: int | None
    #: number of the row that reports the gap
    sequence: int


class SessionHistory:
    """The history, built from rows of direction subscription and archive, in the order of `sequence`."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.clients: defaultdict[str, ClientHistory] = defaultdict(ClientHistory)
        self.gaps: list[Gap] = []
        #: client identifier -> topic filter -> current subscription
        self._open: defaultdict[str, dict[str, Interval]] = defaultdict(dict)
        self._stopped = True
        #: time at which the last row was settled
        self.last = 0

    def read(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows: dictionaries of the archive's columns, with times as numbers."""
        for row in rows:
            if row["direction"] == Direction.ARCHIVE:
                self._archive(row)
            else:
                self._subscription(row)
            self.last = max(self.last, row["settled"])

    def _archive(self, row: dict[str, Any]) -> None:
        outcome, settled = row["outcome"], row["settled"]
        if outcome == Outcome.GAP:
            self.gaps.append(Gap(row["received"], settled, row["size"], row["sequence"]))
        elif outcome == Outcome.STOPPED:
            self._stopped = True
        else:
            if not self._stopped:
                self.gaps.append(Gap(self.last, settled, None, row["sequence"]))
            self._restarted(self.last or settled, settled)
            self._stopped = False

    def _restarted(self, before: int, after: int) -> None:
        """End all connections and clean sessions, which do not survive a restart of the bridge."""
        for client_id, intervals in self._open.items():
            clean = [interval for interval in intervals.values() if not interval.durable]
            for interval in clean:
                self._close(interval, before, after)
            if clean:
                self.clients[client_id].ends.append(after)
        for client in self.clients.values():
            client.connected = None

    def _close(self, interval: Interval, certain: int, possible: int) -> None:
        interval.certain_to, interval.possible_to = certain, possible
        del self._open[interval.client_id][interval.topic_filter]

    def _subscription(self, row: dict[str, Any]) -> None:
        outcome, client_id, topic_filter = row["outcome"], row["client_id"], row["topic"]
        received, settled = row["received"], row["settled"]
        client = self.clients[client_id]
        if outcome == Outcome.SUBSCRIBED:
            self._subscribed(row)
        elif outcome == Outcome.UNSUBSCRIBED:
            interval = self._open[client_id].get(topic_filter)
            if interval is not None:
                self._close(interval, received, settled)
        elif outcome == Outcome.ENDED:
            client.ends.append(settled)
            for interval in self._open.pop(client_id, {}).values():
                interval.certain_to = interval.possible_to = settled
        elif outcome == Outcome.CONNECTED:
            if not client.connects or client.connects[-1] != settled:  # the row is repeated every day
                client.connects.append(settled)
            client.connected = settled
        elif outcome == Outcome.DISCONNECTED:
            client.connected = None

    def _subscribed(self, row: dict[str, Any]) -> None:
        intervals = self._open[row["client_id"]]
        interval = intervals.get(row["topic"])
        if interval is not None:
            if interval.qos == row["qos"]:
                interval.durable = bool(row["durable"])
                return  # repeated row, or repeated SUBSCRIBE: the subscription continues
            self._close(interval, row["received"], row["settled"])
        interval = Interval(
            row["client_id"], row["topic"], row["qos"], bool(row["durable"]), row["received"], row["settled"]
        )
        intervals[interval.topic_filter] = interval
        self.intervals.append(interval)
