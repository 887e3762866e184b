"""The limits for dead letters, by owner and in total."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.models import LimitsConfig
from bridge.mq import dead_letter_room
from bridge.mq.dead_letter_room import OVERHEAD, DeadLetterRoom
from bridge.mq.mqi import MQError
from bridge.telemetry.identity import AS_IS
from bridge.wire import cmqc

A, B = ("client", "a"), ("mapping", "a")


def room(owner_bytes: int, total: int) -> DeadLetterRoom:
    return DeadLetterRoom(LimitsConfig(dead_letter_bytes=owner_bytes, dead_letter_total=total))


def test_an_owner_and_the_total_reach_their_limits() -> None:
    size = OVERHEAD + 100
    letter_room = room(2 * size, 3 * size)
    full: list[Any] = []
    letter_room.on_full = lambda limit, owner: full.append((limit, owner))
    assert [letter_room.take(A, 100) for _ in range(3)] == [True, True, False]
    assert [letter_room.take(B, 100) for _ in range(2)] == [True, False]
    assert full == [("dead_letter_bytes", A), ("dead_letter_total", B)]
    letter_room.give_back(A, 100)
    assert letter_room.take(B, 100)
    letter_room.use_limits(LimitsConfig(dead_letter_bytes=0, dead_letter_total=1024))
    assert not letter_room.take(("client", "c"), 0), "a lower limit applies to the messages that follow"


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 2000), st.booleans()), max_size=40))
def test_no_limit_is_exceeded_and_the_total_is_the_sum(steps: list[tuple[tuple[str, str], int, bool]]) -> None:
    letter_room = room(5_000, 8_000)
    on_queue: list[tuple[tuple[str, str], int]] = []
    for owner, length, removed in steps:
        if removed and on_queue:
            letter_room.give_back(*on_queue.pop())
        elif letter_room.take(owner, length):
            on_queue.append((owner, length))
        for user in (A, B):
            assert letter_room.used_by(user) == sum(length + OVERHEAD for owner, length in on_queue if owner == user)
            assert letter_room.used_by(user) <= 5_000
        assert letter_room.total == letter_room.used_by(A) + letter_room.used_by(B) <= 8_000


def test_messages_that_are_added_during_a_scan_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan may have counted them or not, so it is repeated."""
    letter_room = room(100_000, 100_000)

    class Connection:
        def open(self, *_: object) -> int:
            return 1

        def close(self, _: object) -> None:
            return

    def get(*_: object) -> None:
        if letter_room.total == OVERHEAD:
            letter_room.take(A, 10)

    monkeypatch.setattr(dead_letter_room, "get_or_none", get)
    letter_room.take(B, 0)
    connection: Any = Connection()
    letter_room.scan(connection, "DLQ", "mqbridge", [], AS_IS)
    assert (letter_room.used_by(A), letter_room.used_by(B), letter_room.stale) == (OVERHEAD + 10, 0, True)
    letter_room.scan(connection, "DLQ", "mqbridge", [], AS_IS)
    assert (letter_room.total, letter_room.stale) == (0, False)


def test_a_limit_is_reached_after_it_was_filled() -> None:
    """Messages that are added together may exceed it."""
    letter_room = room(5_000, 8_000)
    assert letter_room.reached(A) == ""
    letter_room.add(A, 3, 300)
    assert (letter_room.used_by(A), letter_room.reached(A), letter_room.reached(B)) == (
        3 * OVERHEAD + 300,
        "dead_letter_bytes",
        "",
    )
    letter_room.add(B, 1, 2_500)
    assert letter_room.reached(B) == "dead_letter_total"


def test_a_queue_that_cannot_be_browsed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    letter_room = room(5_000, 8_000)

    def fails(reason: int) -> Any:
        def scan() -> None:
            raise MQError(reason, "open")

        return scan

    for _ in range(2):
        assert not letter_room.try_scan(fails(cmqc.MQRC_NOT_AUTHORIZED))
    assert [record.getMessage().split()[0] for record in caplog.records] == ["MQB9104W"]
    assert letter_room.try_scan(lambda: None)
    assert not letter_room.try_scan(fails(cmqc.MQRC_NOT_AUTHORIZED))
    assert len(caplog.records) == 2
    with pytest.raises(MQError):
        letter_room.try_scan(fails(cmqc.MQRC_CONNECTION_BROKEN))
