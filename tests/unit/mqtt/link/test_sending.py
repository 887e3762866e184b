"""Publications to the broker: publish returns when all are acknowledged, and the worker controls the steps of QoS 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes

from bridge.link import attempts
from bridge.link.outbox import LinkOutbox
from bridge.link.state import LinkLost, LinkPhase
from bridge.link.violations import REACTIONS, Reaction, Violation, Violations
from bridge.telemetry.message import Publication
from tests.helpers.fake_broker import (
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    FakeBroker,
    Peer,
    answer,
    packet,
    properties_of,
)
from tests.helpers.patience import PATIENCE
from tests.helpers.publications import publication_of_fields
from tests.helpers.tested_link import LinkFactory, TestedLink, calling, ready


def publications(number: int, qos: int) -> list[Publication]:
    return [Publication(topic=f"t/{index}", payload=b"p", qos=qos) for index in range(number)]


def connected(broker: FakeBroker, link: LinkFactory, **options: Any) -> tuple[TestedLink, Peer]:
    """Return a connected link. Options belong to FakeBroker.connected, all others to the link."""
    accepting = {name: options.pop(name) for name in ("properties", "present") if name in options}
    sender = link(broker.port, broker.version, **options)
    peer = broker.connected(**accepting)
    sender.state_where(LinkPhase.CONNECTED)
    return sender, peer


def test_qos_1_returns_after_all_pubacks(broker: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(broker, link)
    call = calling(sender.publish, publications(3, 1))
    sent = peer.published(3, 2)
    assert [topic for topic, _ in sent] == ["t/0", "t/1", "t/2"]
    packet_ids = [packet_id for _, packet_id in sent]
    peer.send(answer(PUBACK, packet_ids[2]), answer(PUBACK, packet_ids[0]))
    peer.nothing_came()
    assert not call.done()
    peer.send(answer(PUBACK, packet_ids[1]))
    assert call.result(PATIENCE) == {}
    assert sender.counters.sent == 3


def test_an_invalid_acknowledgement_ends_the_connection(broker: FakeBroker, link: LinkFactory, impatient: None) -> None:
    sender, peer = connected(broker, link)
    call = calling(sender.publish, publications(1, 2))
    ((_, packet_id),) = peer.published(1, 4)
    peer.send(answer(PUBCOMP, packet_id))
    with pytest.raises(
        LinkLost, match=f"the broker violated MQTT: PUBCOMP for message id {packet_id}: MQTT 3.1.1 section 4.3.3"
    ):
        call.result(PATIENCE)


def test_qos_2_without_message_ids_releases_at_pubrec(broker: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(broker, link)
    call = calling(sender.publish, publications(2, 2))
    (_, first), (_, second) = peer.published(2, 4)
    peer.send(answer(PUBREC, first))
    assert peer.packet_ids(PUBREL, 1) == [first]
    peer.send(answer(PUBCOMP, first), answer(PUBREC, second))
    assert peer.packet_ids(PUBREL, 1) == [second]
    assert not call.done()
    peer.send(answer(PUBCOMP, second))
    assert call.result(PATIENCE) == {}


def test_exactly_once_delays_pubrel_until_release(broker: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(broker, link)
    call = calling(sender.publish_exactly, publications(2, 2), [301, 300])
    assert peer.published(2, 4) == [("t/0", 301), ("t/1", 300)]
    peer.send(answer(PUBREC, 300))
    peer.nothing_came()
    assert not call.done()
    peer.send(answer(PUBREC, 301))
    assert call.result(PATIENCE) == {}
    peer.nothing_came()
    call = calling(sender.release, [301, 300])
    # In the order of PUBREC (MQTT-4.6.0-4).
    assert peer.packet_ids(PUBREL, 2) == [300, 301]
    peer.send(answer(PUBCOMP, 301))
    peer.nothing_came()
    assert not call.done()
    peer.send(answer(PUBCOMP, 300))
    assert call.result(PATIENCE) is None


@pytest.mark.parametrize(
    ("call", "answers", "expected"),
    [
        pytest.param(lambda link: link.publish(publications(2, 1)), [], 2, id="no PUBACK"),
        pytest.param(lambda link: link.publish(publications(2, 1), [1, 2]), [answer(PUBACK, 1)], 2, id="one PUBACK"),
        pytest.param(lambda link: link.publish(publications(2, 2), [1, 2]), [answer(PUBREC, 1)], 3, id="one PUBREC"),
        pytest.param(
            lambda link: link.publish(publications(2, 2), [1, 2]),
            [answer(PUBREC, 1), answer(PUBREC, 2), answer(PUBCOMP, 2)],
            4,
            id="one PUBCOMP",
        ),
        pytest.param(lambda link: link.publish_exactly(publications(2, 2), [1, 2]), [], 2, id="exactly: no PUBREC"),
        pytest.param(
            lambda link: link.publish_exactly(publications(2, 2), [1, 2]), [answer(PUBREC, 2)], 2, id="one PUBREC held"
        ),
        pytest.param(lambda link: link.release([1, 2]), [answer(PUBCOMP, 1)], 2, id="release: one PUBCOMP"),
    ],
)
def test_a_connection_that_breaks_before_all_acknowledgements(
    broker: FakeBroker,
    link: LinkFactory,
    call: Callable[[TestedLink], object],
    answers: list[bytes],
    expected: int,
) -> None:
    sender, peer = connected(broker, link)
    running = calling(call, sender)
    peer.packet()
    peer.send(*answers)
    for _ in range(expected - 1):
        peer.packet()
    peer.close()
    with pytest.raises(LinkLost, match=r"closed|reset"):
        running.result(PATIENCE)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_lost_connection_names_the_publications_that_the_broker_has_not_acknowledged(
    broker: FakeBroker, link: LinkFactory, qos: int
) -> None:
    """Including those that were not sent."""
    sender, peer = connected(broker, link, in_flight=3)
    call = calling(sender.publish, publications(5, qos))
    packet_ids = [packet_id for _, packet_id in peer.published(3, 2 * qos)]
    if qos == 1:
        peer.send(answer(PUBACK, packet_ids[1]))
    else:
        peer.send(answer(PUBREC, packet_ids[1]))
        peer.packet()
        peer.send(answer(PUBCOMP, packet_ids[1]))
    peer.close()
    with pytest.raises(LinkLost) as lost:
        call.result(PATIENCE)
    assert lost.value.unanswered == [0, 2, 3, 4]


def test_nothing_is_sent_without_a_connection(broker: FakeBroker, link: LinkFactory) -> None:
    sender = link(broker.port, broker.version)
    for call in (
        lambda: sender.publish(publications(1, 0)),
        lambda: sender.publish(publications(1, 1)),
        lambda: sender.publish_exactly(publications(1, 2), [1]),
        lambda: sender.release([1]),
    ):
        with pytest.raises(LinkLost, match="not connected"):
            call()


def test_after_a_lost_connection_the_same_message_ids_are_sent_with_dup_or_released(
    broker: FakeBroker, link: LinkFactory, impatient: None
) -> None:
    sender, peer = connected(broker, link, in_flight=2)
    call = calling(sender.publish_exactly, publications(2, 2), [8, 9])
    peer.published(2, 4)
    peer.send(answer(PUBREC, 8))
    peer.close()
    with pytest.raises(LinkLost):
        call.result(PATIENCE)
    peer = broker.connected(present=True)
    assert sender.wait_connected(PATIENCE)
    # The link itself repeats nothing.
    peer.nothing_came()
    call = calling(sender.publish_exactly, publications(2, 2), [8, 9], dup=True)
    assert peer.published(2, 12) == [("t/0", 8), ("t/1", 9)]
    peer.send(answer(PUBREC, 8), answer(PUBREC, 9))
    assert call.result(PATIENCE) == {}
    # An id of an earlier process is released in the same way, whether the broker knows it or not.
    call = calling(sender.release, [8, 9, 1000])
    # Its PUBREC was received first.
    assert peer.packet_ids(PUBREL, 3) == [1000, 8, 9]
    unknown = answer(PUBCOMP, 1000, 0x92) if broker.version == "5" else answer(PUBCOMP, 1000)
    peer.send(answer(PUBCOMP, 9), unknown, answer(PUBCOMP, 8))
    assert call.result(PATIENCE) is None


def test_pubrec_before_the_publication_is_repeated_is_not_answered(broker: FakeBroker, link: LinkFactory) -> None:
    """PUBLISH must not follow PUBREL (MQTT 5.0 section 4.3.3): the broker would publish the message twice."""
    sender, peer = connected(broker, link, present=True)
    peer.send(answer(PUBREC, 8))
    peer.nothing_came()
    call = calling(sender.publish_exactly, publications(1, 2), [8], dup=True)
    assert peer.published(1, 12) == [("t/0", 8)]
    peer.send(answer(PUBREC, 8), answer(PUBREC, 8))
    assert call.result(PATIENCE) == {}
    peer.nothing_came()
    call = calling(sender.release, [8])
    assert peer.packet_ids(PUBREL, 1) == [8]
    peer.send(answer(PUBCOMP, 8))
    assert call.result(PATIENCE) is None


@pytest.mark.parametrize("present", [True, False])
def test_an_interrupted_exchange_without_message_ids_is_completed_at_the_broker(
    broker: FakeBroker, link: LinkFactory, present: bool, impatient: None
) -> None:
    """Otherwise the broker would treat a later publication with the same message id as a repetition, and drop it."""
    sender, peer = connected(broker, link)
    call = calling(sender.publish, publications(1, 2))
    ((_, packet_id),) = peer.published(1, 4)
    peer.close()
    with pytest.raises(LinkLost):
        call.result(PATIENCE)
    peer = broker.connected(present=present)
    assert sender.wait_connected(PATIENCE)
    if present:
        assert peer.packet_ids(PUBREL, 1) == [packet_id]
        peer.send(answer(PUBREC, packet_id))
        assert peer.packet_ids(PUBREL, 1) == [packet_id]
    peer.nothing_came()


@pytest.mark.parametrize("held", [False, True])
def test_pubrel_is_sent_in_the_order_of_pubrec(
    broker: FakeBroker, link: LinkFactory, held: bool, impatient: None
) -> None:
    """MQTT-4.6.0-4: also on the next connection, where a publication that was sent again has a new PUBREC."""
    sender, peer = connected(broker, link)
    if held:
        call = calling(sender.publish_exactly, publications(4, 2), [65533, 1, 2, 3])
    else:
        call = calling(sender.publish, publications(4, 2))
    first, second, third, fourth = (packet_id for _, packet_id in peer.published(4, 4))
    in_order = [third, first, fourth, second]
    peer.send(*(answer(PUBREC, packet_id) for packet_id in in_order))
    if held:
        assert call.result(PATIENCE) == {}
        call = calling(sender.release, [first, second, third, fourth])
    assert peer.packet_ids(PUBREL, 4) == in_order
    peer.send(answer(PUBCOMP, fourth))
    peer.close()
    with pytest.raises(LinkLost):
        call.result(PATIENCE)
    peer = broker.connected(present=True)
    assert sender.wait_connected(PATIENCE)
    if held:
        call = calling(sender.publish_exactly, publications(2, 2), [third, second], dup=True)
        assert [packet_id for _, packet_id in peer.published(2, 12)] == [third, second]
        peer.send(answer(PUBREC, second), answer(PUBREC, third))
        assert call.result(PATIENCE) == {}
        calling(sender.release, [third, second, first])
    assert peer.packet_ids(PUBREL, 3) == ([first, second, third] if held else [third, first, second])


def test_a_full_window_delays_only_publish(broker_5: FakeBroker, link: LinkFactory) -> None:
    """MQTT-3.3.4-8: PINGREQ and acknowledgements are sent, including the PUBREL of the publication in flight."""
    maximum = properties_of(PacketTypes.CONNACK, ReceiveMaximum=1)
    both = link(broker_5.port, topic_filter="in", qos=2, keep_alive=1)
    peer = broker_5.connected(subscribes=2, properties=maximum)
    both.state_where(LinkPhase.CONNECTED)
    call = calling(both.publish, publications(2, 2))
    packet_id = int.from_bytes(peer.packet_after_pings()[1][5:7], "big")
    peer.send(answer(PUBREC, packet_id), peer.publish("in", 5, qos=1), peer.publish("in", 6, qos=2), answer(PUBREL, 7))
    both.acknowledge(both.take_all(2))
    both.complete(both.released_all(1))
    expected = {
        PUBREL: packet_id.to_bytes(2, "big"),
        PUBACK: b"\0\5",
        PUBREC: b"\0\6",
        PUBCOMP: b"\0\7",
        PINGREQ: b"",
    }
    packets: dict[int, bytes] = {}
    while len(packets) < len(expected):
        packets.update([peer.packet()])
        assert packets.items() <= expected.items()
        if PINGREQ in packets:
            peer.send(packet(PINGRESP))
    peer.send(answer(PUBCOMP, packet_id))
    first, body = peer.packet_after_pings()
    assert (first, body[2:5]) == (PUBLISH | 4, b"t/1")
    peer.send(answer(PUBREC, int.from_bytes(body[5:7], "big")))
    assert peer.packet_after_pings()[0] == PUBREL
    peer.send(answer(PUBCOMP, int.from_bytes(body[5:7], "big")))
    assert call.result(PATIENCE) == {}


@pytest.mark.parametrize("maximum", [None, 0, 10])
def test_a_link_sends_no_topic_aliases(broker_5: FakeBroker, link: LinkFactory, maximum: int | None) -> None:
    """MQTT-3.2.2-17 and -18: not even for a topic that is repeated."""
    granted = {} if maximum is None else {"TopicAliasMaximum": maximum}
    sender, peer = connected(broker_5, link, properties=properties_of(PacketTypes.CONNACK, **granted))
    call = calling(sender.publish, publications(1, 0) * 3)
    assert peer.expect(*[PUBLISH] * 3) == [b"\0\3t/0" + b"\0" + b"p"] * 3
    assert call.result(PATIENCE) == {}


def test_rejections_are_reported_by_index(broker_5: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(broker_5, link)
    call = calling(sender.publish, publications(3, 1) + publications(2, 2))
    packet_ids = [packet_id for _, packet_id in peer.published(3, 2) + peer.published(2, 4)]
    peer.send(
        answer(PUBACK, packet_ids[0], 0x10),  # No matching subscribers: accepted
        answer(PUBACK, packet_ids[1], 0x87, properties_of(PacketTypes.PUBACK, ReasonString="not you")),
        answer(PUBACK, packet_ids[2]),
        answer(PUBREC, packet_ids[3], 0x97),
        answer(PUBREC, packet_ids[4], 0x10),
    )
    # A rejected publication is finished: no PUBREL.
    assert peer.packet_ids(PUBREL, 1) == [packet_ids[4]]
    peer.send(answer(PUBCOMP, packet_ids[4]))
    refusals = call.result(PATIENCE)
    assert {index: (refusal.reason, refusal.text) for index, refusal in refusals.items()} == {
        1: (0x87, "Not authorized (not you)"),
        3: (0x97, "Quota exceeded"),
    }
    assert (sender.counters.sent, sender.counters.refused) == (3, 2)


def test_rejected_exactly_once_publications_are_not_in_flight(broker_5: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(broker_5, link, in_flight=2)
    call = calling(sender.publish_exactly, publications(2, 2), [1, 2])
    peer.published(2, 4)
    peer.send(answer(PUBREC, 1, 0x99), answer(PUBREC, 2))
    assert list(call.result(PATIENCE)) == [0]
    with pytest.raises(ValueError, match="not released"):
        sender.publish_exactly(publications(2, 2), [3, 4])
    call = calling(sender.publish_exactly, publications(1, 2), [3])
    assert peer.published(1, 4) == [("t/0", 3)]
    peer.send(answer(PUBREC, 3))
    assert call.result(PATIENCE) == {}
    with pytest.raises(ValueError, match="not released"):
        sender.publish(publications(1, 1))


@pytest.mark.parametrize(
    ("granted", "publication", "refusal"),
    [
        pytest.param({"MaximumQoS": 1}, {"qos": 2}, (0x9B, "QoS not supported"), id="Maximum QoS"),
        pytest.param({"RetainAvailable": 0}, {"retain": True}, (0x9A, "Retain not supported"), id="Retain Available"),
        pytest.param({"MaximumPacketSize": 50}, {"payload": b"x" * 50}, (0x95, "Packet too large"), id="Packet Size"),
        pytest.param({}, {"topic": "a/#"}, (0x90, "Topic Name invalid"), id="wildcard"),
        pytest.param({}, {"topic": ""}, (0x90, "Topic Name invalid"), id="no topic"),
        pytest.param({}, {"topic": "x" * 65536}, (0x90, "Topic Name invalid"), id="long topic"),
        pytest.param({}, {"users": {"a": "\0"}}, (0x80, "Unspecified error"), id="NUL in a property"),
        pytest.param({}, {"users": {"a": "\ud800"}}, (0x80, "Unspecified error"), id="surrogate in a property"),
        pytest.param({}, {"correlation_data": b"x" * 65536}, (0x80, "Unspecified error"), id="long property"),
    ],
)
def test_publications_that_the_broker_does_not_allow_are_rejected_before_they_are_sent(
    broker_5: FakeBroker,
    link: LinkFactory,
    granted: dict[str, int],
    publication: dict[str, Any],
    refusal: tuple[int, str],
) -> None:
    sender, peer = connected(broker_5, link, properties=properties_of(PacketTypes.CONNACK, **granted))
    refused = publication_of_fields(**{"topic": "t/1", "payload": b"", "qos": 1} | publication)
    call = calling(sender.publish, [*publications(1, 1), refused])
    ((_, packet_id),) = peer.published(1, 2)
    peer.send(answer(PUBACK, packet_id))
    refusals = call.result(PATIENCE)
    assert list(refusals) == [1]
    assert refusals[1].reason == refusal[0]
    assert refusals[1].text.startswith(refusal[1])
    peer.nothing_came()


def test_the_receive_maximum_of_the_broker_limits_messages_in_flight(broker_5: FakeBroker, link: LinkFactory) -> None:
    sender, peer = connected(
        broker_5, link, in_flight=100, properties=properties_of(PacketTypes.CONNACK, ReceiveMaximum=3)
    )
    assert sender.in_flight_limit == 3
    call = calling(sender.publish, publications(50, 1))
    unanswered: list[int] = []
    answered = 0
    while answered < 50:
        unanswered += [packet_id for _, packet_id in peer.published(1, 2)]
        assert len(unanswered) <= 3
        if len(unanswered) == 3 or answered + len(unanswered) == 50:
            peer.nothing_came()
            peer.send(*(answer(PUBACK, packet_id) for packet_id in unanswered))
            answered += len(unanswered)
            unanswered.clear()
    assert call.result(PATIENCE) == {}


@pytest.mark.parametrize("in_flight", [1, 2, 7])
def test_the_configuration_limits_messages_in_flight(broker: FakeBroker, link: LinkFactory, in_flight: int) -> None:
    sender, peer = connected(broker, link, in_flight=in_flight)
    assert sender.in_flight_limit == in_flight
    call = calling(sender.publish, publications(20, 1))
    for start in range(0, 20, in_flight):
        packet_ids = [packet_id for _, packet_id in peer.published(min(in_flight, 20 - start), 2)]
        peer.nothing_came()
        peer.send(*(answer(PUBACK, packet_id) for packet_id in packet_ids))
    assert call.result(PATIENCE) == {}


def test_a_broker_that_does_not_answer_is_disconnected(broker: FakeBroker, link: LinkFactory, impatient: None) -> None:
    sender, peer = connected(broker, link)
    with pytest.raises(LinkLost, match="did not acknowledge 2 publications"):
        sender.publish(publications(2, 1), timeout=0.01)
    with pytest.raises(LinkLost, match="did not acknowledge"):
        sender.publish(publications(1, 1))
    peer.published(2, 2)
    with pytest.raises(EOFError):
        peer.packet()
    assert "did not acknowledge" in sender.state_where(LinkPhase.WAITING).error
    broker.connected()
    assert sender.wait_connected(PATIENCE)


@pytest.mark.parametrize("packet_ids", [[1], [1, 1], [0, 1], [65535, 1]])
def test_message_ids_must_be_different_and_in_range(
    broker_5: FakeBroker, link: LinkFactory, packet_ids: list[int]
) -> None:
    sender, _ = connected(broker_5, link)
    with pytest.raises(ValueError, match="message ids"):
        sender.publish_exactly(publications(2, 2), packet_ids)
    with pytest.raises(ValueError, match="QoS 2"):
        sender.publish_exactly(publications(1, 1), [1])


def test_answers_are_read_however_many_publications_wait(broker: FakeBroker, link: LinkFactory) -> None:
    """Otherwise a worker that publishes on the link from which it receives would block."""
    both = link(broker.port, broker.version, topic_filter="in", qos=1, in_flight=2)
    peer = broker.connected(subscribes=1)
    both.state_where(LinkPhase.CONNECTED)
    call = calling(both.publish, publications(1, 1))
    ((_, packet_id),) = peer.published(1, 2)
    peer.send(*(peer.publish("in", number, qos=1) for number in range(1, 6)), answer(PUBACK, packet_id))
    assert call.result(PATIENCE) == {}
    assert [message.packet_id for message in both.take_all(5)] == [1, 2, 3, 4, 5]


# A broker that is not strict ----------------------------------------------------------------------------------------------


def test_puback_acknowledges_qos_2_at_least_once(
    broker: FakeBroker, link: LinkFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ's plug-in answers in this way. The rest of the batch, and later ones, are sent with QoS 1."""
    sender, peer = connected(broker, link, in_flight=2)
    call = calling(sender.publish, publications(4, 2))
    for flags in (4, 2):
        for _, packet_id in peer.published(2, flags):
            peer.send(answer(PUBACK, packet_id))
    assert call.result(PATIENCE) == {}
    assert (sender.limits.maximum_qos, sender.acknowledges_qos_2, sender.counters.sent) == (1, False, 4)
    call = calling(sender.publish, publications(1, 2))
    ((_, packet_id),) = peer.published(1, 2)
    peer.send(answer(PUBACK, packet_id))
    assert call.result(PATIENCE) == {}
    assert caplog.text.count("MQB6008W") == 1
    assert sender.unsuitable == ""


