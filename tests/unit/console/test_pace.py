"""Anonymous requests: each leaves most of the time to MQTT clients, and none is lost."""

from __future__ import annotations

import socket

import pytest

from bridge.console.pace import INTERVAL, SHARE, Pace
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_turns_follow_each_other(clock: Clock) -> None:
    turns = Pace(clock)
    assert [turns.reserve() for _ in range(3)] == pytest.approx([0, INTERVAL, 2 * INTERVAL])
    assert turns.late
    clock.now += 1
    assert not turns.late
    assert turns.reserve() == 0


@pytest.mark.parametrize("cpu", [0.001, 0.01])
def test_the_next_turn_comes_after_a_multiple_of_the_time_that_was_used(clock: Clock, cpu: float) -> None:
    turns = Pace(clock)
    turns.reserve()
    turns.charge(cpu)
    assert turns.reserve() == pytest.approx(INTERVAL + cpu / SHARE)


def test_a_long_request_does_not_put_off_others_for_ever(clock: Clock) -> None:
    """Its time may be that of others, which ran meanwhile."""
    turns = Pace(clock)
    turns.charge(60)
    assert turns.reserve() <= 1


def test_requests_that_are_sent_at_once_are_answered_in_turn(bridge: BridgeProcess, console: Console) -> None:
    """Also those on one connection. A user who has logged in does not wait for them."""
    host, _, port = Console(bridge).place.rpartition(":")
    several, connections = 5, 8
    request = b"GET /login HTTP/1.1\r\nHost: %b\r\n\r\n" % Console(bridge).place.encode()
    sockets = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(connections)]
    try:
        for one in sockets:
            one.sendall(request * several)
        assert console.get("/clients").status == 200
        for one in sockets:
            received = b""
            while received.count(b"HTTP/1.1 200 OK") < several:
                data = one.recv(65_536)
                assert data
                received += data
    finally:
        for one in sockets:
            one.close()
