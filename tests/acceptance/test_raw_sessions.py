"""Acceptance 1 with a client on a raw socket: what no well-behaved client library lets one see."""

from __future__ import annotations

import time

import pytest

from bridge.wire.mqtt import (
    SUBACK_FAILURE,
    Connack,
    ConnackCode,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from tests.support.bridge_process import BridgeProcess
from tests.support.raw_client import RawClient

LEVELS = pytest.mark.parametrize("level", [3, 4], ids=["mqtt31", "mqtt311"])


# CONNECT -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (Connect("c", "MQTT", 6), ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (Connect("c", "MQIsdp", 4), ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (Connect("", "MQIsdp", 3), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("c" * 24, "MQIsdp", 3), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("", "MQTT", 4, clean_session=False), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("c" * 49, "MQTT", 4), ConnackCode.IDENTIFIER_REJECTED),
    ],
    ids=["level 6", "MQIsdp level 4", "3.1 no client id", "3.1 long client id", "no id, durable", "49 bytes"],
)
def test_connect_is_refused_with_its_code(bridge: BridgeProcess, packet: Connect, code: ConnackCode) -> None:
    with RawClient(bridge.port, "unused") as client:
        client.send(packet)
        assert client.expect(Connack) == Connack(code)
        client.expect_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04NOPE\x04\x02\x00\x00\x00\x00",
        encode(Publish("a", b"b")),
        encode(Pingreq()),
        b"\xf0\x00",
        b"\x00\x00",
        b"\x10\xff\xff\xff\xff\x01",
    ],
    ids=["protocol name", "PUBLISH", "PINGREQ", "type 15", "type 0", "fifth length byte"],
)
def test_what_is_no_connect_is_disconnected(bridge: BridgeProcess, data: bytes) -> None:
    """MQTT-3.1.0-1, MQTT-3.1.2-1, MQTT 3.1 section 2.1: the connection ends; with or without a CONNACK that refuses."""
    with RawClient(bridge.port, "unused") as client:
        client.send_bytes(data)
        packets = []
        try:
            while True:
                packets.append(client.receive())
        except Exception as error:
            assert type(error).__name__ == "ConnectionClosed"
        assert packets in ([], [Connack(ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION)])


def test_second_connect_ends_the_connection(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique) as client:
        client.send(client.packet)
        client.expect_closed()


def test_an_empty_client_identifier_gets_a_clean_session(bridge: BridgeProcess) -> None:
    with RawClient.connected(bridge.port, "") as one, RawClient.connected(bridge.port, "") as other:
        one.ping()
        other.ping()


