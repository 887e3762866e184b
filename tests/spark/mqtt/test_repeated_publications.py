"""What a broker repeats with QoS 1: never taken for known where it may be new, and known where the broker counts on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.spark.mqtt.envelope import record_batch
from bridge.spark.mqtt.repeated_publications import (
    COUNTED,
    LAST_ID,
    LEAST_BOUND,
    REMEMBERED,
    RepeatedPublications,
    Run,
    digests_of,
)
from bridge.telemetry.message import Publication, Received
from tests.helpers.publications import publication_of_fields

BOUND = 30


class Written:
    """What finds repeated publications, and the digests of the rows that are written."""

    def __init__(self, bound: int) -> None:
        self.repeated = RepeatedPublications()
        self.repeated.allow(bound)
        self.digests: list[bytes] = []
        self._new: list[bytes] = []

    def add(self, message_id: int, digest: bytes) -> None:
        self.repeated.add(message_id)
        self._new.append(digest)

    def write(self) -> Run:
        self.digests += self._new
        self._new.clear()
        return self.repeated.written([])

    def knows(self, message_id: int, digest: bytes) -> bool:
        behind = self.repeated.find(message_id)
        return behind is not None and self.digests[-1 - behind] == digest


def written(*message_ids: int, bound: int = BOUND) -> Written:
    """With rows of these ids, each with a content of its own."""
    made = Written(bound)
    for message_id in message_ids:
        made.add(message_id, content(message_id))
    made.write()
    return made


def content(message_id: int) -> bytes:
    return message_id.to_bytes(16)


def ids(first: int, count: int) -> list[int]:
    return [(first + index - 1) % LAST_ID + 1 for index in range(count)]


@pytest.mark.parametrize(
    "rows, bound, known, unknown",
    [
        ([], BOUND, [], [1, LAST_ID]),
        (ids(1, BOUND), BOUND, [], ids(1, BOUND)),
        (ids(1, BOUND + 1), BOUND, ids(2, BOUND), [1, BOUND + 2, LAST_ID]),
        (ids(LAST_ID - 9, 50), BOUND, ids(11, BOUND), [LAST_ID, 10, 41]),
        (ids(LAST_ID - 9, 35), BOUND, ids(LAST_ID - 4, BOUND), [LAST_ID - 5, 26]),
        (ids(1, 40) + ids(42, BOUND), BOUND, [], ids(1, 80)),
        (ids(1, 40) + ids(42, BOUND + 1), BOUND, ids(43, BOUND), ids(1, 42)),
        (ids(1, 40) + ids(40, BOUND), BOUND, [], ids(1, 80)),
        (ids(1, LEAST_BOUND), 1, [], ids(1, LEAST_BOUND)),
        (ids(1, LEAST_BOUND + 1), 1, ids(2, LEAST_BOUND), [1]),
        (ids(1, LAST_ID), LAST_ID, [], ids(1, LAST_ID)),
        (ids(1, LAST_ID + 1), LAST_ID, ids(LAST_ID - REMEMBERED + 2, REMEMBERED), [2, LAST_ID - REMEMBERED + 1]),
    ],
    ids=[
        "none", "a run as long as what may be unacknowledged", "a longer run", "a run over the last id",
        "what is known over the last id", "a gap", "a run after a gap", "an id twice", "too short to be no chance",
        "long enough to be no chance", "no limit", "no limit, and all ids seen",
    ],
)  # fmt: skip
def test_what_is_known(rows: list[int], bound: int, known: list[int], unknown: list[int]) -> None:
    made = written(*rows, bound=bound)
    assert [one for one in known + unknown if made.knows(one, content(one))] == known
    assert not any(made.knows(one, b"another" + bytes(9)) for one in known)


def test_a_lost_session_is_forgotten() -> None:
    made = written(*ids(1, 40))
    assert made.repeated.forget()
    assert not made.repeated.forget()
    assert not any(made.knows(one, content(one)) for one in range(1, 50))


def test_what_is_not_written_yet_is_not_known() -> None:
    made = written(*ids(1, 40))
    made.add(41, content(41))
    assert [one for one in range(1, 50) if made.repeated.find(one) is not None] == ids(12, 29)
    assert all(made.knows(one, content(one)) for one in ids(12, 29))
    made.write()
    assert [one for one in range(1, 50) if made.knows(one, content(one))] == ids(12, 30)
    made.add(43, content(43))
    assert not any(made.knows(one, content(one)) for one in range(1, 50))


@pytest.mark.parametrize("before, after, needed", [(100, 30, 100), (30, 100, 100), (30, 30, 30)])
def test_a_run_is_longer_than_all_that_was_allowed_while_it_lasted(before: int, after: int, needed: int) -> None:
    made = written(1, bound=before)
    again = RepeatedPublications()
    again.recall(made.write())
    again.allow(after)
    made.repeated = again
    for message_id in range(2, needed + 1):
        made.add(message_id, content(message_id))
        made.write()
        assert not made.knows(message_id, content(message_id))
    made.add(needed + 1, content(needed + 1))
    made.write()
    assert made.knows(needed + 1, content(needed + 1))
    again.forget()
    for message_id in range(1, after + 2):
        made.add(message_id, content(message_id))
    made.write()
    assert made.knows(after + 1, content(after + 1))


def digest(link: str = "link", **other: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "t", "payload": b"p", "qos": 1, "retain": True, "message_id": 7, "client_id": "c", "expiry": 60,
        "response_topic": "r", "correlation_data": b"d", "content_type": "t", "payload_format_indicator": 1,
        "users": {"a": "b"}, "hops": ("Q/m",),
    }  # fmt: skip
    publication = publication_of_fields(**fields | other)
    (found,) = digests_of(record_batch([Received(publication, 1, 7, False, 1)], "session", link, 0))
    return found


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "u"}, {"payload": b"q"}, {"retain": False}, {"client_id": "e"}, {"response_topic": "s"},
        {"correlation_data": b"e"}, {"content_type": ""}, {"payload_format_indicator": None}, {"users": {"a": "c"}},
        {"hops": ()},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_another_content(other: dict[str, Any]) -> None:
    assert digest(**other) != digest()


def test_the_same_content() -> None:
    assert digest(expiry=1.0, message_id=8) == digest()
    # The broker may be named otherwise than in the run before.
    assert digest("c") == digest("d", client_id="d")


def test_digests_of_rows_with_a_message_id() -> None:
    items = [Received(Publication(topic="t", payload=b"p", qos=qos), qos, 0, False, 1) for qos in (0, 1, 2, 0, 1)]
    one, counted, other = digests_of(record_batch(items, "session", "link", 0))
    assert one == other != counted == COUNTED


# Brokers -------------------------------------------------------------------------------------------------------------

#: Picks the message id of a publication: those in use; those that are free again, in their order; the last; chance.
Choice = Callable[[set[int], list[int], int, Random], int]


def in_sequence(used: set[int], freed: list[int], last: int, chance: Random) -> int:
    return last % LAST_ID + 1


def lowest_free(used: set[int], freed: list[int], last: int, chance: Random) -> int:
    return next(one for one in range(1, LAST_ID) if one not in used)


def last_freed(used: set[int], freed: list[int], last: int, chance: Random) -> int:
    return freed[-1] if freed else len(used) + 1


def behind_highest(used: set[int], freed: list[int], last: int, chance: Random) -> int:
    return max(used, default=0) + 1


def by_chance(used: set[int], freed: list[int], last: int, chance: Random) -> int:
    return next(one for one in iter(lambda: chance.randint(1, LAST_ID), 0) if one not in used)


class Sent(NamedTuple):
    message_id: int
    number: int
    body: bytes
    dup: bool


class ModelBroker:
    """Keeps what is not acknowledged, at most `window` of it sent; numbers it when it is sent, or when it is queued."""

    def __init__(self, choice: Choice, early: bool, window: int, chance: Random) -> None:
        self._choice, self._early, self._window, self._chance = choice, early, window, chance
        self._last = LAST_ID - 100
        self._queue: list[Sent] = []
        self._flying: list[Sent] = []
        self._freed: list[int] = []

    def _numbered(self, one: Sent) -> Sent:
        used = {other.message_id for other in (*self._flying, *self._queue)}
        self._last = self._choice(used, self._freed, self._last, self._chance)
        self._freed = [one for one in self._freed if one != self._last]
        return one._replace(message_id=self._last)

    def publish(self, number: int, body: bytes) -> None:
        new = Sent(0, number, body, False)
        self._queue.append(self._numbered(new) if self._early else new)

    def resent(self) -> list[Sent]:
        """In a new connection; what has not arrived in the one before is among it."""
        return [one._replace(dup=True) for one in self._flying]

    def sent(self) -> list[Sent]:
        new = self._queue[: self._window - len(self._flying)]
        del self._queue[: len(new)]
        for one in new:
            self._flying.append(one if self._early else self._numbered(one))
        return self._flying[len(self._flying) - len(new) :]

    def acknowledged(self, message_id: int) -> None:
        self._flying = [one for one in self._flying if one.message_id != message_id]
        self._freed.append(message_id)


class Life(NamedTuple):
    """Of a connection: what is published before it, taken from it, and acknowledged before it ends."""

    published: int
    taken: int
    acknowledged: int
    #: it ends because the process does
    killed: bool
    #: all that was there was taken and acknowledged before
    quiet: bool


LIVES = st.lists(st.builds(Life, *[st.integers(0, 60)] * 3, st.booleans(), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "choice, early",
    [
        (in_sequence, False), (in_sequence, True), (lowest_free, False), (lowest_free, True), (last_freed, False),
        (behind_highest, False), (behind_highest, True), (by_chance, False), (by_chance, True),
    ],
)  # fmt: skip
@given(LIVES, st.integers(LEAST_BOUND, 30), st.integers(1, 3), st.integers(0, 1 << 30))
def test_nothing_is_lost_whoever_numbers_and_nothing_is_doubled_where_it_is_in_sequence(
    choice: Choice, early: bool, lives: list[Life], window: int, bodies: int, seed: int
) -> None:
    """Rows survive, acknowledgements may not. There are few contents, so that most publications are like another one."""
    chance = Random(seed)
    broker = ModelBroker(choice, early, window, chance)
    made = written(bound=window)
    rows: list[int] = []
    numbers = count()

    def publish(many: int) -> None:
        for number in islice(numbers, many):
            broker.publish(number, content(chance.randint(1, bodies)))

    def arrived(one: Sent) -> None:
        if not (one.dup and made.knows(one.message_id, one.body)):
            made.add(one.message_id, one.body)
            rows.append(one.number)

    def take_all() -> None:
        sent = [*broker.resent(), *broker.sent()]
        while sent:
            for one in sent:
                arrived(one)
            made.write()
            for one in sent:
                broker.acknowledged(one.message_id)
            sent = broker.sent()

    publish(3 * window)
    take_all()
    for life in lives:
        if life.quiet:
            take_all()
        publish(life.published)
        for index, one in enumerate([*broker.resent(), *broker.sent()][: life.taken]):
            arrived(one)
            if index < life.acknowledged:
                made.write()
                broker.acknowledged(one.message_id)
        run = made.write()
        if life.killed:
            made.repeated = RepeatedPublications()
            made.repeated.recall(run)
            made.repeated.allow(window)
    take_all()
    published = range(next(numbers))
    assert set(rows) == set(published)
    if choice is in_sequence:
        assert rows == list(published)
