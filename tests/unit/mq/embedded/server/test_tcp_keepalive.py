"""Both sides of an MQ connection over TCP use keep-alive. Unix sockets do not need it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bridge.mq.remote import RemoteConnection
from tests.helpers.served_queue_manager import ServedQueueManager


def asks(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


@pytest.mark.parametrize("tcp", [False, True])
def test_both_sides_use_keepalive(tcp: bool, tmp_path: Path) -> None:
    with ServedQueueManager(tmp_path, tcp=tcp) as served:
        connection = RemoteConnection(("127.0.0.1", served.port) if tcp else tmp_path)
        (conversation,) = served._server.connections
        server = conversation._transport.get_extra_info("socket")
        assert asks(server) == asks(connection._socket) == tcp
        if tcp:
            minute = 60_000
            assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == minute
            questions = [
                server.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert questions == [30, 10, 3]
        connection.disconnect()
