"""Parsing of messages browsed on the transmission queue: the MQXQH, and the publication or message after it."""

from __future__ import annotations

import contextlib
import math
import time

import msgspec

from bridge.mq.mqi import MQOD, Got
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import NO_PROPERTIES, Message, Unmappable
from bridge.telemetry.subscription import PUBLICATION_QUEUE, is_for_subscription
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader, byte_order_of, decode_mqmde, decode_mqxqh


def subscription_destination(client_id: str, transmission_queue: str = "", user: str = "") -> MQOD:
    """Return the destination of a client's subscriptions, opened as `user`.

    The client is a remote queue manager, whose messages DEFXMITQ or an alias routes to the transmission queue. For a shard,
    the remote queue manager is its transmission queue, and the client is the remote queue. Source: IBM MQ documentation,
    "Name resolution".
    """
    if transmission_queue:
        return MQOD(ObjectName=client_id, ObjectQMgrName=transmission_queue, AlternateUserId=user)
    return MQOD(ObjectName=PUBLICATION_QUEUE, ObjectQMgrName=client_id, AlternateUserId=user)


#: The length of an MQXQH in bytes.
MQXQH_LENGTH = 428
#: The suffix of SubUserData of temporary subscriptions that replay retained publications.
REPLAY = " REPLAY"
#: Fields of an MQMD of version 2 that an MQMDE contains.
_EXTENDED = ("GroupId", "MsgSeqNumber", "Offset", "MsgFlags", "OriginalLength")


class QueuedMessage(msgspec.Struct, eq=False):
    """A message on the transmission queue of IBM MQ, a `bridge.telemetry.transmission.Transmission`."""

    msg_id: bytes
    client_id: str
    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int
    #: the message on the queue, for the dead-letter queue
    got: Got
    #: time.monotonic() when the message expires, after which the queue manager may remove it
    expires: float = math.inf
    #: 0.0, because the MQMD contains it
    put_time: float = 0.0
    #: whether it was delivered by the temporary subscription that replays retained publications
    replay: bool = False

    @property
    def key(self) -> bytes:
        """The MsgId."""
        return self.msg_id

    @property
    def put_at(self) -> bytes:
        """MQMD.PutDate and PutTime."""
        return self.got.md.PutDate + self.got.md.PutTime

    @property
    def raw(self) -> bytes:
        """The data on the transmission queue."""
        return self.got.data

    @property
    def expired(self) -> bool:
        """Whether the message has expired since it was browsed."""
        return time.monotonic() >= self.expires

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the message expires (MQMD.Expiry), or None if it does not expire."""
        return None if self.expires == math.inf else self.expires - time.monotonic()

    @property
    def queue_manager(self) -> str:
        """RemoteQMgrName: the queue manager name of the client."""
        return decode_mqxqh(self.got.data).RemoteQMgrName.decode("utf-8", "replace")

    @property
    def undelivered(self) -> tuple[MQMD, bytes]:
        """The original MQMD and data of the message, with properties in an RFH2."""
        header = decode_mqxqh(self.got.data)
        return header.MsgDesc, self.got.data[MQXQH_LENGTH:]


def read_transmission(queued: Got, position: int = 0, queue: str = "") -> QueuedMessage:
    """Parse a message of the transmission queue and its headers. Raises MalformedHeader if it has no valid MQXQH.

    `position` is the number of messages that were browsed before. `queue` is the transmission queue of a shard.
    """
    if queued.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
        raise MalformedHeader("MQXQH", 0, f"Format of the message is {queued.md.Format!r}, not MQXMIT")
    header = decode_mqxqh(queued.data)
    embedded = header.MsgDesc
    raw = _with_version_2(Message(embedded, queued.data[MQXQH_LENGTH:]))
    embedded = raw.md
    client_id, remote_queue = (
        header.RemoteQMgrName.decode("utf-8", "replace"),
        header.RemoteQName.decode("utf-8", "replace"),
    )
    if client_id == queue:
        client_id, remote_queue = remote_queue, PUBLICATION_QUEUE
    message: AnyMessage = raw
    topic: str | None = None
    user_data: str | None = None
    retained = False
    if is_for_subscription(remote_queue):
        # If the headers are malformed, the session parses them again and dead-letters the message.
        with contextlib.suppress(Unmappable):
            headers = Headers(raw, discard_others=True)
            topic, user_data, retained = headers.topic or None, headers.user_data, headers.retained
            message = _publication(headers) or raw
    replay = False
    if user_data is not None and user_data.endswith(REPLAY):
        user_data, replay = user_data.removesuffix(REPLAY), True
    return QueuedMessage(
        queued.md.MsgId,
        client_id,
        remote_queue,
        message,
        topic,
        user_data,
        retained,
        embedded.Persistence == cmqc.MQPER_PERSISTENT,
        position << 16 | int.from_bytes(queued.md.MsgId[-2:], "big"),
        queued,
        math.inf if queued.md.Expiry == cmqc.MQEI_UNLIMITED else time.monotonic() + queued.md.Expiry / 10,
        replay=replay,
    )


def _publication(headers: Headers) -> AnyMessage | None:
    """Return a message for a subscription without its headers, or None if the session needs all headers."""
    md = headers.md
    if headers.qos is not None:
        properties = headers.properties
        return PublicationMessage(
            md,
            headers.client_id,
            headers.topic,
            headers.body,
            headers.qos,
            properties=None if properties is NO_PROPERTIES else properties,
        )
    if headers.has_folder("mqtt") or headers.has_folder("usr"):
        return None
    described = {"Format": headers.format, "CodedCharSetId": headers.ccsid}
    return Message(msgspec.structs.replace(md, **described), headers.body)


def _with_version_2(message: Message) -> Message:
    """Move the fields of a message's MQMDE to its MQMD. A malformed MQMDE is left unchanged."""
    md = message.md
    if md.Format != cmqc.MQFMT_MD_EXTENSION:
        return message
    try:
        extension = decode_mqmde(message.data, byte_order=byte_order_of(md.Encoding, "MQMDE"))
    except MalformedHeader:
        return message  # the session parses it again and dead-letters the message
    fields = {name: getattr(extension, name) for name in (*_EXTENDED, "Format", "Encoding", "CodedCharSetId")}
    return Message(
        msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_2, **fields), message.data[cmqc.MQMDE_LENGTH_2 :]
    )
