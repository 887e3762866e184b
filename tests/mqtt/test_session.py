"""The receiving side of a session: publications that are refused, and come again before anybody is told."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mqtt.session import Session, Work
from bridge.wire.mqtt import PacketType, Publish

PUBREC = (PacketType.PUBREC, 7)
PUBLISH = Publish("plant/1", b"21.5", 2, False, False, 7)
AGAIN = Publish("plant/1", b"21.5", 2, False, True, 7)


def connected() -> Session:
    session = Session(ClientIdentity("dev-1", b""), durable=True, window=20)
    session.attach(session.identity)
    return session


def taken(session: Session, packets: Sequence[Publish]) -> Work:
    work = session.receive(packets)
    assert not work.violation
    return work


def test_a_publication_that_comes_twice_is_put_once_and_acknowledged_twice() -> None:
    session = connected()
    work = taken(session, [PUBLISH, AGAIN])
    assert [message.payload for message, _ in work.publications] == [b"21.5"]
    assert session.committed(work, [], 0.0) == [PUBREC, PUBREC]


def test_a_refused_publication_is_not_acknowledged_for_one_that_came_since() -> None:
    """Only the unit of work that takes a publication may be answered by PUBREC (MQTT 3.1.1 section 4.3.3)."""
    session = connected()
    refused = taken(session, [PUBLISH, AGAIN])
    session.refuse(refused, [0])
    new = taken(session, [AGAIN])
    assert [message.payload for message, _ in new.publications] == [b"21.5"]
    assert session.committed(refused, [0], 0.0) == []
    assert session.committed(new, [], 0.0) == [PUBREC]
