"""The response to bytes that no library sends, on a connection of a C program."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from bridge.wire import cmqc
from tests.helpers.client_programs import Manager
from tests.ibm_standin import frames
from tests.ibm_standin.frames import Verb


def connect(manager: Manager, greeting: bytes = frames.GREETING) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(manager.directory / frames.SOCKET_NAME))
    connection.sendall(greeting)
    return connection


def request(verb: int, fields: bytes = b"") -> bytes:
    return struct.pack("<Ii", 4 + len(fields), verb) + fields


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        frames.GREETING + struct.pack("<Ii", 0x7FFFFFFF, 1),
        frames.GREETING + request(99),
        frames.GREETING + request(Verb.MQCONN, b"\x30\0\0\0short"),
    ],
    ids=["another protocol", "too long", "no verb", "ends too early"],
)
def test_connection_is_closed(manager: Manager, sent: bytes) -> None:
    with connect(manager, sent) as connection:
        assert connection.recv(100) == b""


def test_verb_before_mqconn(manager: Manager) -> None:
    with connect(manager) as connection:
        connection.sendall(request(Verb.MQCMIT))
        assert struct.unpack("<Iii", connection.recv(12)) == (8, cmqc.MQCC_FAILED, cmqc.MQRC_HCONN_ERROR)


def test_bytes_that_arrive_one_by_one(manager: Manager) -> None:
    with connect(manager, b"") as connection:
        for byte in frames.GREETING + request(Verb.MQCMIT):
            connection.sendall(bytes([byte]))
        assert len(connection.recv(12)) == 12


@pytest.mark.smoke
def test_an_address_in_a_list_that_is_not_a_queue_manager(manager: Manager, package: str) -> None:
    """Another program listens at the first address, so the library tries the next one."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            connection.sendall(b"SSH-2.0-none\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        results = manager.run(
            package,
            f"""
            qmgr = mq.connect('MQB1', 'CHANNEL', '127.0.0.1({other.getsockname()[1]}),127.0.0.1({manager.port})')
            results['name'] = qmgr.inquire(CMQC.MQCA_Q_MGR_NAME).strip()
            """,
            connect=False,
            MQI_STANDIN="",
        )
        thread.join()
    assert results == {"name": "MQB1"}
