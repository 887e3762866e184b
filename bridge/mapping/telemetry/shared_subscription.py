"""Shared subscriptions, `$share/NAME/FILTER` (MQTT 5 section 4.8.2): each is one subscription of the queue manager.

Its name is `$share/NAME:FILTER`, its destination a queue at a remote queue manager of its own, `SHARE.` and 32 digits: its
messages lie on the transmission queue as those of a client do. No client has an identifier of either kind.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from bridge.mapping.topic import topic_string_error
from bridge.wire.mqtt.topics import SHARE, shared_subscription_fault

_REMOTE_QUEUE_MANAGER = re.compile(r"SHARE\.[0-9A-F]{32}")


class SharedSubscription(msgspec.Struct, frozen=True):
    """A share by its name and topic filter."""

    share_name: str
    topic_filter: str

    @property
    def written(self) -> str:
        """Return it as a client writes it in SUBSCRIBE."""
        return f"{SHARE}{self.share_name}/{self.topic_filter}"

    @property
    def subscription_name(self) -> str:
        """Return MQSD.SubName."""
        return f"{SHARE}{self.share_name}:{self.topic_filter}"

    @property
    def remote_queue_manager(self) -> str:
        """Return the queue manager that its destination is at, as far as MQ knows."""
        return "SHARE." + hashlib.sha256(f"{self.share_name}/{self.topic_filter}".encode()).hexdigest()[:32].upper()


def is_shared(topic_filter: str) -> bool:
    """Return whether a client asks for a shared subscription."""
    return topic_filter.startswith(SHARE)


def is_remote_queue_manager(name: str) -> bool:
    """Return whether a remote queue manager is that of a share, and no client."""
    return _REMOTE_QUEUE_MANAGER.fullmatch(name) is not None


def shared_subscription_error(topic_filter: str) -> str | None:
    """Return why a client cannot subscribe to what begins with `$share/`, or None when it can."""
    return shared_subscription_fault(topic_filter) or topic_string_error(shared_subscription(topic_filter).topic_filter)


def shared_subscription(topic_filter: str) -> SharedSubscription:
    """Return the share that a client asks for by a filter without errors."""
    name, _, rest = topic_filter.removeprefix(SHARE).partition("/")
    return SharedSubscription(name, rest)


def share_of_subscription(name: str, topic_filter: str) -> SharedSubscription | None:
    """Return the share that a subscription of the queue manager is; None where its name is no share's."""
    end = f":{topic_filter}"
    if not name.startswith(SHARE) or not name.endswith(end):
        return None
    share_name = name.removeprefix(SHARE).removesuffix(end)
    shared = SharedSubscription(share_name, topic_filter)
    return None if "/" in share_name or shared_subscription_error(shared.written) is not None else shared
