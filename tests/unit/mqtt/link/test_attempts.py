"""The order of addresses and the pauses of attempts to connect to a broker."""

from __future__ import annotations

import random

import pytest

from bridge.link.attempts import FIRST_PAUSE, LONGEST_PAUSE, REFUSED_PAUSE, Attempts
from bridge.link.state import LinkLost, LinkRefused


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, _high: low)


def test_the_pause_doubles_up_to_the_maximum() -> None:
    tried = Attempts([("a", 1)])
    pauses = [tried.failed(LinkLost("down")) for _ in range(12)]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] and pauses[-1] == LONGEST_PAUSE
    assert tried.number == 12
    tried.settled()
    assert tried.failed(LinkLost("down")) == FIRST_PAUSE


def test_all_addresses_are_tried_before_a_pause() -> None:
    tried = Attempts([("a", 1), ("b", 2)])
    places, pauses = [], []
    for _ in range(4):
        places.append(tried.place)
        pauses.append(tried.failed(LinkLost("down")))
        tried.next_address()
    assert places == ["a:1", "b:2", "a:1", "b:2"]
    assert pauses == [0.0, FIRST_PAUSE, 0.0, 2 * FIRST_PAUSE]


def test_a_rejection_at_one_address_lengthens_the_pause_of_its_round() -> None:
    tried = Attempts([("a", 1), ("b", 2)])
    errors = [LinkRefused("wrong password"), LinkLost("down"), LinkLost("down"), LinkLost("down")]
    assert [tried.failed(error) for error in errors] == [0.0, REFUSED_PAUSE, 0.0, 2 * FIRST_PAUSE]
