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

    Where there are many, the one of whose request most time has passed gives way to a new one: connections of somebody that
    are silent or slow keep nobody out, least of all who asks for the health of the bridge.
    """

    _head_timer: asyncio.TimerHandle | None = None
    #: since when a request is awaited, by the clock of the event loop
    _awaited_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._wait_for_head()

    def _make_room(self) -> None:
        """Cut off the connection that has waited longest for a request, or for the rest of one."""
        waiting = [
            one for one in self.connections if isinstance(one, HttpProtocol) and one is not self and one._is_waiting
        ]
        if waiting:
            oldest = min(waiting, key=lambda one: one._awaited_since)
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

    def shutdown(self) -> None:
        """End: a request that has not come in full is not waited for."""
        if self._is_sent_to:
            self.transport.abort()
        else:
            super().shutdown()

    @property
    def _is_waiting(self) -> bool:
        """Return whether the head of a request is awaited, or the rest of its body."""
        return self._head_timer is not None or self._is_sent_to

    @property
    def _is_sent_to(self) -> bool:
        """Return whether the rest of a request is awaited."""
        return self._is_answering and bool(self.cycle.more_body)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._is_answering:
            self._stop_waiting()
        elif self._head_timer is None:
            self._awaited_since = self.loop.time()
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_answering:
            self.transport.close()
