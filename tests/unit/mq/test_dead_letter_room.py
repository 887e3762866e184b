"""The room for dead letters, by owner and in total."""

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


def test_an_owner_and_all_of_them_reach_their_limits() -> None:
    size = OVERHEAD + 100
    made = room(2 * size, 3 * size)
    full: list[Any] = []
    made.on_full = lambda limit, owner: full.append((limit, owner))
    assert [made.take(A, 100) for _ in range(3)] == [True, True, False]
    assert [made.take(B, 100) for _ in range(2)] == [True, False]
    assert full == [("dead_letter_bytes", A), ("dead_letter_total", B)]
    made.give_back(A, 100)
    assert made.take(B, 100)
    made.use_limits(LimitsConfig(dead_letter_bytes=0, dead_letter_total=1024))
    assert not made.take(("client", "c"), 0), "a lower limit applies to the messages that follow"


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 2000), st.booleans()), max_size=40))
def test_no_limit_is_exceeded_and_the_total_is_the_sum(steps: list[tuple[tuple[str, str], int, bool]]) -> None:
    made = room(5_000, 8_000)
    on_queue: list[tuple[tuple[str, str], int]] = []
    for owner, length, removed in steps:
        if removed and on_queue:
            made.give_back(*on_queue.pop())
        elif made.take(owner, length):
            on_queue.append((owner, length))
        for one in (A, B):
            assert made.used_by(one) == sum(length + OVERHEAD for owner, length in on_queue if owner == one)
            assert made.used_by(one) <= 5_000
        assert made.total == made.used_by(A) + made.used_by(B) <= 8_000


def test_messages_that_are_added_during_a_scan_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan may have seen them or not, so it is repeated."""
    made = room(100_000, 100_000)

    class Connection:
        def open(self, *_: object) -> int:
            return 1

        def close(self, _: object) -> None:
            return

    def get(*_: object) -> None:
        if made.total == OVERHEAD:
            made.take(A, 10)

    monkeypatch.setattr(dead_letter_room, "get_or_none", get)
    made.take(B, 0)
    connection: Any = Connection()
    made.scan(connection, "DLQ", "mqbridge", [], AS_IS)
    assert (made.used_by(A), made.used_by(B), made.stale) == (OVERHEAD + 10, 0, True)
    made.scan(connection, "DLQ", "mqbridge", [], AS_IS)
    assert (made.total, made.stale) == (0, False)


def test_a_limit_is_reached_after_it_was_filled() -> None:
    """Messages that are added together may exceed it."""
    made = room(5_000, 8_000)
    assert made.reached(A) == ""
    made.add(A, 3, 300)
    assert (made.used_by(A), made.reached(A), made.reached(B)) == (3 * OVERHEAD + 300, "dead_letter_bytes", "")
    made.add(B, 1, 2_500)
    assert made.reached(B) == "dead_letter_total"


def test_a_queue_that_cannot_be_browsed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = room(5_000, 8_000)

    def fails(reason: int) -> Any:
        def scan() -> None:
            raise MQError(reason, "open")

        return scan

    for _ in range(2):
        assert not made.try_scan(fails(cmqc.MQRC_NOT_AUTHORIZED))
    assert [record.getMessage().split()[0] for record in caplog.records] == ["MQB9104W"]
    assert made.try_scan(lambda: None)
    assert not made.try_scan(fails(cmqc.MQRC_NOT_AUTHORIZED))
    assert len(caplog.records) == 2
    with pytest.raises(MQError):
        made.try_scan(fails(cmqc.MQRC_CONNECTION_BROKEN))
