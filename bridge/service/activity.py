"""The activity of clients and channels, counted while `mqbridge top` or a live view requests it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import nlargest

import msgspec

from bridge.administration.counters import ChannelCounters, ClientRate
from bridge.archive.events import now_us
from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.service.events import Acknowledged, EventBus, Finished, Published
from bridge.service.telemetry import TelemetryService
from bridge.telemetry.session import Session
from bridge.wire import cmqc

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


#: Seconds after the last request for which clients' publications are counted.
SILENCE = 30.0
#: Seconds that the queue manager has to tell the depth of the transmission queue, and to let go of the connection.
DEPTH_TIMEOUT = 2.0


class Watch:
    """Counts while somebody asks, and ends when nobody has for a while. Everything is called on the event loop."""

    def __init__(self, service: TelemetryService, host: Host) -> None:
        self._service = service
        self._host = host
        self.activity: Activity | None = None
        self._depth: _Depth | None = None
        self._end: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None

    def asked(self) -> Activity:
        """Begin, unless it has begun, and go on from now for a while."""
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(SILENCE, self.end)
        if self.activity is None:
            self.activity = Activity(self._service.clock)
            self.activity.listen(self._service.events)
        return self.activity

    async def depth(self) -> int | None:
        """Return how many messages are on the transmission queue; None where the queue manager does not say in time."""
        if self._depth is None:
            self._depth = _Depth(self._host, self._service.backend.transmission_queue)
        return await self._depth.ask()

    def end(self) -> None:
        """Count no more."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self.activity is not None:
            self._service.events.unsubscribe(self.activity)
            self.activity = None
        if self._depth is not None:
            self._ending = self._depth.end()
            self._depth = None

    async def stop(self) -> None:
        """Count no more, and let go of the queue manager."""
        self.end()
        if self._ending is not None:
            await asyncio.wait((self._ending,), timeout=DEPTH_TIMEOUT)


class _Depth:
    """The depth of a queue, asked for by a thread with a connection of its own."""

    def __init__(self, host: Host, queue: str) -> None:
        self._host = host
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, "queue-depth")
        self._connection: Connection | None = None
        self._asking: asyncio.Future[int | None] | None = None

    async def ask(self) -> int | None:
        # While the queue manager keeps one question waiting there is no other.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(self._thread, self._inquire)
        done, _ = await asyncio.wait((self._asking,), timeout=DEPTH_TIMEOUT)
        return self._asking.result() if done else None

    def end(self) -> asyncio.Future[None]:
        ending = asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
        return ending

    # On the thread ---------------------------------------------------------------------------------------------------

    def _inquire(self) -> int | None:
        try:
            if self._connection is None:
                self._connection = self._host.connect("queue depth")
            handle = self._connection.open(MQOD(ObjectName=self._queue), cmqc.MQOO_INQUIRE)
            try:
                (depth,), _ = self._connection.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
            finally:
                self._connection.close(handle)
        except MQError:
            # The status of the bridge says that the queue manager is away; the next question connects anew.
            self._disconnect()
            return None
        return depth

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(MQError):
                connection.disconnect()
