"""Answers of a running bridge to administration requests: plain data."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Literal

import msgspec

#: Seconds of each unit in which an age is told, the longest first.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def moment(seconds: float) -> str:
    """Return a time of seconds since the epoch, in the time zone of this machine; blank for 0.0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def age(seconds: float) -> str:
    """Return a time span in its two largest units, such as `3 d 4 h`."""
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
    #: where it listens, or would
    endpoint: str
    tls: bool
    websocket: bool
    protocols: list[str]
    #: connections, those included that have sent no CONNECT
    connections: int
    #: clients that have been let in
    clients: int
    max_clients: int
    #: the configuration file, or DEFINE CHANNEL of MQSC
    defined_by: Literal["file", "command"] = "file"
    #: why it does not listen though it should; blank where it does
    problem: str = ""


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


class LinkConnectionStatus(msgspec.Struct, kw_only=True):
    """The connection of one mapping to a link's broker."""

    mapping: str
    connected: bool
    client_id: str
    #: seconds since the epoch: when it was connected or disconnected last; 0.0: it was never connected
    since: float = 0.0
    #: the last thing that went wrong; blank: nothing has
    last_error: str = ""
    #: seconds since the epoch; 0.0: nothing has gone wrong
    last_error_at: float = 0.0


class LinkStatus(msgspec.Struct, kw_only=True):
    """A link: a broker that somebody else runs, and who is connected to it."""

    name: str
    broker: str
    tls: bool
    version: str
    connections: list[LinkConnectionStatus]


class BridgeState(StrEnum):
    """Where a bridge stands between its start and its end."""

    STARTING = "starting"
    #: another bridge has the transmission queue
    STANDING_BY = "standing by"
    RUNNING = "running"
    STOPPING = "stopping"


class ProblemKind(StrEnum):
    """What a problem is about."""

    QUEUE_MANAGER = "queue_manager"
    DISK = "disk"
    MEMORY = "memory"
    CHANNEL = "channel"
    CERTIFICATE = "certificate"
    MAPPING = "mapping"
    #: a queue that is full or PUT(DISABLED)
    QUEUE = "queue"
    DEAD_LETTERS = "dead_letters"
    BACKLOG = "backlog"
    #: clients that acknowledge nothing
    CLIENT = "client"
    #: units of work that fail though the queue manager answers
    COMMITS = "commits"
    RELOAD = "reload"


class Problem(msgspec.Struct, frozen=True):
    """A current problem of a bridge."""

    #: `critical` if clients are not served, `error` if messages are not delivered, otherwise `warning`
    severity: Literal["critical", "error", "warning"]
    kind: ProblemKind
    #: a description
    what: str
    #: the command that shows or fixes it
    command: str


class BridgeStatus(msgspec.Struct, kw_only=True):
    """The bridge at a glance."""

    state: BridgeState
    version: str
    #: seconds since the epoch
    started_at: float
    process_id: int
    queue_manager: str
    #: embedded or ibm
    queue_manager_type: str
    #: the queue manager answers, and takes what is persistent
    queue_manager_available: bool
    #: that in words
    queue_manager_state: str
    channels: int
    channels_running: int
    clients: int
    sessions: int
    #: units of work under way
    units_of_work: int
    mappings: int
    log_level: str
    problems: list[Problem] = []


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
