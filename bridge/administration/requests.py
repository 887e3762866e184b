"""Administration requests to a running bridge, from the control socket or the console.

`bridge.service.administration` handles them. Requests that change something are marked, so that read-only users can be
denied.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

#: The maximum number of rows in one answer.
MOST_ROWS = 10_000

LogLevel = Literal["debug", "info", "warning", "error"]


class Refused(Exception):
    """A request cannot be performed. The message is for display."""


class Invalid(Refused):
    """A request that contains an invalid value."""


class NotFound(Refused):
    """A request that names an object that does not exist."""


class Request(msgspec.Struct, kw_only=True, tag_field="command"):
    """A request. Its tag is the command on the command line."""

    #: whether the request changes something
    CHANGES: ClassVar[bool] = False
    #: whether the audit log records the request although it changes nothing
    AUDITED: ClassVar[bool] = False


class Reload(Request, tag="reload"):
    """Reload the configuration file."""

    CHANGES = True


class ShowStatus(Request, tag="status"):
    """Return the status of the bridge: `bridge.administration.answers.BridgeStatus`."""


class ListProblems(Request, tag="problem list"):
    """List the current problems, the most severe first: a list of `bridge.administration.answers.Problem`."""


class ShowCounters(Request, tag="counters"):
    """Return a reading of the counters: `bridge.administration.counters.Counters`.

    The first request starts the counting of publications. Counting stops when the requests cease.
    """

    #: the maximum number of busiest clients in the answer
    clients: int = 20


class SetLogLevel(Request, tag="log level"):
    """Set the log level until the bridge ends or reloads its configuration file."""

    CHANGES = True

    level: LogLevel


class ListChannels(Request, tag="channel list"):
    """List the telemetry channels: a list of `bridge.administration.answers.ChannelStatus`."""


class StartChannel(Request, tag="channel start"):
    """Start a stopped channel (MQSC: START CHANNEL)."""

    CHANGES = True

    name: str


class StopChannel(Request, tag="channel stop"):
    """Stop a channel and disconnect its clients (MQSC: STOP CHANNEL)."""

    CHANGES = True

    name: str
    #: disconnect only this client; the channel keeps running
    client_id: str | None = None


ClientColumn = Literal[
    "client_id",
    "connected",
    "since",
    "channel",
    "address",
    "user",
    "protocol_level",
    "durable",
    "subscriptions",
    "in_flight",
    "waiting",
    "oldest",
    "received_rate",
    "sent_rate",
]


class ListClients(Request, tag="client list"):
    """Return one page of clients in the order of a column: `bridge.administration.answers.ClientPage`."""

    #: client identifiers; `*` matches any characters
    pattern: str = "*"
    channel: str | None = None
    #: True: only connected clients; False: only disconnected clients; None: both
    connected: bool | None = None
    #: only clients that have been disconnected for at least this many seconds
    away_for: float | None = None
    #: start after this client identifier
    after: str = ""
    sort: ClientColumn = "client_id"
    descending: bool = False
    #: number of clients that precede the page
    skip: int = 0
    rows: int = 1_000
    #: whether to measure rates; the first such request starts the counting of publications
    rates: bool = False


class ShowClient(Request, tag="client show"):
    """Return the details of one client: `bridge.administration.answers.ClientDetails`."""

    client_id: str
    #: whether to measure rates; the first such request starts the counting of publications
    rates: bool = False


class WatchClient(Request, tag="client watch"):
    """Return the recent messages of one client: `bridge.administration.answers.ClientTraffic`.

    The first request starts the recording. Recording stops when the requests cease.
    """

    AUDITED = True

    client_id: str
    #: only messages with a higher number
    after: int = 0
    #: the audit log records only the first request
    first: bool = True
    #: whether the answer includes the beginnings of payloads
    payloads: bool = True


class DisconnectClient(Request, tag="client disconnect"):
    """Disconnect a client. A durable session and its backlog are kept."""

    CHANGES = True

    client_id: str


class PurgeClients(Request, tag="client purge"):
    """Delete sessions with their subscriptions, backlogs and wills (MQSC: PURGE CHANNEL)."""

    CHANGES = True

    #: a client identifier; None: all clients that match the other fields
    client_id: str | None = None
    #: only clients of this channel; a disconnected client belongs to the channel of its last connection
    channel: str | None = None
    #: only clients that have been disconnected for at least this many seconds
    away_for: float | None = None
    #: report what would be deleted, without deleting it
    dry_run: bool = False


class ListTopics(Request, tag="topic list"):
    """List the levels below a topic: a list of `bridge.administration.answers.TopicNode`, by name."""

    #: the parent topic. None is the root, "" is the level with an empty name, the parent of `/a`
    below: str | None = None
    #: start after this name (for paging)
    after: str | None = None
    rows: int = 1_000


class ShowTopic(Request, tag="topic show"):
    """Return the retained publications and subscriptions of a filter: `bridge.administration.answers.TopicDetails`."""

    topic_filter: str
    #: the maximum number of retained publications, and of subscriptions
    rows: int = 1_000
    #: whether the answer includes the beginnings of payloads
    payloads: bool = True


class Publish(Request, tag="publish"):
    """Publish a message to a topic. An empty retained message clears the retained publication."""

    CHANGES = True

    topic: str
    payload: bytes = b""
    retain: bool = False
    persistent: bool = False


class ListSubscriptions(Request, tag="subscription list"):
    """Return one page of subscriptions by name: `bridge.administration.answers.SubscriptionPage`."""

    #: only subscriptions that overlap with this topic filter
    topic_filter: str = "#"
    #: only subscriptions with this text in their name or topic filter
    search: str = ""
    skip: int = 0
    rows: int = 100


class ListQueues(Request, tag="queue list"):
    """List the local queues: a list of `bridge.administration.answers.QueueRow`, by name."""

    #: only the queues that the bridge uses (`QueueRow.role`)
    roles: bool = False


class ShowQueue(Request, tag="queue show"):
    """Return the attributes and open handles of a local queue: `bridge.administration.answers.QueueDetails`."""

    name: str


class BrowseQueue(Request, tag="queue browse"):
    """Return messages of a queue without removing them: `bridge.administration.answers.MessagePage`."""

    name: str
    #: number of messages that precede the page
    skip: int = 0
    rows: int = 50
    #: whether the answer includes the beginnings of payloads
    payloads: bool = True


class ShowMessage(Request, tag="queue message"):
    """Return a message of a queue: `bridge.administration.answers.MessageContent`."""

    name: str
    #: MsgId in hexadecimal
    message_id: str
    #: number of messages with the same MsgId that precede it
    repeat: int = 0
    payloads: bool = True


class PutMessage(Request, tag="queue put"):
    """Put a message to a queue."""

    CHANGES = True

    name: str
    payload: bytes = b""
    persistent: bool = False


class MoveMessages(Request, tag="queue move"):
    """Move messages to another queue, with their message context."""

    CHANGES = True

    name: str
    to: str
    #: MsgIds in hexadecimal; an empty list selects all messages
    ids: list[str] = []


class ClearQueue(Request, tag="queue clear"):
    """Delete messages of a queue."""

    CHANGES = True

    name: str
    #: MsgIds in hexadecimal; an empty list selects all messages
    ids: list[str] = []


class DeadLetterRequest(Request):
    """A request for dead-lettered messages. All given fields must match."""

    #: identifiers of messages (`Letter.name`)
    ids: list[str] = []
    #: name or number of an MQRC
    reason: str = ""
    #: the original destination; `*` matches any characters
    queue: str = ""
    #: the publisher or the recipient
    client_id: str = ""
    topic: str = ""


class ListDeadLetters(DeadLetterRequest, tag="dlq list"):
    """Return groups and one page of the dead-lettered messages: `bridge.administration.answers.DeadLetterPage`."""

    skip: int = 0
    rows: int = 100


class ShowDeadLetter(Request, tag="dlq show"):
    """Return a dead-lettered message: `bridge.administration.answers.DeadLetterContent`."""

    id: str
    payloads: bool = True


class RetryDeadLetters(DeadLetterRequest, tag="dlq retry"):
    """Put dead-lettered messages to their destinations again: `bridge.administration.answers.MessageOutcome` list."""

    CHANGES = True

    #: a queue for all messages, or blank for their original destinations
    to: str = ""


class DeleteDeadLetters(DeadLetterRequest, tag="dlq delete"):
    """Delete dead-lettered messages."""

    CHANGES = True


class ExportDeadLetters(DeadLetterRequest, tag="dlq export"):
    """Return dead-lettered messages, including their contents, as lines of JSON: a string."""

    AUDITED = True


class ShowHistory(Request, tag="history"):
    """Return rates and gauges of the last seconds: `bridge.administration.answers.History`."""

    seconds: int = 600


class ShowLog(Request, tag="log show"):
    """Return the last lines of the log, the newest first: a list of `bridge.administration.answers.LogLine`."""

    level: LogLevel = "debug"
    search: str = ""


class ShowAuditLog(Request, tag="audit show"):
    """Return the last entries of the audit log, the newest first: `bridge.administration.answers.AuditEntries`."""

    search: str = ""
    rows: int = 200


class ShowConfiguration(Request, tag="config show"):
    """Return the effective configuration as YAML: a string. Secrets are hidden."""


class ListLinks(Request, tag="link list"):
    """List the links to other brokers: a list of `bridge.administration.answers.LinkStatus`."""


class TestLink(Request, tag="link test"):
    """Test a new connection to a link's broker. The lines of the answer describe the result."""

    AUDITED = True

    name: str


