"""The activity of clients and channels, counted while somebody looks at it, a batch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import nlargest

import msgspec

from bridge.administration.counters import ChannelCounters, ClientRate
from bridge.archive.events import now_us
from bridge.service.events import Acknowledged, EventBus, Finished, Published
from bridge.telemetry.session import Session

#: Seconds of a client's activity that are looked at together, at least.
WINDOW = 1.0
#: Clients that are told apart in one window.
MOST_CLIENTS = 50_000


class _Client:
    __slots__ = ("channel", "received", "sent")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.received = 0
        self.sent = 0


class Activity:
    """Counts what clients publish and get. Everything is called on the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: seconds since the epoch
        self.since = time.time()
        #: by name
        self.channels: dict[str, ChannelCounters] = {}
        #: by client identifier, in the window that is under way and in the last one that is over
        self._now: dict[str, _Client] = {}
        self._last: dict[str, _Client] = {}
        self._begun = clock()
        self._length = 0.0

    def listen(self, events: EventBus) -> None:
        """Subscribe to the events of a service."""
        events.subscribe(Published, self._published)
        events.subscribe(Acknowledged, self._acknowledged)
        events.subscribe(Finished, self._finished)

    def _published(self, event: Published) -> None:
        channel = self._channel(event.session)
        channel.received += len(event.publications)
        channel.units += 1
        channel.unit_seconds += (now_us() - event.received_at) / 1e6
        client = self._client(event.session)
        if client is not None:
            client.received += len(event.publications)

    def _acknowledged(self, event: Acknowledged) -> None:
        self._sent(event.session, len(event.effects.acknowledged) + len(event.effects.released))

    def _finished(self, event: Finished) -> None:
        self._sent(event.session, len(event.transmissions) - len(event.discarded))

    def of(self, channel: str, clients: int) -> ChannelCounters:
        """Return the counters of a channel, which has so many clients."""
        found = self.channels.get(channel) or ChannelCounters(name=channel, clients=0)
        return msgspec.structs.replace(found, clients=clients)

    def busiest(self, most: int) -> list[ClientRate]:
        """Return the clients that have sent and got most in the last window that is over, of 1 s or more."""
        now = self._clock()
        if now - self._begun >= WINDOW:
            self._last, self._now = self._now, {}
            self._length, self._begun = now - self._begun, now
        found = nlargest(most, self._last.items(), key=lambda one: one[1].received + one[1].sent)
        return [
            ClientRate(
                client_id=client_id,
                channel=one.channel,
                received=one.received / self._length,
                sent=one.sent / self._length,
            )
            for client_id, one in found
        ]

    def _sent(self, session: Session, messages: int) -> None:
        if messages > 0:
            self._channel(session).sent += messages
            client = self._client(session)
            if client is not None:
                client.sent += messages

    def _channel(self, session: Session) -> ChannelCounters:
        found = self.channels.get(session.channel)
        if found is None:
            found = self.channels[session.channel] = ChannelCounters(name=session.channel, clients=0)
        return found

    def _client(self, session: Session) -> _Client | None:
        found = self._now.get(session.client_id)
        if found is None and len(self._now) < MOST_CLIENTS:
            found = self._now[session.client_id] = _Client(session.channel)
        return found
