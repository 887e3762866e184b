"""The embedded queue manager as host of the service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.config.models import Configuration
from bridge.config.queue_manager import EmbeddedQueueManagerConfig, ListenerConfig
from bridge.mq import host_of
from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

QUEUE = MQOD(ObjectName="SYSTEM.DEAD.LETTER.QUEUE")


def put_and_get(host: Host) -> bytes:
    connection = host.connect("mapping")
    connection.put1(QUEUE, Message(MQMD(Persistence=1), b"1"), cmqc.MQPMO_SYNCPOINT)
    connection.commit()
    body = connection.get(connection.open(QUEUE, cmqc.MQOO_INPUT_SHARED), GetOptions()).data
    connection.disconnect()
    return body


async def test_threads_have_separate_connections_while_the_loop_runs(tmp_path: Path) -> None:
    configuration = Configuration(queue_manager=EmbeddedQueueManagerConfig(data_directory=tmp_path))
    host = host_of(configuration, asyncio.get_running_loop())
    try:
        assert await asyncio.gather(*(asyncio.to_thread(put_and_get, host) for _ in range(3))) == [b"1"] * 3
    finally:
        await host.stop()


def sockets_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_socket()}


async def test_the_address_for_applications(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = EmbeddedQueueManagerConfig(data_directory=tmp_path, listener=ListenerConfig(port=0))
    host = host_of(Configuration(queue_manager=settings), asyncio.get_running_loop())
    try:
        *lines, tcp = await host.listen()
        assert lines == [f"MQ applications connect at {tmp_path / 'mqbridge.sock'}"]
        assert tcp.startswith("MQ applications connect at 127.0.0.1:")
        assert sockets_in(tmp_path) == {"mqbridge.sock"}
    finally:
        await host.stop()
    assert caplog.text == ""
