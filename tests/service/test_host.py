"""The embedded queue manager as the service gets it."""

from __future__ import annotations

import asyncio

from bridge.config import Configuration, EmbeddedQueueManagerConfig
from bridge.mapping.message import Message
from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, GetOptions
from bridge.service.lifecycle import host_of
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

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
