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


class Request(msgspec.Struct, kw_only=True, tag_field="command"):
    """A request. Its tag is the command on the command line."""

    #: whether the request changes something
    CHANGES: ClassVar[bool] = False


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


class ListClients(Request, tag="client list"):
    """List clients and their sessions: a list of `bridge.administration.answers.ClientStatus`, by client identifier."""

    #: client identifiers; `*` matches any characters
    pattern: str = "*"
    channel: str | None = None
    #: True: only connected clients; False: only disconnected clients; None: both
    connected: bool | None = None
    #: only clients that have been disconnected for at least this many seconds
    away_for: float | None = None
    #: start after this client identifier (for paging)
    after: str = ""
    rows: int = 1_000


class ShowClient(Request, tag="client show"):
    """Return the details of one client: `bridge.administration.answers.ClientDetails`."""

    client_id: str


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

    #: the parent topic; None is the root, "" is the level with an empty name, the parent of `/a`
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


class ListLinks(Request, tag="link list"):
    """List the links to other brokers: a list of `bridge.administration.answers.LinkStatus`."""


class TestLink(Request, tag="link test"):
    """Test a new connection to a link's broker. The lines of the answer describe the result."""

    name: str


class ListMappings(Request, tag="mapping list"):
    """List the mappings and their status: a list of `bridge.service.mappings.status.Status`."""


class PauseMapping(Request, tag="mapping pause"):
    """Pause a mapping until it is resumed or the bridge ends. Its source messages wait."""

    CHANGES = True

    name: str


class ResumeMapping(Request, tag="mapping resume"):
    """Resume a paused mapping."""

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
    | ListTopics
    | ShowTopic
    | ListLinks
    | TestLink
    | ListMappings
    | PauseMapping
    | ResumeMapping
)


class Answer(msgspec.Struct, kw_only=True):
    """The result of a request."""

    ok: bool = True
    #: for people: what was done, or why nothing was done
    lines: list[str] = []
    #: the requested data as JSON; the request's docstring names its type
    result: msgspec.Raw = msgspec.Raw(b"null")
