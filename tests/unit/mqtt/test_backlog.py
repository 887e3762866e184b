"""The messages that wait for one client: their bytes, and what happens beyond the limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.outbox import FULL, Backlog, BacklogTotal, Outbox, Requests
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.waiting_message import Waiting as Queued


def outbox(messages: int, when_full: str) -> Outbox:
    """An outbox with room for this many messages with a payload of one byte."""
    size = to_mq(Publish("t", b"1", 1, False, False, 9), ClientIdentity("publisher", b"")).length + 512
    backlog = Backlog("c", size * messages, when_full)
    return Outbox(10, Requests("c", durable=True, most_bytes=1000), durable=True, backlog=backlog)


@pytest.mark.parametrize(
    ("when_full", "left", "given_up", "dead"),
    [
        ("drop-oldest", [4, 5, 6], [1, 2, 3], []),
        ("dead-letter", [1, 2, 3], [], [4, 5, 6]),
        ("refuse", [1, 2, 3, 4, 5, 6], [], []),
    ],
)
def test_messages_beyond_the_limit_are_dropped_or_dead_lettered(
    waiting: Any, when_full: str, left: list[int], given_up: list[int], dead: list[int]
) -> None:
    for parts in ([[1, 2, 3, 4, 5, 6]], [[1], [2, 3], [4], [5, 6]]):
        box = outbox(3, when_full)
        effects = [box.deliver([waiting(n, 1) for n in part], 0.0, None) for part in parts]
        refusals = [refusal for one in effects for refusal in one.refusals]
        assert [one.msg_number for one in box.backlog] == left
        assert [message.msg_number for one in effects for message in one.finished] == given_up
        assert [entry for one in effects for entry in one.discarded.items()] == [(number, FULL) for number in given_up]
        assert [one.transmission.msg_number for one in refusals] == dead
        assert {one.reason for one in refusals} <= {cmqc.MQRC_Q_SPACE_NOT_AVAILABLE}


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_messages_that_the_client_may_already_have_are_kept(waiting: Any, when_full: str) -> None:
    """Each holds a packet identifier: the client would take another message with it for this one."""
    box = outbox(2, when_full)
    box.sent_before = {1, 2}
    effects = box.deliver([waiting(number, 2) for number in (1, 2, 3, 4)], 0.0, None)
    kept = {one.msg_number for one in box.backlog}
    assert {1, 2} <= kept
    assert len(effects.finished) + len(effects.refusals) + len(kept) == 4


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_a_message_larger_than_the_limit(waiting: Any, when_full: str) -> None:
    box = outbox(1, when_full)
    box.deliver([waiting(1, 1)], 0.0, None)
    effects = box.deliver([waiting(2, 1, payload=bytes(5000))], 0.0, None)
    assert [one.msg_number for one in box.backlog] == ([2] if when_full == "drop-oldest" else [1])
    assert [one.msg_number for one in effects.finished] == ([1] if when_full == "drop-oldest" else [])
    assert [one.transmission.msg_number for one in effects.refusals] == ([] if when_full == "drop-oldest" else [2])


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "popleft", "pop", "extendleft", "withdraw", "clear"]), st.integers(0, 50))
    )
)
def test_bytes_are_those_of_the_messages(steps: list[tuple[str, int]]) -> None:
    total = BacklogTotal(1000)
    backlogs = [Backlog("a", 1000, "refuse", total), Backlog("b", 1000, "refuse", total)]
    for number, (step, size) in enumerate(steps):
        backlog = backlogs[size % 2]
        message = Queued(number, Message(MQMD(), bytes(size)))
        if step == "append":
            backlog.append(message)
        elif step == "extendleft":
            backlog.extendleft([message, message])
        elif step == "withdraw":
            backlog.withdraw(lambda one, parity=number % 2: one.msg_number % 2 == parity)  # type: ignore[misc]
        elif step == "clear":
            backlog.clear()
        elif backlog.messages:
            getattr(backlog, step)()
        for one in backlogs:
            assert one.bytes == sum(message.message.length + 512 for message in one)
        assert total.bytes == sum(one.bytes for one in backlogs)
        assert total.backlogs == sum(bool(one.messages) for one in backlogs)


def test_backlogs_with_more_than_their_share_refuse_while_the_total_is_exceeded() -> None:
    total = BacklogTotal(10_000)
    large, small = Backlog("large", total=total), Backlog("small", total=total)
    small.append(Queued(1, Message(MQMD(), bytes(10))))
    for number in range(2, 22):
        large.append(Queued(number, Message(MQMD(), bytes(10))))
    assert total.bytes > total.limit
    assert large.must_refuse
    assert not small.must_refuse
    large.refuses = True
    large.popleft()
    assert large.must_refuse, "it accepts again when a tenth of the total is free"
    while total.bytes > 9_000:
        large.popleft()
    assert not large.must_refuse
