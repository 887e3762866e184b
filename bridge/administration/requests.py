"""Administration requests to a running bridge, from the control socket or the console.

`bridge.service.administration` handles them. Requests that change something are marked, so that read-only users can be
denied.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, field

from bridge.administration import answers, configuration, counters, health, mapping_status
from bridge.administration import search as searching
from bridge.administration.protocol import Request, concrete

T_co = TypeVar("T_co", covariant=True)

#: The maximum number of rows in one answer.
MAX_ROWS = 10_000

LogLevel = Literal["debug", "info", "warning", "error"]
#: A number of rows or seconds.
Count = Annotated[int, Meta(ge=0)]
SearchText = Annotated[str, Meta(max_length=200)]
ChannelName = Annotated[str, Meta(description="Name of the channel.", examples=["PLAIN.MQTT"])]
MappingName = Annotated[str, Meta(description="Name of the mapping.", examples=["orders"])]
LinkName = Annotated[str, Meta(description="Name of the link.", examples=["cloud"])]


class Reload(Request[None], tag="reload"):
    """Reload the configuration file."""

    CHANGES = True


class YieldToStandby(Request[None], tag="yield"):
    """Hand the clients over to the standby: finish work in progress, disconnect all clients, and stand by.

    Use it before an upgrade, and to return clients to a preferred host. Clients reconnect through the load balancer. Without
    a standby, this bridge serves the clients again after 10 seconds.
    """

    CHANGES = True


class ShowStatus(Request[answers.BridgeStatus], tag="status"):
    """Return the status of the bridge."""


class Search(Request[searching.SearchResult], tag="search"):
    """Search for clients, topics, queues, mappings, links, pipelines, channels, settings and problems."""

    #: a part of a name or of another text of the object, in upper or lower case. A blank text finds nothing
    text: SearchText = ""
    #: only these kinds. An empty list selects all kinds
    kinds: list[searching.SearchKind] = field(default_factory=list)
    #: the maximum number of matches of each kind
    rows: Count = 20


class ShowHealth(Request[health.HealthReport], tag="health"):
    """Return resources and their limits, certificates, connections, rates, and problems with the actions against them."""

    #: the range of the rates, at most 24 hours
    seconds: Annotated[int, Meta(ge=60, le=86_400)] = 600
    #: only rates of queues, mappings and links with this text in their name
    search: SearchText = ""
    #: the maximum number of rates of each kind, the busiest first
    rows: Count = 20


class ListProblems(Request[list[answers.Problem]], tag="problem list"):
    """List the current problems, the most severe first."""


class ShowCounters(Request[counters.Counters], tag="counters"):
    """Return a reading of the counters.

    The first request starts the counting of publications. Counting stops when the requests cease.
    """

    #: the maximum number of busiest clients in the answer
    clients: Count = 20


class SetLogLevel(Request[None], tag="log level"):
    """Set the log level of the running bridge until it ends or reloads its configuration."""

    CHANGES = True

    level: Annotated[LogLevel, Meta(description="Log level: debug, info, warning or error.", examples=["debug"])]


class ListChannels(Request[list[answers.ChannelStatus]], tag="channel list"):
    """List the telemetry channels, their addresses, and the number of their clients."""


class StartChannel(Request[None], tag="channel start"):
    """Start a stopped channel."""

    CHANGES = True
    OPERATES = True

    name: ChannelName


class StopChannel(Request[None], tag="channel stop"):
    """Stop a channel and disconnect its clients.

    Durable sessions are kept. The channel stays stopped until you start it, or restart the bridge.
    """

    CHANGES = True

    name: ChannelName
    #: disconnect only this client. The channel keeps running
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


class ListClients(Request[answers.ClientPage], tag="client list"):
    """Return one page of clients in the order of a column."""

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
    skip: Count = 0
    rows: Count = 1_000
    #: whether to measure rates. The first such request starts the counting of publications
    rates: bool = False


class ShowClient(Request[answers.ClientDetails], tag="client show"):
    """Return the details of one client."""

    client_id: str
    #: whether to measure rates. The first such request starts the counting of publications
    rates: bool = False


class ShowClientHistory(Request[list[answers.ClientEvent]], tag="client history"):
    """Return the last events of a client, the newest first, also after it has left.

    Events are connections and their ends, takeovers, rejections, subscriptions, dropped and dead-lettered messages.
    """

    client_id: Annotated[str, Meta(min_length=1)]
    rows: Count = 1_000


class TraceClient(Request[answers.ClientTrace], tag="client trace"):
    """Return recent events and messages of one client. The client does not have to be connected.

    The first request starts the recording. Recording stops when the requests cease.
    """

    AUDITED = True

    client_id: Annotated[str, Meta(min_length=1)]
    #: only entries with a higher number
    after: int = 0
    #: the audit log records only the first request
    first: bool = True
    #: whether the answer includes the beginnings of payloads
    payloads: bool = False


class ClientSelection(Request[T_co]):
    """A request for clients: those that are named, or all that match the other fields."""

    #: client identifiers
    ids: list[str] = field(default_factory=list)
    #: patterns of client identifiers, in which `*` matches any characters
    patterns: list[str] = field(default_factory=list)
    #: only clients of this channel. A disconnected client belongs to the channel of its last connection
    channel: str | None = None
    #: report the effect without changing anything
    dry_run: bool = False


class DisconnectClients(ClientSelection[None], tag="client disconnect"):
    """Disconnect clients. Their sessions and their backlogs are kept."""

    CHANGES = True
    OPERATES = True


class PurgeClients(ClientSelection[None], tag="client purge"):
    """Delete sessions with their subscriptions, backlogs and wills (MQSC: PURGE CHANNEL)."""

    CHANGES = True

    #: only clients that have been disconnected for at least this many seconds
    away_for: float | None = None


class ListTopics(Request[list[answers.TopicNode]], tag="topic list"):
    """List the levels below a topic, by name."""

    #: the parent topic. None is the root, "" is the level with an empty name, the parent of `/a`
    below: str | None = None
    #: start after this name (for paging)
    after: str | None = None
    rows: Count = 1_000


class ShowTopic(Request[answers.TopicDetails], tag="topic show"):
    """Return the retained publications and subscriptions of a filter."""

    topic_filter: str
    #: the maximum number of retained publications, and of subscriptions
    rows: Count = 1_000
    #: whether the answer includes the beginnings of payloads
    payloads: bool = True


class Publish(Request[None], tag="publish"):
    """Publish a message to a topic. An empty retained message clears the retained publication."""

    CHANGES = True

    topic: str
    payload: bytes = b""
    retain: bool = False
    persistent: bool = False


class ClearTopic(Request[None], tag="topic clear"):
    """Delete the retained publication of a topic. Subscribers receive nothing."""

    CHANGES = True

    topic: Annotated[str, Meta(description="Topic.", examples=["plant/line-1"])]


class ListPublishers(Request[answers.PublisherPage], tag="topic publishers"):
    """Return the clients that publish to the topics of a filter, with their rates.

    The first request starts the counting. Counting stops when the requests cease. Connected clients are listed before that
    if their last publication matches.
    """

    topic_filter: str
    rows: Count = 100


class RouteTopic(Request[answers.TopicRoute], tag="topic route"):
    """Return the route of a publication: rules, subscriptions, mappings and queues. Nothing is published."""

    topic: str
    payload: bytes = b""
    qos: Annotated[int, Meta(ge=0, le=2)] = 1
    retain: bool = False
    #: the publisher, whose rules and authorities apply; blank for none
    client_id: str = ""
    rows: Count = 200


class ListUsers(Request[list[answers.PasswordFileStatus]], tag="user list"):
    """List the password files of the configuration, with their users."""


class UserChange(Request[None]):
    """A request for a user of a password file."""

    user_name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    #: a password file of the configuration; blank if there is only one
    file: str = ""


class SetPassword(UserChange, kw_only=True, tag="user set-password"):
    """Set the password of a user in a password file of the configuration. A new user is added.

    Clients and logins that are connected stay connected.
    """

    CHANGES = True
    SECRETS = ("password",)

    password: Annotated[str, Meta(min_length=1, max_length=1_000)]


class DeleteUser(UserChange, tag="user delete"):
    """Delete a user from a password file of the configuration. Clients and logins that are connected stay connected."""

    CHANGES = True


class ExplainAccess(Request[answers.AccessDecision], tag="user may-publish"):
    """Return whether a user may publish to a topic via a channel, and the rules that decide.

    The rules are those of channel authentication records, of the channel's topics, of topic objects, and the authorities of
    the queue manager.
    """

    #: the authenticated user name; blank for none
    user: str
    channel: str
    topic: str
    #: for rules with the client identifier (`%c`, `use_client_id`)
    client_id: str = ""
    #: for rules with addresses
    address: str = ""


class ListSubscriptions(Request[answers.SubscriptionPage], tag="subscription list"):
    """Return one page of subscriptions by name."""

    #: only subscriptions that overlap with this topic filter
    topic_filter: str = "#"
    #: only subscriptions with this text in their name or topic filter
    search: str = ""
    skip: Count = 0
    rows: Count = 100


class ListQueues(Request[list[answers.QueueRow]], tag="queue list"):
    """List the local queues, by name."""

    #: only the queues that the bridge uses (`QueueRow.role`)
    roles: bool = False


class ShowQueue(Request[answers.QueueDetails], tag="queue show"):
    """Return the attributes and open handles of a local queue."""

    name: str


class BrowseQueue(Request[answers.MessagePage], tag="queue browse"):
    """Return messages of a queue without removing them."""

    name: str
    #: number of messages that precede the page
    skip: Count = 0
    rows: Count = 50
    #: whether the answer includes the beginnings of payloads
    payloads: bool = True


class ShowMessage(Request[answers.MessageContent], tag="queue message"):
    """Return a message of a queue."""

    name: str
    #: MsgId in hexadecimal
    message_id: str
    #: number of messages with the same MsgId that precede it
    repeat: int = 0
    payloads: bool = True


class PutMessage(Request[None], tag="queue put"):
    """Put a message to a queue."""

    CHANGES = True

    name: str
    payload: bytes = b""
    persistent: bool = False


class MoveMessages(Request[None], tag="queue move"):
    """Move messages to another queue, with their message context."""

    CHANGES = True

    name: str
    to: str
    #: MsgIds in hexadecimal. An empty list selects all messages
    ids: list[str] = field(default_factory=list)


class ClearQueue(Request[None], tag="queue clear"):
    """Delete messages of a queue."""

    CHANGES = True

    name: str
    #: MsgIds in hexadecimal. An empty list selects all messages
    ids: list[str] = field(default_factory=list)


class ListObjects(Request[list[answers.ObjectRow]], tag="object list"):
    """List the objects of a kind, by name."""

    kind: answers.ObjectKind
    #: include the objects of the queue manager itself, whose names begin with SYSTEM
    system: bool = False


class ShowObject(Request[answers.ObjectDetails], tag="object show"):
    """Return the attributes of an object that have an effect, with their possible values."""

    kind: answers.ObjectKind
    #: blank: the defaults of a new object
    name: str = ""


class DumpDefinitions(Request[str], tag="mqsc dump"):
    """Return the MQSC commands that define all objects of the embedded queue manager."""

    #: whether to include attributes that have their default values
    everything: bool = False


class PreviewCommands(Request[list[answers.CommandEffect]], tag="mqsc preview"):
    """Return the effects of MQSC commands on queues, topics and namelists, without running them."""

    commands: str


class RunCommands(Request[None], tag="mqsc run"):
    """Run MQSC commands that create, alter, delete or clear queues, topics and namelists of the embedded queue manager.

    If one of them has a mistake, none is run. Commands for SYSTEM objects and for other kinds of objects are left out.
    """

    CHANGES = True

    commands: str


class DeadLetterRequest(Request[T_co]):
    """A request for dead-lettered messages. All given fields must match."""

    #: identifiers of messages (`DeadLetterMessage.name`)
    ids: list[str] = field(default_factory=list)
    #: name or number of an MQRC
    reason: str = ""
    #: the original destination; `*` matches any characters
    queue: str = ""
    #: the publisher or the recipient
    client_id: str = ""
    topic: str = ""


class ListDeadLetters(DeadLetterRequest[answers.DeadLetterPage], tag="dlq list"):
    """Return groups and one page of the dead-lettered messages."""

    skip: Count = 0
    rows: Count = 100


class ShowDeadLetter(Request[answers.DeadLetterContent], tag="dlq show"):
    """Return a dead-lettered message."""

    id: str
    payloads: bool = True


class RetryDeadLetters(DeadLetterRequest[None], tag="dlq retry"):
    """Put dead-lettered messages to their destinations again."""

    CHANGES = True
    OPERATES = True

    #: a queue for all messages, or blank for their original destinations
    to: str = ""


class DeleteDeadLetters(DeadLetterRequest[None], tag="dlq delete"):
    """Delete dead-lettered messages."""

    CHANGES = True


class ExportDeadLetters(DeadLetterRequest[str], tag="dlq export"):
    """Return dead-lettered messages, including their contents, as lines of JSON."""

    AUDITED = True


class ShowHistory(Request[answers.History], tag="history"):
    """Return rates and gauges of the last seconds."""

    seconds: Count = 600


class ShowLog(Request[list[answers.LogLine]], tag="log show"):
    """Return the last lines of the log, the newest first."""

    level: LogLevel = "debug"
    search: SearchText = ""


class ShowAuditLog(Request[answers.AuditEntries], tag="audit show"):
    """Return the last entries of the audit log, the newest first."""

    search: SearchText = ""
    rows: Count = 200


class ListSettings(Request[configuration.SettingPage], tag="config list"):
    """Return one page of settings with values, defaults and sources: file and line, command line, or default."""

    #: a section of the file, such as `limits`. A blank one selects all sections
    section: Annotated[str, Meta(max_length=100)] = ""
    #: only settings whose values differ from their defaults
    changed: bool = False
    #: only settings with this text in their path or value
    search: SearchText = ""
    skip: Count = 0
    rows: Count = 1_000


class CheckConfiguration(Request[configuration.CheckedConfiguration], tag="config check"):
    """Check an edited copy of the configuration file, and compare it with the running bridge. Nothing is saved."""

    AUDITED = True
    SECRETS = ("text",)

    text: str


class ShowConfiguration(Request[str], tag="config show"):
    """Return the effective configuration as YAML. Secrets are hidden."""


class ListLinks(Request[list[answers.LinkStatus]], tag="link list"):
    """List the links to other brokers, and how many of their mappings are connected."""


class TestLink(Request[None], tag="link test"):
    """Test a new connection to a link's broker. The lines of the answer describe the result."""

    AUDITED = True
    OPERATES = True

    name: LinkName


