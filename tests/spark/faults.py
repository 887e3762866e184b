"""Faults of the embedded queue manager: an action is executed at the n-th verb of an application."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psutil
import pytest

from bridge.mq.embedded.server import ApplicationProtocol
from bridge.wire import cmqc


class Fault:
    """A fault: at the `count`-th request that `wanted` selects, `action` is called before the request (or after it).

    Then the connection breaks, as if the process had ended.
    """

    def __init__(
        self,
        wanted: Callable[[str, list[Any]], bool],
        count: int = 1,
        *,
        after: bool = False,
        action: Callable[[int], None] | None = None,
    ) -> None:
        self.wanted = wanted
        self.count = count
        self.after = after
        self.action = action
        self.happened = False

    def strikes(self, verb: str, request: list[Any]) -> bool:
        if self.happened or not self.wanted(verb, request):
            return False
        self.count -= 1
        self.happened = self.count == 0
        return self.happened


@contextmanager
def fault(application: str, *faults: Fault) -> Iterator[list[str]]:
    """Within the block, faults affect the connections of an application. Yield the verbs that it requested.

    A fault at any verb of a batch counts as a fault before (or after) the whole batch.
    """
    verbs: list[str] = []
    work = ApplicationProtocol._work

    def watched(self: ApplicationProtocol, request: bytes) -> None:
        verb, *rest = msgspec.msgpack.decode(request)
        if self._hconn is None or self._hconn.name != application:
            work(self, request)
            return
        singles = _singles(verb, rest)
        verbs.extend(verb_of_single for verb_of_single, _ in singles)
        struck = next((candidate for candidate in faults for single in singles if candidate.strikes(*single)), None)
        if struck is None:
            work(self, request)
            return
        try:
            if struck.after:
                work(self, request)
        finally:  # a verb may also fail
            if struck.action is not None:
                struck.action(_process(self))
            self.abort()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApplicationProtocol, "_work", watched)
        yield verbs


def _singles(verb: str, request: list[Any]) -> list[tuple[str, list[Any]]]:
    """Return the verbs in a batch of verbs, or any other verb itself."""
    if verb != "pipeline":
        return [(verb, request)]
    return [(kind, arguments) for kind, *arguments in request[0]]


def _process(conversation: ApplicationProtocol) -> int:
    """Return the process at the other end of a connection."""
    assert conversation._transport is not None
    connection = conversation._transport.get_extra_info("socket")
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def kill_driver(process: int) -> None:
    """Kill a driver: Python, and its JVM, which has a separate process group."""
    python = psutil.Process(process)
    for child in (*python.children(), python):
        child.kill()


# Which request it is: arguments of the verb as `bridge.mq.remote` has them ----------------------------


def is_taken(request: list[Any]) -> bool:
    """Return whether a verb is MQGET of a reader that removes a message."""
    options = request[1]
    return bool(options.get("Options", 0) & cmqc.MQGMO_SYNCPOINT) and "CorrelId" not in options


def is_marker(request: list[Any]) -> bool:
    """Return whether a verb is MQPUT of a writer's own data."""
    md = request[1][1]
    return bool(md.get("CorrelId", b"").startswith(b"SPK"))


def is_state(request: list[Any]) -> bool:
    """Return whether a verb is MQPUT of the state of a query, which is in each unit of work of a writer."""
    return bool(request[1][1].get("CorrelId", b"").startswith(b"SPKB"))