def test_puback_ends_exactly_once(broker: FakeBroker, link: LinkFactory, impatient: None) -> None:
    sender, peer = connected(broker, link)
    call = calling(sender.publish_exactly, publications(1, 2), [7])
    assert peer.published(1, 4) == [("t/0", 7)]
    peer.send(answer(PUBACK, 7))
    with pytest.raises(LinkLost, match="PUBACK for message id 7") as lost:
        call.result(PATIENCE)
    assert lost.value.violation is Violation.WRONG_ACKNOWLEDGEMENT
    assert "PUBACK for message id 7" in sender.unsuitable


def test_a_second_invalid_acknowledgement_is_accepted(broker: FakeBroker, link: LinkFactory, impatient: None) -> None:
    """Closing the connection again would not change the broker, and the message would be repeated each time."""
    sender, peer = connected(broker, link)
    call = calling(sender.publish, publications(1, 1))
    ((_, packet_id),) = peer.published(1, 2)
    peer.send(answer(PUBREC, packet_id))
    with pytest.raises(LinkLost) as lost:
        call.result(PATIENCE)
    assert lost.value.violation is Violation.WRONG_ACKNOWLEDGEMENT
    peer = broker.connected()
    sender.state_where(LinkPhase.CONNECTED)
    for _ in range(2):
        call = calling(sender.publish, publications(1, 1))
        ((_, packet_id),) = peer.published(1, 2)
        peer.send(answer(PUBREC, packet_id))
        assert call.result(PATIENCE) == {}
        sender.reset_back_off()


