"""Exchanges of MQTT 5 on one connection as tables: packets of a client and all answers, by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from bridge.mqtt.packets import (
    AcknowledgementProperties,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    UnsubscribeProperties,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.topics import TOPIC_LEVELS
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import client_of

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

Sides = tuple[Sequence[Packet], Sequence[Packet]]
IN_USE, NOT_FOUND = ReasonCode.PACKET_IDENTIFIER_IN_USE, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
NO_SUBSCRIPTION, INVALID_FILTER = ReasonCode.NO_SUBSCRIPTION_EXISTED, ReasonCode.TOPIC_FILTER_INVALID
#: A well-formed topic filter with one level more than the bridge accepts.
DEEP = "/" * TOPIC_LEVELS
NOTED = AcknowledgementProperties(reason_string="a note", user_property=(("k", "v"), ("k", "w")))


def ask(packet_id: int, *filters: tuple[str, int], identifier: int | None = None, **options: bool) -> Subscribe:
    each = (SubscriptionOptions(**options),) * len(filters)
    return Subscribe(
        packet_id, filters, options=each, properties=SubscribeProperties(identifier) if identifier else None
    )


def say(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, **properties: object) -> Publish:
    publish_properties = PublishProperties(**properties) if properties else None
    return Publish(topic, payload, qos, False, False, packet_id, publish_properties)


#: Statements, the sent packets, with a topic of the test, and the received packets (without the message ids of PUBLISH).
EXCHANGES: list[tuple[str, Callable[[str], Sides]]] = [
    ("MQTT-3.12.4-1", lambda t: ([Pingreq(), Pingreq()], [Pingresp(), Pingresp()])),
    ("MQTT-2.2.1-5 MQTT-3.3.4-1 MQTT-4.3.2-4", lambda t: (
        [ask(9, (t, 0)), say(t, b"0"), say(t, b"1", 1, 65_535), say(t, b"2", 2, 1), Pubrel(1)],
        [Suback(9, (0,)), Puback(65_535), Pubrec(1), Pubcomp(1), say(t, b"0"), say(t, b"1"), say(t, b"2")])),
    ("MQTT-2.2.1-6 MQTT-3.8.4-1 MQTT-3.8.4-2 MQTT-3.10.4-4 MQTT-3.10.4-5", lambda t: (
        [ask(65_535, (t, 1)), Unsubscribe(1, (t,)), Unsubscribe(2, (t,))],
        [Suback(65_535, (1,)), Unsuback(1, (0,)), Unsuback(2, (NO_SUBSCRIPTION,))])),
    ("MQTT-3.8.4-5 MQTT-3.8.4-6 MQTT-3.8.4-7 MQTT-3.9.3-1", lambda t: (
        [ask(1, (t, 2), (DEEP, 2), (f"{t}/b", 0), (f"$share/g/{DEEP}", 1), (f"{t}/c", 1))],
        [Suback(1, (2, INVALID_FILTER, 0, INVALID_FILTER, 1))])),
    ("MQTT-3.8.4-3: the same filter twice in one SUBSCRIBE", lambda t: (
        [ask(1, (t, 0), (t, 2)), say(t, b"once", 2, 1)],
        [Suback(1, (0, 2)), Pubrec(1), say(t, b"once", 2)])),
    ("MQTT-3.8.4-3: a subscription is replaced with its options and its identifier", lambda t: (
        [ask(1, (t, 1), identifier=5, no_local=True), ask(2, (t, 0)), say(t, b"x")],
        [Suback(1, (1,)), Suback(2, (0,)), say(t, b"x")])),
    ("MQTT-3.10.4-6 MQTT-3.11.3-1: each filter of one UNSUBSCRIBE by itself", lambda t: (
        [ask(1, (t, 1), (f"{t}/b", 1)), Unsubscribe(2, (f"{t}/b", f"{t}/never", t, t))],
        [Suback(1, (1, 1)), Unsuback(2, (0, NO_SUBSCRIPTION, 0, NO_SUBSCRIPTION))])),
    ("MQTT-3.11.3-2: well-formed filters that the queue manager does not accept", lambda t: (
        [Unsubscribe(2, (DEEP, f"$share/g/{DEEP}"))],
        [Unsuback(2, (INVALID_FILTER,) * 2)])),
    ("MQTT-3.10.4-1: a filter is compared character by character", lambda t: (
        [ask(1, (f"{t}/+", 1)), Unsubscribe(2, (f"{t}/a", f"{t}/#", f"{t}/+/", f"{t}/+".upper()))],
        [Suback(1, (1,)), Unsuback(2, (NO_SUBSCRIPTION,) * 4)])),
    ("MQTT-3.10.4-2", lambda t: (
        [ask(1, (t, 1), (f"{t}/end", 0)), Unsubscribe(2, (t,)), say(t, b"late", 0), say(f"{t}/end", b"")],
        [Suback(1, (1, 0)), Unsuback(2, (0,)), say(f"{t}/end", b"")])),
    ("MQTT-3.8.4-8: the lower QoS", lambda t: (
        [ask(1, (f"{t}/0", 0), (f"{t}/1", 1), (f"{t}/2", 2)),
         *(say(f"{t}/{granted}", b"%d" % qos, qos, 10 * granted + qos if qos else 0)
           for granted in range(3) for qos in range(3))],
        [Suback(1, (0, 1, 2)),
         *(kind(10 * granted + qos) for granted in range(3) for qos, kind in ((1, Puback), (2, Pubrec))),
         *(say(f"{t}/{granted}", b"%d" % qos, min(granted, qos)) for granted in range(3) for qos in range(3))])),
    ("MQTT-3.3.4-2 MQTT-3.3.4-3 MQTT-3.3.4-5: one message for each subscription", lambda t: (
        [ask(1, (f"{t}/#", 2), identifier=1), ask(2, (f"{t}/+", 1), identifier=2), say(f"{t}/a", b"x", 2, 3)],
        [Suback(1, (2,)), Suback(2, (1,)), Pubrec(3), say(f"{t}/a", b"x", 2, subscription_identifier=(1,)),
         say(f"{t}/a", b"x", 1, subscription_identifier=(2,))])),
    ("MQTT-4.3.3-10: a publication again", lambda t: (
        [ask(1, (t, 0)), say(t, b"once", 2, 7), Publish(t, b"once", 2, False, True, 7)],
        [Suback(1, (0,)), Pubrec(7), Pubrec(7), say(t, b"once")])),
    ("MQTT-4.3.3-12: a message id again", lambda t: (
        [ask(1, (t, 0)), say(t, b"1", 2, 7), Pubrel(7), Publish(t, b"2", 2, False, True, 7), Pubrel(7)],
        [Suback(1, (0,)), Pubrec(7), Pubcomp(7), Pubrec(7), Pubcomp(7), say(t, b"1"), say(t, b"2")])),
    ("MQTT-4.3.2-5: DUP makes no publication with QoS 1 an old one", lambda t: (
        [ask(1, (t, 0)), Publish(t, b"a", 1, False, True, 7), Publish(t, b"b", 1, False, True, 7)],
        [Suback(1, (0,)), Puback(7), Puback(7), say(t, b"a"), say(t, b"b")])),
    ("MQTT-3.3.1-3: DUP is not passed on", lambda t: (
        [ask(1, (t, 2)), Publish(t, b"a", 1, False, True, 7), Publish(t, b"b", 2, False, True, 8)],
        [Suback(1, (2,)), Puback(7), Pubrec(8), say(t, b"a", 1), say(t, b"b", 2)])),
    ("section 3.6.2.1, MQTT-4.3.3-11: a message id that nothing is known of", lambda t: (
        [Pubrel(77)], [Pubcomp(77, NOT_FOUND)])),
    ("section 3.7.2.1: released once, asked for twice", lambda t: (
        [say(t, b"", 2, 77), Pubrel(77), Pubrel(77)], [Pubrec(77), Pubcomp(77), Pubcomp(77)])),
    ("section 3.7.2.1, MQTT-4.3.3-4", lambda t: ([Pubrec(78)], [Pubrel(78, reason_code=NOT_FOUND)])),
    ("section 4.3: what answers nothing", lambda t: ([Puback(79), Pubcomp(80)], [])),
    ("sections 3.4 and 3.6: acknowledgements of every length", lambda t: (
        [*(say(t, b"x", 2, number) for number in (1, 2, 3)),
         Pubrel(1), Pubrel(2, reason_code=NOT_FOUND), Pubrel(3, properties=NOTED), Pubrec(4, IN_USE, NOTED)],
        [*(Pubrec(number, ReasonCode.NO_MATCHING_SUBSCRIBERS) for number in (1, 2, 3)), Pubcomp(1), Pubcomp(2), Pubcomp(3)])),
    ("sections 3.8.2.1.3 and 3.10.2.1.2: User Properties", lambda t: (
        [Subscribe(1, ((t, 1),), options=(SubscriptionOptions(),), properties=SubscribeProperties(None, (("k", "v"),))),
         Unsubscribe(2, (t,), properties=UnsubscribeProperties((("k", "v"), ("k", "w"))))],
        [Suback(1, (1,)), Unsuback(2, (0,))])),
    ("MQTT-1.5.4-3: U+FEFF is a character", lambda t: (
        [ask(1, (f"\ufeff{t}", 0), (f"{t}/end", 0)), say(t, b"without"), say(f"\ufeff{t}", b"with"), say(f"{t}/end", b"")],
        [Suback(1, (0, 0)), say(f"\ufeff{t}", b"with"), say(f"{t}/end", b"")])),
    ("MQTT-4.7.3-4: case and accents make other topics", lambda t: (
        [ask(1, (f"{t}/A", 0), (f"{t}/\u00e9", 0), (f"{t}/x", 0)), say(f"{t}/a", b""), say(f"{t}/e\u0301", b""),
         say(f"{t}/\uff38", b""), say(f"{t}/\u00e9", b"composed")],
        [Suback(1, (0, 0, 0)), say(f"{t}/\u00e9", b"composed")])),
    ("MQTT-3.3.2-7 to -12: aliases up to the maximum", lambda t: (
        [ask(1, (f"{t}/#", 0)), say(f"{t}/a", b"1", topic_alias=64), say("", b"2", 1, 5, topic_alias=64),
         say(f"{t}/b", b"3", topic_alias=1), say("", b"4", topic_alias=64), say("", b"5", topic_alias=1)],
        [Suback(1, (0,)), Puback(5), *(say(f"{t}/{name}", payload) for name, payload in
                                      (("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4"), ("b", b"5")))])),
    ("MQTT-4.8.2-3: a share and an ordinary subscription", lambda t: (
        [ask(1, (f"$share/g/{t}", 0), identifier=1), ask(2, (t, 1), identifier=2), say(t, b"x", 1, 3)],
        [Suback(1, (0,)), Suback(2, (1,)), Puback(3), say(t, b"x", subscription_identifier=(1,)),
         say(t, b"x", 1, subscription_identifier=(2,))])),
    ("MQTT-3.10.4-5: a share is left", lambda t: (
        [ask(1, (f"$share/g/{t}", 1)), Unsubscribe(3, (f"$share/g/{t}", f"$share/h/{t}", t)), say(t, b"late", 1, 4)],
        [Suback(1, (1,)), Unsuback(3, (0, NO_SUBSCRIPTION, NO_SUBSCRIPTION)), Puback(4)])),
]  # fmt: skip


@pytest.mark.parametrize("exchange", [sides for _, sides in EXCHANGES], ids=[name[:60] for name, _ in EXCHANGES])
def test_an_exchange(bridge: BridgeProcess, unique: str, exchange: Callable[[str], Sides]) -> None:
    """Each answer arrives once, in order among its kind, and nothing follows."""
    sent, expected = exchange(f"{unique}/t")
    with client_of(bridge, unique) as client:
        client.send(*sent)
        received = [normal(client.receive()) for _ in expected]
        wanted = [normal(packet) for packet in expected]
        for kind in {type(packet) for packet in wanted + received}:
            assert of_kind(kind, received) == of_kind(kind, wanted)
        client.send(Pingreq())
        assert client.receive() == Pingresp()


def normal(packet: Packet) -> Packet:
    """Return a packet as in the table: PUBLISH without its message id, No matching subscribers as Success."""
    if isinstance(packet, Publish):
        return msgspec.structs.replace(packet, packet_id=0)
    if isinstance(packet, Puback | Pubrec) and packet.reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
        return msgspec.structs.replace(packet, reason_code=0)
    return packet


def of_kind(kind: type[Packet], packets: Sequence[Packet]) -> list[Packet]:
    """Return packets of one type in order, and PUBLISH packets of several subscriptions grouped by subscription."""
    return sorted((packet for packet in packets if type(packet) is kind), key=subscription_of)


def subscription_of(packet: Packet) -> tuple[int, ...]:
    properties = packet.properties if isinstance(packet, Publish) else None
    return () if properties is None else properties.subscription_identifier
