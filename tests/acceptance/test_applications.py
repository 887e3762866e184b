"""Applications over HTTP on each queue manager: their authorities, and calls of devices with MQTT 5 and 3.1.1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.mqtt.packets import Publish, PublishProperties
from tests.acceptance.test_authority import XMITQ, enforcing
from tests.helpers.applications import Application, tokens_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.mosquitto import Subscriber, publish
from tests.helpers.paho_clients import PahoClient
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess
from tests.helpers.scrape import Scrape

pytestmark = pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")

#: billing may call devices of the shop, reader may only subscribe, and stranger is unknown to the queue manager.
SCRIPT = f"""
DEFINE TOPIC(SHOP) TOPICSTR('shop') NOREPLACE
DEFINE TOPIC(REPLIES) TOPICSTR('replies') NOREPLACE
DEFINE QLOCAL(ORDERS) NOREPLACE
DEFINE SUB(ORDERS) TOPICSTR('shop/orders') DEST(ORDERS) NOREPLACE
SET AUTHREC PROFILE(SHOP) OBJTYPE(TOPIC) PRINCIPAL('billing','device') AUTHADD(PUB,SUB)
SET AUTHREC PROFILE(REPLIES) OBJTYPE(TOPIC) PRINCIPAL('billing','mute') AUTHADD(SUB)
SET AUTHREC PROFILE(REPLIES) OBJTYPE(TOPIC) PRINCIPAL('device') AUTHADD(PUB)
SET AUTHREC PROFILE(SHOP) OBJTYPE(TOPIC) PRINCIPAL('mute') AUTHADD(SUB)
SET AUTHREC PROFILE('{XMITQ}') OBJTYPE(QUEUE) PRINCIPAL('billing','mute','device') AUTHADD(PUT)
"""
CONFIG = """
channels:
- {{name: PLAIN.MQTT, port: 0}}
admin:
  port: 0
  token_file: {}
  open_metrics: true
  applications:
    single: {{mq_user: billing, requests: 1}}
    billing: {{mq_user: billing, publish_topics: ["shop/#"], reply_topics: ["shop/+/reply"]}}
    mute: {{mq_user: mute}}
    stranger: {{mq_user: stranger}}
