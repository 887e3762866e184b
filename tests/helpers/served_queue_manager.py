"""An embedded queue manager on a separate thread and event loop, as in the bridge, also for other processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvloop

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.embedded.admission import Admission
from bridge.mq.embedded.handles import invalidate, open_handles
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server import ApplicationServer, Conversation
from tests.helpers.patience import PATIENCE
from tests.ibm_standin import frames
from tests.ibm_standin.channels import instances_of
from tests.ibm_standin.pcf.command_server import CommandServer
from tests.ibm_standin.rules import Present
from tests.ibm_standin.server import StandInServer


class ServedQueueManager:
    """It listens from the start, on a socket in its directory, and with `tcp` also on `port`."""

    def __init__(
        self,
        directory: Path,
        name: str = "MQB1",
        *,
        listener: ListenerConfig | None = None,
        tcp: bool = False,
        authorities: bool = False,
        objects: bool = True,
        commands: bool = True,
        max_channels: int | None = 100,
        stand_in: bool = False,
        channels: Sequence[str] = (),
        msg_ids: str | None = None,
    ) -> None:
        """Start it, with the objects that the bridge needs (`objects`) and a command server (`commands`).

        `listener` specifies the authentication over TCP. `max_channels` is MaxChannels of qm.ini, with IBM's default. With
        `stand_in` it serves programs in C, over TCP with `channels` or any, and has the PCF commands of the stand-in.
        `msg_ids` is the form of generated MsgIds there (`tests.ibm_standin.message_identifiers`).
        """
        self.directory = directory
        self.itself = QueueManager(name, directory)
        instances_of(self.itself).max_channels = max_channels
        if authorities:
            self.itself.enforce_authorities()
        if objects:
            prepare(self.itself)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._thread.start()
        self.itself.recovery_log.dispatch = self._loop.call_soon_threadsafe
        if commands and stand_in:
            CommandServer(self.itself).start()
        self.itself.objects.connection_authentication.asks = listener is not None and not listener.believes
        self.admission = Admission(listener, self.itself.objects.connection_authentication)
        self._server = (
            StandInServer(self.itself, self.admission, channels, msg_ids)
            if stand_in
            else ApplicationServer(self.itself, self.admission)
        )
        self._done(self._server.listen(("127.0.0.1", 0) if tcp or listener is not None else None))
        self.port = self._server.port

    def _done(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    @property
    def place(self) -> str:
        """Return its address for the stand-in for IBM's client library: the value of MQI_STANDIN."""
        return f"unix:{self.directory / frames.SOCKET_NAME}"

    @property
    def present(self) -> Present:
        """Return the rules of the stand-in: rejections, delays and counters."""
        assert isinstance(self._server, StandInServer)
        return self._server.present

    def invalidate_handles(self) -> None:
        """Make all open handles invalid, as REFRESH CLUSTER does for objects of a cluster (MQRC_OBJECT_CHANGED)."""
        with self.itself.lock:
            invalidate(open_handles(self.itself))

    def tcp_connections(self) -> list[Conversation]:
        """Return the connections over TCP."""
        return [connection for connection in list(self._server.connections) if connection.slot is not None]

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Stop its event loop. Events of this time are processed together afterwards."""
        arrived, ends = threading.Event(), threading.Event()

        def wait() -> None:
            arrived.set()
            ends.wait(PATIENCE)

        self._loop.call_soon_threadsafe(wait)
        assert arrived.wait(PATIENCE)
        try:
            yield
        finally:
            ends.set()

    def close(self) -> None:
        """End it for all."""
        try:
            self._done(self._server.close())
        finally:
            self.itself.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
