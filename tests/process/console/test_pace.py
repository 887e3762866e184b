"""Anonymous requests that are sent at once."""

from __future__ import annotations

import socket

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE


def test_requests_that_are_sent_at_once_are_answered_in_turn(bridge: BridgeProcess, console: Console) -> None:
    """This includes requests on one connection. A logged-in user does not wait for them."""
    host, _, port = Console(bridge).place.rpartition(":")
    several, connections = 5, 8
    request = b"GET /login HTTP/1.1\r\nHost: %b\r\n\r\n" % Console(bridge).place.encode()
    sockets = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(connections)]
    try:
        for client in sockets:
            client.sendall(request * several)
        assert console.get("/clients").status == 200
        for client in sockets:
            received = b""
            while received.count(b"HTTP/1.1 200 OK") < several:
                data = client.recv(65_536)
                assert data
                received += data
    finally:
        for client in sockets:
            client.close()
