"""Recognition of repeated QoS 2 publications, by packet identifier, DUP, connection and content."""

from __future__ import annotations

import pytest

from bridge.service.mappings.repetitions import Repetitions
from bridge.telemetry.message import Publication, Received


def received(packet_id: int, payload: bytes = b"21.5", *, dup: bool = False, connection: int = 1) -> Received:
    return Received(Publication("t", payload, 2, packet_id=packet_id), 2, packet_id, dup, connection)


def released(*publications: Received) -> Repetitions:
    """Return the state after these were received and released, and the connection was lost."""
    repetitions = Repetitions()
    for publication in publications:
        assert not repetitions.is_repeated(publication)
        repetitions.release(publication.packet_id)
    repetitions.connected()
    return repetitions


@pytest.mark.parametrize(
    ("publication", "repeated"),
    [
        pytest.param(received(1, dup=True), True, id="again on the same connection"),
        pytest.param(received(1), True, id="again on the same connection, without DUP"),
        pytest.param(received(1, dup=True, connection=2), True, id="again on the next connection"),
        pytest.param(received(1, connection=2), False, id="without DUP: the broker has lost the session"),
        pytest.param(received(2, dup=True, connection=2), False, id="DUP of what never arrived"),
    ],
)
def test_an_identifier_that_is_not_released(publication: Received, repeated: bool) -> None:
    repetitions = Repetitions()
    assert not repetitions.is_repeated(received(1))
    repetitions.connected()
    assert repetitions.is_repeated(publication) is repeated


def test_identifiers_on_record() -> None:
    assert Repetitions([7]).is_repeated(received(7, dup=True))
    assert not Repetitions([7]).is_repeated(received(7))


def restarted(before: Repetitions) -> Repetitions:
    """Return the state of the next process of the bridge, after its first connection to the broker."""
    after = Repetitions().reloaded(before.identifiers, before.digests, {}, reuses=before.reuses)
    after.connected()
    return after


def test_a_restart_preserves_released_and_unreleased_identifiers() -> None:
    before = Repetitions()
    assert not any(before.is_repeated(received(packet_id)) for packet_id in (1, 2))
    before.release(1)
    after = restarted(before)
    assert after.identifiers == [2]
    assert all(after.is_repeated(received(packet_id, dup=True, connection=7)) for packet_id in (1, 2))
    # Received before the restart, and released afterwards.
    after = restarted(before)
    after.release(2)
    assert restarted(after).is_repeated(received(2, dup=True, connection=7))
    assert not restarted(after).is_repeated(received(2, connection=7))


def test_the_record_does_not_contain_publications_that_the_broker_has_completed() -> None:
    """A PUBREC sent after the PUBCOMP of an earlier unit of work belongs to it."""
    repetitions = Repetitions()
    for packet_id in range(1, 100):
        repetitions = repetitions.copy()
        assert not repetitions.is_repeated(received(packet_id))
        if packet_id > 1:
            repetitions.release(packet_id - 1)
        assert {*repetitions.digests} == {*range(max(packet_id - 2, 1), packet_id + 1)}


def test_a_broker_that_reuses_identifiers_early_sends_new_publications() -> None:
    """The second "on" with the same identifier did not arrive, and is sent again."""
    repetitions = released(received(1, b"on", connection=0), received(1, b"off"))
    repetitions.is_repeated(received(1, b"on", connection=2))
    repetitions.release(1)
    for after in (repetitions, restarted(repetitions)):
        after.connected()
        assert not after.is_repeated(received(1, b"on", dup=True, connection=3))


def test_a_repeated_released_publication_is_not_moved_again() -> None:
    repetitions = released(received(1), received(2))
    again = received(1, dup=True, connection=2)
    assert repetitions.is_repeated(again)
    # It is acknowledged, and its identifier is not released.
    assert repetitions.identifiers == [1]
    repetitions.release(1)
    # And on the next connection, if this one was lost, too.
    repetitions.connected()
    assert repetitions.is_repeated(received(1, dup=True, connection=3))
    assert repetitions.is_repeated(received(2, dup=True, connection=3))


def test_the_same_reading_sent_twice_is_moved_twice() -> None:
    repetitions = released(received(1))
    assert not repetitions.is_repeated(received(1, connection=2))
    repetitions.release(1)
    assert not repetitions.is_repeated(received(1, connection=2))


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(received(1, b"22.0", dup=True, connection=2), id="another payload"),
        pytest.param(received(2, dup=True, connection=2), id="another identifier"),
    ],
)
def test_another_publication_with_dup_is_new(again: Received) -> None:
    assert not released(received(1)).is_repeated(again)


def test_no_released_publication_is_repeated_after_one_without_dup() -> None:
    repetitions = released(received(1))
    assert not repetitions.is_repeated(received(5, connection=2))
    assert not repetitions.is_repeated(received(1, dup=True, connection=2))


def test_a_copy_is_independent() -> None:
    repetitions = released(received(1))
    copy = repetitions.copy()
    assert not copy.is_repeated(received(3, connection=2))
    assert repetitions.is_repeated(received(1, dup=True, connection=2))
    assert (copy.identifiers, repetitions.identifiers) == ([3], [1])
