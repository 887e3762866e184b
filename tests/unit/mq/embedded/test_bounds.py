"""Limits for applications and clients, and the isolation of others from excessive requests.

Work is counted, not timed. A matcher with exponential complexity would not finish within the test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.backend import Completion, UnitOfWork
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.retained import RetainedPublications
from bridge.mq.embedded.selector import selector
from bridge.mq.embedded.subscription import Glob, Wildcard, matches_characters
from bridge.mq.embedded.topics import MAX_COPIES, ROUTE_BYTES
from bridge.mq.mqi import MQOD, MQSD, MQError
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH, TOPIC_LEVELS, matches, topic_filter_error
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.headers import MAX_CACHED_LENGTH, remembered
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.units import requests

XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"
DEEPEST = "/".join("a" * TOPIC_LEVELS)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    yield queue_manager
    queue_manager.close()


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [
        (DEEPEST, True),
        (DEEPEST + "/a", False),
        ("/" * 10_235, False),
        ("x" * MQ_TOPIC_STR_LENGTH, True),
        ("x" * (MQ_TOPIC_STR_LENGTH + 1), False),
        ("a\udcff", False),
        ("a\0b", False),
    ],
    ids=["deepest", "deeper", "slashes", "longest", "longer", "no UTF-8", "U+0000"],
)
def test_invalid_topic_strings_are_rejected(manager: QueueManager, topic: str, is_taken: bool) -> None:
    """A string that is too long, too deep, not UTF-8 or contains U+0000 is rejected with MQRC_TOPIC_STRING_ERROR (2425)."""
    assert (topic_filter_error(topic) is None) is is_taken
    connection = EmbeddedConnection(manager)
    put = (MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic), Message(MQMD(), b""))
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED | cmqc.MQSO_NON_DURABLE, ObjectString=topic)
    queues = len(manager.objects.queues)
    if is_taken:
        connection.put1(*put)
        connection.subscribe(sd)
    else:
        for verb in (lambda: connection.put1(*put), lambda: connection.subscribe(sd)):
            with pytest.raises(MQError) as error:
                verb()
            assert error.value.reason == cmqc.MQRC_TOPIC_STRING_ERROR
        assert len(manager.objects.queues) == queues
    connection.disconnect()


def test_the_deepest_topic_matches_the_deepest_filter(manager: QueueManager) -> None:
    for topic_filter in (DEEPEST, "/".join("+" * TOPIC_LEVELS), "#", DEEPEST[:-1] + "#"):
        connection = EmbeddedConnection(manager)
        sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED | cmqc.MQSO_NON_DURABLE, ObjectString=topic_filter)
        connection.subscribe(sd)
    assert len(manager.objects.topics.route(DEEPEST).subscriptions) == 4


async def test_an_error_of_one_publication_affects_that_one_only(tmp_path: Path) -> None:
    """Depths, retained publications and other units are the same as without it."""
    manager = QueueManager("MQB1", tmp_path)
    prepare(manager)
    try:
        backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop())
        await backend.open()
        messages: list[StoredMessage] = []
        backend.start(messages.extend)
        await backend.subscribe("c", requests(("n", 1), ("#", 1)), durable=False, user="")
        await asyncio.sleep(0)  # messages are handed over after the callbacks of the answer
        route = manager.objects.topics.route("n")
        route.subscriptions = (*route.subscriptions, None)
        ended: list[Completion] = []
        backend.on_completed = ended.extend
        unit = UnitOfWork()
        unit.publications = [(_publication("n"), True), (_publication("fine"), False), (_publication("n"), False)]
        backend.submit(unit)
        (completion,) = ended
        assert not completion.failure
        assert completion.refusals == {0: cmqc.MQRC_UNEXPECTED_ERROR, 2: cmqc.MQRC_UNEXPECTED_ERROR}
        assert [message.topic for message in messages] == ["fine"]
        assert manager.objects.queues[XMITQ].depth == 1
        assert not manager.retained
    finally:
        manager.close()


@pytest.mark.parametrize("count", [MAX_COPIES, MAX_COPIES + 1])
async def test_a_client_with_very_many_matching_subscriptions_gets_one_copy(tmp_path: Path, count: int) -> None:
    """The copy has the highest QoS of all subscriptions, and all Subscription Identifiers. Other clients are not affected."""
    manager = QueueManager("MQB1", tmp_path)
    prepare(manager)
    try:
        backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop())
        await backend.open()
        messages: list[StoredMessage] = []
        backend.start(messages.extend)
        levels = "a/" * 10
        filters = [(levels[: 2 * depth] + "#", 0) for depth in range(1, 11)]
        filters += [("+/" * depth + "#", 1) for depth in range(1, count - 9)]
        await backend.subscribe("many", requests(*filters), durable=False, user="")
        await backend.subscribe("few", requests(("a/#", 1), ("#", 0)), durable=False, user="")
        await asyncio.sleep(0)  # messages are handed over after the callbacks of the answer
        backend.submit(UnitOfWork([(_publication(levels + "a/a"), False)]))
        copies = [message.user_data for message in messages if message.client_id == "many"]
        assert copies == ["1"] if count > MAX_COPIES else len(copies) == count
        assert sorted(message.user_data or "" for message in messages if message.client_id == "few") == ["0", "1"]
        assert manager.objects.topics.route(levels + "a/a").weight >= count
    finally:
        manager.close()


async def test_messages_of_other_threads_are_handed_over_on_the_event_loop(tmp_path: Path) -> None:
    """A mapping publishes in its own thread. A non-persistent publication does not wait for a write to disk."""
    manager = QueueManager("MQB1", tmp_path)
    prepare(manager)
    try:
        backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop())
        await backend.open()
        threads: asyncio.Queue[int] = asyncio.Queue()
        backend.start(lambda _batch: threads.put_nowait(threading.get_ident()))
        await backend.subscribe("c", requests(("t", 0)), durable=False, user="")
        await asyncio.sleep(0)  # messages are handed over after the callbacks of the answer

        def publish() -> None:
            connection = EmbeddedConnection(manager)
            od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t")
            connection.put1(od, Message(MQMD(), b"x"))

        await asyncio.to_thread(publish)
        assert await threads.get() == threading.get_ident()
    finally:
        manager.close()


async def test_retained_publications_of_a_client_are_limited(tmp_path: Path) -> None:
    manager = QueueManager("MQB1", tmp_path)
    prepare(manager)
    try:
        backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop(), retained_bytes=14_000)
        unit = UnitOfWork()
        unit.publications = [(_publication(f"t/{number}", bytes(1_000)), True) for number in range(20)]
        refusals = backend.submit(unit)
        assert len(manager.retained) == 6
        assert set(refusals.values()) == {cmqc.MQRC_Q_SPACE_NOT_AVAILABLE}
        for payload in (
            b"new",
            b"",
        ):  # a publication that needs no additional space is accepted, and released space can be used
            again = UnitOfWork()
            again.publications = [(_publication("t/0", payload), True)]
            assert not backend.submit(again)
        more = UnitOfWork()
        more.publications = [(_publication("t/99", b""), True), (_publication("t/99", bytes(500)), True)]
        assert not backend.submit(more)
    finally:
        manager.close()


#: limits, clients (client identifier, MQ user) that publish one after the other, and how many publications of each are
#: retained. One takes 2,018 bytes or a few more.
RETAINED: dict[str, tuple[dict[str, int], list[tuple[str, bytes]], list[int]]] = {
    "clients of one user": ({"retained_bytes": 12_000}, [("a", b"u"), ("b", b"u")], [4, 0]),
    "two users": ({"retained_bytes": 12_000}, [("a", b"u"), ("a", b"v")], [4, 4]),
    "clients without a user": ({"retained_bytes": 12_000}, [("a", b""), ("b", b"")], [4, 4]),
    "a client named like a user": ({"retained_bytes": 12_000}, [("a", b""), ("b", b"a")], [4, 4]),
    "in total": ({"retained_total": 20_000}, [("a", b"u"), ("b", b"v"), ("c", b"")], [7, 0, 0]),
    "both": ({"retained_bytes": 12_000, "retained_total": 20_000}, [("a", b"u"), ("b", b"v")], [4, 3]),
}


@pytest.mark.parametrize("case", RETAINED)
async def test_retained_publications_are_limited_per_user_and_in_total(tmp_path: Path, case: str) -> None:
    """The counts are the same after a restart."""
    limits, clients, expected = RETAINED[case]
    counts = None
    for start in ("first", "restarted"):
        manager = QueueManager("MQB1", tmp_path)
        prepare(manager)
        try:
            backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop(), **limits)
            if start == "restarted":
                assert counts == (manager.retained.bytes_of, manager.retained.total_bytes)
            for index, (client_id, user) in enumerate(clients):
                unit = UnitOfWork()
                for number in range(10):
                    topic = f"{start}/{index}/{number:0>10}"
                    unit.publications.append((_publication(topic, bytes(1_460), client_id, user, qos=1), True))
                ended = asyncio.Event()
                backend.on_completed = lambda _completions, ended=ended: ended.set()  # type: ignore[misc]
                reached: list[tuple[str, str, int]] = []
                backend.on_limit = lambda *arguments, reached=reached: reached.append(arguments)
                refusals = backend.submit(unit)
                assert len(reached) == len(refusals)
                assert {limit for limit, _, _ in reached} <= limits.keys()
                assert {subject for _, subject, _ in reached} <= {user.decode() or client_id}
                assert len(refusals) == (10 if start == "restarted" else 10 - expected[index])
                assert set(refusals.values()) <= {cmqc.MQRC_Q_SPACE_NOT_AVAILABLE}
                await ended.wait()
            counts = dict(manager.retained.bytes_of), manager.retained.total_bytes
            assert sum(counts[0].values()) == counts[1]
        finally:
            await asyncio.get_running_loop().run_in_executor(None, manager.close)


#: (MQ user, payload, User Properties) of a publication that replaces one of user u with 1,000 bytes when both limits are
#: reached, and whether it is accepted
REPLACEMENTS = {
    "as long": (b"u", 1_000, 0, True),
    "longer": (b"u", 1_001, 0, False),
    "shorter, but with longer properties": (b"u", 1, 1_100, False),
    "of another user": (b"v", 1_000, 0, True),
    "of another user, and longer": (b"v", 1_001, 0, False),
}


@pytest.mark.parametrize("case", REPLACEMENTS)
async def test_a_retained_publication_no_larger_than_its_predecessor_is_accepted(
    manager: QueueManager, case: str
) -> None:
    user, length, property_length, accepted = REPLACEMENTS[case]
    backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop())
    unit = UnitOfWork()
    unit.publications = [(_publication("t", bytes(1_000), "c", b"u"), True)]
    assert not backend.submit(unit)
    backend.retained_bytes = backend.retained_total = manager.retained.total_bytes
    properties = PublishProperties(user_property=(("name", "x" * property_length),)) if property_length else None
    unit = UnitOfWork()
    unit.publications = [(_publication("t", bytes(length), "d", user, properties=properties), True)]
    assert (not backend.submit(unit)) is accepted


@pytest.mark.parametrize("lowered", ["retained_bytes", "retained_total"])
async def test_retained_publications_can_be_replaced_after_a_limit_was_lowered(
    manager: QueueManager, lowered: str
) -> None:
    backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop())
    for length, reasons in ((1_000, {}), (1_000, {}), (1_001, {0: cmqc.MQRC_Q_SPACE_NOT_AVAILABLE}), (1, {})):
        unit = UnitOfWork()
        unit.publications = [(_publication("t", bytes(length), "c", b"u"), True)]
        assert backend.submit(unit) == reasons
        setattr(backend, lowered, 500)


async def test_a_user_over_the_limit_cannot_replace_a_publication_of_another_user(manager: QueueManager) -> None:
    """This would increase the total of that user, though not the total of all."""
    backend = EmbeddedBackend(manager, XMITQ, asyncio.get_running_loop(), retained_bytes=3_000)
    for topic, user, reasons in (("a", b"u", {}), ("b", b"v", {}), ("b", b"u", {0: cmqc.MQRC_Q_SPACE_NOT_AVAILABLE})):
        unit = UnitOfWork()
        unit.publications = [(_publication(topic, bytes(1_000), "c", user), True)]
        assert backend.submit(unit) == reasons


def _publication(
    topic: str,
    payload: bytes = b"x",
    client_id: str = "c",
    user: bytes = b"",
    *,
    qos: int = 0,
    properties: PublishProperties | None = None,
) -> PublicationMessage:
    publish = Publish(topic, payload, qos, False, False, 1 if qos else 0, properties)
    return to_mq(publish, ClientIdentity(client_id, user))


def test_the_cache_of_routes_is_limited_in_bytes(manager: QueueManager) -> None:
    for number in range(5_000):
        manager.objects.topics.route(f"{number}/" + "x" * 10_000)
    assert sum(2 * len(topic) for topic in manager.objects.topics._routes) <= ROUTE_BYTES


def test_long_arguments_are_not_cached() -> None:
    calls: list[str] = []

    @remembered(16)
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    for text in ("short", "short", "x" * MAX_CACHED_LENGTH + "y", "x" * MAX_CACHED_LENGTH + "y"):
        length(text)
    assert len(calls) == 3


# Wildcards -------------------------------------------------------------------------------------------------------------


def test_wildcards_and_like_do_not_backtrack() -> None:
    topic = "a" * 10_000
    assert not matches_characters("*a" * 2_000 + "*b", topic)
    assert matches_characters("*a" * 2_000 + "*", topic)
    is_like = selector("name LIKE '" + "%a" * 2_000 + "%b'")
    assert is_like(lambda _name: topic) is False


@given(
    st.lists(st.sampled_from(["a", "b", Wildcard.ANY, Wildcard.ONE]), max_size=8), st.text(alphabet="ab", max_size=8)
)
def test_a_glob_matches_by_its_definition(tokens: list[str | Wildcard], text: str) -> None:
    assert Glob(tokens).matches(text) is _defined(tokens, text)


def _defined(tokens: list[str | Wildcard], text: str) -> bool:
    if not tokens:
        return not text
    first, rest = tokens[0], tokens[1:]
    if first is Wildcard.ANY:
        return any(_defined(rest, text[at:]) for at in range(len(text) + 1))
    return bool(text) and first in (Wildcard.ONE, text[0]) and _defined(rest, text[1:])


def test_a_selector_may_have_a_thousand_conditions() -> None:
    assert selector(" OR ".join(["a=1"] * 1_200))(lambda _name: 2) is False
    assert selector(" AND ".join(["a=1"] * 1_100))(lambda _name: 1) is True
    assert selector("+".join(["1"] * 5_000) + "=5000")(lambda _name: 1) is True


# Retained publications -------------------------------------------------------------------------------------------------

LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.lists(st.one_of(LEVELS, st.just("+")), max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join([*levels, "#"]), "/".join(levels) or "#"])
)


class _Stored:
    message = None


@given(st.sets(TOPICS), st.sets(TOPICS), FILTERS)
def test_retained_publications_are_found_like_matching_topics(
    retained_topics: set[str], cleared: set[str], topic_filter: str
) -> None:
    retained = RetainedPublications()
    for topic in retained_topics | cleared:
        retained[topic] = _Stored()  # type: ignore[assignment]
    for topic in cleared:
        retained.pop(topic)
    remaining_topics = retained_topics - cleared
    named = sorted(topic for topic in retained.matching(topic_filter) if topic is not None)
    assert named == sorted(topic for topic in remaining_topics if matches(topic_filter, topic))
    for topic in remaining_topics:
        del retained[topic]
    assert not retained._root.below
