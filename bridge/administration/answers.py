"""Answers of a running bridge to administration requests: plain data."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Literal

import msgspec

#: Units of time spans and their lengths in seconds, the longest first.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def moment(seconds: float) -> str:
    """Format seconds since the epoch in the local time zone; "" for 0.0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def age(seconds: float) -> str:
    """Format a time span with its two largest units, such as `3 d 4 h`."""
    left = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
        if len(words) == 2:
            break
    return " ".join(words)


ChannelState = Literal["running", "stopped", "starting", "stopping"]


class ChannelStatus(msgspec.Struct, kw_only=True):
    """A telemetry channel (MQSC: DISPLAY CHSTATUS CHLTYPE(MQTT))."""

    name: str
    state: ChannelState
    #: the configured address
    endpoint: str
    tls: bool
    websocket: bool
    protocols: list[str]
    #: connections, including those that have not sent CONNECT
    connections: int
    #: connected clients
    clients: int
    max_clients: int
    #: the configuration file, or DEFINE CHANNEL of MQSC
    defined_by: Literal["file", "command"] = "file"
    #: why the channel cannot listen; blank if it can
    problem: str = ""


class ClientStatus(msgspec.Struct, kw_only=True):
    """A client, connected or away, and its session."""

    client_id: str
    connected: bool
    #: the channel of the present or last connection; blank if unknown
    channel: str
    #: blank while the client is disconnected
    address: str
    #: the MQ user of the client
    user: str
    #: 3, 4 or 5, or 0 while the client is disconnected
    protocol_level: int
    durable: bool
    subscriptions: int
    #: messages in the backlog, without those in flight
    waiting: int
    #: messages sent and not acknowledged
    in_flight: int
    #: time at which the client connected or left, in seconds since the epoch; 0.0 if unknown
    since: float
    #: time at which the session expires, in seconds since the epoch; 0.0 if it does not expire now
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
    """One client in detail."""

    status: ClientStatus
    #: the owner of the session; blank if an older bridge recorded it and no client has resumed it since
    owner: str
    keep_alive: int
    expiry_interval: int
    will_topic: str | None
    subscriptions: list[ClientSubscriptionStatus]
    in_flight: list[InFlightMessage]
    #: message identifiers received with QoS 2 and not released
    received: int
    #: the topics of the oldest messages in the backlog, or the queue of a direct message
    waiting: list[str]


class LinkConnectionStatus(msgspec.Struct, kw_only=True):
    """The connection of one mapping to a link's broker."""

    mapping: str
    connected: bool
    client_id: str
    #: the address of the broker that is in use, or tried
    address: str = ""
    #: time of the last connect or disconnect, in seconds since the epoch; 0.0 if never connected
    since: float = 0.0
    #: the last error; blank for none
    last_error: str = ""
    #: time of the last error, in seconds since the epoch; 0.0 for none
    last_error_at: float = 0.0


class LinkStatus(msgspec.Struct, kw_only=True):
    """A link to another broker, and its connections."""

    name: str
    broker: str
    tls: bool
    version: str
    connections: list[LinkConnectionStatus]


class BridgeState(StrEnum):
    """The life cycle state of a bridge."""

    STARTING = "starting"
    #: another bridge is active
    STANDING_BY = "standing by"
    RUNNING = "running"
    STOPPING = "stopping"


class ProblemKind(StrEnum):
    """The kind of a problem."""

    QUEUE_MANAGER = "queue_manager"
    DISK = "disk"
    MEMORY = "memory"
    CHANNEL = "channel"
    CERTIFICATE = "certificate"
    MAPPING = "mapping"
    LINK = "link"
    #: a queue that is full or PUT(DISABLED)
    QUEUE = "queue"
    DEAD_LETTERS = "dead_letters"
    BACKLOG = "backlog"
    #: clients that acknowledge nothing
    CLIENT = "client"
    #: units of work fail although the queue manager is available
    COMMITS = "commits"
    RELOAD = "reload"
    #: rows are missing from the archive
    ARCHIVE = "archive"


class Problem(msgspec.Struct, frozen=True):
    """A current problem of a bridge."""

    #: `critical` if clients are not served, `error` if messages are not delivered, otherwise `warning`
    severity: Literal["critical", "error", "warning"]
    kind: ProblemKind
    #: the name of the queue, channel, mapping or link; blank for the whole bridge
    subject: str
    #: a description
    what: str
    #: the command that shows or fixes it
    command: str
    #: when it began, in seconds since the epoch
    since: float = 0.0


class BridgeStatus(msgspec.Struct, kw_only=True):
    """An overview of the bridge."""

    state: BridgeState
    version: str
    #: seconds since the epoch
    started_at: float
    process_id: int
    queue_manager: str
    #: embedded or ibm
    queue_manager_type: str
    #: the queue manager is available and accepts persistent messages
    queue_manager_available: bool
    #: a description of the availability
    queue_manager_state: str
    channels: int
    channels_running: int
    clients: int
    sessions: int
    #: units of work in progress
    units_of_work: int
    mappings: int
    log_level: str
    problems: list[Problem] = []


class TopicNode(msgspec.Struct, kw_only=True):
    """A level of the topic tree."""

    name: str
    topic: str
    #: the topic itself has a retained publication
    retained: bool
    #: lower levels have retained publications or subscriptions, or the queue manager does not report that
    has_lower: bool
    #: subscriptions whose filter is this topic
    subscriptions: int


class RetainedStatus(msgspec.Struct, kw_only=True):
    """A retained publication. `size` is the payload length in bytes, or -1 if the queue manager does not report it."""

    topic: str
    size: int
    persistent: bool
    publisher: str
    #: the beginning of the payload; empty if not requested or not reported
    payload: bytes


class TopicSubscription(msgspec.Struct, kw_only=True):
    """A subscription that receives publications of a topic."""

    #: the name of the subscription, `ClientIdentifier:Topic name` for a client
    name: str
    topic_filter: str
    user_data: str
    durable: bool
    #: blank for subscriptions of applications
    client_id: str
    destination: str


class TopicDetails(msgspec.Struct, kw_only=True):
    """Retained publications that match a topic filter, and subscriptions that overlap with it."""

    topic_filter: str
    retained: list[RetainedStatus]
    subscriptions: list[TopicSubscription]
    #: the lists are not complete
    more: bool
