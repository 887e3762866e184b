"""Topics, as an administrator sees them."""

from __future__ import annotations

import msgspec


class TopicNode(msgspec.Struct, kw_only=True):
    """A level of the topic tree."""

    name: str
    topic: str
    #: it has a retained publication itself
    retained: bool
    #: there are retained publications or subscriptions below it; always, where the queue manager does not say
    has_lower: bool
    #: subscriptions whose filter is this topic
    subscriptions: int


class RetainedStatus(msgspec.Struct, kw_only=True):
    """A retained publication; its size in bytes is that of the payload, -1 where the queue manager does not say."""

    topic: str
    size: int
    persistent: bool
    publisher: str
    #: the beginning of its payload; blank where it was not asked for, or the queue manager does not say
    payload: bytes


class TopicSubscription(msgspec.Struct, kw_only=True):
    """A subscription that takes publications of a topic."""

    #: the queue manager's name for it: `ClientIdentifier:Topic name` where it is a client's
    name: str
    topic_filter: str
    user_data: str
    durable: bool
    #: blank where it is no MQTT client's
    client_id: str
    destination: str


class TopicDetails(msgspec.Struct, kw_only=True):
    """Retained publications that a topic filter takes, and subscriptions that overlap with it."""

    topic_filter: str
    retained: list[RetainedStatus]
    subscriptions: list[TopicSubscription]
    #: there are more than are shown
    more: bool
