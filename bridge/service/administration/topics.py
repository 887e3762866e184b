"""Topics as an administrator looks at them: the levels of the tree, retained publications and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from bridge.administration.answers import TopicDetails, TopicNode
from bridge.administration.requests import MOST_ROWS, ListTopics, ShowTopic
from bridge.mq.mqi import MQError
from bridge.mq.topic_inquiry import TooMany
from bridge.mqtt.topics import topic_filter_error
from bridge.service.administration.parts import Parts, Refused

T = TypeVar("T")


async def list_topics(parts: Parts, request: ListTopics) -> list[TopicNode]:
    """Return the levels below a topic. Raises Refused."""
    if request.below is not None and (error := topic_filter_error(request.below or "/")) is not None:
        raise Refused(f"{request.below!r} is no topic: {error}")
    return await _asked(parts, parts.host.topic_inquiry.below(request.below, request.after, _rows(request.rows)))


async def show_topic(parts: Parts, request: ShowTopic) -> TopicDetails:
    """Return what is retained for a filter, and who subscribes. Raises Refused."""
    if (error := topic_filter_error(request.topic_filter)) is not None:
        raise Refused(f"{request.topic_filter!r} is no topic filter: {error}")
    rows = _rows(request.rows)
    return await _asked(parts, parts.host.topic_inquiry.details(request.topic_filter, rows, request.payloads))


def _rows(wanted: int) -> int:
    return min(max(wanted, 1), MOST_ROWS)


async def _asked(parts: Parts, answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (MQError, TooMany) as error:
        raise Refused(f"queue manager {parts.host.name}: {error}") from error
