"""Answers of a running bridge to administration requests: plain data."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Any, Literal

import msgspec

from bridge.mq.inquiries import ChannelState as ChannelState
from bridge.mq.inquiries import ChannelStatus as ChannelStatus
from bridge.mq.inquiries import ClientStatus as ClientStatus
from bridge.mq.inquiries import CommandEffect as CommandEffect
from bridge.mq.inquiries import ObjectDetails as ObjectDetails
from bridge.mq.inquiries import ObjectKind as ObjectKind
from bridge.mq.inquiries import ObjectRow as ObjectRow
from bridge.mq.inquiries import RetainedStatus as RetainedStatus
from bridge.mq.inquiries import TopicDetails as TopicDetails
from bridge.mq.inquiries import TopicNode as TopicNode
from bridge.mq.inquiries import TopicSubscription as TopicSubscription

#: Units of time spans and their lengths in seconds, the longest first.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 message` or `1,200 messages`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def moment(seconds: float) -> str:
    """Format seconds since the epoch in the local time zone, or "" for 0.0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def age(seconds: float) -> str:
    """Format a time span with its two largest units, such as `3 d 4 h`."""
    remainder = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, remainder = divmod(remainder, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
        if len(words) == 2:
            break
    return " ".join(words)


class ClientRow(ClientStatus, kw_only=True):
    """A client in a page of clients."""

    #: put time of the oldest message that the client has not acknowledged, in seconds since the epoch, or 0.0 for none
    oldest: float
    #: publications from the client and messages to it, per second, or None if they are not measured yet
    received_rate: float | None
    sent_rate: float | None


class ClientPage(msgspec.Struct, kw_only=True):
    """One page of clients, and the totals of all clients that match."""

    clients: list[ClientRow]
    found: int
    connected: int
    waiting: int
    in_flight: int
    subscriptions: int


ClientEventKind = Literal[
    "connected",
    "disconnected",
    "taken_over",
    "rejected",
    "subscribed",
    "unsubscribed",
    "session_ended",
    "publication_rejected",
    "dead_lettered",
    "dropped",
]


class ClientEvent(msgspec.Struct, frozen=True):
    """An event of a client."""

    #: seconds since the epoch
    time: float
    kind: ClientEventKind
    text: str


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a traced client, or a message from or to it."""

    number: int
    #: seconds since the epoch
    time: float
    kind: Literal["event", "published", "delivered"]
    #: the event, or the outcome of the message
    text: str
    topic: str = ""
    qos: int | None = None
    #: length of the payload in bytes
    size: int = 0
    #: the beginning of the payload, or None for an event or if it was not requested
    payload: str | None = None


class ClientTrace(msgspec.Struct, kw_only=True):
    """The last entries of the trace of a client, the oldest first."""

    entries: list[TraceEntry]
    #: number of entries that have been dropped
    missed: int


class ClientSubscriptionStatus(msgspec.Struct):
    """One of a client's subscriptions."""

    topic_filter: str
    #: the maximum QoS of deliveries
    qos: int
    #: options of MQTT 5 in words, such as `No Local`
    options: str
    #: the user data of the queue manager's subscription, which contains both
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
    #: the owner of the session, or blank if an older bridge recorded it and no client has resumed it since
    owner: str
    keep_alive: int
    expiry_interval: int
    will_topic: str | None
    subscriptions: list[ClientSubscriptionStatus]
    in_flight: list[InFlightMessage]
    #: message identifiers received with QoS 2 and not released
    received: int
    #: publications since it connected that violated a schema of its channel
    invalid_publications: int = 0
    #: the topics of the oldest messages in the backlog, or the queue of a direct message
    waiting: list[str]
    #: messages acknowledged, or sent with QoS 0, whose removal from the transmission queue is not committed
    unremoved: int = 0
    #: maximum number of messages of a client that are sent and not removed. It is lowered while removals lag. None: no limit
    removal_limit: int | None = None
    #: put time of the oldest message that the client has not acknowledged, in seconds since the epoch, or 0.0 for none
    oldest: float = 0.0
    #: publications from the client and messages to it, per second, or None if they are not measured
    received_rate: float | None = None
    sent_rate: float | None = None
    #: the last events, the newest first
    events: list[ClientEvent] = []


class LinkConnectionStatus(msgspec.Struct, kw_only=True):
    """The connection of one mapping to a link's broker."""

    mapping: str
    connected: bool
    client_id: str
    #: the address of the broker that is in use, or tried
    address: str = ""
    #: time of the last connect or disconnect, in seconds since the epoch, or 0.0 if never connected
    since: float = 0.0
    #: the last error, or blank for none
    last_error: str = ""
    #: time of the last error, in seconds since the epoch, or 0.0 for none
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
    #: the queue manager rejects the logins of the bridge
    LOGIN = "login"
    DISK = "disk"
    MEMORY = "memory"
    CHANNEL = "channel"
    CERTIFICATE = "certificate"
    MAPPING = "mapping"
    LINK = "link"
    #: a pipeline that processes nothing, or a spool with messages that no pipeline reads
    PIPELINE = "pipeline"
    #: a session at a broker that a mapping no longer uses is unfinished
    SESSION = "session"
    #: a queue that is full or PUT(DISABLED)
    QUEUE = "queue"
    DEAD_LETTERS = "dead_letters"
    BACKLOG = "backlog"
    #: clients that acknowledge nothing
    CLIENT = "client"
    #: a limit rejects messages, or ends sessions
    LIMIT = "limit"
    #: the file descriptors of the process are used up, or nearly
    DESCRIPTORS = "descriptors"
    #: the system clock has jumped
    CLOCK = "clock"
    #: messages that clients have acknowledged are not removed from the transmission queue
    REMOVALS = "removals"
    #: a client that publishes more than all others together
    PUBLISH_RATE = "publish_rate"
    #: a channel rejects clients
    REJECTIONS = "rejections"
    #: clients publish payloads that violate the schemas of a channel
    PAYLOADS = "payloads"
    #: the changed file of a table is not in use
    TABLE = "table"
    #: connections of one client identifier end each other
    CLIENT_IDENTIFIER = "client_identifier"
    #: units of work fail although the queue manager is available
    COMMITS = "commits"
    RELOAD = "reload"
    #: rows are missing from the archive
    ARCHIVE = "archive"
    #: finished files of the archive are missing
    ARCHIVE_FILES = "archive_files"
    #: the history of clients cannot be written
    CLIENT_HISTORY = "client_history"


class Problem(msgspec.Struct, frozen=True):
    """A current problem of a bridge."""

    #: `critical` if clients are not served, `error` if messages are not delivered, otherwise `warning`
    severity: Literal["critical", "error", "warning"]
    kind: ProblemKind
    #: the name of the queue, channel, mapping or link, or blank for the whole bridge
    subject: str
    #: a description
    what: str
    #: the command that shows the details
    command: str
    #: when it began, in seconds since the epoch
    since: float = 0.0
    #: the remedy
    remedy: str = ""


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
    #: the part of the clients that this bridge serves, such as "1 of 2", or blank for all
    shard: str = ""
    channels: int
    channels_running: int
    clients: int
    sessions: int
    #: units of work in progress
    units_of_work: int
    mappings: int
    log_level: str
    problems: list[Problem] = []
    #: the reason for which a bridge starts or stands by, and its time in seconds since the epoch. Blank if the bridge runs
    waits_for: str = ""
    waits_since: float = 0.0


class SubscriptionPage(msgspec.Struct, kw_only=True):
    """One page of subscriptions."""

    subscriptions: list[TopicSubscription]
    found: int
    #: `found` is a minimum: only a part of the subscriptions was examined
    more: bool


class TopicPublisher(msgspec.Struct, kw_only=True):
    """A client that publishes to a topic."""

    client_id: str
    #: the topic and time of its last publication, in seconds since the epoch
    topic: str
    last: float
    #: publications since the counting began, and per second, or None before the counting
    count: int | None = None
    rate: float | None = None


class PublisherPage(msgspec.Struct, kw_only=True):
    """The clients that publish to the topics of a filter, the last one first."""

    publishers: list[TopicPublisher]
    #: publications are counted since then, in seconds since the epoch
    since: float
    #: there are further publishers, which are not counted
    more: bool


class RoutedSubscription(msgspec.Struct, kw_only=True):
    """A subscription that would receive a publication."""

    #: the client identifier, or the name of the subscription of an application
    subscriber: str
    client_id: str
    topic_filter: str
    #: the QoS of the delivery, or None for applications
    qos: int | None
    #: connected, away, or blank for applications
    state: Literal["connected", "away", ""]
    #: number of messages that wait for the client
    waiting: int
    destination: str


class RoutedMapping(msgspec.Struct, kw_only=True):
    """A mapping that would take a publication, or the reason why it would not."""

    name: str
    state: str
    takes: bool
    outcome: str
    queue: str = ""


class RoutedQueue(msgspec.Struct, kw_only=True):
    """A queue that a publication would reach."""

    name: str
    depth: int
    max_depth: int
    #: the reason if the queue would reject the message, or blank
    problem: str = ""


class PasswordFileStatus(msgspec.Struct, kw_only=True):
    """A password file of the configuration."""

    file: str
    #: its users: channels, the console, or MQ applications
    used_by: list[str]
    users: list[str]
    #: the reason if it cannot be read, or blank
    problem: str = ""


class AccessRule(msgspec.Struct, frozen=True):
    """A rule that permits or rejects a publication."""

    #: the kind of the rule, such as `topic object`, `channel` or `authority`
    kind: str
    permits: bool
    text: str


class AccessDecision(msgspec.Struct, kw_only=True):
    """Whether a user may publish to a topic. All rules permit it, or the last rule rejects it."""

    permitted: bool
    #: the user of MQ that the client acts as
    mq_user: str
    rules: list[AccessRule]


class TopicRoute(msgspec.Struct, kw_only=True):
    """The destinations of a publication. Nothing is published."""

    topic: str
    #: False if a rule rejects the publication
    accepted: bool
    rules: list[AccessRule]
    subscriptions: list[RoutedSubscription]
    mappings: list[RoutedMapping]
    queues: list[RoutedQueue]
    #: there are further subscriptions
    more: bool


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A local queue."""

    name: str
    depth: int
    max_depth: int
    #: seconds since the oldest message was put, or None if the queue is empty or the queue manager does not report it
    oldest_age: int | None
    input_handles: int
    output_handles: int
    #: USAGE(XMITQ)
    transmission: bool
    get_inhibited: bool
    put_inhibited: bool
    description: str
    #: the purpose of the queue for the bridge, or blank for other queues
    role: str


class QueueDetails(msgspec.Struct, kw_only=True):
    """A local queue in detail."""

    queue: QueueRow
    attributes: dict[str, str | int]
    #: the attributes of each open handle, or None if the queue manager does not report them
    handles: list[dict[str, str | int]] | None


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message on a queue."""

    #: MsgId in hexadecimal
    message_id: str
    #: number of messages with the same MsgId that precede it
    repeat: int
    #: seconds since the epoch, or 0.0 if unknown
    put_time: float
    application: str
    format: str
    persistent: bool
    size: int
    #: the client identifier of a message on a transmission queue
    client_id: str
    #: the topic of a publication
    topic: str
    #: the beginning of the body, or empty if not requested
    body: str


class MessagePage(msgspec.Struct, kw_only=True):
    """Messages of a queue, in queue order."""

    messages: list[MessageRow]
    #: the queue has further messages
    more: bool


class MessageContent(msgspec.Struct, frozen=True, kw_only=True):
    """The MQMD, headers and body of a message."""

    #: the name of each header, and the names and values of its fields
    parts: list[tuple[str, list[tuple[str, str]]]]
    #: length of the message data and of the body, in bytes
    size: int
    body_size: int
    #: the beginning of the body, or None if not requested
    body: str | None
    truncated: bool


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead-lettered message."""

    #: identifies the message in requests
    name: str
    has_header: bool
    reason: int
    reason_name: str
    #: the meaning of the reason, and the remedy
    what: str
    advice: str
    destination: str
    destination_queue_manager: str
    put_by: str
    #: seconds since the epoch, or 0.0 if unknown
    dead_lettered: float
    put_time: float
    client_id: str
    topic: str
    qos: int | None
    retained: bool
    user: str
    size: int


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead-lettered messages with the same reason and destination."""

    #: 0 for messages without an MQDLH
    reason: int
    reason_name: str
    what: str
    destination: str
    destination_queue_manager: str
    count: int
    #: when the first and the last message were dead-lettered, in seconds since the epoch
    oldest: float
    newest: float


class DeadLetterPage(msgspec.Struct, kw_only=True):
    """One page of the dead-letter queue."""

    queue: str
    letters: list[DeadLetter]
    #: the most frequent first
    groups: list[DeadLetterGroup]
    found: int
    #: `found` is a minimum: only a part of the queue was examined
    more: bool


class DeadLetterContent(msgspec.Struct, kw_only=True):
    """A dead-lettered message in detail."""

    letter: DeadLetter
    content: MessageContent


class History(msgspec.Struct, kw_only=True):
    """Rates (per second) and gauges over time. A value is None if it is unknown."""

    #: seconds since the epoch
    times: list[float]
    published: list[float | None]
    delivered: list[float | None]
    clients: list[float | None]
    sessions: list[float | None]
    #: messages on the transmission queue
    backlog: list[float | None]
    dead_letters: list[float | None]


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log."""

    #: seconds since the epoch
    time: float
    level: str
    text: str


class AuditEntries(msgspec.Struct, kw_only=True):
    """Entries of the audit log."""

    #: the file, or blank if there is no audit log
    file: str
    #: the newest first
    entries: list[dict[str, Any]]
