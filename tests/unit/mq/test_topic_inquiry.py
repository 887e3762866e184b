"""Inquiries of topics: from the trees of the embedded queue manager, and with PCF from IBM MQ."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mq import host as topic_inquiry
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.host import VISITS_PER_TURN, EmbeddedTopicInquiry
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.host import MAX_WAITING, PAYLOAD_SHOWN, PcfTopicInquiry, TooMany, TooManyWaiting, TopicInquiry
from bridge.mq.mqi import MQOD
from bridge.mqtt.topics import overlap
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE, happens
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.pcf.command_server import CommandServer

RETAINED = ("plant/1/temp", "plant/2/temp", "plant/1", "/lead", "$SYS/x")
SUBSCRIPTIONS = {"S1": "plant/+/temp", "S2": "plant/#", "S3": "plant/1/temp", "S4": "other"}
#: filter -> retained publications, overlapping subscriptions
FILTERS = {
    "plant/1/temp": (["plant/1/temp"], ["S1", "S2", "S3"]),
    "plant/+": (["plant/1"], ["S2"]),
    "plant": ([], ["S2"]),
    "+/lead": (["/lead"], ["S2"]),
    "#": (["/lead", "plant/1", "plant/1/temp", "plant/2/temp"], ["S1", "S2", "S3", "S4"]),
    "nothing/here": ([], []),
}


class Site:
    """A queue manager with its command server."""

    def __init__(self, directory: Path) -> None:
        self.itself = QueueManager("MQB1", directory)
        prepare(self.itself)
        CommandServer(self.itself).start()
        self.application = EmbeddedConnection(self.itself)

    def retain(self, topic: str, payload: bytes = b"x", **fields: Any) -> None:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        self.application.put1(od, Message(MQMD(**fields), payload), cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_RETAIN)

    def subscribe(self, name: str, topic_filter: str, more: str = "") -> None:
        (response,) = self.application.command(
            f"DEFINE SUB({name}) TOPICSTR('{topic_filter}') DESTCLAS(MANAGED) {more}"
        )
        assert response.ok, response.message


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    new_site = Site(tmp_path)
    yield new_site
    new_site.application.disconnect()
    new_site.itself.close()


Inquirer = Callable[[Site], TopicInquiry]
KINDS: dict[str, Inquirer] = {
    "embedded": lambda site: EmbeddedTopicInquiry(site.itself),
    "pcf": lambda site: PcfTopicInquiry(lambda _: StandInConnection(site.itself)),
}


@pytest.fixture(params=list(KINDS))
def inquiry(request: pytest.FixtureRequest, site: Site) -> TopicInquiry:
    for topic in RETAINED:
        site.retain(topic)
    for name, topic_filter in SUBSCRIPTIONS.items():
        site.subscribe(name, topic_filter)
    return KINDS[request.param](site)


@pytest.mark.parametrize(("topic_filter", "expected"), FILTERS.items(), ids=list(FILTERS))
async def test_a_filter_selects_publications_and_subscriptions(
    inquiry: TopicInquiry, topic_filter: str, expected: tuple[list[str], list[str]]
) -> None:
    """Retained publications of a filter, and overlapping filters. No wildcard matches `$` topics."""
    topic_details = await inquiry.details(topic_filter, 100, True)
    names = sorted(subscription.name for subscription in topic_details.subscriptions)
    assert (sorted(publication.topic for publication in topic_details.retained), names) == expected
    assert not topic_details.more


async def test_the_levels_of_the_tree_are_listed(inquiry: TopicInquiry) -> None:
    """Levels are sorted by name, including those of filters. A page begins after a name. The level before `/` has no name."""
    unnamed = [""] if isinstance(inquiry, EmbeddedTopicInquiry) else []  # which PCF cannot distinguish from the root
    assert [node.name for node in await inquiry.below(None, None, 100)] == [*unnamed, "$SYS", "other", "plant"]
    assert [node.topic for node in await inquiry.below("", None, 100)] == ["/lead"]
    nodes = {node.topic: node for node in await inquiry.below("plant", None, 100)}
    assert {"plant/1", "plant/2"} <= set(nodes)
    assert (nodes["plant/1"].retained, nodes["plant/1"].has_lower, nodes["plant/2"].retained) == (True, True, False)
    (temp,) = await inquiry.below("plant/1", None, 100)
    assert (temp.topic, temp.retained, temp.subscriptions) == ("plant/1/temp", True, 1)
    assert [node.name for node in await inquiry.below(None, "$SYS", 1)] == ["other"]
    assert await inquiry.below("not/there", None, 100) == []


async def test_the_first_rows_are_returned_if_there_are_too_many(inquiry: TopicInquiry) -> None:
    """Of too many rows, the first ones are returned, and the fact that there are more."""
    topic_details = await inquiry.details("#", 2, True)
    assert (len(topic_details.retained), len(topic_details.subscriptions), topic_details.more) == (2, 2, True)


async def test_a_retained_publication_is_returned_on_request(site: Site) -> None:
    """The embedded queue manager returns size, persistence, publisher and the beginning of the payload on request."""
    site.retain("a", b"p" * (PAYLOAD_SHOWN + 1), Persistence=cmqc.MQPER_PERSISTENT)
    inquiry = EmbeddedTopicInquiry(site.itself)
    (publication,) = (await inquiry.details("a", 10, True)).retained
    assert (publication.size, publication.persistent, publication.publisher) == (PAYLOAD_SHOWN + 1, True, "mqbridge")
    assert publication.payload == b"p" * PAYLOAD_SHOWN
    (publication,) = (await inquiry.details("a", 10, False)).retained
    assert (publication.size, publication.payload) == (PAYLOAD_SHOWN + 1, b"")


@pytest.mark.parametrize(("topic_filter", "named"), [("a/bc", True), ("a/x", False), ("a/+", True), ("b/+", False)])
async def test_subscriptions_with_character_wildcards_are_returned(site: Site, topic_filter: str, named: bool) -> None:
    """A subscription of the other scheme is returned unless its beginning excludes the filter."""
    site.subscribe("CHARS", "a/b*", "WSCHEMA(CHAR)")
    topic_details = await EmbeddedTopicInquiry(site.itself).details(topic_filter, 10, True)
    assert [subscription.name for subscription in topic_details.subscriptions] == ["CHARS"] * named


async def test_the_event_loop_runs_between_slices(site: Site) -> None:
    """A limited number of topics is inspected in one iteration of the event loop."""
    stored = {f"t/{number:06}": site for number in range(3 * VISITS_PER_TURN)}
    site.retain("t/last")
    publication = site.itself.retained["t/last"]
    for topic in stored:
        site.itself.retained[topic] = publication
    inquiry = EmbeddedTopicInquiry(site.itself)
    for question in (inquiry.below("t", None, 10), inquiry.details("t/+", 3 * VISITS_PER_TURN, True)):
        turns = 0
        asking = asyncio.ensure_future(question)
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 3


async def test_an_unlimited_reply_is_not_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue manager returns all topics by PCF. Too many messages are reported as an error, and the rest is not read."""
    monkeypatch.setattr(topic_inquiry, "MAX_RESPONSES", 3)
    for number in range(5):
        site.retain(f"t/{number}")
    inquiry = KINDS["pcf"](site)
    with pytest.raises(TooMany, match="more than 3"):
        await inquiry.below("t", None, 10)
    assert len(await inquiry.below(None, None, 10)) == 1


