"""Functions of the MQTT 5 tests for raw clients."""

from __future__ import annotations

from collections import deque
from typing import Any

from bridge.mqtt.packets import (
    Disconnect,
    PublishProperties,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
)
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient

#: Every property of a publication that goes from client to client.
EVERYTHING = PublishProperties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="answers/here",
    correlation_data=b"\0id\xff" * 10,
    user_property=(("site", "Köln"), ("site", "Bonn"), ("", "no name"), ("a b", "")),
)


def client_of(bridge: BridgeProcess, name: str, **options: Any) -> RawClient:
    return RawClient.connected(bridge.port, name, level=5, **options)


def subscribe(
    client: RawClient, topic_filter: str, qos: int = 2, identifier: int | None = None, **options: Any
) -> tuple[int, ...]:
    packet_id = client.next_packet_id()
    properties = None if identifier is None else SubscribeProperties(identifier)
    client.send(
        Subscribe(packet_id, ((topic_filter, qos),), options=(SubscriptionOptions(**options),), properties=properties)
    )
    return client.wait_for(Suback).return_codes


def ended(client: RawClient) -> Disconnect:
    """Return the DISCONNECT of the server, after which it closes the connection."""
    packet = client.wait_for(Disconnect)
    packets, client.inbox = client.inbox, deque()
    client.expect_closed()
    client.inbox = packets
    return packet
