"""What is counted of a batch, where its messages differ."""

from __future__ import annotations

import pytest

from bridge.archive.events import now_us
from bridge.mapping.message import Message
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mq.unit_of_work import Completion
from bridge.mqtt.acknowledgement import Phase
from bridge.mqtt.in_flight import Outgoing
from bridge.mqtt.outbox import EXPIRED
from bridge.mqtt.session import Session, Work
from bridge.service.metrics.reasons import OTHER, reason_label
from bridge.service.put_time import put_time_of
from bridge.service.traffic import TIMED, Traffic
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from bridge.wire.mqtt import Publish
from tests.service.conftest import Queued

IDENTITY = ClientIdentity("c", b"u")
#: When all messages were put, by the clock of `traffic` and by the time of day.
PUT = 1_000.0


@pytest.fixture
def session() -> Session:
    session = Session(IDENTITY, durable=False, window=20)
    session.channel, session.level = "A", 5
    return session


@pytest.fixture
def traffic() -> Traffic:
    return Traffic(lambda: PUT)


def message(qos: int, payload: bytes) -> PublicationMessage:
    return to_mq(Publish("t", payload, qos, False, False, 1 if qos else 0), IDENTITY)


def queued(number: int, payload: bytes, put_time: float = PUT) -> Queued:
    return Queued("c", number, message(1, payload), put_time=put_time)


def work_of(*messages: PublicationMessage) -> Work:
    work = Work()
    work.publications = [(one, False) for one in messages]
    work.received_at = now_us()
    return work


def test_publications_of_several_qos(traffic: Traffic, session: Session) -> None:
    """Each counts with its own QoS, whatever the first of the batch has."""
    work = work_of(message(1, b"a"), message(1, b"bb"), message(0, b"ccc"), message(2, b"dddd"))
    traffic.published(session, work, Completion(1))
    received = traffic.clients["A", 5].received
    assert received.messages == [1, 2, 1]
    assert received.size == [3, 3, 4]


def test_a_unit_of_work_that_failed(traffic: Traffic, session: Session) -> None:
    """Its publications came, were not put, and have no latency."""
    traffic.published(session, work_of(message(1, b"a")), Completion(1, failure=cmqc.MQRC_Q_MGR_STOPPING))
    counts = traffic.clients["A", 5]
    assert counts.received.messages == [0, 1, 0]
    assert counts.put[1].count == 0
    assert traffic.failed == {("A", cmqc.MQRC_Q_MGR_STOPPING): 1}


def test_refused_and_diverted_publications(traffic: Traffic, session: Session) -> None:
    completion = Completion(1, refusals={0: cmqc.MQRC_Q_FULL, 1: cmqc.MQRC_Q_FULL}, diverted={2: cmqc.MQRC_NOT_AUTHORIZED})
    traffic.published(session, work_of(*[message(1, b"a")] * 3), completion)
    assert traffic.refused == {("A", cmqc.MQRC_Q_FULL): 2}
    assert traffic.diverted == {cmqc.MQRC_NOT_AUTHORIZED: 1}


def test_acknowledgements_of_several_kinds(traffic: Traffic, session: Session) -> None:
    """PUBACK counts for QoS 1, PUBREC for QoS 2, also one that refuses the message."""
    work = Work()
    work.received_at = now_us()
    for message_id, qos, payload in ((1, 1, b"a"), (2, 2, b"bb"), (3, 1, b"ccc")):
        session.outbox.in_flight.add(message_id, Outgoing(None, qos, b"", payload, False, Phase.ACKNOWLEDGED, PUT))
        work.acknowledged.append((message_id, queued(message_id, payload)))
    work.rejected = True
    work.released.append((4, Outgoing(None, 2, b"", b"dddd", False, Phase.RELEASING, PUT), queued(4, b"dddd")))
    traffic.acknowledged(session, work)
    sent = traffic.clients["A", 5].sent
    assert sent.messages == [0, 2, 2]
    assert sent.size == [0, 4, 6]
    assert [one.count for one in traffic.clients["A", 5].acknowledgement] == [0, 1, 0]


def test_what_is_discarded_is_not_sent(traffic: Traffic, session: Session) -> None:
    traffic.finished(session, [queued(1, b"a"), queued(2, b"bb")], {1: EXPIRED})
    sent = traffic.clients["A", 5].sent
    assert (sent.messages[0], sent.size[0]) == (1, 2)
    assert traffic.discarded == {EXPIRED: 1}
    traffic.finished(session, [queued(3, b"a")], {3: EXPIRED})
    assert sent.messages[0] == 1


def test_a_message_of_an_application_counts_with_its_data(traffic: Traffic, session: Session) -> None:
    traffic.finished(session, [Queued("c", 1, Message(MQMD(), b"headers and body"), put_time=PUT)], {})
    assert traffic.clients["A", 5].sent.size[0] == len(b"headers and body")


def test_latencies_at_full_load(traffic: Traffic, session: Session) -> None:
    """Between two ticks so many batches are measured, and the others only counted."""
    for _ in range(TIMED + 10):
        traffic.published(session, work_of(message(1, b"a")), Completion(1))
    counts = traffic.clients["A", 5]
    assert counts.received.messages[1] == TIMED + 10
    assert counts.put[1].count == TIMED
    traffic.tick()
    traffic.published(session, work_of(message(1, b"a")), Completion(1))
    assert counts.put[1].count == TIMED + 1


@pytest.mark.parametrize(
    ("date", "time", "expected"),
    [
        (b"19700102", b"00000150", 86_401.5),
        (b"20261124", b"08330000", 1_795_509_180.0),
        (b"", b"", 0.0),
        (b"20261324", b"08330000", 0.0),
        (b"2026112x", b"08330000", 0.0),
        (b"\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2", b"08330000", 0.0),
    ],
)
def test_when_a_message_was_put(date: bytes, time: bytes, expected: float) -> None:
    """The MQMD says it where nobody else does; what is no time there is none."""
    one = Queued("c", 1, Message(MQMD(PutDate=date, PutTime=time), b""))
    assert put_time_of(one) == expected
    one.put_time = PUT
    assert put_time_of(one) == PUT


@pytest.mark.parametrize(
    ("reason", "label"),
    [(cmqc.MQRC_Q_FULL, "MQRC_Q_FULL"), (cmqc.MQRC_SELECTOR_ERROR, OTHER), (999_999, OTHER)],
)
def test_reasons_are_few(reason: int, label: str) -> None:
    assert reason_label(reason) == label
