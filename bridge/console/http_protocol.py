"""HTTP/1.1 connections of the admin port, none of which waits for ever for a request that does not come."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds in which the head of a request has to come, from when the connection was made or the last request answered.
HEAD_TIMEOUT: Final = 10.0
#: Connections at a time, above which one that waits for the head of a request gives way to a new one.
MOST_CONNECTIONS: Final = 64


class HttpProtocol(H11Protocol):
    """A connection that ends where the head of a request takes too long.

    Where there are many, the one that has waited longest for a head gives way to a new one: silent connections of somebody
    keep nobody out, least of all who asks for the health of the bridge.
    """

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._wait_for_head()

    def _make_room(self) -> None:
        """Cut off the connection that has waited longest for the head of a request."""
        waiting = {
            timer.when(): one
            for one in self.connections
            if isinstance(one, HttpProtocol) and one is not self and (timer := one._head_timer) is not None
        }
        if waiting:
            oldest = waiting[min(waiting)]
            oldest._stop_waiting()
            # It counts no more, though asyncio tells of its end later: many may come in one turn of the event loop.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._is_answering:
            self._stop_waiting()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_answering:
            self.transport.close()
