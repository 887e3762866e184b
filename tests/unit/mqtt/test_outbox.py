"""The sending side of a session: window, phases of the exchanges, DUP, message ids, slow and absent clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from bridge.mqtt.flow import Phase
from bridge.mqtt.packets import Publish, PublishProperties, Pubrel
from bridge.telemetry.backlog import MESSAGE_OVERHEAD, Backlog, BacklogLimits
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.outbox import Outbox, Outgoing
from bridge.telemetry.pending_requests import PendingRequests
from bridge.telemetry.record import IdentifiersRecord, SentRecord
from bridge.telemetry.removal_limit import RemovalLimit
from bridge.telemetry.request import ClientRequest
from bridge.telemetry.undelivered import FULL
from tests.helpers.connected import connected
from tests.helpers.waiting_message import Waiting


def outbox(window: int = 10, *, durable: bool = False) -> Outbox:
    box = Outbox(window, Backlog("c"), durable=durable)
    box.open = True
    return box


def decided(box: Outbox) -> dict[int, int]:
    """Decided packet identifiers, by number."""
    return {} if box.identifiers is None else box.identifiers.decided


def records(box: Outbox) -> dict[str, Any]:
    """Return the records to write now: (message, packet identifier) by the number of the record, None to delete it."""
    changes = {} if box.identifiers is None else box.identifiers.changes()
    return {key.queue: record.assigned if record else None for key, record in changes.items()}


def sent(box: Outbox, packets: Any, *batch: Any, now: float = 0.0) -> list[Any]:
    out = connected()
    assert box.deliver(batch, now, out).refusals == []
    return packets(out)


# What goes out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retained", [False, True])
def test_a_message_becomes_a_publish(waiting: Any, packets: Any, qos: int, retained: bool) -> None:
    message = waiting(7, qos, payload=b"21.5", topic="plant/1", retained=retained)
    expected = Publish("plant/1", b"21.5", qos, retained, False, 7 if qos else 0)
    assert sent(outbox(), packets, message) == [expected]


def test_qos_0_is_finished_after_it_is_written(waiting: Any) -> None:
    message = waiting(1, 0)
    box = outbox()
    assert box.deliver([message], 0.0, connected()).finished == [message]
    assert not box.in_flight.deliveries and not box.pending()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_direct_messages_after_a_subscription_to_default_qos(direct: Any, packets: Any, qos: int) -> None:
    box = outbox()
    box.direct_qos = qos
    (packet,) = sent(box, packets, direct(3))
    assert packet.qos == qos


def test_an_expired_message_is_finished_without_being_sent(waiting: Any, packets: Any) -> None:
    out = connected()
    message = waiting(1, 1, expired=True)
    effects = outbox().deliver([message], 0.0, out)
    assert (packets(out), effects.finished, effects.refusals) == ([], [message], [])


def test_an_expired_message_that_the_client_may_have_is_sent(waiting: Any, packets: Any) -> None:
    """The client has its message id as received: it would confuse a later message with that id."""
    box = outbox(durable=True)
    box.sent_before = {5}
    (packet,) = sent(box, packets, waiting(5, 2, expired=True))
    assert (packet.packet_id, packet.dup) == (5, True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"format_": b"MQHRF2", "body": b"rubbish"}, 2334, id="MQRC_RFH_ERROR"),
        pytest.param({"format_": b"MQDEAD", "body": b"rubbish"}, 2142, id="MQRC_HEADER_ERROR: MQDLH"),
        pytest.param({"format_": b"MQIMS", "body": b"IIH " + bytes(80)}, 2142, id="MQRC_HEADER_ERROR: MQIIH"),
        pytest.param({"remote_queue": "a+b"}, 2425, id="MQRC_TOPIC_STRING_ERROR: wildcard"),
        pytest.param({"remote_queue": ""}, 2425, id="MQRC_TOPIC_STRING_ERROR: empty"),
        pytest.param({"remote_queue": "x" * 70_000}, 2425, id="MQRC_TOPIC_STRING_ERROR: too long for MQTT"),
    ],
)
def test_a_message_that_cannot_become_a_publication_is_rejected_and_does_not_block_others(
    direct: Any, waiting: Any, packets: Any, fields: dict[str, Any], reason: int
) -> None:
    out = connected()
    box = outbox(1)
    bad, good = direct(1, **fields), waiting(2, 1)
    refusals = box.deliver([bad, good], 0.0, out).refusals
    assert [(refusal.transmission, refusal.reason) for refusal in refusals] == [(bad, reason)]
    assert [packet.packet_id for packet in packets(out)] == [2]
    assert box.pending() == [good]


@pytest.mark.parametrize("where", ["conversion", "encoding"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_unexpected_error_rejects_one_message_and_is_logged_with_one_traceback(
    waiting: Any, packets: Any, caplog: pytest.LogCaptureFixture, where: str, qos: int
) -> None:
    out = connected(level=5)
    box = outbox(1)
    bad, good = waiting(1, qos), waiting(2, qos)
    if where == "conversion":
        bad.message = None
    else:
        bad.message.properties = PublishProperties(user_property=((None, None),))
    refusals = box.deliver([bad, good], 0.0, out).refusals
    assert [(refusal.transmission, refusal.reason) for refusal in refusals] == [(bad, 2195)]
    assert [packet.payload for packet in packets(out)] == [b"2"]
    assert box.pending() == ([good] if qos else [])
    (record,) = [record for record in caplog.records if record.getMessage().startswith("MQB2407E")]
    assert record.exc_info is not None and record.exc_info[1] is not None


# Window ---------------------------------------------------------------------------------------------------------------


def test_an_iteration_ends_when_its_bytes_are_used_up(waiting: Any, packets: Any) -> None:
    box = outbox()
    box.turn_bytes = 1
    out = connected()
    assert box.deliver([waiting(1), waiting(2)], 0.0, out).more
    assert [packet.packet_id for packet in packets(out)] == [1]
    assert not box.pump(0.0, out).more
    assert [packet.packet_id for packet in packets(out)] == [2]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_more_messages_than_the_window_are_sent(waiting: Any, packets: Any, window: int) -> None:
    box = outbox(window)
    assert [packet.packet_id for packet in sent(box, packets, *(waiting(n, 1) for n in range(1, 11)))] == list(
        range(1, window + 1)
    )
    out = connected()
    for packet_id in range(1, 11):
        assert box.acknowledge(packet_id) is not None
        box.pump(0.0, out)
        following = [packet_id + window] if packet_id + window <= 10 else []
        assert [packet.packet_id for packet in packets(out)] == following
    assert not box.pending()


@pytest.mark.parametrize(
    ("qos", "sent_at_once", "sent_after_commit"),
    [
        pytest.param(0, 3, 2, id="QoS 0: the removal of two is committed"),
        pytest.param(1, 3, 2, id="QoS 1: of three acknowledged messages, two are removed"),
        pytest.param(2, 3, 2, id="QoS 2: two messages are released"),
    ],
)
def test_no_messages_are_sent_while_too_many_are_not_removed(
    waiting: Any, packets: Any, qos: int, sent_at_once: int, sent_after_commit: int
) -> None:
    box, out = outbox(), connected()
    box.removal_limit = RemovalLimit(3)
    box.finishing += len(box.deliver([waiting(n, qos) for n in range(1, 11)], 0.0, out).finished)
    assert len(packets(out)) == sent_at_once and box.held
    for packet_id in range(1, 4 if qos else 0):
        box.acknowledge(packet_id) if qos == 1 else box.receive(packet_id)
    box.finishing += len(box.pump(0.0, out).finished)
    assert (packets(out), box.unremoved, box.room) == ([], 3, 0)
    if qos == 0:
        box.finishing -= 2
    elif qos == 1:
        box.in_flight.free((1, 2))
    else:
        for packet_id in (1, 2):
            box.in_flight.move(box.in_flight.deliveries[packet_id], Phase.AWAITING_PUBCOMP)
    box.finishing += len(box.pump(0.0, out).finished)
    assert len(packets(out)) == sent_after_commit
    assert box.unremoved == (3 if qos == 0 else 1)


def test_unacknowledged_messages_count_towards_the_backlog_of_removals(waiting: Any, packets: Any) -> None:
    """They may all be acknowledged, and none removed, when the bridge is killed."""
    box = outbox()
    box.removal_limit = RemovalLimit(3)
    assert len(sent(box, packets, *(waiting(n, 1) for n in range(1, 11)))) == 3
    box.acknowledge(1)
    out = connected()
    box.pump(0.0, out)
    assert packets(out) == []


def test_pubrec_opens_the_window_before_pubcomp(waiting: Any, packets: Any) -> None:
    box = outbox(1)
    sent(box, packets, waiting(1, 2), waiting(2, 2))
    box.receive(1)
    out = connected()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [2]


def test_messages_keep_their_order_after_a_full_window(waiting: Any, packets: Any) -> None:
    """QoS 0 does not overtake waiting messages, either."""
    box = outbox(1)
    assert [packet.payload for packet in sent(box, packets, waiting(1, 1), waiting(2, 1), waiting(3, 0))] == [b"1"]
    assert sent(box, packets, waiting(4, 0)) == []
    box.acknowledge(1)
    out = connected()
    box.pump(0.0, out)
    assert [packet.payload for packet in packets(out)] == [b"2", b"3", b"4"]


# Phases ---------------------------------------------------------------------------------------------------------------


def in_phase(waiting: Any, phase: Phase | None, *, durable: bool) -> Outbox:
    """Return an Outbox whose message id 1 is in a phase of QoS 2."""
    box = outbox(durable=durable)
    if phase is None:
        return box
    box.deliver([waiting(1, 2)], 0.0, connected())
    if phase >= Phase.RELEASING:
        box.receive(1)
    if phase >= Phase.AWAITING_PUBCOMP:
        box.in_flight.deliveries[1].phase = Phase.AWAITING_PUBCOMP
    if phase >= Phase.COMPLETED:
        box.complete(1)
    assert box.in_flight.deliveries[1].phase is phase
    return box


def test_a_message_id_is_in_use_until_the_removal_of_its_message_is_committed(waiting: Any, packets: Any) -> None:
    """After a crash before the commit, the message is sent again. Its message id must not belong to another one."""
    box = outbox(durable=True)
    sent(box, packets, waiting(5, 1))
    box.acknowledge(5)
    assert sent(box, packets, waiting(0x1_0005, 2)) == []
    assert decided(box) == {0x1_0005: 6}
    box.in_flight.free([5])
    assert sent(box, packets, waiting(0x2_0005, 1)) == []
    box.recorded()
    out = connected()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [6, 5]


@pytest.mark.parametrize(
    ("phase", "answer"),
    [
        pytest.param(None, "pubrel at once", id="unknown"),
        pytest.param(Phase.AWAITING_PUBREC, "commit first", id="AWAITING_PUBREC"),
        pytest.param(Phase.RELEASING, "nothing", id="RELEASING"),
        pytest.param(Phase.AWAITING_PUBCOMP, "pubrel at once", id="AWAITING_PUBCOMP"),
    ],
)
@pytest.mark.parametrize("durable", [False, True])
def test_pubrec(waiting: Any, phase: Phase | None, answer: str, durable: bool) -> None:
    box = in_phase(waiting, phase, durable=durable)
    box.unsaved = False
    outgoing, transmission = box.receive(1)
    assert {(False, False): "pubrel at once", (True, True): "commit first", (True, False): "nothing"}[
        outgoing is not None, transmission is not None
    ] == answer
    assert box.unsaved is (durable and answer == "commit first")
    assert box.in_flight.unacknowledged == 0


@pytest.mark.parametrize(
    ("phase", "durable", "waits", "in_flight_ids"),
    [
        (None, True, False, []),
        (Phase.AWAITING_PUBCOMP, True, True, [1]),
        (Phase.AWAITING_PUBCOMP, False, False, []),
        (Phase.COMPLETED, True, False, [1]),
    ],
)
def test_pubcomp(waiting: Any, phase: Phase | None, durable: bool, waits: bool, in_flight_ids: list[int]) -> None:
    """A durable session releases the message id after the commit."""
    box = in_phase(waiting, phase, durable=durable)
    assert box.complete(1) is waits
    assert list(box.in_flight.deliveries) == in_flight_ids
    if waits:
        box.in_flight.free([1])
        assert not box.in_flight.deliveries


@pytest.mark.parametrize(
    ("phase", "repeated"),
    [
        (Phase.AWAITING_PUBREC, [Publish("t", b"1", 2, False, True, 1)]),
        (Phase.RELEASING, []),
        (Phase.AWAITING_PUBCOMP, [Pubrel(1)]),
        (Phase.COMPLETED, []),
    ],
)
@pytest.mark.parametrize("how", ["reconnect", "retry"])
def test_table_4_dup_is_set_on_what_is_sent_again(
    waiting: Any, packets: Any, phase: Phase, repeated: list[Any], how: str
) -> None:
    box = in_phase(waiting, phase, durable=True)
    out = connected()
    if how == "reconnect":
        box.send_again(out, 0.0)
    else:
        box.send_again(out, 100.0, 20.0)
    assert packets(out) == repeated


def test_a_retry_waits_for_its_interval(waiting: Any, packets: Any) -> None:
    box, out = outbox(), connected()
    sent(box, packets, waiting(1, 1), now=10.0)
    box.send_again(out, 29.0, 20.0)
    assert packets(out) == []
    box.send_again(out, 30.0, 20.0)
    assert [packet.dup for packet in packets(out)] == [True]
    box.send_again(out, 49.0, 20.0)
    assert packets(out) == []


# Message ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_an_unusual_message_id_is_recorded_before_it_is_used(waiting: Any, packets: Any, qos: int) -> None:
    """Otherwise, after a crash, the client would get the message again with the id that its MsgId prescribes.

    This applies to QoS 1 as well: the id could belong to another message, which is in flight with QoS 2.
    """
    box = outbox(durable=True)
    assert [
        packet.packet_id for packet in sent(box, packets, waiting(5, 2), waiting(0x1_0005, qos), waiting(7, 1))
    ] == [5]
    assert box.recording
    assert records(box) == {"1": [(5, 5), (0x1_0005, 6)]}, "and the message that has the usual one"
    out = connected()
    box.recorded()
    box.pump(1.0, out)
    assert [(packet.packet_id, packet.dup) for packet in packets(out)] == [(6, False), (7, False)]


def test_one_record_contains_the_unusual_ids_of_a_thousand_waiting_messages(waiting: Any, packets: Any) -> None:
    """MsgIds of IBM MQ on Linux: their last two bytes are the same for thousands of messages."""
    box = outbox(3000, durable=True)
    numbers = [position << 16 | 0x40 for position in range(1, 2502)]
    assert [packet.packet_id for packet in sent(box, packets, *(waiting(number, 1) for number in numbers))] == [0x40]
    sizes = []
    while box.recording:
        sizes.append(sum(map(len, records(box).values())))
        box.recorded()
        box.pump(0.0, connected())
    assert sizes == [1001, 1000, 500], "the first also has the message with the usual identifier"
    ids = {delivery.transmission.msg_number: packet_id for packet_id, delivery in box.in_flight.deliveries.items()}
    assert list(ids) == numbers and len(set(ids.values())) == len(numbers)
    for packet_id in ids.values():
        box.removed(box.acknowledge(packet_id))
    assert records(box) == {"1": None, "2": None, "3": None}


def test_usual_ids_of_waiting_messages_are_not_given_to_others(waiting: Any, packets: Any) -> None:
    """MsgIds of IBM MQ on AIX: the last byte is a counter, so the last two bytes repeat after 256 messages."""
    box = outbox(600, durable=True)
    numbers = [position << 16 | 0x0600 | position % 256 for position in range(512)]
    usual = sent(box, packets, *(waiting(number, 2) for number in numbers))
    assert [packet.packet_id for packet in usual] == list(range(0x0600, 0x0700))
    assert [packet_id for _, packet_id in records(box)["1"]][-1] == 0x07FF, "the next free ones"
    box.recorded()
    out = connected()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == list(range(0x0700, 0x0800))
    assert not records(box)


def test_all_ids_in_use_delay_a_message(waiting: Any, packets: Any) -> None:
    box = outbox(65_535, durable=True)
    for packet_id in range(1, 65_536):
        box.in_flight.deliveries[packet_id] = Outgoing(None, 2, b"", b"", False, Phase.AWAITING_PUBCOMP)
    assert sent(box, packets, waiting(5, 1)) == []
    assert box.recording is None and not records(box)
    del box.in_flight.deliveries[9]
    out = connected()
    box.pump(0.0, out)
    assert records(box) == {"1": [(5, 9)]}
    box.recorded()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [9]


def test_an_assigned_message_id_is_kept_for_its_message_after_a_restart(waiting: Any, packets: Any) -> None:
    box = outbox(durable=True)
    box.restore_identifiers(IdentifiersRecord("c", "7", [(0x1_0005, 6), (0x2_0005, 8)]))
    box.deliver([waiting(0x1_0005, 1)], 0.0, None)
    box.caught_up(renumbered=False, others_may_come=False)
    assert [packet.packet_id for packet in sent(box, packets, waiting(6, 1), waiting(8, 1))] == []
    out = connected()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [6]
    box.recorded()
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [7, 8], "the message 0x2_0005 is no longer on the queue"


@pytest.mark.parametrize("restored", [IdentifiersRecord("c", "3", [(6, 7)]), SentRecord("c", assigned=[(6, 7)])])
def test_a_record_without_messages_on_the_queue_is_deleted(restored: Any) -> None:
    box = outbox(durable=True)
    if isinstance(restored, IdentifiersRecord):
        box.restore_identifiers(restored)
    else:
        box.restore_records(restored.assigned, restored.sent)
    box.caught_up(renumbered=True, others_may_come=False)
    assert list(records(box).values()) == [None]


def test_a_clean_session_needs_no_record(waiting: Any, packets: Any) -> None:
    box = outbox(durable=False)
    assert [packet.packet_id for packet in sent(box, packets, waiting(5, 2), waiting(0x1_0005, 2))] == [5, 6]
    assert not box.unsaved and not records(box)


def test_an_assigned_message_id_is_used_again_after_a_restart(waiting: Any, packets: Any) -> None:
    """Here from a record of 0.2.0."""
    box = outbox(durable=True)
    message = waiting(0x1_0005, 2)
    box.restore_records([(0x1_0005, 6)], [])
    assert [(packet.packet_id, packet.dup) for packet in sent(box, packets, message)] == [(6, True)]
    assert records(box) == {"1": [(0x1_0005, 6)]}
    box.receive(6)
    assert decided(box) == {0x1_0005: 6}, "until the removal is committed"
    box.removed(message)
    assert decided(box) == {} and records(box) == {"1": None}


@dataclass(eq=False)
class OnIbmMq(Waiting):
    """A message on IBM MQ, which the bridge numbers again after each start."""

    msg_id: bytes = b""
    put_at: bytes = b""

    @property
    def key(self) -> bytes:  # type: ignore[override]
        return self.msg_id


def on_ibm_mq(position: int, msg_id: bytes, put_at: bytes, qos: int = 2) -> OnIbmMq:
    number = position << 16 | int.from_bytes(msg_id[-2:], "big")
    published = to_mq(Publish("t", msg_id, qos, False, False, 9), ClientIdentity("publisher", b""))
    return OnIbmMq(number, published, msg_id=msg_id, put_at=put_at)


FIRST, SECOND = b"AMQ QM1".ljust(16) + b"\x06\xb0\xf2\x5e\x01\x47\x00\x40", b"AMQ QM1".ljust(16) + bytes(6) + b"\0\x40"


@pytest.mark.parametrize(
    ("record", "connected_before", "expected"),
    [
        # number of the message that the client knows as 0x40, and whether PUBLISH of either may have been sent
        pytest.param(SentRecord("c", sent=[FIRST]), False, {FIRST: (0x40, True), SECOND: (0x41, False)}, id="sent"),
        pytest.param(
            SentRecord("c", sent=[int.from_bytes(FIRST[-8:], "big")]),
            False,
            {FIRST: (0x40, True), SECOND: (0x41, False)},
            id="sent, as bridges up to 0.2.0 recorded it",
        ),
        pytest.param(SentRecord("c"), True, {FIRST: (0x40, True), SECOND: (0x41, False)}, id="killed: put first"),
        pytest.param(
            SentRecord("c", assigned=[(int.from_bytes(FIRST[-8:], "big"), 9)]),
            True,
            {FIRST: (9, True), SECOND: (0x40, True)},
            id="killed: assigned by a bridge up to 0.2.0",
        ),
        pytest.param(
            IdentifiersRecord("c", "1", [(FIRST, 9), (SECOND, 0x40)]),
            False,
            {FIRST: (9, False), SECOND: (0x40, False)},
            id="planned and not sent",
        ),
    ],
)
def test_messages_in_another_order_after_a_restart_keep_their_ids(
    packets: Any, record: Any, connected_before: bool, expected: dict[bytes, tuple[int, bool]]
) -> None:
    """The second message has a higher priority, so the queue manager returns it first."""
    box = outbox(durable=True)
    box.uncertain = connected_before
    if isinstance(record, SentRecord):
        box.restore_records(record.assigned, record.sent)
    else:
        box.restore_identifiers(record)
    batch = [on_ibm_mq(1, SECOND, b"2026112817000001"), on_ibm_mq(2, FIRST, b"2026112817000000")]
    box.deliver(batch, 0.0, None)
    box.caught_up(renumbered=True, others_may_come=False)
    box.prepare()
    box.recorded()
    out = connected()
    box.pump(0.0, out)
    box.recorded()
    box.pump(0.0, out)
    messages = packets(out)
    assert {message.payload: (message.packet_id, message.dup) for message in messages} == expected
    assert [message.payload for message in messages] == [SECOND, FIRST], "in the order of the queue"


# Slow and absent clients ----------------------------------------------------------------------------------------------


def test_messages_for_an_absent_client_wait(waiting: Any, packets: Any) -> None:
    box = outbox()
    box.open = False
    batch = [waiting(1, 1), waiting(2, 0), waiting(3, 2)]
    effects = box.deliver(batch, 0.0, None)
    assert effects.refusals == effects.finished == []
    assert box.pending() == batch


def test_a_client_that_does_not_read_loses_qos_0_messages_only(waiting: Any, packets: Any) -> None:
    box = outbox()
    box.open = False
    out = connected()
    batch = [waiting(1, 1), waiting(2, 0), waiting(3, 2), waiting(4, 1, user_data="0"), waiting(5, 0)]
    finished = box.deliver(batch, 0.0, out).finished
    assert (packets(out), finished) == ([], [batch[1], batch[3], batch[4]])
    assert box.dropped == 3
    assert box.pending() == [batch[0], batch[2]]
    box.open = True
    box.pump(0.0, out)
    assert [packet.packet_id for packet in packets(out)] == [1, 3]


def test_retained_and_direct_messages_wait_for_a_client_that_does_not_read(
    waiting: Any, direct: Any, packets: Any
) -> None:
    """They count in the backlog. A later publication to the topic of a waiting retained message is not dropped either."""
    box, out = outbox(), connected()
    box.direct_qos, box.open = 0, False
    batch = [
        waiting(1, 0, topic="state", retained=True),
        waiting(2, 0, topic="live"),
        direct(3, b"direct"),
        waiting(4, 0, topic="state"),
        waiting(5, 0, topic="other"),
    ]
    effects = box.deliver(batch, 0.0, out)
    assert (packets(out), effects.finished, box.dropped) == ([], [batch[1], batch[4]], 2)
    assert box.pending() == [batch[0], batch[2], batch[3]] and box.backlog.bytes > 0
    box.open = True
    assert box.pump(0.0, out).finished == [batch[0], batch[2], batch[3]]
    assert [(packet.payload, packet.retain) for packet in packets(out)] == [
        (b"1", True),
        (b"direct", False),
        (b"4", False),
    ]
    box.open = False
    box.deliver([waiting(6, 0, topic="state")], 0.0, out)  # the retained message was sent
    assert (box.pending(), box.dropped, box.backlog.bytes) == ([], 3, 0)


def test_the_limit_of_the_backlog_applies_to_retained_messages(waiting: Any) -> None:
    backlog = Backlog("c", BacklogLimits(3 * MESSAGE_OVERHEAD, "drop-oldest"))
    box = Outbox(10, backlog, durable=False)
    batch = [waiting(number, 0, topic=str(number), retained=True) for number in range(1, 6)]
    effects = box.deliver(batch, 0.0, connected())
    assert effects.finished == batch[:3] and set(effects.discarded.values()) == {FULL} and box.pending() == batch[3:]


def test_acknowledgements_that_cannot_be_committed_are_undone(waiting: Any, packets: Any) -> None:
    box = outbox(durable=True)
    first, second = waiting(1, 1), waiting(2, 2)
    sent(box, packets, first, second)
    acknowledged = box.acknowledge(1)
    _, transmission = box.receive(2)
    box.restore([(1, acknowledged), (2, transmission)])
    assert set(box.pending()) == {first, second}
    out = connected()
    box.send_again(out, 0.0)
    box.pump(0.0, out)
    assert {(packet.packet_id, packet.payload, packet.dup) for packet in packets(out)} == {
        (1, b"1", True),
        (2, b"2", True),
    }
    assert box.in_flight.unacknowledged == 2


# A client that comes back with a smaller window (MQTT 5, Receive Maximum) ---------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_smaller_window_applies_to_repeated_messages(waiting: Any, packets: Any, qos: int) -> None:
    """MQTT-3.3.4-9 with MQTT-4.4.0-1: the first message at once, the others in turn, with their message ids."""
    box = outbox(durable=True)
    messages = [waiting(number, qos) for number in (5, 65_541, 65_550)]
    sent(box, packets, *messages)
    assert box.recording
    box.recorded()
    out = connected(level=5)
    box.pump(0.0, connected())
    box.in_flight.receive_maximum = 1
    box.fit()
    box.send_again(out, 1.0)
    (first,) = packets(out)
    assert (first.packet_id, first.dup) == (5, True)
    box.pump(1.0, out)
    assert packets(out) == []
    if qos == 2:
        box.receive(5)
        box.in_flight.deliveries[5].phase = Phase.AWAITING_PUBCOMP
        assert box.pump(1.0, out).refusals == [] and packets(out) == []
        box.complete(5)
    else:
        box.acknowledge(5)
    box.pump(2.0, out)
    (second,) = packets(out)
    assert (second.packet_id, second.dup) == (6, True)


def test_requests_of_a_clean_session_are_not_recorded() -> None:
    requests = PendingRequests("c", durable=False, most_bytes=10**6)
    for number in range(3):
        assert not requests.add(ClientRequest("answers for c", b"%d" % (number % 2)))
    assert requests.changes() == {}
    assert len(requests.removal()) == 2
