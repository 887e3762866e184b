"""Acceptance 1 with a client on a raw socket: what no well-behaved client library lets one see."""

from __future__ import annotations

import time

import pytest

from bridge.mqtt.packets import Connack, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import LEVELS, RawClient

# Sessions -------------------------------------------------------------------------------------------------------------


@LEVELS
def test_session_present(bridge: BridgeProcess, unique: str, level: int) -> None:
    """MQTT-3.2.2-2, MQTT-3.2.2-3; MQTT 3.1 has no such bit."""
    answers = []
    for clean in (True, False, False, True, False):
        with RawClient(bridge.port, unique, clean=clean, level=level) as client:
            answers.append(client.connect().session_present)
            client.disconnect()
    assert answers == [False, False, level >= 4, False, False]


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


# QoS ------------------------------------------------------------------------------------------------------------------


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
