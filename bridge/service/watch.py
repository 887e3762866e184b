"""Who watches the bridge: as long as somebody asks for counters, the activity of clients is counted."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.service.activity import Activity
from bridge.service.telemetry import TelemetryService
from bridge.wire import cmqc

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
