"""The backlogs of owners: their bytes, and the treatment of messages that arrive beyond the limits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.models import WhenFull
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.backlog import (
    BEYOND,
    DEPTH_SHARE,
    MAXDEPTH,
    MESSAGE_OVERHEAD,
    WAITING_BYTES,
    WAITING_TOTAL,
    Backlog,
    BacklogLimits,
    Treatment,
    size_of,
)
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.outbox import Outbox
from bridge.telemetry.undelivered import FULL
from bridge.wire.mq import MQMD
from tests.helpers.waiting_message import Waiting as Queued


def outbox(messages: int, when_full: str) -> Outbox:
    """Return an outbox for this number of messages with a payload of one byte."""
    size = to_mq(Publish("t", b"1", 1, False, False, 9), ClientIdentity("publisher", b"")).size + MESSAGE_OVERHEAD
    backlog = Backlog("c", BacklogLimits(size * messages, when_full))
    return Outbox(10, backlog, durable=True)


def message(number: int, size: int = 10, *, owner: str = "c", persistent: bool = True) -> Queued:
    return Queued(number, Message(MQMD(), bytes(size)), client_id=owner, persistent=persistent)


@pytest.mark.parametrize(
    ("when_full", "persistent", "waiting_numbers", "discarded", "dead", "ends"),
    [
        ("dead-letter", True, [1, 2, 3], [], [4, 5, 6], False),
        ("dead-letter", False, [1, 2, 3], [4, 5, 6], [], False),
        ("end-session", True, [1, 2, 3, 4, 5, 6], [], [], True),
        ("end-session", False, [1, 2, 3], [4, 5, 6], [], False),
        ("drop-oldest", True, [4, 5, 6], [1, 2, 3], [], False),
        ("refuse", True, [1, 2, 3, 4, 5, 6], [], [], False),
    ],
)
def test_messages_beyond_the_limit(
    waiting: Any,
    when_full: str,
    persistent: bool,
    waiting_numbers: list[int],
    discarded: list[int],
    dead: list[int],
    ends: bool,
) -> None:
    """The result does not depend on how the messages are divided into batches."""
    for parts in ([[1, 2, 3, 4, 5, 6]], [[1], [2, 3], [4], [5, 6]]):
        box = outbox(3, when_full)
        effects = [box.deliver([waiting(n, 1, persistent=persistent) for n in part], 0.0, None) for part in parts]
        admissions = [effect.admission for effect in effects if effect.admission is not None]
        assert [waiting_message.msg_number for waiting_message in box.backlog] == waiting_numbers
        assert [message.msg_number for effect in effects for message in effect.finished] == discarded
        assert [entry for effect in effects for entry in effect.discarded.items()] == [
            (number, FULL) for number in discarded
        ]
        assert [message.msg_number for admission in admissions for message in admission.dead_letters] == dead
        assert any(admission.ends for admission in admissions) is ends
        assert {admission.limit for admission in admissions} == {WAITING_BYTES}


def test_every_choice_has_a_treatment_and_no_default_drops_a_persistent_message() -> None:
    assert BEYOND.keys() == set(get_args(WhenFull))
    for when_full, (_, persistent, otherwise) in BEYOND.items():
        if when_full != "drop-oldest":
            assert {persistent, otherwise} <= {Treatment.KEEP, Treatment.DEAD_LETTER, Treatment.END}


def test_the_session_ends_if_the_dead_letter_queue_is_full(waiting: Any) -> None:
    box = outbox(1, "dead-letter")
    reserved: list[tuple[str, int]] = []

    def reserve(owner: str, size: int) -> bool:
        reserved.append((owner, size))
        return len(reserved) <= 2

    box.backlog.limits.reserve_dead_letter = reserve
    effects = box.deliver([waiting(number, 1) for number in (1, 2, 3, 4, 5)], 0.0, None)
    admission = effects.admission
    assert admission is not None and admission.ends
    assert [dead_letter.msg_number for dead_letter in admission.dead_letters] == [2, 3]
    assert [waiting_message.msg_number for waiting_message in box.backlog] == [1, 4, 5], (
        "an accepted persistent message is never dropped"
    )
    assert reserved == [("c", waiting(1, 1).message.size)] * 4


def test_topic_and_properties_count_towards_the_limit() -> None:
    """Otherwise, publications with large properties and empty payloads would fill the memory."""

    def size(topic: str, *values: str) -> int:
        properties = PublishProperties(user_property=tuple(("name", value) for value in values))
        publish = Publish(topic, b"12345", 1, False, False, 9, properties=properties)
        return to_mq(publish, ClientIdentity("publisher", b"")).size

    assert size("t") == 6
    assert size("t" * 1_000) == 1_005
    assert size("t", "x" * 10_000, "y" * 10_000) > 20_000


def test_recovered_messages_are_kept_and_the_limit_applies_to_new_ones(waiting: Any) -> None:
    box = outbox(2, "dead-letter")
    assert box.deliver([waiting(number, 1) for number in range(1, 6)], 0.0, None, recovered=True).admission is None
    effects = box.deliver([waiting(6, 1)], 0.0, None)
    assert [waiting_message.msg_number for waiting_message in box.backlog] == [1, 2, 3, 4, 5]
    assert effects.admission is not None and len(effects.admission.dead_letters) == 1


def test_a_lower_limit_drops_no_more_than_arrives(waiting: Any) -> None:
    box = outbox(2, "drop-oldest")
    box.deliver([waiting(number, 1) for number in range(1, 6)], 0.0, None, recovered=True)
    box.deliver([waiting(6, 1)], 0.0, None)
    assert [waiting_message.msg_number for waiting_message in box.backlog] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_messages_that_the_client_may_already_have_are_kept(waiting: Any, when_full: str) -> None:
    """Each has a packet identifier: the client would confuse another message with it."""
    box = outbox(2, when_full)
    box.sent_before = {1, 2}
    effects = box.deliver([waiting(number, 2) for number in (1, 2, 3, 4)], 0.0, None)
    waiting_numbers = {waiting_message.msg_number for waiting_message in box.backlog}
    assert {1, 2} <= waiting_numbers
    assert effects.admission is not None
    assert len(effects.finished) + len(effects.admission.dead_letters) + len(waiting_numbers) == 4


@pytest.mark.parametrize(("when_full", "waiting_numbers"), [("drop-oldest", [2]), ("dead-letter", [1])])
def test_a_message_larger_than_the_limit(waiting: Any, when_full: str, waiting_numbers: list[int]) -> None:
    box = outbox(1, when_full)
    box.deliver([waiting(1, 1)], 0.0, None)
    box.deliver([waiting(2, 1, payload=bytes(5000))], 0.0, None)
    assert [waiting_message.msg_number for waiting_message in box.backlog] == waiting_numbers


def test_messages_of_a_share_count_towards_the_share_and_not_its_member(waiting: Any) -> None:
    box = outbox(1, "dead-letter")
    shared = [waiting(number, 1, client_id="SHARE.0") for number in (1, 2, 3)]
    effects = box.deliver([*shared, waiting(4, 1)], 0.0, None)
    assert [waiting_message.msg_number for waiting_message in box.backlog] == [1, 2, 3]
    assert effects.admission is not None and [
        dead_letter.msg_number for dead_letter in effects.admission.dead_letters
    ] == [4]


@pytest.mark.parametrize(
    ("own", "others", "total", "depth", "limit"),
    [
        # The total is not exceeded.
        (9, [1], 20, 0, ""),
        # The total is exceeded, but only by the owner with more than its share.
        (15, [5, 5], 20, 0, WAITING_TOTAL),
        (5, [15, 5], 20, 0, ""),
        # An equal share is not more than a share.
        (9, [10], 20, 0, ""),
        (10, [10], 20, 0, WAITING_TOTAL),
        # The first message of another owner.
        (0, [20], 20, 0, ""),
        # The transmission queue is above its share of MAXDEPTH.
        (15, [5], 1000, 100, MAXDEPTH),
        (5, [95], 1000, 100, ""),
        (15, [5], 1000, 10, ""),
    ],
)
def test_only_owners_above_an_equal_share_are_affected(
    own: int, others: list[int], total: int, depth: int, limit: str
) -> None:
    size = MESSAGE_OVERHEAD + 10
    limits = BacklogLimits(total_bytes=total * size)
    limits.depth, limits.max_depth = depth, int(20 / DEPTH_SHARE)
    backlog = Backlog("c", limits)
    for name, number in [("c", own), *((f"o{index}", number) for index, number in enumerate(others))]:
        other = backlog if name == "c" else Backlog(name, limits)
        for count in range(number):
            other.append(message(count, owner=name))
    assert limits.exceeded(backlog, size, 1) == limit


SENDS = st.tuples(st.sampled_from("abc"), st.integers(0, 3000), st.booleans())
TAKES = st.tuples(st.sampled_from("abc"), st.integers(1, 5))


@given(
    when_full=st.sampled_from([*BEYOND]),
    limits=st.tuples(st.integers(1024, 10_000), st.integers(1024, 20_000), st.integers(0, 40)),
    room=st.integers(0, 20_000),
    steps=st.lists(st.one_of(SENDS, TAKES), max_size=60),
)
def test_each_message_waits_or_is_treated(
    when_full: str, limits: tuple[int, int, int], room: int, steps: list[tuple[Any, ...]]
) -> None:
    """A model of owners whose messages arrive and are received.

    No message disappears without a count, no waiting message moves (except with `drop-oldest`), messages wait in order, and
    an owner within its share is never affected.
    """
    sums = BacklogLimits(limits[0], when_full, limits[1])
    sums.max_depth = limits[2]
    free_bytes = room

    def reserve(_owner: str, size: int) -> bool:
        nonlocal free_bytes
        if size > free_bytes:
            return False
        free_bytes -= size
        return True

    sums.reserve_dead_letter = reserve
    backlogs = {name: Backlog(name, sums) for name in "abc"}
    outcomes: dict[int, int] = {}
    dead_letters: list[Any] = []
    for number, (name, *rest) in enumerate(steps):
        backlog = backlogs[name]
        if len(rest) == 1:
            for _ in range(min(rest[0], len(backlog))):
                del outcomes[backlog.popleft().msg_number]
            continue
        arrival = message(number, rest[0], owner=name, persistent=rest[1])
        before = [waiting.msg_number for waiting in backlog]
        exceeded = sums.exceeded(backlog, size_of([arrival]), 1)
        admission = backlog.admit([arrival], ())
        dead_letters += admission.dead_letters
        now = [waiting.msg_number for waiting in backlog]
        outcomes[number] = sum(
            number in [treated.msg_number for treated in treated_ones]
            for treated_ones in (backlog, admission.discarded, admission.dead_letters)
        )
        assert outcomes[number] == 1
        assert admission.limit == exceeded
        if not exceeded:
            assert now == [*before, number] and not admission.ends
        if when_full != "drop-oldest":
            assert now[: len(before)] == before and not admission.dropped
            assert arrival.persistent or number in now or arrival in admission.discarded
            assert not arrival.persistent or arrival not in admission.discarded
        else:
            assert [dropped.msg_number for dropped in admission.dropped] + now == [*before, number]
        sums.depth = sum(map(len, backlogs.values()))
    assert now_sorted(backlogs)
    assert sum(letter.message.length for letter in dead_letters) == room - free_bytes


def now_sorted(backlogs: dict[str, Backlog]) -> bool:
    return all(
        (numbers := [waiting_message.msg_number for waiting_message in backlog]) == sorted(numbers)
        for backlog in backlogs.values()
    )


STEPS = ["append", "popleft", "pop", "extendleft", "insert", "withdraw", "clear"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50))))
def test_bytes_are_counted_per_message(steps: list[tuple[str, int]]) -> None:
    limits = BacklogLimits(1000, "refuse", 1000)
    backlogs = [Backlog("a", limits), Backlog("b", limits)]
    for number, (step, size) in enumerate(steps):
        backlog = backlogs[size % 2]
        added = message(number, size)
        if step in ("append", "insert"):
            getattr(backlog, step)(added)
        elif step == "extendleft":
            backlog.extendleft([added, added])
        elif step == "withdraw":
            backlog.withdraw(lambda entry, parity=number % 2: entry.msg_number % 2 == parity)  # type: ignore[misc]
        elif step == "clear":
            backlog.clear()
        elif backlog.messages:
            getattr(backlog, step)()
        for each in backlogs:
            assert each.bytes == size_of(each)
        assert limits.bytes == sum(each.bytes for each in backlogs)
        assert limits.backlogs == sum(bool(each.messages) for each in backlogs)


def test_a_returned_message_is_inserted_in_order() -> None:
    backlog = Backlog("c")
    for number in (1, 2, 5, 6):
        backlog.append(message(number))
    backlog.insert(message(4))
    assert [waiting_message.msg_number for waiting_message in backlog] == [1, 2, 4, 5, 6]


def test_publications_are_rejected_until_a_tenth_of_the_limit_is_free() -> None:
    limits = BacklogLimits(total_bytes=10_000, when_full="refuse")
    large, small = Backlog("large", limits), Backlog("small", limits)
    small.append(message(1))
    for number in range(2, 22):
        large.append(message(number))
    assert large.must_refuse
    assert not small.must_refuse
    large.refuses = True
    while limits.bytes > 9_000:
        assert large.must_refuse
        large.popleft()
    assert not large.must_refuse