async def test_inquiries_that_hang_are_limited(site: Site) -> None:
    """Inquiries that are no longer awaited count, too. Further ones fail at once, until the queue manager answers."""
    answers = threading.Event()

    def connect(purpose: str) -> StandInConnection:
        assert answers.wait(PATIENCE)
        return StandInConnection(site.itself)

    inquiry = PcfTopicInquiry(connect)
    for _ in range(MAX_WAITING):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await inquiry.below(None, None, 10)
    with pytest.raises(TooManyWaiting, match="too many requests wait"):
        await inquiry.details("a", 10, payloads=False)
    answers.set()
    await happens(lambda: not inquiry._waiting)
    assert (await inquiry.details("a", 10, payloads=False)).retained == []


OVERLAPS = [
    ("a", "a", True),
    ("a", "b", False),
    ("a/b", "a", False),
    ("a/#", "a", True),
    ("a", "a/#", True),
    ("a/+", "a", False),
    ("a/+", "+/b", True),
    ("a/+/c", "a/b/d", False),
    ("a/+/#", "a/b", True),
    ("a/+/#", "a", False),
    ("#", "x/y", True),
    ("#", "$SYS/x", False),
    ("+/x", "$SYS/x", False),
    ("$SYS/#", "$SYS/x", True),
    ("/a", "+/a", True),
]


def test_filters_overlap_if_a_topic_matches_both(subtests: pytest.Subtests) -> None:
    """Two filters overlap if a topic string matches both, in either order."""
    for topic_filter, other, both in OVERLAPS:
        with subtests.test(one=topic_filter, other=other, both=both):
            assert overlap(topic_filter, other) is overlap(other, topic_filter) is both
