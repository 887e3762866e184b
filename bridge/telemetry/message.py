"""A message and a publication, as values: what clients, links, YAML mappings, archive, replay and Spark exchange."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mqtt.packets import PublishProperties, UserProperty
from bridge.wire.mq import MQMD

#: CCSID of everything the bridge writes as characters: UTF-8.
CCSID_UTF8 = 1208


class Message(msgspec.Struct, tag="m", array_like=True, gc=False):
    """A message as an MQ application put it.

    `md` is its MQMD; `data` are the bytes that follow the MQMD: headers named by `md.Format`, then the body.
    """

    md: MQMD
    data: bytes
    #: the RFH2 at the front was made of message properties by the queue manager; an application wrote no header there
    made_rfh2: bool = False

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT."""
        return self.data

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data, as MAXMSGL counts it."""
        return len(self.data)


#: The properties of a publication that has none.
NO_PROPERTIES: Final = PublishProperties()


class Publication(msgspec.Struct, gc=False):
    """An MQTT publication: from a client, from a broker, or made of an MQ message; on its way to a client, a broker or MQ.

    DUP and the packet identifier of an outgoing PUBLISH belong to one delivery, not to the publication.
    """

    topic: str
    payload: bytes
    qos: int = 0
    #: RETAIN, as it was published or is to be published
    retain: bool = False
    #: of the incoming PUBLISH; 0 where QoS is 0 or there was none
    message_id: int = 0
    #: who published it: a client identifier, or a link's name where the broker does not tell; "" for an MQ application
    client_id: str = ""
    #: identity of the publisher (MQMD.UserIdentifier, at most 12 bytes); empty: the bridge's own
    user: bytes = b""
    #: seconds until it expires (Message Expiry Interval, MQTT 5 section 3.3.2.3.3); None: never
    expiry: float | None = None
    #: those of MQTT 5 that a message keeps (`bridge.telemetry.headers.PROPERTIES`)
    properties: PublishProperties = NO_PROPERTIES
    #: mappings that it came through, oldest first: "queue manager/mapping"
    hops: tuple[str, ...] = ()

    @property
    def user_properties(self) -> dict[str, str]:
        """The User Properties by name; of a name that comes twice, the last value."""
        return dict(self.properties.user_property)


def with_values(pairs: UserProperty, values: dict[str, str]) -> UserProperty:
    """Return User Properties with these values; a repeated name that is given another value comes once, after the others."""
    last = dict(pairs)
    if len(last) == len(pairs):
        return (*(last | values).items(),)
    changed = {name: value for name, value in values.items() if last.get(name) != value}
    return (*[pair for pair in pairs if pair[0] not in changed], *changed.items())


class Destination(msgspec.Struct, frozen=True, gc=False):
    """Where a message is put to: a queue, or a topic."""

    #: name of the queue, or topic string
    name: str
    is_topic: bool = False
    #: ObjectQMgrName of a queue; "" is this queue manager
    queue_manager: str = ""


class KeptRequest(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a request until its answer comes: an RFH2 with the mqtt folder, on a queue of this queue manager.

    Both messages have the same MsgId, which the answer has as its CorrelId.
    """

    queue: str
    message: Message


class MappedMessage(msgspec.Struct, gc=False, kw_only=True):
    """The MQ message that a publication becomes, ready for MQPUT."""

    destination: Destination
    message: Message
    #: message properties to put beside it where it has no RFH2: full name ("mqtt.clientId") -> value
    properties: dict[str, str | int | bool] = {}
    #: put with MQPMO_RETAIN
    retain: bool = False
    #: an empty retained publication: the retained one of its topic is to be cleared (MQTT-3.3.1-10)
    clear: bool = False
    #: mappings that it came through, this one last; the message itself says so, too
    hops: tuple[str, ...] = ()
    #: of a request, by which its answer finds the way back
    kept: KeptRequest | None = None


class Unmappable(Exception):
    """A message that a mapping cannot map; it belongs on the dead-letter queue.

    `reason` is the MQRC_ number for its MQDLH, the text says what is wrong, for a person.
    """

    def __init__(self, reason: int, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Received(msgspec.Struct, gc=False):
    """A publication that came from the broker.

    `qos` is what is owed for it: 1 PUBACK, 2 PUBREC, 0 nothing. It differs from the publication's own, and `mid` is 0,
    where the broker lost the session in which it was sent: then the broker expects no answer and sends it no more.
    """

    publication: Publication
    qos: int
    mid: int
    #: DUP: the broker may have sent it before
    dup: bool
    #: number of the connection that it came on
    generation: int


class Held(msgspec.Struct, gc=False, eq=False, weakref=False):
    """A message that somebody holds: equal to itself only, and nothing for the garbage collector.

    mypyc drops the keywords of a class, but not those of a base that it does not compile.
    """