class ConnectLink(Request[None], tag="link connect"):
    """Connect a link now, instead of after the pause between two attempts."""

    CHANGES = True
    OPERATES = True

    name: LinkName


class ListMappings(Request[list[mapping_status.MappingStatus]], tag="mapping list"):
    """List the state and counts of each mapping, and its last error."""


class PauseMapping(Request[None], tag="mapping pause"):
    """Pause a mapping after its current unit of work. New messages wait at its source.

    It stays paused until you resume it, restart the bridge, or reload a configuration in which the mapping has changed.
    """

    CHANGES = True
    OPERATES = True

    name: MappingName


class ResumeMapping(Request[None], tag="mapping resume"):
    """Resume a paused mapping, starting with the messages that have arrived meanwhile."""

    CHANGES = True
    OPERATES = True

    name: MappingName


class GiveUpMapping(Request[None], tag="mapping give-up"):
    """Give up the sessions at brokers that a mapping no longer uses, and in which something is unfinished.

    The broker may have the messages of such a session. The bridge moves them to the dead-letter queue, where you can retry or
    delete them. It does not connect to the broker. `mqbridge mapping show` lists these sessions.
    """

    CHANGES = True

    name: MappingName


#: The type of all requests, for decoding.
AnyRequest: Any = reduce(or_, (kind for kind in concrete(Request) if kind.__module__ == __name__))
