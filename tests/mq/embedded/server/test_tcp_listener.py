"""Connections over TCP that end in bad ways, or take more than they are owed: what they had is there for others."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.capi import frames
from bridge.mq.embedded.server import protocol
from bridge.mq.embedded.server.admission import Admission
from bridge.mq.embedded.server.client import RemoteConnection
from tests.support.certificate_authority import Authority
from tests.support.patience import eventually
from tests.support.served_queue_manager import ServedQueueManager

#: SO_LINGER of 0 seconds: close sends RST.
RESET = struct.pack("ii", 1, 0)
CONNECT = protocol.frame(protocol.Connect(protocol.PROTOCOL_VERSION, "reset", "", "", b""))
COMMIT = protocol.frame(protocol.Commit())
ROOM = 4


@pytest.mark.parametrize(
    "said",
    [b"", b"\0", CONNECT[:-1], CONNECT, CONNECT + COMMIT, frames.GREETING[:1], frames.GREETING, b"\x16\x03\x01"],
    ids=["nothing", "a byte", "half", "MQCONN", "MQCMIT", "a byte of C", "C", "TLS"],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_reset_gives_its_place_back(said: bytes, tls: bool, tmp_path: Path) -> None:
    """A connection that is reset is counted no more, whenever that happens."""
    options: dict[str, object] = {"max_connections": ROOM}
    if tls:
        Authority(tmp_path).issue("listener")
        options["tls"] = {"certificate_file": tmp_path / "listener.pem", "key_file": tmp_path / "listener.key"}
    (directory := tmp_path / "queue-manager").mkdir()
    with ServedQueueManager(directory, listener=ListenerConfig.model_validate(options)) as served:
        for number in range(3 * ROOM):
            with socket.create_connection(("127.0.0.1", served.port)) as connection:
                if number < ROOM:  # it is accepted first
                    eventually(lambda: served.admission.connections, 1)
                with served.busy():
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    connection.sendall(said)
                    connection.close()
            if number < 2 * ROOM:
                eventually(lambda: served.admission.connections, 0)
        eventually(lambda: served.admission.connections, 0)
        if not tls:
            RemoteConnection(("127.0.0.1", served.port)).disconnect()


def test_a_place_is_given_back_once() -> None:
    """However many find that a connection has ended, one place is free again."""
    admission = Admission(ListenerConfig(max_connections=2))
    first, second = admission.take("192.0.2.1"), admission.take("192.0.2.1")
    assert first is not None and second is not None and admission.take("192.0.2.2") is None
    first.give_back()
    first.give_back()
    assert admission.connections == 1


@pytest.mark.parametrize(
    ("addresses", "taken"),
    [
        (["192.0.2.1", "192.0.2.1", "192.0.2.1"], 2),
        (["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"], 2),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], 2),
        (["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1"], 3),
    ],
)
def test_connections_of_an_address(addresses: list[str], taken: int) -> None:
    """Of IPv6 the 64 bits that somebody has whole count as one address."""
    admission = Admission(ListenerConfig(max_connections_per_address=2))
    assert len([one for one in addresses if admission.take(one) is not None]) == taken
