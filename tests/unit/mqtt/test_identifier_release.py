"""The release of all packet identifiers, with connections that end at any moment and answers in any order."""

from __future__ import annotations

import pytest

from bridge.telemetry.identifier_release import ATTEMPTS, TOGETHER, IdentifierRelease
from tests.helpers.connected import connected


def sent(release: IdentifierRelease) -> list[int]:
    """Continue the release, and return the identifiers of the PUBRELs."""
    out = connected()
    release.send(out)
    sent_bytes = out.data_to_send()
    packets = [sent_bytes[at : at + 4] for at in range(0, len(sent_bytes), 4)]
    assert all(packet[:2] == b"\x62\x02" for packet in packets)
    return [int.from_bytes(packet[2:]) for packet in packets]


@pytest.mark.parametrize(
    "connections",
    [[], [(0, False)], [(1, False), (TOGETHER - 1, False)], [(7, True), (TOGETHER, True), (TOGETHER, False)]],
    ids=str,
)
def test_each_identifier_is_released(connections: list[tuple[int, bool]]) -> None:
    """The client answers some identifiers, forwards or backwards, then the connection ends. The last connection stays."""
    release, answered = IdentifierRelease(), set[int]()
    for count, backwards in connections:
        identifiers = sent(release)
        assert sent(release) == [] and release.in_progress and not release.finished
        for identifier in (identifiers[::-1] if backwards else identifiers)[:count]:
            assert release.completed(identifier) and not release.completed(identifier)
            answered.add(identifier)
        release.interrupted()
        assert not release.in_progress
    while not release.finished:
        for identifier in sent(release):
            assert release.completed(identifier)
            answered.add(identifier)
    assert answered == set(range(1, 65_536)) and sent(release) == []


def test_other_identifiers_are_not_answers() -> None:
    release = IdentifierRelease()
    assert not release.completed(1)
    sent(release)
    assert not release.completed(TOGETHER + 1) and release.completed(1)


def test_waiting_messages() -> None:
    """QoS 1 waits during the release, or from the start if the session may have sent QoS 2."""
    release = IdentifierRelease()
    assert [release.delays(qos) for qos in (0, 1, 2)] == [False, False, True]
    sent(release)
    assert [release.delays(qos) for qos in (0, 1, 2)] == [False, True, True]
    assert [IdentifierRelease(reliable=True).delays(qos) for qos in (0, 1, 2)] == [False, True, True]


def test_a_client_that_never_answers() -> None:
    release = IdentifierRelease()
    for _ in range(ATTEMPTS):
        assert not release.unanswered
        sent(release)
        release.interrupted()
    assert release.unanswered
    first, *_ = sent(release)
    release.completed(first)
    assert not release.unanswered
