"""MQTT.js, the client for Node.js and browsers, with MQTT 3.1.1 and 5."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_js import MqttJs, Steps, data

# Other clients use the same channels on both queue managers.
pytestmark = pytest.mark.queue_managers("embedded")

EVERYTHING: dict[str, Any] = {
    "payloadFormatIndicator": True,
    "contentType": "text/plain",
    "responseTopic": "answers/here",
    "correlationData": data(b"\0id\xff"),
    "userProperties": {"site": ["Köln", "Bonn"], "a b": ""},
}


@pytest.mark.parametrize(("version", "qos"), [(4, 1), (5, 0), (5, 2)])
def test_publish_and_subscribe(bridge: BridgeProcess, unique: str, version: int, qos: int) -> None:
    properties = EVERYTHING | {"messageExpiryInterval": 600} if version == 5 else {}
    steps: Steps = [
        {"subscribe": [f"{unique}/+", {"qos": qos}]},
        {"publish": [f"{unique}/a", "21.5", {"qos": qos, "properties": properties}]},
        {"publish": [f"{unique}/b", data(b"\0\xff"), {"qos": qos}]},
        {"receive": 2},
        {"unsubscribe": f"{unique}/+"},
        {"end": False},
    ]
    client = MqttJs(bridge.port, unique, version, steps)
    assert client.result("connect")["code"] == 0
    assert client.result("subscribe") == [[f"{unique}/+", qos]]
    first, second = next(event["receive"]["messages"] for event in client.end() if "receive" in event)
    assert [first["topic"], first["payload"], first["qos"]] == [f"{unique}/a", data(b"21.5"), qos]
    assert [second["topic"], second["payload"], second["properties"]] == [f"{unique}/b", data(b"\0\xff"), {}]
    if version == 5:
        assert 500 < first["properties"].pop("messageExpiryInterval") <= 600
    assert first["properties"] == (EVERYTHING if version == 5 else {})


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_that_continues(bridge: BridgeProcess, unique: str, version: int) -> None:
    options: dict[str, Any] = {"clean": False}
    if version == 5:
        options["properties"] = {"sessionExpiryInterval": 60}
    client = MqttJs(bridge.port, unique, version, [{"subscribe": [unique, {"qos": 1}]}, {"end": False}], **options)
    assert client.result("connect")["sessionPresent"] is False
    client.end()
    bridge.mq("pub", unique, "meanwhile", "--persistent")
    client = MqttJs(bridge.port, unique, version, [{"receive": 1}, {"end": False}], **options)
    assert client.result("connect")["sessionPresent"] is True
    assert client.result("receive")["messages"][0]["payload"] == data(b"meanwhile")
    client.end()


def test_a_will(bridge: BridgeProcess, unique: str) -> None:
    subscriber = MqttJs(bridge.port, f"{unique}-s", 5, [{"subscribe": [unique, {"qos": 1}]}, {"receive": 1}])
    assert subscriber.result("connect")["code"] == 0
    subscriber.result("subscribe")
    properties = {"contentType": "text/plain", "userProperties": {"why": "power"}}
    will = {"topic": unique, "payload": "gone", "qos": 1, "properties": properties}
    client = MqttJs(bridge.port, unique, 5, [{"end": True}], will=will)
    client.end()
    (message,) = subscriber.result("receive")["messages"]
    assert message["payload"] == data(b"gone")
    assert message["properties"] == properties
    subscriber.end()


def test_topic_aliases_in_both_directions(bridge: BridgeProcess, unique: str) -> None:
    """MQTT.js assigns topic aliases, and so does the bridge."""
    steps: Steps = [
        {"subscribe": [f"{unique}/#", {"qos": 1}]},
        *({"publish": [f"{unique}/{number % 3}", str(number), {"qos": 1}]} for number in range(12)),
        {"receive": 12},
        {"end": False},
    ]
    options = {"autoAssignTopicAlias": True, "properties": {"topicAliasMaximum": 2}}
    client = MqttJs(bridge.port, unique, 5, steps, **options)
    assert client.result("connect")["properties"]["topicAliasMaximum"] > 0
    messages = next(event["receive"]["messages"] for event in client.end() if "receive" in event)
    assert [message["payload"] for message in messages] == [data(b"%d" % number) for number in range(12)]
    assert {message["properties"].get("topicAlias") for message in messages} <= {1, 2, None}


def test_members_of_a_share(bridge: BridgeProcess, unique: str) -> None:
    share: Steps = [{"subscribe": [f"$share/s/{unique}", {"qos": 1}]}, {"receive": 1}]
    members = [MqttJs(bridge.port, f"{unique}-{number}", 5, share) for number in range(2)]
    for member in members:
        member.result("connect")
        member.result("subscribe")
    publisher = MqttJs(bridge.port, unique, 5, [{"publish": [unique, str(number), {"qos": 1}]} for number in range(2)])
    publisher.end()
    payloads = sorted(member.result("receive")["messages"][0]["payload"]["hex"] for member in members)
    assert payloads == [b"0".hex(), b"1".hex()]
    for member in members:
        member.end()


@pytest.mark.queue_managers("embedded", "ibmmq")
def test_an_mq_application_is_answered(bridge: BridgeProcess, unique: str) -> None:
    """The request of an MQ application, with the Response Topic of the bridge."""
    bridge.mqsc("DEFINE QLOCAL(ANSWERS.JS) REPLACE\n")
    client = MqttJs(bridge.port, unique, 5, [{"receive": 1}], clean=False, properties={"sessionExpiryInterval": 60})
    assert client.result("connect")["code"] == 0
    (sent_request,) = bridge.mq_json("put", "cmd/restart", "now", "--to", unique, "--reply-to", "ANSWERS.JS")
    request = client.result("receive")["messages"][0]["properties"]
    answer = {
        "publish": [
            request["responseTopic"],
            "done",
            {"qos": 1, "properties": {"correlationData": request["correlationData"], "payloadFormatIndicator": True}},
        ]
    }
    MqttJs(bridge.port, unique, 5, [answer], clean=False).end()
    (answered,) = bridge.mq_json("get", "ANSWERS.JS")
    assert [answered["body"], answered["md"]["CorrelId"]] == ["done", sent_request["MsgId"]]
