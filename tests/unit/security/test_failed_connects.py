"""Delays of authentication after repeated failures, with a clock of the test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.security import authenticator as failed_connects
from bridge.security.authenticator import PERIOD, USERS_OF_A_NETWORK, Attempt, FailedConnects

FREE, LONGEST = 3, 10.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failed(clock: Clock) -> FailedConnects:
    return FailedConnects(clock)


def begin(failed: FailedConnects, address: str = "10.0.0.1", user: str = "a") -> Attempt:
    attempt = failed.begin(address, user, FREE, LONGEST)
    assert attempt is not None
    return attempt


def fail(failed: FailedConnects, times: int, address: str = "10.0.0.1", user: str = "a") -> None:
    for _ in range(times):
        begin(failed, address, user).end(False)


def test_delays_double_up_to_the_maximum(failed: FailedConnects, clock: Clock) -> None:
    delays = []
    for _ in range(8):
        attempt = begin(failed)
        delays.append(attempt.delay)
        clock.now += attempt.delay
        attempt.end(False)
    assert delays == [0, 0, 0, 1, 2, 4, 8, 10]


def test_correct_and_wrong_credentials_are_delayed_equally(failed: FailedConnects) -> None:
    """A delay must not reveal that a guess was wrong."""
    fail(failed, FREE)
    attempt = begin(failed)
    assert attempt.delay == 1
    attempt.end(True)


def test_concurrent_attempts_queue_and_are_finally_rejected(failed: FailedConnects) -> None:
    fail(failed, FREE)
    assert [begin(failed).delay for _ in range(3)] == [1, 3, 7]
    assert begin(failed).delay == LONGEST
    assert failed.begin("10.0.0.1", "a", FREE, LONGEST) is None


@pytest.mark.parametrize(
    ("address", "user", "delay"),
    [
        ("10.0.0.1", "a", 1),
        ("::ffff:10.0.0.1", "a", 1),
        ("10.0.0.1", "b", 0),
        ("10.0.0.2", "a", 0),
        ("", "a", 0),
    ],
)
def test_affected_clients(failed: FailedConnects, address: str, user: str, delay: float) -> None:
    """Only this user of this address."""
    fail(failed, FREE)
    assert begin(failed, address, user).delay == delay


def test_an_ipv6_network_counts_as_one_address(failed: FailedConnects) -> None:
    fail(failed, FREE, "2001:db8::1")
    assert begin(failed, "2001:db8::ffff:2").delay == 1
    assert begin(failed, "2001:db8:0:1::1").delay == 0


def test_many_user_names_from_one_address_count_together(failed: FailedConnects) -> None:
    for number in range(FREE * USERS_OF_A_NETWORK):
        fail(failed, 1, user=f"user {number}")
    assert begin(failed, user="one more").delay == 1


def test_a_minute_without_failures_resets_the_delay(failed: FailedConnects, clock: Clock) -> None:
    fail(failed, FREE)
    clock.now = PERIOD
    assert begin(failed).delay == 1
    clock.now = 3 * PERIOD
    failed = FailedConnects(clock)
    fail(failed, FREE)
    clock.now += PERIOD + 1
    assert begin(failed).delay == 0


def test_a_client_that_disconnects_early_has_failed_and_one_with_correct_credentials_has_not(
    failed: FailedConnects,
) -> None:
    for _ in range(2 * FREE):
        begin(failed).end(True)
    assert begin(failed).delay == 0
    attempts = [begin(failed) for _ in range(FREE)]
    for attempt in attempts:
        attempt.end(False)  # as Client.lost does
        attempt.end(True)
    assert begin(failed).delay > 0


def test_the_number_of_remembered_failures_is_limited(
    failed: FailedConnects, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with thousands of addresses does not fill the memory. The least recent ones are forgotten."""
    monkeypatch.setattr(failed_connects, "_REMEMBERED", 10)
    fail(failed, FREE)
    for number in range(4):
        fail(failed, FREE, f"10.0.1.{number}")
    assert begin(failed).delay == 1
    for number in range(5):
        fail(failed, FREE, f"10.0.2.{number}")
    assert len(failed._counters) == 10
    assert begin(failed).delay == 0
    assert begin(failed, "10.0.2.4").delay == 1


def test_one_user_does_not_lock_out_others_of_its_address(failed: FailedConnects) -> None:
    """Even if attempts of one user are rejected without a check, other users are checked at once."""
    fail(failed, FREE)
    while failed.begin("10.0.0.1", "a", FREE, LONGEST) is not None:
        pass
    other = begin(failed, user="b")
    assert other.delay == 0
    other.end(True)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.floats(0, 100)), max_size=60))
def test_no_delay_exceeds_the_maximum(steps: list[tuple[int, int, bool, float]]) -> None:
    clock = Clock()
    failed = FailedConnects(clock)
    for address, user, succeeded, pause in steps:
        attempt = failed.begin(f"10.0.0.{address}", f"user {user}", FREE, LONGEST)
        if attempt is not None:
            assert 0 <= attempt.delay <= LONGEST
            clock.now += pause
            attempt.end(succeeded)


def test_attempts_that_are_not_checked_yet_do_not_delay_others(failed: FailedConnects) -> None:
    """Otherwise one wrong password would lock out a fleet that reconnects at once."""
    fail(failed, 1, user="wrong")
    attempts = [begin(failed, user=f"device-{number}") for number in range(FREE * USERS_OF_A_NETWORK)]
    for attempt in attempts[::2]:
        assert attempt.start()
        attempt.queue()
    assert begin(failed, user="one more").delay == 0


def test_a_queued_attempt_may_not_start_after_too_many_others_have_failed(failed: FailedConnects) -> None:
    attempts = [begin(failed) for _ in range(FREE + 2)]
    started = []
    for attempt in attempts:
        started.append(attempt.start())
        attempt.end(not started[-1])
    assert started == [True] * FREE + [False] * 2
    delayed = begin(failed)
    delayed.queue()
    assert delayed.delay == 1 and delayed.start()


def test_concurrent_checks_count_as_failures_in_advance(failed: FailedConnects) -> None:
    fail(failed, 1)
    attempts = [begin(failed) for _ in range(FREE)]
    assert [attempt.start() for attempt in attempts] == [True, True, False]
    assert begin(failed).delay == 1


def test_failures_of_queued_attempts_are_counted_together(failed: FailedConnects, clock: Clock) -> None:
    """This includes attempts without earlier failures that start while the others are queued."""
    clock.now = 10 * PERIOD
    attempts = [begin(failed) for _ in range(FREE)]
    for attempt in attempts:
        assert attempt.start()
        attempt.end(False)
    assert begin(failed).delay > 0


def test_a_finished_attempt_may_queue_again(failed: FailedConnects) -> None:
    """As a client does that authenticates again."""
    attempt = begin(failed)
    attempt.end(True)
    fail(failed, FREE)
    attempt.queue()
    assert attempt.start()
    assert begin(failed).delay == 1
