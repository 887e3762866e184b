"""A client that does not read: live QoS 0 publications are dropped, retained and direct messages wait for it."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import Publish
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient

#: Retained messages, and bytes of each: more than sockets and the bridge buffer.
COUNT, SIZE = 80, 100_000


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
@pytest.mark.parametrize("level", [4, 5])
def test_retained_and_direct_messages_wait_with_qos_0(bridge: BridgeProcess, unique: str, level: int) -> None:
    """DEFAULT.QoS lowers direct messages to QoS 0. If a retained message changes before it is sent, the last one is sent."""
    direct = [f"direct {number}" for number in range(4)]
    with (
        RawClient.connected(bridge.port, unique, level=level, receive_buffer=4_096) as slow,
        RawClient.connected(bridge.port, f"{unique}-s") as sender,
        RawClient.connected(bridge.port, f"{unique}-o") as other,
    ):
        topics = [f"{unique}/state/{number}" for number in range(COUNT)]
        for topic in topics:
            sender.publish(topic, topic.encode() + bytes(SIZE), 1, retain=True)
        slow.subscribe(("DEFAULT.QoS", 0), (f"{unique}/live", 0))
        slow.subscribe((f"{unique}/state/+", 0))
        other.subscribe((f"{unique}/live", 0))
        sender.publish(topics[-1], b"changed", 1, retain=True)
        for number, body in enumerate(direct):
            bridge.mq("put", f"{unique}/cmd", body, "--to", unique, *(["--persistent"] if number % 2 else []))
        sender.publish(f"{unique}/live", b"dropped", 1)
        # Its copy was put after the one for the slow client.
        assert other.take().payload == b"dropped"
        commands: list[str] = []
        states: dict[str, bytes] = {}
        while len(commands) < len(direct) or len(states) < COUNT or states[topics[-1]] != b"changed":
            publish = slow.wait_for(Publish)
            assert publish.qos == 0 and publish.topic != f"{unique}/live"
            if publish.topic == f"{unique}/cmd":
                commands.append(publish.payload.decode())
            else:
                states[publish.topic] = publish.payload
        assert commands == direct
        sender.publish(f"{unique}/live", b"end", 1)
        assert slow.wait_for(Publish).payload == b"end"
        for topic in topics:
            sender.publish(topic, b"", 1, retain=True)