@pytest.mark.parametrize("violation", Violation)
@pytest.mark.parametrize("exactly", [False, True])
def test_no_strict_reaction_repeats(violation: Violation, exactly: bool) -> None:
    violations = Violations()
    first, again = (violations.react(violation, exactly=exactly) for _ in range(2))
    assert (first, again) == REACTIONS[violation][exactly]
    assert again is not Reaction.CLOSE
    violations.forget()
    tolerant = violation is Violation.WRONG_ACKNOWLEDGEMENT
    assert violations.react(violation, exactly=exactly) is (again if tolerant else first)


def test_a_malformed_packet_pauses_the_link_the_second_time(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`connect_now` ends the pause."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 1e6)
    sender, peer = connected(broker, link)
    for pauses in (False, True):
        peer.send(b"\x00\x00")
        waiting = sender.state_where(LinkPhase.WAITING)
        assert (waiting.pause > 1) is pauses
        if pauses:
            sender.connect_now()
        peer = broker.connected()
        sender.state_where(LinkPhase.CONNECTED)


@pytest.mark.parametrize("reason", [0x92, 0x95, 0x9A, 0x9B, 0x80, 0x83, 0xFE])
@pytest.mark.parametrize(("packet", "qos"), [(0x40, 1), (0x50, 2)])
def test_a_reason_code_of_another_packet_does_not_end_the_link(
    broker_5: FakeBroker, link: LinkFactory, packet: int, qos: int, reason: int
) -> None:
    """Brokers send reason codes that MQTT 5 defines for other packets only. They count as rejections."""
    sender = link(broker_5.port)
    peer = broker_5.connected()
    ready(sender)
    for code in (reason, None):
        call = calling(sender.publish, [Publication(topic="t", payload=b"", qos=qos)])
        ((_, packet_id),) = peer.published(1, qos << 1)
        if code is None and qos == 2:
            peer.send(answer(0x50, packet_id))
            peer.expect(0x62)
            peer.send(answer(0x70, packet_id))
        else:
            peer.send(answer(packet, packet_id, code))
        refused = {0: reason} if code is not None else {}
        assert {index: refusal.reason for index, refusal in call.result(PATIENCE).items()} == refused


def test_an_unexpected_error_ends_the_connection_and_the_link_continues(
    broker_5: FakeBroker, link: LinkFactory, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = LinkOutbox.answered

    def stumbles(self: LinkOutbox, answers: object) -> None:
        monkeypatch.setattr(LinkOutbox, "answered", answered)
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(LinkOutbox, "answered", stumbles)
    sender = link(broker_5.port)
    peer = broker_5.connected()
    peer.send(answer(0x40, 9))
    broker_5.connected()
    sender.state_where(LinkPhase.CONNECTED)
