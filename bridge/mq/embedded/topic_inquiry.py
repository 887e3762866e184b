"""Topics of the embedded queue manager for an administrator: from its own trees, a slice in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from heapq import nsmallest
from itertools import islice
from typing import TypeVar

from bridge.administration.topics import RetainedStatus, TopicDetails, TopicNode, TopicSubscription
from bridge.mq.embedded import character_wildcards
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.topic_inquiry import PAYLOAD_SHOWN
from bridge.mqtt.topics import is_wildcard, overlap
from bridge.telemetry.subscription import subscription_name
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire.mq import decode_chain

#: Names, topics or subscriptions that are looked at in one turn of the event loop: a few milliseconds of work.
LOOKS_AT_A_TURN = 1_000

T = TypeVar("T")


class EmbeddedTopicInquiry:
    """`bridge.mq.topic_inquiry.TopicInquiry` of a queue manager in this process.

    Subscriptions with character-based wildcards are at no place of the tree: `details` alone has them.
    """

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    async def below(self, topic: str | None, after: str | None, rows: int) -> list[TopicNode]:
        manager = self._queue_manager
        words = [] if topic is None else topic.split("/")
        with manager.lock:
            retained, subscribed = manager.retained.level(words), manager.topics.level(words)
            names = [*(() if retained is None else retained.below), *(() if subscribed is None else subscribed.below)]
        first: set[str] = set()
        async for some in _in_slices(names):
            first.update(some if after is None else [name for name in some if name > after])
            if len(first) > 2 * rows:
                first = set(nsmallest(rows, first))
        found = []
        async for some in _in_slices(nsmallest(rows, first)):
            with manager.lock:
                found += [self._node(name, [*words, name]) for name in some]
        return found

    def _node(self, name: str, words: list[str]) -> TopicNode:
        retained, subscribed = self._queue_manager.retained.level(words), self._queue_manager.topics.level(words)
        return TopicNode(
            name=name,
            topic="/".join(words),
            retained=retained is not None and retained.topic is not None,
            has_lower=bool((retained is not None and retained.below) or (subscribed is not None and subscribed.below)),
            subscriptions=0 if subscribed is None else len(subscribed.subscriptions),
        )

    async def details(self, topic_filter: str, rows: int, payloads: bool) -> TopicDetails:
        manager = self._queue_manager
        kept: list[RetainedStatus] = []
        subscriptions: list[TopicSubscription] = []
        async for topics in _in_slices(manager.retained.matching(topic_filter)):
            stored = [manager.retained.get(topic) for topic in topics if topic is not None]
            kept += [_retained(one, payloads) for one in stored if one is not None]
            if len(kept) > rows:
                break
        with manager.lock:
            every = list(manager.topics.subscriptions.values())
        async for some in _in_slices(every):
            subscriptions += [_subscription(one) for one in some if _overlaps(one, topic_filter)]
            if len(subscriptions) > rows:
                break
        return TopicDetails(
            topic_filter=topic_filter,
            retained=kept[:rows],
            subscriptions=subscriptions[:rows],
            more=max(len(kept), len(subscriptions)) > rows,
        )


async def _in_slices(all_: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield slices, with a turn of the event loop before each but the first."""
    iterator = iter(all_)
    while some := list(islice(iterator, LOOKS_AT_A_TURN)):
        yield some
        await asyncio.sleep(0)


def _retained(stored: StoredMessage, payloads: bool) -> RetainedStatus:
    message = stored.message
    if isinstance(message, PublicationMessage):
        publisher, payload = message.client_id, message.payload
    else:
        md = message.md
        publisher = (stored.put_application or md.PutApplName.decode("utf-8", "replace")).rstrip(" \0")
        payload = bytes(decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, strict=False).body)
    return RetainedStatus(
        topic=stored.topic or "",
        size=len(payload),
        persistent=stored.persistent,
        publisher=publisher,
        payload=payload[:PAYLOAD_SHOWN] if payloads else b"",
    )


def _overlaps(subscription: Subscription, topic_filter: str) -> bool:
    if not subscription.characters:
        return overlap(subscription.topic_filter, topic_filter)
    if not is_wildcard(topic_filter):
        return subscription.names(topic_filter)
    # Of two schemes of wildcards it is only said that what stands before the first wildcard of each does not exclude it.
    fixed = character_wildcards.literal(subscription.topic_filter)
    mine = subscription.topic_filter if fixed is None else fixed
    theirs = topic_filter[: min(topic_filter.find(one) for one in "+#" if one in topic_filter)]
    return mine.startswith(theirs) or theirs.startswith(mine)


def _subscription(one: Subscription) -> TopicSubscription:
    return TopicSubscription(
        name=one.name,
        topic_filter=one.topic_filter,
        user_data=one.user_data or "",
        durable=one.durable,
        client_id=one.client_id if one.name == subscription_name(one.client_id, one.topic_filter) else "",
        destination=one.destination,
    )