class ConnectLink(Request, tag="link connect"):
    """Connect a link now: end the pauses between the connection attempts of its mappings."""

    CHANGES = True

    name: str


class ListMappings(Request, tag="mapping list"):
    """List the mappings and their status: a list of `bridge.administration.mapping_status.MappingStatus`."""


class PauseMapping(Request, tag="mapping pause"):
    """Pause a mapping until it is resumed or the bridge ends. Its source messages wait."""

    CHANGES = True

    name: str


class ResumeMapping(Request, tag="mapping resume"):
    """Resume a paused mapping."""

    CHANGES = True

    name: str


class GiveUpMapping(Request, tag="mapping give-up"):
    """Give up the unfinished sessions of a mapping at brokers. Their messages go to the dead-letter queue."""

    CHANGES = True

    name: str


AnyRequest = (
    Reload
    | ShowStatus
    | ListProblems
    | ShowCounters
    | SetLogLevel
    | ListChannels
    | StartChannel
    | StopChannel
    | ListClients
    | ShowClient
    | DisconnectClient
    | PurgeClients
    | WatchClient
    | ListTopics
    | ShowTopic
    | Publish
    | ListSubscriptions
    | ListQueues
    | ShowQueue
    | BrowseQueue
    | ShowMessage
    | PutMessage
    | MoveMessages
    | ClearQueue
    | ListDeadLetters
    | ShowDeadLetter
    | RetryDeadLetters
    | DeleteDeadLetters
    | ExportDeadLetters
    | ShowHistory
    | ShowLog
    | ShowAuditLog
    | ShowConfiguration
    | ListLinks
    | TestLink
    | ConnectLink
    | ListMappings
    | PauseMapping
    | ResumeMapping
    | GiveUpMapping
)


class Answer(msgspec.Struct, kw_only=True):
    """The result of a request."""

    ok: bool = True
    #: for people: what was done, or why nothing was done
    lines: list[str] = []
    #: the requested data as JSON; the request's docstring names its type
    result: msgspec.Raw = msgspec.Raw(b"null")
    #: the request was refused because it contains an invalid value
    invalid: bool = False
    #: the request was refused because it names an object that does not exist
    not_found: bool = False
