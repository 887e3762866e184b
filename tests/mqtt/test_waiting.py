"""Messages that wait for one client: their bytes, and which of them there is no room for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.message import Message
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mqtt.outbox import Outbox
from bridge.mqtt.requests import Requests
from bridge.mqtt.unsent import FULL
from bridge.mqtt.waiting import Waiting
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from bridge.wire.mqtt import Publish
from tests.mqtt.conftest import Waiting as Queued


def outbox(messages: int, when_full: str) -> Outbox:
    """An outbox with room for so many messages, but not for one more, whose payload is a number of one digit."""
    size = to_mq(Publish("t", b"1", 1, False, False, 9), ClientIdentity("publisher", b"")).length + 512
    return Outbox(10, Requests("c", durable=True, most_bytes=1000), durable=True, waiting=Waiting(size * messages, when_full))


@pytest.mark.parametrize(
    ("when_full", "left", "given_up", "dead"),
    [
        ("drop-oldest", [4, 5, 6], [1, 2, 3], []),
        ("dead-letter", [1, 2, 3], [], [4, 5, 6]),
        ("refuse", [1, 2, 3, 4, 5, 6], [], []),
    ],
)
def test_no_room(waiting: Any, when_full: str, left: list[int], given_up: list[int], dead: list[int]) -> None:
    for parts in ([[1, 2, 3, 4, 5, 6]], [[1], [2, 3], [4], [5, 6]]):
        box, done = outbox(3, when_full), []
        refusals = [one for part in parts for one in box.deliver([waiting(n, 1) for n in part], 0.0, None, done)]
        assert [one.msg_number for one in box.backlog] == left
        assert [one.msg_number for one in done] == given_up
        assert box.discarded == dict.fromkeys(given_up, FULL)
        assert [one.transmission.msg_number for one in refusals] == dead
        assert {one.reason for one in refusals} <= {cmqc.MQRC_Q_SPACE_NOT_AVAILABLE}


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_what_the_client_may_have_is_kept(waiting: Any, when_full: str) -> None:
    """It holds a message id, and the client would take another message of that id for this one."""
    box, done = outbox(2, when_full), []
    box.sent_before = {1, 2}
    refusals = box.deliver([waiting(number, 2) for number in (1, 2, 3, 4)], 0.0, None, done)
    kept = {one.msg_number for one in box.backlog}
    assert {1, 2} <= kept
    assert len(done) + len(refusals) + len(kept) == 4


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_one_that_is_larger_than_all_the_room(waiting: Any, when_full: str) -> None:
    box, done = outbox(1, when_full), []
    box.deliver([waiting(1, 1)], 0.0, None, done)
    refusals = box.deliver([waiting(2, 1, payload=bytes(5000))], 0.0, None, done)
    assert [one.msg_number for one in box.backlog] == ([2] if when_full == "drop-oldest" else [1])
    assert [one.msg_number for one in done] == ([1] if when_full == "drop-oldest" else [])
    assert [one.transmission.msg_number for one in refusals] == ([] if when_full == "drop-oldest" else [2])


@given(st.lists(st.tuples(st.sampled_from(["append", "popleft", "pop", "extendleft", "take"]), st.integers(0, 50))))
def test_the_bytes_are_those_of_what_waits(steps: list[tuple[str, int]]) -> None:
    held = Waiting(1000, "refuse")
    for number, (step, size) in enumerate(steps):
        one = Queued(number, Message(MQMD(), bytes(size)))
        if step == "append":
            held.append(one)
        elif step == "extendleft":
            held.extendleft([one, one])
        elif step == "take":
            held.take(list(held)[:size])
        elif held:
            getattr(held, step)()
        assert held.bytes == sum(one.message.length + 512 for one in held)