"""


@pytest.fixture(scope="module")
def bridge(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("applications")
    tokens = directory / "tokens"
    tokens.write_text(tokens_of("billing", "mute", "single", "stranger"))
    tokens.chmod(0o600)
    with at_work(enforcing(queue_manager, directory, SCRIPT, CONFIG.format(tokens))) as process:
        yield process


@contextmanager
def answering(client: Any, answer: Callable[[], None]) -> Iterator[None]:
    """Answer one request as a device, on a separate thread."""
    thread = threading.Thread(target=answer)
    with client:
        thread.start()
        yield
        thread.join()


def test_a_message_reaches_the_queue(bridge: BridgeProcess) -> None:
    application = Application(bridge, "billing")
    answer = application.publish(
        "shop/orders",
        '{"näme": 1}'.encode(),
        {"Content-Type": "application/json"},
        user_property=["a=1", "a=2=3"],
        qos=2,
    )
    assert (answer.status, answer.json) == (200, {"acknowledged": True, "unmatched": False})
    (message,) = bridge.mq_json("get", "ORDERS", "--wait", "5")
    assert message["body"] == '{"näme": 1}'
    assert (message["md"]["Persistence"], message["md"]["Format"]) == (1, "MQHRF2")


@pytest.mark.parametrize(
    ("name", "topic", "why"),
    [
        ("billing", "elsewhere", "MQRC_NOT_AUTHORIZED"),
        ("mute", "shop/orders", "MQRC_NOT_AUTHORIZED"),
        ("stranger", "shop/orders", "not authorized"),
    ],
)
def test_authorities_apply(bridge: BridgeProcess, name: str, topic: str, why: str) -> None:
    for answer in (Application(bridge, name).publish(topic), Application(bridge, name).call(topic)):
        assert answer.status == 403, answer.text
        assert why in answer.text


@pytest.mark.parametrize(
    ("name", "header", "content"),
    [
        ("näme", "mqtt-user-properties", "n%C3%A4me=1%262"),
        # HTTP libraries reject a long header.
        ("n" * 8_186, "mqtt-user-properties", "n" * 8_186 + "=1%262"),
        ("n" * 8_187, "mqtt-user-properties-omitted", "8193"),
        ("n" * 60_000, "mqtt-user-properties-omitted", "60006"),
    ],
    ids=["short", "as long as possible", "too long", "very long"],
)
def test_a_device_answers_a_call(bridge: BridgeProcess, unique: str, name: str, header: str, content: str) -> None:
    device = RawClient.connected(bridge.port, unique, level=5, user_name="device")

    def answer() -> None:
        request = device.take()
        request_properties = request.properties
        assert request_properties is not None and request_properties.response_topic is not None
        assert (request.payload, request_properties.user_property, request_properties.message_expiry_interval) == (
            b"\0?",
            (("a", "b"),),
            30,
        )
        properties = PublishProperties(
            correlation_data=request_properties.correlation_data, content_type="text/x", user_property=((name, "1&2"),)
        )
        number = device.next_packet_id()
        device.send(Publish(request_properties.response_topic, b"\xff!", 1, packet_id=number, properties=properties))

    device.subscribe((f"shop/{unique}", 1))
    with answering(device, answer):
        reply = Application(bridge, "billing").call(f"shop/{unique}", b"\0?", user_property="a=b")
    assert (reply.status, reply.body) == (200, b"\xff!")
    assert reply.headers["Content-Type"] == "text/x"
    assert {key.lower(): text for key, text in reply.headers.items() if "user" in key.lower()} == {header: content}


def test_paho_answers_calls_at_the_same_time(bridge: BridgeProcess, unique: str) -> None:
    """Each call gets its own reply, although the device answers in the reverse order."""
    count = 5
    device = PahoClient(bridge.port, unique, settle=lambda client: client.username_pw_set("device"))
    replies: dict[str, bytes] = {}

    def call(number: int) -> None:
        answer = Application(bridge, "billing").call(f"shop/{unique}", str(number).encode())
        replies[str(number)] = answer.body

    with device:
        device.subscribe((f"shop/{unique}", 1))
        calls = [threading.Thread(target=call, args=(number,)) for number in range(count)]
        for thread in calls:
            thread.start()
        requests = [device.message() for _ in calls]
        for request in reversed(requests):
            properties: Any = request.properties
            answer = Properties(PacketTypes.PUBLISH)
            answer.CorrelationData = properties.CorrelationData
            device.publish(properties.ResponseTopic, b"to " + request.payload, 1, properties=answer)
        for thread in calls:
            thread.join()
    assert replies == {str(number): f"to {number}".encode() for number in range(count)}


def test_mosquitto_clients_answer_a_call(bridge: BridgeProcess, unique: str) -> None:
    options = ("-u", "device", "-F", "request %R %D %p")
    device = Subscriber(bridge.port, f"shop/{unique}", qos=1, version="mqttv5", options=options)

    def answer() -> None:
        _, topic, correlation, payload = device.line_where(lambda line: line.startswith("request ")).split()
        user = ("-u", "device", "-D", "publish", "correlation-data", correlation)
        publish(bridge.port, topic, f"{payload} pong", *user, qos=1, version="mqttv5")

    with answering(device, answer):
        reply = Application(bridge, "billing").call(f"shop/{unique}", b"ping")
    assert (reply.status, reply.text) == (200, "ping pong")


def test_a_device_with_mqtt_3_1_1_answers_to_a_topic_of_its_own(bridge: BridgeProcess, unique: str) -> None:
    device = RawClient.connected(bridge.port, unique, user_name="device")

    def answer() -> None:
        device.publish(f"shop/{unique}/reply", b"re: " + device.take().payload, 1)

    # An earlier retained reply is not the reply.
    device.publish(f"shop/{unique}/reply", b"old", 1, retain=True)
    device.subscribe((f"shop/{unique}", 1))
    with answering(device, answer):
        reply = Application(bridge, "billing").call(f"shop/{unique}", b"status", reply_topic=f"shop/{unique}/reply")
    assert (reply.status, reply.text) == (200, "re: status")


def test_an_mq_application_answers_a_call(bridge: BridgeProcess) -> None:
    """ReplyToQ and ReplyToQMgr are those of the application's session: an MQPUT reaches the call."""
    replies = []
    call = threading.Thread(target=lambda: replies.append(Application(bridge, "billing").call("shop/orders", b"?")))
    call.start()
    (request,) = bridge.mq_json("get", "ORDERS", "--wait", "10")
    md = request["md"]
    assert md["ReplyToQ"].startswith("replies/billing/")
    bridge.mq("put", md["ReplyToQ"], "42", "--to", md["ReplyToQMgr"], "--correl-id", md["CorrelId"])
    call.join()
    assert (replies[0].status, replies[0].text) == (200, "42")


@pytest.mark.queue_managers("embedded")  # IBM MQ does not report it
def test_the_topic_of_a_call_has_no_subscriber(bridge: BridgeProcess, unique: str) -> None:
    application = Application(bridge, "billing")
    answer = application.call(f"shop/{unique}")
    assert answer.status == 404, answer.text
    assert application.publish(f"shop/{unique}").json == {"acknowledged": True, "unmatched": True}


def test_a_call_without_a_reply_times_out(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique, user_name="device") as device:
        device.subscribe((f"shop/{unique}", 1))
        answer = Application(bridge, "billing").call(f"shop/{unique}", seconds=0.2)
        assert answer.status == 504, answer.text
        assert "within 0.2 s" in answer.text


@pytest.mark.queue_managers("ibmmq", slow="pymqi")  # the embedded one cannot be away
def test_abandoned_publications_do_not_accumulate(bridge: BridgeProcess) -> None:
    """While the queue manager does not answer, the messages of abandoned requests count for `requests`."""
    assert isinstance(bridge, RemoteBridgeProcess)
    application = Application(bridge, "single")

    def in_progress() -> float:
        return Scrape(bridge).total("mqbridge_application_requests_in_progress", application="single")

    assert application.publish("shop/other").status == 200  # and so it is connected
    bridge.queue_manager.pause()
    try:
        for number in range(3):
            payload = f"abandoned {number}".encode()
            with application.request("/application/publish", payload, {}, {"topic": "shop/orders"}):
                eventually(in_progress, 1)
            eventually(in_progress, 0)
    finally:
        bridge.queue_manager.resume()
    assert application.publish("shop/orders", b"last").status == 200
    assert [message["body"] for message in bridge.mq_json("get", "ORDERS", "--limit", "0")] == ["abandoned 0", "last"]
