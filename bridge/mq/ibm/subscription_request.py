"""Requests to the thread that has the subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bridge.mq.backend import ClientSubscription, SubscriptionRequest


class Subscribe(msgspec.Struct, eq=False):
    """Make or alter subscriptions of one client; `done` gets a reason for each, on the subscriber's thread."""

    client_id: str
    requests: Sequence[SubscriptionRequest]
    durable: bool
    user: str
    done: Callable[[list[int]], None]


class Unsubscribe(msgspec.Struct, eq=False):
    """Remove subscriptions of one client; `done` gets a reason for each, on the subscriber's thread.

    If the session has `ended`, a subscription that cannot be removed now is removed later.
    """

    client_id: str
    filters: Sequence[str]
    done: Callable[[list[int]], None]
    ended: bool = False


class Admit(msgspec.Struct, eq=False):
    """Ask whether messages may be put to a client as a user; `done` gets the reason, on the subscriber's thread."""

    client_id: str
    user: str
    done: Callable[[int], None]


class Inquire(msgspec.Struct, eq=False):
    """List the subscriptions of MQTT clients; those of clean sessions of a bridge that died are removed."""

    done: Callable[[list[ClientSubscription]], None]


Request = Admit | Subscribe | Unsubscribe | Inquire
