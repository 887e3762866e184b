"""What an administrator may ask of a running bridge, and have it do: by its control socket, or by the console.

`bridge.service.administration` answers them. A request that changes something says so: who may only read may not make it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

#: Rows of a list in one answer, at most.
MOST_ROWS = 10_000

LogLevel = Literal["debug", "info", "warning", "error"]


class Request(msgspec.Struct, kw_only=True, tag_field="command"):
    """A request; its tag is its command on the command line."""

    #: whether it changes something
    CHANGES: ClassVar[bool] = False


class Reload(Request, tag="reload"):
    """Have the configuration file read again."""

    CHANGES = True


class ShowStatus(Request, tag="status"):
    """Ask how the bridge is, as a whole: `bridge.administration.answers.BridgeStatus`."""


class ShowCounters(Request, tag="counters"):
    """Ask for a reading of the counters: `bridge.administration.counters.Counters`.

    Publications are counted from the first such request on, for as long as somebody asks.
    """

    #: so many of the busiest clients are told at most
    clients: int = 20


class SetLogLevel(Request, tag="log level"):
    """Write the log from this level on, until the bridge ends or reads its configuration file again."""

    CHANGES = True

    level: LogLevel


class ListChannels(Request, tag="channel list"):
    """Ask for the telemetry channels: a list of `bridge.administration.answers.ChannelStatus`."""


class StartChannel(Request, tag="channel start"):
    """Have a channel listen that was stopped (MQSC: START CHANNEL)."""

    CHANGES = True

    name: str


class StopChannel(Request, tag="channel stop"):
    """Have a channel listen no more, and its clients disconnected (MQSC: STOP CHANNEL)."""

    CHANGES = True

    name: str
    #: only this client is disconnected; the channel goes on
    client_id: str | None = None


class ListClients(Request, tag="client list"):
    """Ask for clients and their sessions: a list of `bridge.administration.answers.ClientStatus`, by client identifier."""

    #: client identifiers, in which `*` stands for any characters
    pattern: str = "*"
    channel: str | None = None
    #: only those that are connected, or only those that are away
    connected: bool | None = None
    #: only those that have been away for so many seconds
    away_for: float | None = None
    #: only those behind this client identifier: the next page
    after: str = ""
    rows: int = 1_000


class ShowClient(Request, tag="client show"):
    """Ask for all that is known of one client: `bridge.administration.answers.ClientDetails`."""

    client_id: str


class DisconnectClient(Request, tag="client disconnect"):
    """Have a client disconnected; a durable session, and what waits for it, stays."""

    CHANGES = True

    client_id: str


class PurgeClients(Request, tag="client purge"):
    """Have sessions ended, with their subscriptions, what waits for them and their wills (MQSC: PURGE CHANNEL)."""

    CHANGES = True

    #: a client identifier; None: all that the rest names
    client_id: str | None = None
    #: of these channels' clients only; a client that is away belongs to the channel by which it was connected last
    channel: str | None = None
    #: only those that have been away for so many seconds
    away_for: float | None = None
    #: nothing is done; the answer says what would be
    dry_run: bool = False


class ListTopics(Request, tag="topic list"):
    """Ask for the levels below a topic: a list of `bridge.administration.answers.TopicNode`, by name."""

    #: topic string whose lower levels are meant; None is the root, "" the level without a name in front of `/a`
    below: str | None = None
    #: only those behind this name: the next page
    after: str | None = None
    rows: int = 1_000


class ShowTopic(Request, tag="topic show"):
    """Ask for retained publications and subscriptions of a filter: `bridge.administration.answers.TopicDetails`."""

    topic_filter: str
    #: so many retained publications, and so many subscriptions, at most
    rows: int = 1_000
    #: whether the answer has the beginnings of payloads
    payloads: bool = True


class ListLinks(Request, tag="link list"):
    """Ask for the links to other brokers: a list of `bridge.administration.answers.LinkStatus`."""


class TestLink(Request, tag="link test"):
    """Have a connection to a link's broker tried, beside those at work: the answer's lines say how it went."""

    name: str


class ListMappings(Request, tag="mapping list"):
    """Ask what mappings do and did: a list of `bridge.service.mappings.status.Status`."""


class PauseMapping(Request, tag="mapping pause"):
    """Have a mapping take nothing more, until it is resumed or the bridge ends; what comes for it waits."""

    CHANGES = True

    name: str


class ResumeMapping(Request, tag="mapping resume"):
    """Have a mapping that was paused go on."""

    CHANGES = True

    name: str


AnyRequest = (
    Reload
    | ShowStatus
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
    """What came of a request."""

    ok: bool = True
    #: for a person: what was done, or why nothing was
    lines: list[str] = []
    #: what was asked for, as JSON; its type is that which the request names
    result: msgspec.Raw = msgspec.Raw(b"null")
