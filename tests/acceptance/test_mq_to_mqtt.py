"""Messages of MQ applications as received by MQTT clients (integration tables 4 and 5)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridge.mqtt.packets import Publish
from tests.helpers import mosquitto
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import eventually, until
from tests.helpers.raw_client import RawClient

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
@pytest.mark.parametrize("persistent", [False, True], ids=["not persistent", "persistent"])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_of_a_publication(bridge: BridgeProcess, unique: str, persistent: bool, granted: int) -> None:
    """Table 4: not persistent is QoS 0, persistent is QoS 2, at most that of the subscription."""
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((f"{unique}/+", granted))
        bridge.mq("pub", f"{unique}/a", "from MQ", *(["--persistent"] if persistent else []))
        publish = client.take()
        qos = granted if persistent else 0
        assert publish == Publish(f"{unique}/a", b"from MQ", qos, False, False, publish.packet_id)


@pytest.mark.parametrize("persistent", [False, True], ids=["not persistent", "persistent"])
def test_direct_message_has_qos_2(bridge: BridgeProcess, unique: str, persistent: bool) -> None:
    """Without a subscription: QoS 2, whatever its persistence. The topic is the queue name to which it was put."""
    with RawClient.connected(bridge.port, unique) as client:
        bridge.mq("put", f"{unique}/cmd", "reset", "--to", unique, *(["--persistent"] if persistent else []))
        publish = client.take()
        assert publish == Publish(f"{unique}/cmd", b"reset", 2, False, False, publish.packet_id)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_default_qos(bridge: BridgeProcess, unique: str, qos: int) -> None:
    """A client changes the QoS of direct messages by subscribing to DEFAULT.QoS."""
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe(("DEFAULT.QoS", qos))
        bridge.mq("put", "cmd", "one", "--to", unique, "--persistent")
        publish = client.take()
        assert (publish.topic, publish.payload, publish.qos) == ("cmd", b"one", qos)
        client.unsubscribe("DEFAULT.QoS")
        bridge.mq("put", "cmd", "two", "--to", unique, "--persistent")
        publish = client.take()
        assert (publish.topic, publish.payload, publish.qos) == ("cmd", b"two", 2)


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
@pytest.mark.parametrize("persistent", [False, True], ids=["not persistent", "persistent"])
def test_retain(bridge: BridgeProcess, unique: str, persistent: bool) -> None:
    """Table 4, RETAIN: a retained publication of an MQ application, live and later."""
    words = ["--persistent"] if persistent else []
    with RawClient.connected(bridge.port, f"{unique}-l") as live:
        live.subscribe((unique, 2))
        bridge.mq("pub", unique, "state", "--retain", *words)
        publish = live.take()
        assert publish == Publish(unique, b"state", 2 * persistent, False, False, publish.packet_id)
    with RawClient.connected(bridge.port, f"{unique}-t") as late:
        late.subscribe((unique, 1))
        publish = late.take()
        assert publish == Publish(unique, b"state", 1 * persistent, True, False, publish.packet_id)
        late.publish(unique, b"", 1, retain=True)  # clears it
    with RawClient.connected(bridge.port, f"{unique}-n") as later:
        later.subscribe((unique, 1))
        later.publish(unique, b"end", 1)
        assert later.take().payload == b"end"


def test_message_id_is_the_end_of_the_msgid_on_the_transmission_queue(bridge: BridgeProcess, unique: str) -> None:
    """Table 5, and the message on the queue meanwhile: an MQXQH that names the client and contains the message's MQMD."""
    with RawClient.connected(bridge.port, unique, clean=False) as client:
        client.subscribe((f"{unique}/+", 2))
        client.disconnect()
    mosquitto.publish(bridge.port, f"{unique}/mqtt", "from MQTT", "-i", f"{unique}-s", qos=1)
    bridge.mq("pub", f"{unique}/mq", "from MQ", "--persistent")
    put = bridge.mq_json("put", f"{unique}/direct", "to you", "--to", unique, "--persistent")[0]

    waiting = [message for message in bridge.messages(TRANSMISSION_QUEUE) if message["xqh"]["RemoteQMgrName"] == unique]
    assert [message["body"] for message in waiting] == ["from MQTT", "from MQ", "to you"]
    assert [message["xqh"]["RemoteQName"] for message in waiting] == [
        "SYSTEM.MQTT.PUBLICATION.QUEUE",
        "SYSTEM.MQTT.PUBLICATION.QUEUE",
        f"{unique}/direct",
    ]
    for message in waiting:
        assert message["md"]["Format"] == "MQXMIT"
        assert re.fullmatch(r"[0-9A-F]{48}", message["md"]["MsgId"])
        assert message["md"]["CorrelId"] == message["xqh"]["md"]["MsgId"]
        assert message["xqh"]["md"]["Persistence"] == 1
    assert waiting[0]["rfh2"][0]["folders"] == {
        "mqtt": {"clientId": f"{unique}-s", "qos": 1, "msgid": 1},
        "mqps": {"Top": f"{unique}/mqtt", "Sud": "2"},
    }
    assert waiting[1]["rfh2"][0]["folders"] == {"mqps": {"Top": f"{unique}/mq", "Sud": "2"}}
    assert waiting[1]["rfh2"][0]["Format"] == "MQSTR"
    assert waiting[2]["rfh2"] == []
    assert waiting[2]["xqh"]["md"]["MsgId"] == put["MsgId"]

    ids = [int(message["md"]["MsgId"][-4:], 16) for message in waiting]
    assert 0 not in ids
    if len(set(ids)) == 1:
        # MsgIds of IBM's form on Linux. Later messages have the next free identifiers.
        ids = list(range(ids[0], ids[0] + 3))
    with RawClient.connected(bridge.port, unique, clean=False) as client:
        received = [client.take() for _ in range(3)]
        assert received == [
            Publish(f"{unique}/mqtt", b"from MQTT", 1, False, False, ids[0]),
            Publish(f"{unique}/mq", b"from MQ", 2, False, False, ids[1]),
            Publish(f"{unique}/direct", b"to you", 2, False, False, ids[2]),
        ]
        client.ping()
        remaining = [
            message for message in bridge.messages(TRANSMISSION_QUEUE) if message["xqh"]["RemoteQMgrName"] == unique
        ]
        assert remaining == []
    with RawClient.connected(bridge.port, unique) as client:
        client.disconnect()


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", b"x" * 200_000], ids=["empty", "no text", "200 kB"])
def test_payload_from_standard_input(bridge: BridgeProcess, unique: str, body: bytes) -> None:
    """The bytes are copied unchanged. The length can be zero."""
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((unique, 1))
        bridge.mq("pub", unique, "-", "--persistent", stdin=body)
        assert client.take().payload == body
        bridge.mq("put", "cmd", "--to", unique, stdin=body)
        assert client.take().payload == body


