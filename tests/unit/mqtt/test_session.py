"""Sessions: repeated rejected publications, and deliveries interrupted by a failed commit or a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import PacketType, Puback, Pubcomp, Publish, PublishProperties, Pubrec
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.record import IdentifiersRecord, RequestRecord, SentRecord, Side, StateKey, StateRecord
from bridge.telemetry.session import NEVER, ReceiveEffects, Session, SessionState
from tests.helpers.connected import connected as protocol_of
from tests.ibm_standin.message_identifiers import FORMS

PUBREC = (PacketType.PUBREC, 7)
PUBLISH = Publish("plant/1", b"21.5", 2, False, False, 7)
AGAIN = Publish("plant/1", b"21.5", 2, False, True, 7)


def connected(**limits: int) -> Session:
    session = Session(ClientIdentity("dev-1", b""), durable=True, window=20, **limits)
    session.connect("A", 4, NEVER, 0.0)
    session.attach(session.identity)
    return session


def effects_of(session: Session, packets: Sequence[Publish]) -> ReceiveEffects:
    work = session.receive(packets)
    assert not work.violation
    return work


def test_a_publication_sent_twice_is_put_once_and_acknowledged_twice() -> None:
    session = connected()
    work = effects_of(session, [PUBLISH, AGAIN])
    assert [message.payload for message, _ in work.publications] == [b"21.5"]
    assert session.committed(work, [], 0.0) == [PUBREC, PUBREC]


def test_a_rejected_publication_is_not_acknowledged_for_a_repetition() -> None:
    """PUBREC may answer only the unit of work that accepts a publication (MQTT 3.1.1 section 4.3.3)."""
    session = connected()
    refused = effects_of(session, [PUBLISH, AGAIN])
    session.refuse(refused, [0])
    new = effects_of(session, [AGAIN])
    assert [message.payload for message, _ in new.publications] == [b"21.5"]
    assert session.committed(refused, [0], 0.0) == []
    assert session.committed(new, [], 0.0) == [PUBREC]


def test_records_that_could_not_be_committed_are_written_again() -> None:
    session = connected()
    request = PublishProperties(response_topic="all answers", correlation_data=b"1")
    session.receive([Publish("t", b"", 1, False, False, 1, request)])
    lost: dict[StateKey, StateRecord | None] = {}
    session.take_records(lost)
    assert any(isinstance(record, RequestRecord) for record in lost.values())
    session.records_lost(lost)
    again: dict[StateKey, StateRecord | None] = {}
    session.take_records(again)
    assert lost.items() <= again.items()


def test_a_record_whose_deletion_failed_is_deleted_again() -> None:
    session = connected(request_bytes=1)
    first, second = (
        PublishProperties(response_topic=f"answers {number}", correlation_data=b"x" * 30) for number in (1, 2)
    )
    session.receive([Publish("t", b"", 1, False, False, 1, first)])
    session.take_records({})
    session.receive([Publish("t", b"", 1, False, False, 2, second)])
    failed: dict[StateKey, StateRecord | None] = {}
    session.take_records(failed)
    deleted = [key for key, record in failed.items() if record is None and key.queue]
    assert len(deleted) == 1
    session.records_lost(failed)
    again: dict[StateKey, StateRecord | None] = {}
    session.take_records(again)
    assert again[deleted[0]] is None


# Messages for the client ------------------------------------------------------------------------------------------------


def deliver(session: Session, protocol: ServerProtocol, *messages: Any) -> None:
    session.outbox.deliver(messages, 0.0, protocol)


def after_a_restart(session: Session) -> Session:
    """Return the state of a session in the next process of the bridge."""
    restored = Session(session.identity, durable=True, window=20)
    records: dict[StateKey, StateRecord | None] = {}
    session.save_sent()
    session.take_records(records)
    for record in records.values():
        if isinstance(record, SentRecord | IdentifiersRecord):
            restored.restore(record, 0.0)
    restored.connect("A", 4, NEVER, 0.0)
    restored.attach(restored.identity)
    return restored


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("number", [5, 0x1_0000])
def test_dup_is_set_after_a_failed_commit_and_a_restart(waiting: Any, packets: Any, qos: int, number: int) -> None:
    """MQTT-3.3.1-1, MQTT-4.4.0-1: the client has the message, and its acknowledgement was not committed."""
    session = connected()
    deliver(session, protocol_of(), waiting(number, qos))
    session.outbox.recorded()
    session.outbox.pump(0.0, protocol_of())
    [packet_id] = session.outbox.in_flight.deliveries
    session.failed(session.receive([Puback(packet_id) if qos == 1 else Pubrec(packet_id)]))
    session.detach(0.0)
    session, out = after_a_restart(session), protocol_of()
    deliver(session, out, waiting(number, qos))
    assert [(packet.packet_id, packet.dup) for packet in packets(out)] == [(packet_id, True)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pubrec_before_publish_is_repeated_is_not_answered(waiting: Any, packets: Any, restarted: bool) -> None:
    """MQTT-4.3.3-6: PUBLISH must not follow PUBREL. The client reconnected with a Receive Maximum of 1."""
    session = connected()
    messages = [waiting(number, 2) for number in (9, 10)]
    deliver(session, protocol_of(), *messages)
    if restarted:
        session.detach(0.0)
        session = after_a_restart(session)
        session.outbox.in_flight.receive_maximum = 1
        deliver(session, protocol_of(), *messages)
    else:
        session.outbox.in_flight.receive_maximum = 1
        session.outbox.fit()
    work = session.receive([Pubrec(10), Pubrec(11)])
    assert (work.answers, work.removals) == ([(PacketType.PUBREL, 11)], [])
    assert work.unknown == {(PacketType.PUBREL, 11)}
    # The message is sent when the window allows it, and then acknowledged.
    session.committed(session.receive([Pubrec(9)]), [], 0.0)
    session.outbox.complete(9)
    out = protocol_of()
    session.outbox.pump(0.0, out)
    assert [(packet.packet_id, packet.dup) for packet in packets(out)] == [(10, True)]
    work = session.receive([Pubrec(10)])
    assert session.committed(work, [], 0.0) == [(PacketType.PUBREL, 10)]


def test_a_rejecting_pubrec_before_publish_is_repeated_has_no_effect(waiting: Any) -> None:
    session = connected()
    deliver(session, protocol_of(), *[waiting(number, 2) for number in (9, 10)])
    session.outbox.in_flight.receive_maximum = 1
    session.outbox.fit()
    work = session.receive([Pubrec(10, 0x80)])
    assert work.empty and not work.answers


@pytest.mark.parametrize(
    ("recorded", "epoch", "releases"),
    [("", "", False), ("a", "a", False), ("", "a", True), ("a", "b", True)],
    ids=["never restored", "released since the restore", "restored, or of 0.2.0", "restored again"],
)
def test_packet_identifiers_are_released_after_a_restore(recorded: str, epoch: str, releases: bool) -> None:
    """Until then, the record contains them."""
    session = Session(ClientIdentity("dev-1", b""), durable=True, window=20, epoch=epoch)
    session.restore(SentRecord("dev-1", epoch=recorded), 0.0)
    assert (session.outbox.release is not None) is releases
    session.save_sent()
    records: dict[StateKey, StateRecord | None] = {}
    session.take_records(records)
    (record,) = records.values()
    assert isinstance(record, SentRecord) and record.epoch == ("" if releases else epoch)


#: Messages that the browser hands over at a time.
BATCH = 500


@pytest.mark.parametrize(("form", "commits"), [("distinct", 0), ("linux", 3), ("aix", 3)])
@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifiers_require_one_commit_per_batch_of_messages(
    waiting: Any, qos: int, form: str, commits: int
) -> None:
    """On IBM MQ, records of packet identifiers are committed apart from removals, and the deletion of records, too."""
    session, out = Session(ClientIdentity("dev-1", b""), durable=True, window=1000), protocol_of()
    session.connect("A", 4, NEVER, 0.0)
    session.attach(session.identity)
    session.take_records({})
    msg_ids = FORMS[form]("QM1")
    numbers = [
        number << 16 | int.from_bytes(msg_ids.generated(number)[-2:], "big") for number in range(1, 3 * BATCH + 1)
    ]
    counted = 0

    def save() -> None:
        nonlocal counted
        records: dict[StateKey, StateRecord | None] = {}
        chunk = session.take_records(records)
        counted += any(key.side is Side.IDENTIFIERS for key in records)
        if chunk is not None:
            session.outbox.recorded()
            session.outbox.pump(0.0, out)

    for start in range(0, len(numbers), BATCH):
        deliver(session, out, *(waiting(number, qos) for number in numbers[start : start + BATCH]))
        if session.unsaved:
            save()
        # The client is a batch behind.
        packet_ids = list(session.outbox.in_flight.deliveries)
        for packet_id in packet_ids[:BATCH] if start else ():
            acknowledgements = [Puback(packet_id)] if qos == 1 else [Pubrec(packet_id), Pubcomp(packet_id)]
            for acknowledgement in acknowledgements:
                work = session.receive([acknowledgement])
                if session.unsaved:
                    save()
                session.committed(work, [], 0.0)
    assert len(session.outbox.in_flight.deliveries) == BATCH
    assert counted == commits
    session.save_again()
    records: dict[StateKey, StateRecord | None] = {}
    session.take_records(records)
    deleted = [record for key, record in records.items() if key.side is Side.IDENTIFIERS]
    assert deleted == [None] * bool(commits), "with all other records of the session"


CONNECT, ATTACH, DETACH, END = "connect", "attach", "detach", "end"


@pytest.mark.parametrize(
    ("events", "state", "has_begun", "is_connected"),
    [
        ([], SessionState.NEW, False, False),
        ([CONNECT], SessionState.CONNECTING, False, True),
        ([CONNECT, CONNECT], SessionState.CONNECTING, False, True),
        ([CONNECT, DETACH], SessionState.NEW, False, False),
        ([CONNECT, ATTACH], SessionState.ONLINE, True, True),
        ([CONNECT, ATTACH, DETACH], SessionState.AWAY, True, False),
        ([CONNECT, ATTACH, DETACH, CONNECT], SessionState.RESUMING, True, True),
        ([CONNECT, ATTACH, DETACH, CONNECT, DETACH], SessionState.AWAY, True, False),
        ([CONNECT, ATTACH, DETACH, CONNECT, ATTACH], SessionState.ONLINE, True, True),
        ([CONNECT, ATTACH, END], SessionState.ENDED, False, False),
        ([CONNECT, ATTACH, END, DETACH], SessionState.ENDED, False, False),
    ],
)
def test_events_determine_the_state(
    events: Sequence[str], state: SessionState, has_begun: bool, is_connected: bool
) -> None:
    """A session has started when CONNACK is sent. It continues while its client is disconnected and resumes it."""
    session = Session(ClientIdentity("dev-1", b""), durable=True, window=20)
    actions = {
        CONNECT: lambda: session.connect("A", 4, NEVER, 0.0),
        ATTACH: lambda: session.attach(session.identity),
        DETACH: lambda: session.detach(0.0),
        END: session.end,
    }
    for event in events:
        actions[event]()
    assert (session.state, session.begun, session.connected) == (state, has_begun, is_connected)
    assert session.ended == (state is SessionState.ENDED)
