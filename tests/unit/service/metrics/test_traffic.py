"""Counting of a batch whose messages differ."""

from __future__ import annotations

import pytest

from bridge.clock import now_us
from bridge.mq.backend import Completion
from bridge.mqtt.flow import Phase
from bridge.mqtt.packets import Publish
from bridge.service.events import Acknowledged, Finished, Published
from bridge.service.metric_catalogue import Samples, Value
from bridge.service.metrics import OTHER, TIMED, Traffic, reason_label
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.telemetry.transmission import PublicationMessage, put_time_of
from bridge.telemetry.undelivered import EXPIRED
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.fake_backend import Queued

IDENTITY = ClientIdentity("c", b"u")
#: The time at which all messages were put, by the clock of `traffic` and by the time of day.
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


def published(messages: list[PublicationMessage], session: Session, completion: Completion) -> Published:
    return Published(session, [(published_message, False) for published_message in messages], completion, now_us())


def value(traffic: Traffic, name: str, *labels: str) -> Value:
    """Return a value of the metrics."""
    samples = Samples()
    traffic.gather(samples)
    (values,) = [values for metric, values in samples if metric.name == name]
    return dict(values)[labels]


def test_publications_are_counted_on_arrival(traffic: Traffic, session: Session) -> None:
    """Each counts with its QoS. A repeated QoS 2 publication counts once."""
    session.counts = traffic.of(session).counts
    again = Publish("t", b"dddd", 2, False, True, 3)
    packets = [Publish("t", b"a", 1, False, False, 1), Publish("t", b"ccc", 0, False, False, 0), again, again]
    session.receive([*packets, Publish("t", b"bb", 1, False, False, 2)])
    assert traffic.clients["A", 5].counts.received() == [(1, 3), (2, 3), (1, 4)]


def test_a_unit_of_work_that_failed(traffic: Traffic, session: Session) -> None:
    """It is counted with its reason, and has no latency."""
    traffic.published(published([message(1, b"a")], session, Completion(1, failure=cmqc.MQRC_Q_MGR_STOPPING)))
    assert traffic.of(session).put[1].count == 0
    assert value(traffic, "mqbridge_units_of_work_failed_total", "A", "MQRC_Q_MGR_STOPPING") == 1


def test_rejected_and_diverted_publications(traffic: Traffic, session: Session) -> None:
    completion = Completion(
        1, refusals={0: cmqc.MQRC_Q_FULL, 1: cmqc.MQRC_Q_FULL}, diverted={2: cmqc.MQRC_NOT_AUTHORIZED}
    )
    traffic.published(published([message(1, b"a")] * 3, session, completion))
    assert value(traffic, "mqbridge_publications_refused_total", "A", "MQRC_Q_FULL") == 2
    assert value(traffic, "mqbridge_dead_letters_total", "in", "MQRC_NOT_AUTHORIZED") == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_latencies_from_acknowledgements(traffic: Traffic, session: Session, qos: int) -> None:
    """PUBACK and PUBREC show the response time of the client, and the latency of the message."""
    outgoing = Outgoing(None, qos, b"", b"x", False, Phase.ACKNOWLEDGED, PUT)
    session.outbox.in_flight.add(1, outgoing)
    work = ReceiveEffects()
    work.received_at = now_us()
    if qos == 1:
        work.acknowledged.append((1, queued(1, b"x")))
    else:
        work.released.append((1, outgoing, queued(1, b"x")))
    traffic.acknowledged(Acknowledged(session, work))
    counters = traffic.clients["A", 5]
    assert [histogram.count for histogram in counters.acknowledgement] == [0, qos == 1, qos == 2]
    assert counters.delivery[qos].sum == pytest.approx(work.received_at / 1e6 - PUT)


def test_discarded_messages_are_counted_by_reason(traffic: Traffic, session: Session) -> None:
    traffic.finished(Finished(session, [queued(1, b"a"), queued(2, b"bb")], {1: EXPIRED}))
    assert value(traffic, "mqbridge_messages_discarded_total", "expired") == 1
    assert traffic.of(session).counts.sent()[0][0] == 1


def test_latencies_at_full_load(traffic: Traffic, session: Session) -> None:
    """A limited number of batches is measured between two ticks."""
    for _ in range(TIMED + 10):
        traffic.published(published([message(1, b"a")], session, Completion(1)))
    counts = traffic.clients["A", 5]
    assert counts.put[1].count == TIMED
    traffic.tick()
    traffic.published(published([message(1, b"a")], session, Completion(1)))
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
def test_the_put_time_of_a_message(date: bytes, time: bytes, expected: float) -> None:
    """Without another source, it comes from the MQMD. An invalid time counts as unknown."""
    transmission = Queued("c", 1, Message(MQMD(PutDate=date, PutTime=time), b""))
    assert put_time_of(transmission) == expected
    transmission.put_time = PUT
    assert put_time_of(transmission) == PUT


@pytest.mark.parametrize(
    ("reason", "label"),
    [(cmqc.MQRC_Q_FULL, "MQRC_Q_FULL"), (cmqc.MQRC_SELECTOR_ERROR, OTHER), (999_999, OTHER)],
)
def test_the_number_of_reasons_is_limited(reason: int, label: str) -> None:
    assert reason_label(reason) == label


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("mqbridge_connects_refused_total", ("A", "not_authorized")),
        ("mqbridge_disconnects_total", ("A", "keep_alive_timeout")),
        ("mqbridge_disconnects_total", ("A", "connection_lost")),
        ("mqbridge_publications_refused_total", ("A", "MQRC_Q_FULL")),
        ("mqbridge_units_of_work_failed_total", ("A", OTHER)),
        ("mqbridge_authentications_failed_total", ("A",)),
        ("mqbridge_sessions_refused_total", ("A",)),
        ("mqbridge_connects_total", ("A", "3.1.1")),
        ("mqbridge_publications_total", ("A", "5", "1", "in")),
    ],
)
def test_counters_of_a_channel_start_at_zero(traffic: Traffic, name: str, labels: tuple[str, ...]) -> None:
    """Otherwise, `increase()` misses the first event."""
    samples = Samples()
    traffic.gather(samples, ["A"])
    (values,) = [values for metric, values in samples if metric.name == name]
    assert dict(values)[labels] == 0
