"""The embedded queue manager as the service gets it."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from bridge.config import Configuration, EmbeddedQueueManagerConfig, ListenerConfig
from bridge.mq.capi.frames import GREETING, Verb
from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, GetOptions
from bridge.service.host import host_of
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.support.patience import PATIENCE

QUEUE = MQOD(ObjectName="SYSTEM.DEAD.LETTER.QUEUE")


def put_and_get(host: Host) -> bytes:
    connection = host.connect("mapping")
    connection.put1(QUEUE, Message(MQMD(Persistence=1), b"1"), cmqc.MQPMO_SYNCPOINT)
    connection.commit()
    data = connection.get(connection.open(QUEUE, cmqc.MQOO_INPUT_SHARED), GetOptions()).data
    connection.disconnect()
    return data


async def test_threads_have_connections_of_their_own_while_the_loop_goes_on(tmp_path):
    configuration = Configuration(queue_manager=EmbeddedQueueManagerConfig(data_directory=tmp_path))
    host = host_of(configuration, asyncio.get_running_loop())
    try:
        assert await asyncio.gather(*(asyncio.to_thread(put_and_get, host) for _ in range(3))) == [b"1"] * 3
    finally:
        await host.stop()


# Who is let in where ---------------------------------------------------------------------------------------------------


def sockets_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_socket()}


def first_reply(port: int) -> bytes:
    """What a program in C gets over TCP for a verb before MQCONN."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(GREETING + struct.pack("<Ii", 4, Verb.MQCMIT))
        return connection.recv(12)


async def listening(directory: Path, *, c_programs: bool) -> tuple[list[str], set[str], bytes]:
    """What a host says when it listens, TCP port left out; its sockets; and what a program in C gets over TCP."""
    listener = ListenerConfig(port=0, channels=["A"])
    settings = EmbeddedQueueManagerConfig(data_directory=directory, listener=listener, c_programs=c_programs)
    host = host_of(Configuration(queue_manager=settings), asyncio.get_running_loop())
    try:
        *lines, tcp = await host.listen()
        place, _, port = tcp.rpartition(":")
        return [*lines, place], sockets_in(directory), await asyncio.to_thread(first_reply, int(port))
    finally:
        await host.stop()


def test_programs_in_c_have_no_socket_unless_configured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines, sockets, reply = asyncio.run(listening(tmp_path, c_programs=False))
    assert lines == [
        f"MQ applications connect at {tmp_path / 'mqbridge.sock'}",
        "MQ applications connect at 127.0.0.1",
    ]
    assert sockets == {"mqbridge.sock"}
    assert reply == struct.pack("<Iii", 8, cmqc.MQCC_FAILED, cmqc.MQRC_HCONN_ERROR)
    assert caplog.text == ""


def test_programs_in_c_are_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines, sockets, reply = asyncio.run(listening(tmp_path, c_programs=True))
    assert lines == [
        f"MQ applications connect at {tmp_path / 'mqbridge.sock'}",
        f"MQ applications in C connect at {tmp_path / 'mqi.sock'}",
        "MQ applications connect at 127.0.0.1",
    ]
    assert sockets == {"mqbridge.sock", "mqi.sock"}
    assert reply == struct.pack("<Iii", 8, cmqc.MQCC_FAILED, cmqc.MQRC_HCONN_ERROR)
    assert caplog.text == ""
