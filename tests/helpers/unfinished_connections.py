"""Connections that start a request and never complete it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from tests.helpers.patience import PATIENCE


@contextlib.contextmanager
def unfinished_connections(host: str, port: int, count: int, sent: bytes) -> Iterator[socket.socket]:
    """Make this number of connections, each with these first bytes. Yield the first of them."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection((host, port), PATIENCE)))
            sockets[-1].sendall(sent)
        yield sockets[0]


def assert_cut_off(connection: socket.socket) -> None:
    """Wait until the other side has closed or reset it, without data."""
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