def dead_letter(bridge: BridgeProcess, client_id: str) -> Any:
    """Wait for the message for a client on the dead-letter queue."""

    def letters() -> list[Any]:
        return [
            letter
            for letter in bridge.messages("SYSTEM.DEAD.LETTER.QUEUE")
            if letter["dlh"]["DestQMgrName"] == client_id
        ]

    until(letters)
    (letter,) = letters()
    return letter


@pytest.mark.queue_managers("embedded", "ibmmq", slow="pymqi")
def test_a_message_for_an_unknown_client_goes_to_the_dead_letter_queue(bridge: BridgeProcess, unique: str) -> None:
    put = bridge.mq_json("put", "commands/reset", "nobody home", "--to", unique, "--persistent")[0]
    dead = dead_letter(bridge, unique)
    assert dead["body"] == "nobody home"
    assert dead["md"]["Format"] == "MQDEAD"
    dlh = {name: dead["dlh"][name] for name in ("Reason", "ReasonName", "DestQName", "Format")}
    assert dlh == {
        "Reason": 2087,
        "ReasonName": "MQRC_UNKNOWN_REMOTE_Q_MGR",
        "DestQName": "commands/reset",
        "Format": "MQSTR",
    }
    assert dead["dlh"]["PutDate"] == put["PutDate"]
    assert unique not in [message["xqh"]["RemoteQMgrName"] for message in bridge.messages(TRANSMISSION_QUEUE)]


def test_a_topic_that_mqtt_does_not_allow_goes_to_the_dead_letter_queue(bridge: BridgeProcess, unique: str) -> None:
    """PUBLISH must not contain a queue name with a wildcard. The message is not lost, and later ones are delivered."""
    with RawClient.connected(bridge.port, unique) as client:
        bridge.mq("put", "a/#", "bad topic", "--to", unique, "--persistent")
        bridge.mq("put", "good", "fine", "--to", unique, "--persistent")
        assert client.take().payload == b"fine"
        dead = dead_letter(bridge, unique)
        assert (dead["body"], dead["dlh"]["DestQName"]) == ("bad topic", "a/#")
        assert dead["dlh"]["Reason"] > 0


@pytest.mark.queue_managers("embedded", "ibmmq", "pymqi")
def test_display_sub_lists_client_identifier_and_topic(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique, clean=False) as client:
        client.subscribe((f"{unique}/+", 1), (f"{unique}/b/#", 2))
        subscriptions = bridge.mq_json("display", f"SUB('{unique}*')", "ALL")
        keys = ("SUB", "TOPICSTR", "DEST", "DESTQMGR", "USERDATA", "DURABLE")
        assert [{key: subscription[key] for key in keys} for subscription in subscriptions] == [
            {
                "SUB": f"{unique}:{topic}",
                "TOPICSTR": topic,
                "DEST": "SYSTEM.MQTT.PUBLICATION.QUEUE",
                "DESTQMGR": unique,
                "USERDATA": qos,
                "DURABLE": "YES",
            }
            for topic, qos in ((f"{unique}/+", "1"), (f"{unique}/b/#", "2"))
        ]
        assert f"SUB({unique}:{unique}/+)" in bridge.mq("display", f"SUB('{unique}*')")
        client.unsubscribe(f"{unique}/+")
        assert [subscription["SUB"] for subscription in bridge.mq_json("display", f"SUB('{unique}*')")] == [
            f"{unique}:{unique}/b/#"
        ]
        client.disconnect()
    with RawClient.connected(bridge.port, unique):
        # The previous session has ended. Messages for its subscriptions have no recipient until they are removed, so the
        # client need not wait for that.
        eventually(lambda: bridge.run_mq("display", f"SUB('{unique}*')").returncode, 3)
        result = bridge.run_mq("display", f"SUB('{unique}*')")
        assert b"AMQ8147E" in result.stderr


def test_put_through_a_remote_queue_definition(bridge: BridgeProcess, unique: str) -> None:
    """A QREMOTE contains topic and client, so an application does not need to know them."""
    name = unique.upper().replace("-", ".")
    bridge.mqsc(f"DEFINE QREMOTE({name}) RNAME('cmd/{unique}') RQMNAME('{unique}')\n")
    with RawClient.connected(bridge.port, unique) as client:
        bridge.mq("put", name, "via QREMOTE", "--persistent")
        publish = client.take()
        assert (publish.topic, publish.payload, publish.qos) == (f"cmd/{unique}", b"via QREMOTE", 2)