def test_packets_may_come_byte_by_byte_and_all_at_once(bridge: BridgeProcess, unique: str) -> None:
    with RawClient(bridge.port, unique) as client:
        stream = [client.packet, Subscribe(1, ((unique, 1),)), Publish(unique, b"slow", 1, False, False, 2), Pingreq()]
        for byte in b"".join(encode(packet) for packet in stream):
            client.send_bytes(bytes([byte]))
        assert client.expect(Connack).return_code == 0
        assert client.wait_for(Suback) == Suback(1, (1,))
        assert client.wait_for(Puback) == Puback(2)
        client.wait_for(Pingresp)
        assert client.wait_for(Publish).payload == b"slow"
    with RawClient(bridge.port, unique) as client:
        client.send(client.packet, Subscribe(1, ((unique, 1),)), Pingreq())
        assert client.expect(Connack).return_code == 0
        assert client.wait_for(Suback) == Suback(1, (1,))
        client.wait_for(Pingresp)
        client.send(*(Publish(unique, b"%d" % number, 1, False, False, number) for number in range(1, 10)))
        assert [client.wait_for(Puback).message_id for _ in range(1, 10)] == list(range(1, 10))
        assert [client.wait_for(Publish).payload for _ in range(1, 10)] == [b"%d" % number for number in range(1, 10)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_publication_right_behind_a_subscribe_comes(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    """Packets are done in the order sent (MQTT 3.1.1 section 4.6), though the SUBSCRIBE may wait for the disk."""
    with RawClient(bridge.port, unique, clean=clean) as client:
        topics = [f"{unique}/{number}" for number in range(5)]
        packets: list[Packet] = [client.packet]
        for message_id, topic in enumerate(topics, 1):
            packets += Subscribe(message_id, ((topic, 1),)), Publish(topic, b"x", 1, False, False, 100 + message_id)
        client.send(*packets)
        assert [client.wait_for(Publish).topic for _ in topics] == topics


@pytest.mark.parametrize("clean", [True, False])
def test_an_unsubscribe_right_behind_a_subscribe_ends_it(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    with RawClient(bridge.port, unique, clean=clean) as client:
        client.send(client.packet, Subscribe(1, ((unique, 1),)), Unsubscribe(2, (unique,)))
        client.expect(Connack)
        assert client.wait_for(Suback) == Suback(1, (1,))
        assert client.wait_for(Unsuback).message_id == 2
        client.publish(unique, b"x", 1)
        client.ping()
        assert not client.inbox, "it is subscribed"


# Sessions ------------------------------------------------------------------------------------------------------------


@LEVELS
def test_session_present(bridge: BridgeProcess, unique: str, level: int) -> None:
    """MQTT-3.2.2-2, MQTT-3.2.2-3; MQTT 3.1 has no such bit."""
    answers = []
    for clean in (True, False, False, True, False):
        with RawClient(bridge.port, unique, clean=clean, level=level) as client:
            answers.append(client.connect().session_present)
            client.disconnect()
    assert answers == [False, False, level == 4, False, False]


@LEVELS
@pytest.mark.parametrize("kill", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_durable_session_over_a_restart(own_bridge: BridgeProcess, level: int, kill: bool) -> None:
    """Subscriptions and queued messages of QoS 1 and 2 survive; a clean session does not; session present tells."""
    bridge = own_bridge
    with RawClient.connected(bridge.port, "keeper", clean=False, level=level) as client:
        assert client.subscribe(("news/+", 2), ("old/#", 1), ("gone", 2)) == (2, 1, 2)
        client.unsubscribe("gone")
        client.disconnect()
    with RawClient.connected(bridge.port, "fleeting") as client:
        client.subscribe(("news/+", 2))
        with RawClient.connected(bridge.port, "sender") as sender:
            sender.publish("news/1", b"one", 1)
            sender.publish("old/2", b"two", 2)
            sender.publish("gone", b"not wanted", 2)
        if kill:
            bridge.kill()
            bridge.start()
        else:
            bridge.restart()
    with RawClient.connected(bridge.port, "sender") as sender:
        sender.publish("news/3", b"three", 2)
        sender.publish("gone", b"not wanted", 2)
        sender.publish("old/end", b"", 1)
    with RawClient(bridge.port, "keeper", clean=False, level=level) as client:
        assert client.connect().session_present is (level == 4)
        received = [client.take() for _ in range(4)]
        assert [(one.topic, one.payload, one.qos, one.retain) for one in received] == [
            ("news/1", b"one", 1, False),
            ("old/2", b"two", 1, False),
            ("news/3", b"three", 2, False),
            ("old/end", b"", 1, False),
        ]
        client.disconnect()
    with RawClient(bridge.port, "fleeting", clean=False) as client:
        assert client.connect().session_present is False


def test_clean_session_ends_the_durable_one_before(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-6: what waited is discarded with the subscriptions."""
    with RawClient.connected(bridge.port, unique, clean=False) as client:
        client.subscribe((unique, 1))
        client.disconnect()
    with RawClient.connected(bridge.port, f"{unique}-s") as sender:
        sender.publish(unique, b"waits", 1)
        with RawClient.connected(bridge.port, unique) as client:
            assert client.subscribe((f"{unique}/end", 1)) == (1,)
            sender.publish(unique, b"nobody subscribes", 1)
            sender.publish(f"{unique}/end", b"end", 1)
            assert client.take().payload == b"end"
            client.disconnect()


def test_takeover(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.4-2: the older connection of a client identifier is closed, its will published, its session taken over."""
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((f"{unique}/will", 1))
        first = RawClient.connected(bridge.port, unique, clean=False, will=Will(f"{unique}/will", b"taken over", 1))
        first.subscribe((unique, 1))
        second = RawClient(bridge.port, unique, clean=False)
        with first, second:
            assert second.connect() == Connack(0, True)
            first.expect_closed()
            assert witness.take().payload == b"taken over"
            witness.publish(unique, b"for the second", 1)
            assert second.take().payload == b"for the second"


@pytest.mark.parametrize("keep_alive", [1])
def test_keep_alive(bridge: BridgeProcess, unique: str, keep_alive: int) -> None:
    """MQTT-3.1.2-24: silent for one and a half times its keep-alive, a client is disconnected, and its will published."""
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((unique, 1))
        will = Will(unique, b"silent", 1)
        with RawClient.connected(bridge.port, f"{unique}-s", keep_alive=keep_alive, will=will) as silent, \
             RawClient.connected(bridge.port, f"{unique}-l", keep_alive=keep_alive, will=will) as lively:  # fmt: skip
            begin = time.monotonic()
            while not silent_is_closed(silent):
                lively.ping()
                assert time.monotonic() - begin < 20
            assert time.monotonic() - begin >= keep_alive * 1.5 - 0.1
            assert witness.take().payload == b"silent"
            lively.ping()
            lively.disconnect()
        witness.publish(unique, b"no second will", 1)
        assert witness.take().payload == b"no second will"


def silent_is_closed(client: RawClient) -> bool:
    try:
        client.expect_closed(0.1)
    except TimeoutError:
        return False
    return True


# QoS -----------------------------------------------------------------------------------------------------------------


@LEVELS
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_handshakes(bridge: BridgeProcess, unique: str, sent: int, granted: int, level: int) -> None:
    """The lower QoS of publication and subscription, with its packets and nothing else."""
    with RawClient.connected(bridge.port, f"{unique}-s", level=level) as sender, \
         RawClient.connected(bridge.port, unique, level=level) as receiver:  # fmt: skip
        assert receiver.subscribe((unique, granted)) == (granted,)
        payload = bytes(range(256))
        sender.send(Publish(unique, payload, sent, False, False, 77 if sent else 0))
        if sent == 1:
            assert sender.expect(Puback) == Puback(77)
        elif sent == 2:
            assert sender.expect(Pubrec) == Pubrec(77)
            sender.send(Pubrel(77))
            assert sender.expect(Pubcomp) == Pubcomp(77)
        publish = receiver.expect(Publish)
        qos = min(sent, granted)
        assert publish == Publish(unique, payload, qos, False, False, publish.message_id)
        assert (publish.message_id > 0) is (qos > 0)
        if qos == 1:
            receiver.send(Puback(publish.message_id))
        elif qos == 2:
            receiver.send(Pubrec(publish.message_id))
            assert receiver.expect(Pubrel).message_id == publish.message_id
            receiver.send(Pubcomp(publish.message_id))
        for client in (sender, receiver):
            client.send(Pingreq())
            client.expect(Pingresp)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "durable"])
def test_qos_2_sent_again_is_published_once(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    """Method A (MQTT 3.1.1 section 4.3.3): PUBLISH again before PUBREL, also over a lost connection; PUBREL again."""
    again = Publish(unique, b"once", 2, False, True, 5)
    with RawClient.connected(bridge.port, f"{unique}-r") as receiver:
        receiver.subscribe((unique, 2))
        with RawClient.connected(bridge.port, unique, clean=clean) as sender:
            sender.send(Publish(unique, b"once", 2, False, False, 5), again)
            assert [sender.expect(Pubrec).message_id for _ in range(2)] == [5, 5]
        with RawClient(bridge.port, unique, clean=clean) as sender:
            assert sender.connect().session_present is not clean
            if not clean:
                sender.send(again)
                sender.expect(Pubrec)
            sender.send(Pubrel(5), Pubrel(5))
            assert [sender.expect(Pubcomp).message_id for _ in range(2)] == [5, 5]
            sender.send(Publish(unique, b"another", 2, False, False, 5))
            sender.expect(Pubrec)
            assert [receiver.take().payload for _ in range(2)] == [b"once", b"another"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restart", [None, "stop", "kill"])
def test_unacknowledged_comes_again_with_dup(own_bridge: BridgeProcess, qos: int, restart: str | None) -> None:
    """MQTT-4.4.0-1, MQTT-3.3.1-1: same message ids, same order, DUP; what was acknowledged does not come again."""
    bridge = own_bridge
    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        client.subscribe(("t", qos))
        with RawClient.connected(bridge.port, "sender") as sender:
            for number in range(5):
                sender.publish("t", b"%d" % number, qos)
        first = [client.expect(Publish) for _ in range(5)]
        assert not any(publish.dup for publish in first)
        client.acknowledge(first[0])
        client.ping()
        client.disconnect()
    if restart == "stop":
        bridge.restart()
    elif restart == "kill":
        bridge.kill()
        bridge.start()
    with RawClient(bridge.port, "keeper", clean=False) as client:
        assert client.connect().session_present
        again: list[Publish] = []
        while len(again) < 4:
            packet = client.receive()
            if type(packet) is Pubrel and restart == "kill":
                # The end of the first handshake, which nothing acknowledges, was perhaps not on record yet.
                assert packet.message_id == first[0].message_id
                client.send(Pubcomp(packet.message_id))
            elif type(packet) is Publish and packet.message_id == first[0].message_id and restart == "kill":
                # So it is with a PUBACK: a queue manager elsewhere had perhaps not been told yet.
                assert qos == 1 and packet.dup and not again
                client.acknowledge(packet)
            else:
                assert type(packet) is Publish, packet
                again.append(packet)
        assert again == [Publish("t", b"%d" % n, qos, False, True, first[n].message_id) for n in range(1, 5)]
        for publish in again:
            client.acknowledge(publish)
        client.send(Pingreq())
        client.expect(Pingresp)


def test_pubrel_comes_again_after_a_reconnect(own_bridge: BridgeProcess) -> None:
    """After PUBREC the message itself never comes again; its PUBREL does, also after a kill."""
    bridge = own_bridge
    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        client.subscribe(("t", 2))
        client.publish("t", b"once", 2)
        publish = client.expect(Publish)
        client.send(Pubrec(publish.message_id))
        assert client.expect(Pubrel).message_id == publish.message_id
    bridge.kill()
    bridge.start()
    for _ in range(2):
        with RawClient(bridge.port, "keeper", clean=False) as client:
            assert client.connect().session_present
            assert client.expect(Pubrel).message_id == publish.message_id
    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        assert client.expect(Pubrel).message_id == publish.message_id
        client.send(Pubcomp(publish.message_id))
        client.send(Pingreq())
        client.expect(Pingresp)
        client.publish("t", b"next", 2)
        assert client.take().payload == b"next"


def test_in_flight_window(bridge: BridgeProcess, unique: str) -> None:
    """20 messages are sent to a client that acknowledges none; each acknowledgement lets another one follow, in order."""
    with RawClient.connected(bridge.port, unique) as client, RawClient.connected(bridge.port, f"{unique}-s") as sender:
        client.subscribe((unique, 1))
        for number in range(50):
            sender.publish(unique, b"%d" % number, 1)
        window = [client.expect(Publish) for _ in range(20)]
        client.send(Pingreq())
        client.expect(Pingresp)
        received = []
        while window:
            publish = window.pop(0)
            received.append(int(publish.payload))
            client.send(Puback(publish.message_id))
            if len(received) <= 30:
                window.append(client.expect(Publish))
        assert received == list(range(50))


def test_order_per_topic_over_qos_and_topics(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.6.0-5, -6: several publishers, each topic in the order published."""
    with RawClient.connected(bridge.port, unique) as receiver:
        receiver.subscribe((f"{unique}/#", 2))
        senders = [RawClient.connected(bridge.port, f"{unique}-{number}") for number in range(3)]
        for number in range(300):
            for index, sender in enumerate(senders):
                qos = index
                sender.send(Publish(f"{unique}/{index}", b"%d" % number, qos, False, False, number + 1 if qos else 0))
        received: dict[str, list[int]] = {}
        for _ in range(900):
            publish = receiver.wait_for(Publish)
            received.setdefault(publish.topic, []).append(int(publish.payload))
            receiver.acknowledge(publish)
        assert received == {f"{unique}/{index}": list(range(300)) for index in range(3)}
        for sender in senders:
            sender.vanish()


# Subscriptions -------------------------------------------------------------------------------------------------------


def test_subscribe_to_several_topics_with_one_refused(bridge: BridgeProcess, unique: str) -> None:
    """SUBACK answers each filter in order, 0x80 for one that cannot be (MQTT-3.9.3-1)."""
    with RawClient.connected(bridge.port, unique) as client:
        codes = client.subscribe((f"{unique}/a", 0), (f"{unique}/b#", 1), (f"{unique}/+/c", 2), (f"{unique}/#/d", 1))
        assert codes == (0, SUBACK_FAILURE, 2, SUBACK_FAILURE)
        client.publish(f"{unique}/x/c", b"two", 2)
        assert client.take().qos == 2
        client.unsubscribe(f"{unique}/a", f"{unique}/+/c", "never subscribed to")
        client.publish(f"{unique}/x/c", b"nobody", 1)
        client.subscribe((f"{unique}/end", 1))
        client.publish(f"{unique}/end", b"end", 1)
        assert client.take().payload == b"end"


def test_subscribe_takes_effect_before_the_publish_behind_it(bridge: BridgeProcess, unique: str) -> None:
    """A client's packets take effect in the order sent, also when it does not wait for SUBACK."""
    with RawClient.connected(bridge.port, unique) as client:
        client.send(Subscribe(1, ((unique, 1),)), Publish(unique, b"at once", 1, False, False, 2))
        client.wait_for(Suback)
        client.wait_for(Puback)
        client.publish(unique, b"later", 1)
        assert [client.take().payload for _ in range(2)] == [b"at once", b"later"]


def test_subscribing_again_alters_the_qos_and_repeats_the_retained(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.4-3: the new subscription replaces the old one; there are no two of one filter."""
    with RawClient.connected(bridge.port, unique) as client:
        client.publish(unique, b"kept", 2, retain=True)
        for qos in (0, 2, 1):
            assert client.subscribe((unique, qos)) == (qos,)
            publish = client.wait_for(Publish)
            client.acknowledge(publish)
            assert (publish.qos, publish.retain, publish.payload) == (qos, True, b"kept")
        client.publish(unique, b"live", 2)
        publish = client.take()
        assert (publish.qos, publish.retain, publish.payload) == (1, False, b"live")
        client.publish(unique, b"", 1, retain=True)
        assert client.take().payload == b""


def test_wildcards_do_not_name_dollar_topics(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.7.2-1."""
    with RawClient.connected(bridge.port, unique) as client:
        client.subscribe((f"+/{unique}", 1), ("#", 0), (f"$x/{unique}", 1), (f"end/{unique}", 1))
        client.publish(f"$x/{unique}", b"1", 1)
        client.publish(f"end/{unique}", b"2", 1)
        topics = []
        while not topics or topics[-1] != f"end/{unique}":
            publish = client.wait_for(Publish)
            client.acknowledge(publish)
            if publish.topic.endswith(unique):
                topics.append(publish.topic)
        assert topics == [f"$x/{unique}", f"end/{unique}"]


# Retained publications ------------------------------------------------------------------------------------------------


@LEVELS
def test_retained_live_late_and_cleared(bridge: BridgeProcess, unique: str, level: int) -> None:
    """MQTT-3.3.1-5 to -11: RETAIN is 0 for who is subscribed already, 1 for who comes later, gone after an empty one."""
    with RawClient.connected(bridge.port, f"{unique}-p", level=level) as sender, \
         RawClient.connected(bridge.port, f"{unique}-l", level=level) as live:  # fmt: skip
        live.subscribe((f"{unique}/+", 2))
        for qos in (0, 1, 2):
            sender.publish(f"{unique}/{qos}", b"kept", qos, retain=True)
            publish = live.take()
            assert (publish.qos, publish.retain) == (qos, False)
        with RawClient.connected(bridge.port, f"{unique}-t", level=level) as late:
            late.subscribe((f"{unique}/+", 2))
            received = [late.wait_for(Publish) for _ in range(3)]
            for publish in received:
                late.acknowledge(publish)
            assert sorted((one.topic, one.qos, one.retain, one.payload) for one in received) == [
                (f"{unique}/{qos}", qos, True, b"kept") for qos in (0, 1, 2)
            ]
        for qos in (0, 1, 2):
            sender.publish(f"{unique}/{qos}", b"", 1, retain=True)
            assert live.take().payload == b"", "a live subscriber gets the empty one as an ordinary publication"
        with RawClient.connected(bridge.port, f"{unique}-n", level=level) as later:
            later.subscribe((f"{unique}/+", 2))
            sender.publish(f"{unique}/end", b"end", 2)
            assert later.take().payload == b"end"


def test_retained_publications_survive_a_restart(own_bridge: BridgeProcess) -> None:
    """Persistent ones do; one that was cleared does not come back."""
    bridge = own_bridge
    with RawClient.connected(bridge.port, "sender") as sender:
        sender.publish("r/kept", b"first", 1, retain=True)
        sender.publish("r/kept", b"last", 1, retain=True)
        sender.publish("r/cleared", b"x", 2, retain=True)
        sender.publish("r/cleared", b"", 2, retain=True)
    bridge.kill()
    bridge.start()
    with RawClient.connected(bridge.port, "late") as late:
        late.subscribe(("r/#", 2))
        publish = late.take()
        assert (publish.topic, publish.payload, publish.qos, publish.retain) == ("r/kept", b"last", 1, True)
        late.publish("r/end", b"", 1)
        assert late.take().topic == "r/end"


# Wills ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_will_of_every_qos(bridge: BridgeProcess, unique: str, qos: int, retain: bool) -> None:
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((unique, 2))
        RawClient.connected(bridge.port, f"{unique}-m", will=Will(unique, b"gone", qos, retain)).vanish()
        publish = witness.take()
        assert (publish.payload, publish.qos, publish.retain) == (b"gone", qos, False)
        witness.unsubscribe(unique)
        witness.subscribe((unique, 2))
        if not retain:
            witness.publish(unique, b"end", 1)
        publish = witness.take()
        assert (publish.payload, publish.retain) == ((b"gone", True) if retain else (b"end", False))


def test_will_without_payload_clears_a_retained_publication(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.publish(unique, b"alive", 1, retain=True)
        witness.subscribe((unique, 1))
        assert witness.take().payload == b"alive"
        RawClient.connected(bridge.port, f"{unique}-m", will=Will(unique, b"", 1, True)).vanish()
        assert witness.take().payload == b""
        witness.unsubscribe(unique)
        witness.subscribe((unique, 1))
        witness.publish(unique, b"end", 1)
        assert witness.take().payload == b"end"


def test_no_will_after_disconnect_but_after_a_malformed_packet(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-8, MQTT-3.1.2-10: DISCONNECT drops the will; any other end publishes it."""
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.subscribe((unique, 1))
        RawClient.connected(bridge.port, f"{unique}-p", will=Will(unique, b"polite", 1)).disconnect()
        rude = RawClient.connected(bridge.port, f"{unique}-r", will=Will(unique, b"rude", 1))
        rude.send_bytes(b"\xff\xff")
        rude.expect_closed()
        assert witness.take().payload == b"rude"
        rude.vanish()


# Bad behaviour -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x36\x06\x00\x01a\x00\x01b",
        b"\x32\x05\x00\x01a\x00\x00",
        b"\x30\x04\x00\x02a#",
        b"\x80\x06\x00\x01\x00\x01a\x00",
        b"\x82\x02\x00\x01",
        b"\x20\x02\x00\x00",
        b"\x30\xff\xff\xff\xff\x7f",
        b"\x30\x80\x80\x80\x7f",
    ],
    ids=["QoS 3", "message id 0", "wildcard", "SUBSCRIBE flags", "no topic", "CONNACK", "five length bytes", "too long"],
)  # fmt: skip
def test_malformed_packets_end_only_their_own_connection(bridge: BridgeProcess, unique: str, data: bytes) -> None:
    with RawClient.connected(bridge.port, f"{unique}-g") as good, RawClient.connected(bridge.port, unique) as bad:
        bad.send_bytes(data)
        bad.expect_closed()
        good.ping()
