"""TCP connections that end irregularly, or use too many resources: their resources are released."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from bridge.config.queue_manager import ListenerConfig
from bridge.mq import remote as protocol
from bridge.mq.embedded.admission import Admission
from bridge.mq.embedded.server import READ_AHEAD
from bridge.mq.mqi import MQOD, GetOptions
from bridge.mq.remote import GetCall, RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.served_queue_manager import ServedQueueManager

#: SO_LINGER of 0 seconds: close sends RST.
RESET = struct.pack("ii", 1, 0)
CONNECT = protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "reset", "", "", b""))
COMMIT = protocol.frame(protocol.CommitCall())
ROOM = 4


@pytest.mark.parametrize(
    "begin",
    [b"", b"\0", CONNECT[:-1], CONNECT, CONNECT + COMMIT, b"M", b"MQI\x01", b"\x16\x03\x01"],
    ids=["nothing", "a byte", "half", "MQCONN", "MQCMIT", "a byte of another protocol", "another protocol", "TLS"],
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_reset_connection_is_not_counted(begin: bytes, tls: bool, tmp_path: Path) -> None:
    """This applies whenever the reset happens."""
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
                    connection.sendall(begin)
                    connection.close()
            if number < 2 * ROOM:
                eventually(lambda: served.admission.connections, 0)
        eventually(lambda: served.admission.connections, 0)
        if not tls:
            RemoteConnection(("127.0.0.1", served.port)).disconnect()


def test_a_connection_is_subtracted_once() -> None:
    """Even if its end is noticed several times."""
    admission = Admission(ListenerConfig(max_connections=2))
    first, second = admission.take("192.0.2.1"), admission.take("192.0.2.1")
    assert first is not None and second is not None and admission.take("192.0.2.2") is None
    first.give_back()
    first.give_back()
    assert admission.connections == 1


@pytest.mark.parametrize(
    ("addresses", "admitted_count"),
    [
        (["192.0.2.1", "192.0.2.1", "192.0.2.1"], 2),
        (["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"], 2),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], 2),
        (["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1"], 3),
    ],
)
def test_connections_of_an_address_are_limited(addresses: list[str], admitted_count: int) -> None:
    """An IPv6 /64 counts as one address."""
    admission = Admission(ListenerConfig(max_connections_per_address=2))
    assert len([address for address in addresses if admission.take(address) is not None]) == admitted_count


KNOWN = protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "flood", "", "meter", b"right"))
WRONG = protocol.frame(protocol.ConnectCall(protocol.PROTOCOL_VERSION, "flood", "", "meter", b"wrong"))
WAIT = protocol.frame(
    GetCall(1, GetOptions(Options=cmqc.MQGMO_WAIT | cmqc.MQGMO_NO_SYNCPOINT, WaitInterval=cmqc.MQWI_UNLIMITED))
)
OPEN = protocol.frame(protocol.OpenCall(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED))
BROWSING = protocol.frame(protocol.OpenCall(MQOD(ObjectName="Q"), cmqc.MQOO_BROWSE))
BROWSE = protocol.frame(GetCall(1, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_NO_SYNCPOINT)))


def protocol_reply(connection: socket.socket) -> protocol.Reply:
    """Read one reply."""
    (length,) = protocol.LENGTH.unpack(received(connection, protocol.LENGTH.size))
    return msgspec.msgpack.decode(received(connection, length), type=protocol.Reply)


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := connection.recv(size - len(data)))
        assert more, "the connection has ended"
    return data


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedQueueManager]:
    (tmp_path / "data").mkdir()
    (tmp_path / "passwords").write_text("meter:right\n")
    listener = ListenerConfig(password_file=tmp_path / "passwords", failed_connects=1)
    with ServedQueueManager(tmp_path / "data", listener=listener) as served:
        RemoteConnection(tmp_path / "data").command("DEFINE QLOCAL(Q)")
        yield served


@pytest.mark.parametrize(
    ("begin", "most"),
    [(WRONG, 65_536), (KNOWN + OPEN + WAIT, READ_AHEAD)],
    ids=["before it is let in", "while it waits"],
)
def test_a_client_that_sends_without_reading_answers_is_disconnected(
    begin: bytes, most: int, served: ServedQueueManager
) -> None:
    """Requests that wait for an unanswered MQCONN, or for a waiting get, are limited."""
    late = socket.create_connection(("127.0.0.1", served.port))
    late.sendall(WRONG)  # the second failure is answered late
    protocol_reply(late)
    with late, socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(begin)
        sent = 0
        with pytest.raises(OSError):
            for _ in count():
                sent += connection.send(COMMIT * 1000)
    assert sent < most + 16_777_216  # the kernel's buffers
    eventually(lambda: served.admission.connections, 0)


def test_requests_of_a_client_that_does_not_read_wait(served: ServedQueueManager) -> None:
    """They wait until the previous replies have been read. Then all are answered."""
    size, requests = 100_000, 400
    writer = RemoteConnection(served.directory)
    writer.put1(MQOD(ObjectName="Q"), Message(MQMD(), bytes(size)))
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(KNOWN + BROWSING + BROWSE * requests)
        eventually(lambda: [connection._full for connection in served.tcp_connections()], [True])
        (conversation,) = served.tcp_connections()
        assert conversation._transport is not None and conversation._transport.get_write_buffer_size() < 3 * size
        replies = [protocol_reply(connection) for _ in range(requests + 2)]
    assert {reply.reason for reply in replies} == {cmqc.MQRC_NONE}
    assert all(len(reply.result) > size for reply in replies[2:])
