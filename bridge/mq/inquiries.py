"""Results of inquiries at a queue manager: the topic tree, telemetry channels and clients, objects, effects of commands."""

from __future__ import annotations

from typing import Literal

import msgspec

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
    #: why the channel cannot listen, or blank if it can
    problem: str = ""


class ClientStatus(msgspec.Struct, kw_only=True):
    """A connected or disconnected client, and its session."""

    client_id: str
    connected: bool
    #: the channel of the present or last connection, or blank if unknown
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
    #: time at which the client connected or disconnected, in seconds since the epoch, or 0.0 if unknown
    since: float
    #: time at which the session expires, in seconds since the epoch, or 0.0 if it is not expiring
    expires_at: float


class QueueManagerConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A connection to the queue manager: of a bridge thread to IBM MQ, or of an application to the embedded queue manager."""

    #: the thread, or the name of the application
    name: str
    connected: bool
    #: the address and the user of an application. Blank for threads of the bridge
    address: str = ""
    user: str = ""
    #: why there is no connection, or blank
    problem: str = ""


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
    #: the beginning of the payload, or empty if not requested or not reported
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


#: Kinds of objects that administrators change with forms.
ObjectKind = Literal["QLOCAL", "QALIAS", "QREMOTE", "TOPIC", "NAMELIST"]
#: Effects of an MQSC command.
Effect = Literal["create", "change", "delete", "clear", "none", "left out", "error"]


class ObjectRow(msgspec.Struct, frozen=True):
    """An object of the queue manager."""

    kind: ObjectKind
    name: str
    description: str
    #: the most important attribute: TARGET, RNAME, TOPICSTR, NAMES, or USAGE
    detail: str


class ObjectAttribute(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute of an object, for a form."""

    keyword: str
    label: str
    value: str
    default: str
    #: the possible values, or the words allowed instead of a number
    words: list[str] = []
    #: for a number
    low: int | None = None
    high: int | None = None
    #: maximum length of a text
    length: int | None = None


class ObjectDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An object with its attributes, or the defaults for a new one."""

    kind: ObjectKind
    #: blank for a new object
    name: str
    attributes: list[ObjectAttribute]
    #: False: the bridge only writes the commands, for IBM MQ
    can_change: bool = True


class AttributeChange(msgspec.Struct, frozen=True):
    """An attribute that a command changes."""

    keyword: str
    before: str
    after: str


class CommandEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of an MQSC command."""

    line: int
    command: str
    effect: Effect
    #: the kind and name of the object, or blank
    kind: str = ""
    name: str = ""
    #: why it fails or is left out, or the number of messages and objects that it deletes
    text: str = ""
    changes: list[AttributeChange] = []
