"""Recent activity for the console and `mqbridge top`, kept in memory.

Counts of clients and channels, rates and gauges of the last 24 hours, and events and messages of individual clients.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from heapq import nlargest
from itertools import pairwise
from typing import Final

import msgspec

from bridge.administration.answers import History
from bridge.administration.counters import ChannelCounters, ClientRate
from bridge.clock import now_us
from bridge.config.models import Configuration
from bridge.mq.host import Host
from bridge.service.events import Acknowledged, Finished, Published
from bridge.service.periodic import repeated
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.telemetry import TelemetryService
from bridge.telemetry.session import Session

#: Minimum length of a measurement window in seconds.
WINDOW = 1.0
#: Maximum number of clients counted individually in one window.
MAX_CLIENTS = 50_000
#: Seconds after the last request until counting stops.
IDLE_TIMEOUT = 30.0


class _Client:
    __slots__ = ("channel", "received", "sent")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.received = 0
        self.sent = 0


class Activity:
    """Counts publications and deliveries per client, until IDLE_TIMEOUT seconds after the last request.

    All methods are called on the event loop.
    """

    def __init__(self, service: TelemetryService) -> None:
        self._service = service
        #: the timer that stops counting, or None if nothing is counted
        self._end: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        #: start of the counting, in seconds since the epoch
        self.since = time.time()
        #: by name
        self.channels: dict[str, ChannelCounters] = {}
        #: by client identifier, in the current and in the last complete window
        self._now: dict[str, _Client] = {}
        self._last: dict[str, _Client] = {}
        self._begun = self._service.clock()
        self._length = 0.0

    def keep_counting(self) -> Activity:
        """Start counting if necessary, and restart the timeout."""
        if self._end is not None:
            self._end.cancel()
        else:
            self._reset()
            self._service.events.attach(self)
        self._end = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self.end)
        return self

    def end(self) -> None:
        """Stop counting."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
            self._service.events.unsubscribe(self)

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
        """Return the counters of a channel, with its number of connected clients."""
        counters = self.channels.get(channel) or ChannelCounters(name=channel, clients=0)
        return msgspec.structs.replace(counters, clients=clients)

    def busiest(self, most: int) -> list[ClientRate]:
        """Return the busiest clients of the last complete window."""
        self._turn()
        clients = nlargest(most, self._last.items(), key=lambda entry: entry[1].received + entry[1].sent)
        return [
            ClientRate(
                client_id=client_id,
                channel=counters.channel,
                received=counters.received / self._length,
                sent=counters.sent / self._length,
            )
            for client_id, counters in clients
        ]

    def rates(self) -> Callable[[str], tuple[float, float] | None]:
        """Return a function that returns the rates of a client, received and sent, in the last complete window.

        It returns None until a window is complete.
        """
        self._turn()
        last, length = self._last, self._length
        if not length:
            return lambda client_id: None
        nothing = _Client("")

        def of(client_id: str) -> tuple[float, float]:
            client = last.get(client_id, nothing)
            return client.received / length, client.sent / length

        return of

    def _turn(self) -> None:
        """Begin a new window if the current one is complete."""
        now = self._service.clock()
        if now - self._begun >= WINDOW:
            self._last, self._now = self._now, {}
            self._length, self._begun = now - self._begun, now

    def _sent(self, session: Session, messages: int) -> None:
        if messages > 0:
            self._channel(session).sent += messages
            client = self._client(session)
            if client is not None:
                client.sent += messages

    def _channel(self, session: Session) -> ChannelCounters:
        counters = self.channels.get(session.channel)
        if counters is None:
            counters = self.channels[session.channel] = ChannelCounters(name=session.channel, clients=0)
        return counters

    def _client(self, session: Session) -> _Client | None:
        counters = self._now.get(session.client_id)
        if counters is None and len(self._now) < MAX_CLIENTS:
            counters = self._now[session.client_id] = _Client(session.channel)
        return counters


#: Seconds between samples, and number of samples kept, for the last 10 minutes and for the last 24 hours.
INTERVAL: Final = 1.0
FINE: Final = 600
COARSE_INTERVAL: Final = 60.0
COARSE: Final = 1_440
#: Maximum number of points in an answer. Neighbouring samples are combined into one point.
MAX_POINTS: Final = 240


class Sample(msgspec.Struct, frozen=True):
    """The state of the bridge at one time. Message counts are totals since the start."""

    #: seconds since the epoch
    time: float
    published: int
    delivered: int
    clients: int
    sessions: int
    #: messages on the transmission queue and the dead-letter queue, or None if the queue manager does not answer
    backlog: int | None
    dead_letters: int | None


class HistoryRecorder:
    """Takes samples on the event loop of the bridge. `totals` returns the messages published by and delivered to clients."""

    def __init__(
        self,
        service: TelemetryService,
        totals: Callable[[], tuple[int, int]],
        watch: QueueManagerWatch,
        host: Host,
        configuration: Callable[[], Configuration],
    ) -> None:
        self._service = service
        self._totals = totals
        self._watch = watch
        self._host = host
        self._configuration = configuration
        self._fine: deque[Sample] = deque(maxlen=FINE + 1)
        self._coarse: deque[Sample] = deque(maxlen=COARSE + 1)

    def recording(self) -> AbstractContextManager[None]:
        """Take samples until the context ends."""
        return repeated(self._add_sample, INTERVAL, "taking a sample of the activity")

    async def _add_sample(self) -> None:
        self.add(self._sample())

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self._fine.append(sample)
        if not self._coarse or sample.time - self._coarse[-1].time >= COARSE_INTERVAL:
            self._coarse.append(sample)

    def _sample(self) -> Sample:
        status, (published, delivered) = self._watch.latest, self._totals()
        depths: dict[str, int] = {} if status is None else {queue.name: queue.depth for queue in status.queues}
        dead_letter_queue = self._host.dead_letter_queue or ("" if status is None else status.dead_letter_queue)
        return Sample(
            time=time.time(),
            published=published,
            delivered=delivered,
            clients=len(self._service.clients),
            sessions=len(self._service.sessions),
            backlog=depths.get(self._configuration().transmission_queue),
            dead_letters=depths.get(dead_letter_queue),
        )

    def history(self, seconds: float, now: float) -> History:
        """Return the samples of the last `seconds` seconds, combined into at most MAX_POINTS points."""
        ring = self._fine if seconds <= FINE * INTERVAL else self._coarse
        samples = [sample for sample in ring if sample.time >= now - seconds]
        if ring is self._coarse and self._fine:
            samples += [sample for sample in (self._fine[-1],) if not samples or sample.time > samples[-1].time]
        step = max(-(-len(samples) // MAX_POINTS), 1)
        # Groups end at the newest sample.
        chosen = samples[::-1][::step][::-1]
        return History(
            times=[sample.time for sample in chosen],
            published=_rates(chosen, [sample.published for sample in chosen]),
            delivered=_rates(chosen, [sample.delivered for sample in chosen]),
            clients=[sample.clients for sample in chosen],
            sessions=[sample.sessions for sample in chosen],
            backlog=[sample.backlog for sample in chosen],
            dead_letters=[sample.dead_letters for sample in chosen],
        )


def _rates(samples: Sequence[Sample], totals: Sequence[int]) -> list[float | None]:
    """Return the increase per second before each sample, or None for the first one."""
    rates: list[float | None] = [None] if samples else []
    for (before, first), (after, second) in pairwise(zip(samples, totals, strict=True)):
        seconds = after.time - before.time
        rates.append(max(second - first, 0) / seconds if seconds > 0 else 0.0)
    return rates
