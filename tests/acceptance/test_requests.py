"""Requests and answers between MQTT 5 clients and MQ applications, without a mapping: ReplyToQ suffices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.packets import ConnectProperties, Puback, Publish, PublishProperties
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient

NewBridge = Callable[..., BridgeProcess]
UUID = b"0b7a3a3e-74a6-4f0e-9d2e-6a6f3d0f6a57"
_names = itertools.count(1)


def device(bridge: BridgeProcess, name: str, *, expiry: int = 0) -> RawClient:
    return RawClient.connected(
        bridge.port, name, level=5, clean=not expiry, properties=ConnectProperties(session_expiry_interval=expiry)
    )


def queue_of(bridge: BridgeProcess, topic: str) -> str:
    """Define a queue with a subscription to a topic."""
    name = f"REQUESTS.{next(_names)}"
    bridge.mqsc(f"DEFINE QLOCAL({name})\nDEFINE SUB('{name}') TOPICSTR('{topic}') DEST({name})\n")
    return name


def ask(client: RawClient, topic: str, response_topic: str, correlation_data: bytes | None) -> None:
    packet_id = client.next_packet_id()
    properties = PublishProperties(response_topic=response_topic, correlation_data=correlation_data)
    client.send(Publish(topic, b"?", 1, False, False, packet_id, properties))
    assert client.expect(Puback) == Puback(packet_id)


def answer(bridge: BridgeProcess, queue: str, body: str) -> dict[str, Any]:
    """Answer the next request on a queue like any MQ application. Return its MQMD."""
    (request,) = bridge.mq_json("get", queue, "--wait", "5")
    md: dict[str, Any] = request["md"]
    assert (md["MsgType"], len(md["ReplyToQ"]) <= 48) == (1, True)
    bridge.mq("put", md["ReplyToQ"], body, "--to", md["ReplyToQMgr"], "--correl-id", md["CorrelId"])
    return md


def take_answer(client: RawClient) -> tuple[str, bytes, str | None, bytes | None]:
    """Receive a message. Return topic, payload, Response Topic and Correlation Data."""
    publish = client.take()
    properties = publish.properties or PublishProperties()
    return publish.topic, publish.payload, properties.response_topic, properties.correlation_data


@pytest.mark.parametrize(
    ("response_topic", "correlation_data"),
    [
        ("answers/of-dev", b"id"),
        ("answers", UUID),
        ("answers/" + "x" * 500, UUID),
        ("Antworten für Köln", b"\xff" * 24),
        ("answers/of-dev", None),
        ("answers/of-dev", b""),
        ("answers", b"ends in NUL\0"),
        ("MQTT.REQUEST.ANY", b"id"),
        ("a", b"\0" * 60_000),
    ],
)
def test_a_request_of_a_device_that_does_not_fit_into_the_mqmd(
    bridge: BridgeProcess, unique: str, response_topic: str, correlation_data: bytes | None
) -> None:
    queue = queue_of(bridge, f"{unique}/ask")
    with device(bridge, unique) as client:
        ask(client, f"{unique}/ask", response_topic, correlation_data)
        md = answer(bridge, queue, "42")
        assert md["ReplyToQ"].startswith("MQTT.REQUEST.")
        assert take_answer(client) == (response_topic, b"42", None, correlation_data)


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_the_oldest_requests_are_dropped(new_bridge: NewBridge) -> None:
    bridge = new_bridge(config="limits: {request_bytes: 2 KiB}\n").start()
    queue = queue_of(bridge, "ask")
    with device(bridge, "dev") as client:
        for number in range(20):
            ask(client, "ask", f"answers/of-dev/{number}", UUID)
        for number in range(20):
            answer(bridge, queue, str(number))
        topics = [take_answer(client)[0] for _ in range(8)]
        assert topics == [f"answers/of-dev/{number}" for number in range(12, 20)]
        letters = bridge.messages("SYSTEM.DEAD.LETTER.QUEUE")
        assert [letter["dlh"]["Reason"] for letter in letters] == [2085] * 12


def test_a_device_answers_an_application(bridge: BridgeProcess, unique: str) -> None:
    bridge.mqsc("DEFINE QLOCAL(ANSWERS) REPLACE\n")
    with device(bridge, unique) as client:
        (sent_request,) = bridge.mq_json("put", "cmd/restart", "now", "--to", unique, "--reply-to", "ANSWERS")
        request = client.take()
        assert request.properties is not None
        topic = request.properties.response_topic
        assert topic is not None
        assert topic.startswith("$MQ/reply/")
        properties = PublishProperties(
            payload_format_indicator=1,
            correlation_data=request.properties.correlation_data,
            user_property=(("state", "done"),),
        )
        client.send(Publish(topic, b"restarted", 1, False, False, 7, properties))
        assert client.expect(Puback) == Puback(7)
        (answered,) = bridge.mq_json("get", "ANSWERS")
        assert answered["body"] == "restarted"
        assert answered["md"]["MsgType"] == 2
        assert answered["md"]["CorrelId"] == sent_request["MsgId"]
        client.send(
            Publish(topic.replace("ANSWERS", "SYSTEM.DEFAULT.LOCAL.QUEUE"), b"!", 1, False, False, 8, properties)
        )
        refused = client.expect(Puback)
        assert (refused.packet_id, refused.reason_code) == (8, ReasonCode.TOPIC_NAME_INVALID)
