"""Clients and their sessions, as an administrator sees them."""

from __future__ import annotations

import msgspec


class ClientStatus(msgspec.Struct, kw_only=True):
    """A client, connected or away, and its session."""

    client_id: str
    connected: bool
    #: by which it is, or was last, connected; blank where that is not known
    channel: str
    #: of its connection; blank while it is away
    address: str
    #: the user that it acts as towards the queue manager
    user: str
    #: 3, 4 or 5; 0 while it is away
    protocol_level: int
    durable: bool
    subscriptions: int
    #: messages that wait, sent ones not included
    waiting: int
    #: messages sent and not acknowledged
    in_flight: int
    #: seconds since the epoch: when it connected, or left; 0.0 where that is not known
    since: float
    #: seconds since the epoch when its session expires; 0.0: it does not, or the client is connected
    expires_at: float


class ClientSubscriptionStatus(msgspec.Struct):
    """One of a client's subscriptions."""

    topic_filter: str
    #: the user data of the queue manager's subscription: the QoS, and options of MQTT 5
    user_data: str


class InFlightMessage(msgspec.Struct):
    """A message that a client has not acknowledged in full."""

    message_id: int
    qos: int
    topic: str
    phase: str
    times_sent: int


class ClientDetails(msgspec.Struct, kw_only=True):
    """All that is known of one client."""

    status: ClientStatus
    #: whose clients alone may resume the session; blank if it has not been used since an older bridge recorded it
    owner: str
    keep_alive: int
    expiry_interval: int
    will_topic: str | None
    subscriptions: list[ClientSubscriptionStatus]
    in_flight: list[InFlightMessage]
    #: message identifiers received with QoS 2 and not released
    received: int
    #: of the messages that wait, the first ones: topic, or queue for one put straight to the client
    waiting: list[str]
