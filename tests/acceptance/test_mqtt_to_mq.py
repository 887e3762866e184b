"""Publications as received by an MQ application in another process (integration tables 1 to 3)."""

from __future__ import annotations

import base64
import getpass
import re
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.packets import Publish, Will
from tests.helpers import mosquitto
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import RawClient

#: MQENC_NATIVE on a little-endian machine, and UTF-8, which the bridge writes in all headers.
ENCODING, CCSID = 546, 1208


def expected(
    client_id: str,
    topic: str,
    body: str,
    *,
    qos: int,
    packet_id: int = 0,
    user: str = "",
    retained: bool = False,
    persistence: int | None = None,
    encoding: str = "utf-8",
) -> dict[str, Any]:
    """Return the whole object of `--json`, without parts that differ between messages."""
    mqtt: dict[str, Any] = {"clientId": client_id, "qos": qos}
    if packet_id:
        mqtt["msgid"] = packet_id
    mqps: dict[str, Any] = {"Top": topic}
    if retained:
        mqps["Ret"] = True
    return {
        "md": {
            # Table 1
            "Format": "MQHRF2",
            "UserIdentifier": user,
            "Priority": 0,  # MQPRI_PRIORITY_AS_Q_DEF, resolved by DEFPRTY(0)
            "Persistence": (1 if qos else 0) if persistence is None else persistence,
            # Everything else has the defaults of the MQMD
            "Version": 1,
            "Report": 0,
            "MsgType": 8,
            "Expiry": -1,
            "Feedback": 0,
            "Encoding": ENCODING,
            "CodedCharSetId": CCSID,
            "BackoutCount": 0,
            "ReplyToQ": "",
            "ReplyToQMgr": "",
            "AccountingToken": "00" * 32,
            "ApplIdentityData": "",
            "ApplOriginData": "",
        },
        # Table 2
        "rfh2": [
            {
                "Encoding": ENCODING,
                "CodedCharSetId": CCSID,
                "Format": "",  # MQFMT_NONE
                "Flags": 0,
                "NameValueCCSID": 1208,
                "folders": {"mqtt": mqtt, "mqps": mqps},
            }
        ],
        # Table 3
        "body": body,
        "bodyEncoding": encoding,
    }


def user_of(bridge: BridgeProcess, publisher: str) -> str:
    """Return the UserIdentifier in a publication that an application of this user receives."""
    return bridge.user_of_copy(publisher, getpass.getuser())


