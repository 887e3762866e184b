"""Packets in pieces, many in one piece, and bytes that are none."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import (
    Publish,
    Will,
)
from bridge.mqtt.writer import encode
from tests.helpers.service_bridge import answers

MALFORMED = [
    pytest.param(b"\x00\x00", id="type 0"),
    pytest.param(b"\xff\xff\xff\xff\xff\xff", id="five bytes of length"),
    pytest.param(b"GET / HTTP/1.1\r\n" + b"Host: example.org\r\n" * 5, id="HTTP"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    pytest.param(b"\x32\x05\x00\x01t\x00\x00", id="message id 0"),
    pytest.param(b"\x20\x02\x00\x00", id="a packet of servers"),
]


@pytest.mark.parametrize("data", MALFORMED)
async def test_rubbish_ends_the_connection_and_nothing_else(bridge: Any, data: bytes) -> None:
    async with bridge() as running:
        other = await running.connect("other")
        assert await answers(running, data) == []
        client = await running.connect(will=Will("will", b"w"))
        client.send(Publish("t", b"before"), data, Publish("t", b"behind"))
        assert await client.rest() == []
        await running.backend.until(lambda: len(running.backend.entered) == 2)
        assert running.backend.payloads() == [b"before", b"w"]
        await other.silent()


async def test_a_packet_longer_than_allowed(bridge: Any) -> None:
    async with bridge(max_packet_size=1000) as running:
        client = await running.connect()
        client.send(Publish("t", b"x" * 997))
        await client.silent()
        client.send(encode(Publish("t", b"x" * 998))[:10])
        assert await client.rest() == []
        assert len(running.backend.entered) == 1
