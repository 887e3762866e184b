"""What clients could expect, and when: subscriptions, sessions and connections, out of the rows of an archive.

Times are microseconds since the epoch. A subscription begins somewhere between its SUBSCRIBE and its SUBACK: a publication
that came after the SUBACK has to be delivered, one that was committed before the SUBSCRIBE must not, and of those between
nothing can be said. Its end is as blurred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from bridge.archive.schema import Direction, Outcome

#: An end that has not come.
NEVER: Final = 2**62


class Interval(msgspec.Struct):
    """A subscription of a client, from its making to its end."""

    client_id: str
    topic_filter: str
    qos: int
    durable: bool
    possible_from: int
    certain_from: int
    certain_to: int = NEVER
    possible_to: int = NEVER


class Client(msgspec.Struct):
    """The connections and session ends of one client identifier."""

    connects: list[int] = []
    #: ends of sessions: what waited then is gone by right
    ends: list[int] = []
    #: since when it is connected; None while it is away
    connected: int | None = None


class Gap(msgspec.Struct):
    """A time in which rows are missing. `rows` is how many; None where the bridge was killed and nobody counted."""

    start: int
    end: int
    rows: int | None
    #: number of the row that tells of it
    sequence: int


class History:
    """Read from rows of direction subscription and archive, in the order of `sequence`."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.clients: defaultdict[str, Client] = defaultdict(Client)
        self.gaps: list[Gap] = []
        #: client identifier -> topic filter -> subscription
        self._open: defaultdict[str, dict[str, Interval]] = defaultdict(dict)
        self._stopped = True
        #: when the last of the rows was settled
        self.last = 0

    def read(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take in rows: dictionaries of the archive's columns, times as numbers."""
        for one in rows:
            if one["direction"] == Direction.ARCHIVE:
                self._archive(one)
            else:
                self._subscription(one)
            self.last = max(self.last, one["settled"])

    def _archive(self, one: dict[str, Any]) -> None:
        outcome, settled = one["outcome"], one["settled"]
        if outcome == Outcome.GAP:
            self.gaps.append(Gap(one["received"], settled, one["size"], one["sequence"]))
        elif outcome == Outcome.STOPPED:
            self._stopped = True
        else:
            if not self._stopped:
                self.gaps.append(Gap(self.last, settled, None, one["sequence"]))
            self._restarted(self.last or settled, settled)
            self._stopped = False

    def _restarted(self, before: int, after: int) -> None:
        """End connections and clean sessions, which did not outlive the bridge."""
        for client_id, held in self._open.items():
            clean = [interval for interval in held.values() if not interval.durable]
            for interval in clean:
                self._close(interval, before, after)
            if clean:
                self.clients[client_id].ends.append(after)
        for client in self.clients.values():
            client.connected = None

    def _close(self, interval: Interval, certain: int, possible: int) -> None:
        interval.certain_to, interval.possible_to = certain, possible
        del self._open[interval.client_id][interval.topic_filter]

    def _subscription(self, one: dict[str, Any]) -> None:
        outcome, client_id, topic_filter = one["outcome"], one["client_id"], one["topic"]
        received, settled = one["received"], one["settled"]
        client = self.clients[client_id]
        if outcome == Outcome.SUBSCRIBED:
            self._subscribed(one)
        elif outcome == Outcome.UNSUBSCRIBED:
            interval = self._open[client_id].get(topic_filter)
            if interval is not None:
                self._close(interval, received, settled)
        elif outcome == Outcome.ENDED:
            client.ends.append(settled)
            for interval in self._open.pop(client_id, {}).values():
                interval.certain_to = interval.possible_to = settled
        elif outcome == Outcome.CONNECTED:
            if not client.connects or client.connects[-1] != settled:  # each day says it again
                client.connects.append(settled)
            client.connected = settled
        elif outcome == Outcome.DISCONNECTED:
            client.connected = None

    def _subscribed(self, one: dict[str, Any]) -> None:
        held = self._open[one["client_id"]]
        interval = held.get(one["topic"])
        if interval is not None:
            if interval.qos == one["qos"]:
                interval.durable = bool(one["durable"])
                return  # said again, or subscribed to again: it goes on
            self._close(interval, one["received"], one["settled"])
        interval = Interval(
            one["client_id"], one["topic"], one["qos"], bool(one["durable"]), one["received"], one["settled"]
        )
        held[interval.topic_filter] = interval
        self.intervals.append(interval)