def steady(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without parts that differ between messages, after checking their form."""
    md = message["md"]
    assert re.fullmatch(r"[0-9A-F]{48}", md["MsgId"])
    assert bytes.fromhex(md["MsgId"]).startswith(b"AMQ MQB1")
    # Belongs to the subscription (MQSD.SubCorrelId), not to the publication.
    assert re.fullmatch(r"[0-9A-F]{48}", md["CorrelId"])
    assert re.fullmatch(r"20\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", md["PutDate"])
    assert re.fullmatch(r"([01]\d|2[0-3])([0-5]\d){2}\d\d", md["PutTime"])
    # Origin context belongs to the queue manager: MQAT_UNIX, and the name of the application that put the message.
    assert md["PutApplType"] == 6
    # pymqi passes no application name, so IBM's client uses that of the program, the interpreter.
    assert re.fullmatch(r"mqbridge|python[\d.]*", md["PutApplName"])
    varying = ("MsgId", "CorrelId", "PutDate", "PutTime", "PutApplType", "PutApplName")
    return {**message, "md": {name: value for name, value in md.items() if name not in varying}}


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_tables_1_to_3_at_a_subscriber(bridge: BridgeProcess, unique: str, qos: int) -> None:
    topic = f"{unique}/täglich/ä b"
    with bridge.mq_subscriber(f"{unique}/#", "--limit", "1", "--json") as application:
        with RawClient.connected(bridge.port, unique, user_name="device-user") as client:
            client._packet_id = 4_710
            packet_id = client.publish(topic, "grüße".encode(), qos)
        assert steady(application.json()) == expected(
            unique, topic, "grüße", qos=qos, packet_id=packet_id, user=user_of(bridge, "device-user")
        )
        assert application.wait() == 0


def test_at_a_queue_by_an_administrative_subscription(bridge: BridgeProcess, unique: str) -> None:
    """The same for `mqbridge mq get` at a queue. mosquitto_pub sends no user name, so UserIdentifier is blank."""
    queue = unique.upper().replace("-", ".")
    bridge.mqsc(f"DEFINE QLOCAL({queue})\nDEFINE SUB('{unique}') TOPICSTR('{unique}/+') DEST({queue})\n")
    mosquitto.publish(bridge.port, f"{unique}/1", "21.5", "-i", unique, qos=1)
    mosquitto.publish(bridge.port, f"{unique}/2", "22.5", "-i", unique, qos=0)
    messages = bridge.mq_json("get", queue, "--limit", "2", "--wait", "10")
    assert messages[0]["md"]["CorrelId"] == messages[1]["md"]["CorrelId"]
    assert [steady(message) for message in messages] == [
        expected(unique, f"{unique}/1", "21.5", qos=1, packet_id=1),
        expected(unique, f"{unique}/2", "22.5", qos=0),
    ]
    nothing = bridge.run_mq("get", queue, "--wait", "0")
    assert nothing.returncode == 3
    assert b"MQRC_NO_MSG_AVAILABLE (2033)" in nothing.stderr


@pytest.mark.parametrize(
    ("payload", "body", "encoding"),
    [
        (b"", "", "utf-8"),
        (bytes(range(256)), base64.b64encode(bytes(range(256))).decode(), "base64"),
        (b"\x00\x00", "\x00\x00", "utf-8"),
        (b"x" * 100_000, "x" * 100_000, "utf-8"),
        (b"RFH \x00\x00\x00\x02", "RFH \x00\x00\x00\x02", "utf-8"),
    ],
    ids=["empty", "all bytes", "zero bytes", "100 kB", "like a header"],
)
def test_payload_byte_for_byte(bridge: BridgeProcess, unique: str, payload: bytes, body: str, encoding: str) -> None:
    with bridge.mq_subscriber(unique, "--limit", "1", "--json") as application:
        with RawClient.connected(bridge.port, unique) as client:
            packet_id = client.publish(unique, payload, 2)
        assert steady(application.json()) == expected(
            unique, unique, body, qos=2, packet_id=packet_id, encoding=encoding, user=user_of(bridge, "")
        )


def test_only_later_subscribers_get_the_retain_flag(bridge: BridgeProcess, unique: str) -> None:
    """mqps/Ret is set if the publication was sent with RETAIN *and* is received as a retained publication."""
    with bridge.mq_subscriber(unique, "--limit", "1", "--json") as live:
        with RawClient.connected(bridge.port, unique) as client:
            client.publish(unique, b"state", 1, retain=True)
            packet_id = 1
        assert steady(live.json()) == expected(
            unique, unique, "state", qos=1, packet_id=packet_id, user=user_of(bridge, "")
        )
    with bridge.mq_subscriber(unique, "--limit", "1", "--json") as late:
        assert steady(late.json()) == expected(
            unique, unique, "state", qos=1, packet_id=packet_id, retained=True, user=user_of(bridge, "")
        )
    with RawClient.connected(bridge.port, unique) as client:
        client.publish(unique, b"", 1, retain=True)
        with bridge.mq_subscriber(unique, "--limit", "1", "--json") as later:
            client.publish(unique, b"live", 0)
            assert steady(later.json()) == expected(unique, unique, "live", qos=0, user=user_of(bridge, ""))


@pytest.mark.parametrize("qos", [0, 2])
def test_a_will_has_no_message_id(bridge: BridgeProcess, unique: str, qos: int) -> None:
    with bridge.mq_subscriber(unique, "--limit", "1", "--json") as application:
        RawClient.connected(bridge.port, unique, user_name="u", will=Will(unique, b"gone", qos)).vanish()
        assert steady(application.json()) == expected(unique, unique, "gone", qos=qos, user=user_of(bridge, "u"))


TWO_CHANNELS = """
channels:
  - name: PLAIN.MQTT
    port: 0
  - name: MCAUSER.MQTT
    port: 0
    mcauser: telemetry
  - name: CLIENTID.MQTT
    port: 0
    mcauser: telemetry
    use_client_id: true
"""


# test_authority.py has channels with an MCAUSER on IBM MQ.
@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_user_identifier_of_three_channels(new_bridge: Callable[..., BridgeProcess]) -> None:
    """Client identifier, or MCAUSER of the channel, or the user name."""
    bridge = new_bridge(config=TWO_CHANNELS).start()
    assert list(bridge.ports) == ["PLAIN.MQTT", "MCAUSER.MQTT", "CLIENTID.MQTT"]
    with bridge.mq_subscriber("#", "--json") as application:
        for channel, user_name, identifier in [
            ("PLAIN.MQTT", None, ""),
            ("PLAIN.MQTT", "twelve-bytes", "twelve-bytes"),
            ("MCAUSER.MQTT", "ignored-whatever-its-length", "telemetry"),
            ("CLIENTID.MQTT", "ignored", "device-1"),
        ]:
            with RawClient.connected(bridge.ports[channel], "device-1", user_name=user_name) as client:
                client.publish("t", b"x", 1)
                client.disconnect()
            assert steady(application.json()) == expected(
                "device-1", "t", "x", qos=1, packet_id=1, user=user_of(bridge, identifier)
            )


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_the_topic_object_decides_about_a_publication(bridge: BridgeProcess, unique: str) -> None:
    """The nearest administrative topic object applies: DEFPRTY here. PUB(DISABLED) rejects, and nothing is acknowledged."""
    name = unique.upper().replace("-", ".")
    bridge.mqsc(
        f"DEFINE TOPIC({name}) TOPICSTR('{unique}') DEFPRTY(7)\n"
        f"DEFINE TOPIC({name}.NO) TOPICSTR('{unique}/closed') PUB(DISABLED)\n"
        f"DEFINE TOPIC({name}.YES) TOPICSTR('{unique}/closed/open') PUB(ENABLED)\n"
    )
    with bridge.mq_subscriber(f"{unique}/#", "--json") as application:
        for qos in (1, 2):
            with RawClient.connected(bridge.port, unique) as client:
                client.send(Publish(f"{unique}/closed/deeper", b"no", qos, False, False, 9))
                client.expect_closed()
            assert "MQRC_PUBLISH" in bridge.log or "MQRC_PUT_INHIBITED" in bridge.log
        with RawClient.connected(bridge.port, unique) as client:
            client.publish(f"{unique}/closed", b"dropped, as QoS 0 may be", 0)
            client.publish(f"{unique}/closed/open/x", b"yes", 1)
            message = application.json()
            assert (message["body"], message["md"]["Priority"]) == ("yes", 7)
            client.publish(f"{unique}/any", b"seven", 1)
            assert application.json()["md"]["Priority"] == 7


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_a_subscription_rejected_by_a_topic_object(bridge: BridgeProcess, unique: str) -> None:
    """SUB(DISABLED) rejects all subscriptions below it, DURSUB(NO) those of durable sessions: SUBACK 0x80."""
    name = unique.upper().replace("-", ".")
    bridge.mqsc(
        f"DEFINE TOPIC({name}) TOPICSTR('{unique}/closed') SUB(DISABLED)\n"
        f"DEFINE TOPIC({name}.D) TOPICSTR('{unique}/live') DURSUB(NO)\n"
    )
    filters = ((f"{unique}/closed/+", 1), (f"{unique}/live", 1), (f"{unique}/x", 1))
    with RawClient.connected(bridge.port, unique) as client:
        assert client.subscribe(*filters) == (0x80, 1, 1)
    with RawClient.connected(bridge.port, unique, clean=False) as client:
        assert client.subscribe(*filters) == (0x80, 0x80, 1)
    with RawClient.connected(bridge.port, unique) as client:
        client.disconnect()
