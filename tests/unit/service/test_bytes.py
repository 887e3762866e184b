"""Packets in pieces, several packets in one piece, and invalid bytes."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Publish, Suback, Subscribe, Will
from bridge.mqtt.reason_codes import ReasonCode
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
async def test_invalid_bytes_end_the_connection_and_nothing_else(bridge: Any, data: bytes) -> None:
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
        client.send(Publish("t", b"x" * 994))
        await client.silent()
        client.send(encode(Publish("t", b"x" * 995))[:10])
        assert await client.rest() == []
        assert len(running.backend.entered) == 1


async def test_an_mqtt_5_client_is_told_that_its_packet_is_too_large_while_it_sends(bridge: Any) -> None:
    """The bridge reads the rest: a reset of the connection would discard DISCONNECT, which the client has not read."""
    async with bridge(max_packet_size=1000) as running:
        client = await running.connect(protocol_level=5)
        client.send(Publish("t", bytes(8_000_000)))
        (packet,) = await client.rest()
        assert isinstance(packet, Disconnect) and packet.reason_code == ReasonCode.PACKET_TOO_LARGE
        assert packet.properties is not None
        assert packet.properties.reason_string == (
            "malformed packet: PUBLISH at byte 1: max_packet_size: 8000009 bytes, 1000 allowed"
        )


async def test_a_connect_of_mqtt_5_that_is_too_large_is_answered(bridge: Any) -> None:
    async with bridge(max_connect_size=100) as running:
        client = await running.open()
        client.send(Connect("c", protocol_level=5, user_name="u" * 100))
        (packet,) = await client.rest()
        assert isinstance(packet, Connack) and packet.return_code == ReasonCode.PACKET_TOO_LARGE


async def test_reason_strings_cite_the_version_of_the_client(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(protocol_level=5)
        client.send(b"\x82\x05\x00\x00\x00\x00\x00")
        (packet,) = await client.rest()
        assert isinstance(packet, Disconnect) and packet.properties is not None
        assert "MQTT-2.2.1-3" in (packet.properties.reason_string or "")


async def test_connections_with_the_bridge_bit_subscribe_with_no_local_and_retain_as_published(bridge: Any) -> None:
    """A 3.1.1 client with bit 7 of the protocol level set. Its subscriptions have these options of MQTT 5."""
    async with bridge() as running:
        requests: list[Any] = []
        subscribe = running.backend.subscribe
        running.backend.subscribe = lambda client_id, filters, **options: (
            requests.extend(filters) or subscribe(client_id, filters, **options)
        )
        for is_bridge in (True, False):
            client = await running.connect(f"c{is_bridge}", bridge=is_bridge)
            client.send(Subscribe(1, (("t", 1),)))
            assert await client.receive() == Suback(1, (1,))
        assert [(request.data.no_local, request.data.retain_as_published) for request in requests] == [
            (True, True),
            (False, False),
        ]
