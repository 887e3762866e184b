"""Messages and publications as values, shared by clients, links, YAML mappings, archive, replay and Spark."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mqtt.packets import PublishProperties, UserProperty
from bridge.wire.mq import MQMD, Typed

#: The CCSID of all character data that the bridge writes (UTF-8).
CCSID_UTF8 = 1208


class Message(msgspec.Struct, tag="m", array_like=True, gc=False):
    """A message as an MQ application put it.

    `data` is everything after the MQMD: headers, starting with the header in `md.Format`, and the body.
    """

    md: MQMD
    data: bytes
    #: whether the queue manager created the first RFH2 from message properties
    made_rfh2: bool = False

    @property
    def put_data(self) -> bytes:
        """The data for MQPUT."""
        return self.data

    @property
    def length(self) -> int:
        """The length in bytes that counts towards MAXMSGL."""
        return len(self.data)

    @property
    def size(self) -> int:
        """The length in bytes that counts towards the limits of backlogs and dead letters."""
        return len(self.data)


#: The properties of a publication without properties.
NO_PROPERTIES: Final = PublishProperties()


class Publication(msgspec.Struct, gc=False, rename={"packet_id": "message_id"}):
    """An MQTT publication from or for a client, a broker or MQ.

    DUP and the packet identifier of an outgoing PUBLISH belong to one delivery, not to the publication.
    """

    topic: str
    payload: bytes
    qos: int = 0
    #: the RETAIN flag
    retain: bool = False
    #: packet identifier of the incoming PUBLISH, or 0 for QoS 0 and without an incoming PUBLISH
    packet_id: int = 0
    #: client identifier of the publisher, or the link's name if the broker does not report it, or "" for an MQ application
    client_id: str = ""
    #: identity of the publisher (MQMD.UserIdentifier, at most 12 bytes), or empty for the bridge's own user
    user: bytes = b""
    #: seconds until it expires (Message Expiry Interval, MQTT 5 section 3.3.2.3.3), or None if it does not expire
    expiry: float | None = None
    #: MQTT 5 properties (`bridge.telemetry.headers.PROPERTIES`)
    properties: PublishProperties = NO_PROPERTIES
    #: marks of the mappings that it has passed through, oldest first: "queue manager/mapping"
    hops: tuple[str, ...] = ()

    @property
    def user_properties(self) -> dict[str, str]:
        """The User Properties by name. The last value of a repeated name wins."""
        return dict(self.properties.user_property)


def with_values(pairs: UserProperty, values: dict[str, str]) -> UserProperty:
    """Return User Properties with new values. A repeated name whose value changes is moved to the end, once."""
    last = dict(pairs)
    if len(last) == len(pairs):
        return (*(last | values).items(),)
    changed = {name: value for name, value in values.items() if last.get(name) != value}
    return (*[pair for pair in pairs if pair[0] not in changed], *changed.items())


class Destination(msgspec.Struct, frozen=True, gc=False):
    """The queue or topic to put a message to."""

    #: name of the queue, or topic string
    name: str
    is_topic: bool = False
    #: ObjectQMgrName of a queue, or "" for this queue manager
    queue_manager: str = ""


class KeptRequest(msgspec.Struct, frozen=True, gc=False):
    """The stored part of a request until its reply arrives: an RFH2 with the mqtt folder, on a local queue.

    Its MsgId is the MsgId of the request and the CorrelId of the reply.
    """

    queue: str
    message: Message


class MappedMessage(msgspec.Struct, gc=False, kw_only=True):
    """A converted publication, ready for MQPUT."""

    destination: Destination
    message: Message
    #: message properties to set if the message has no RFH2: full name ("mqtt.clientId") -> value
    properties: dict[str, str | int | bool | Typed] = {}
    #: put with MQPMO_RETAIN
    retain: bool = False
    #: clear the retained publication of the topic, because this one is empty (MQTT-3.3.1-10)
    clear: bool = False
    #: marks of the mappings that it has passed through, this mapping last. The message also contains them
    hops: tuple[str, ...] = ()
    #: the part of a request to store, with which its reply is returned
    kept: KeptRequest | None = None
    #: the user whose authority is checked for the destination, or "" for the bridge
    authority: str = ""


class Unmappable(Exception):
    """A message cannot be mapped and must be dead-lettered.

    `reason` is the MQRC_ number for the MQDLH. The text describes the problem.
    """

    def __init__(self, reason: int, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Received(msgspec.Struct, gc=False):
    """A publication from the broker.

    `qos` determines the acknowledgement to send: PUBACK for 1, PUBREC for 2, none for 0. If the broker has lost the session
    in which it sent the publication, `qos` and `packet_id` are 0: the broker expects no acknowledgement and will not resend.
    """

    publication: Publication
    qos: int
    packet_id: int
    #: DUP flag
    dup: bool
    #: number of the connection on which it arrived
    generation: int


class Held(msgspec.Struct, gc=False, eq=False, weakref=False):
    """Base class of messages that are compared by identity and not tracked by the garbage collector.

    mypyc drops the keyword arguments of a class statement, but keeps those of a base class that it does not compile.
    """
