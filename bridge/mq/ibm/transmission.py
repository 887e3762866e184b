"""A message of the transmission queue as it is browsed: its MQXQH read, and the publication or message behind it."""

from __future__ import annotations

import contextlib
import math
import time

import msgspec

from bridge.mq.mqi import Got
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import NO_PROPERTIES, Message, Unmappable
from bridge.telemetry.subscription import is_for_subscription
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader, byte_order_of, decode_mqmde, decode_mqxqh

#: Bytes of an MQXQH.
MQXQH_LENGTH = 428
#: What the SubUserData of a subscription ends with that exists only to replay retained publications.
REPLAY = " REPLAY"
#: Fields of an MQMD of version 2 that an MQMDE has.
_EXTENDED = ("GroupId", "MsgSeqNumber", "Offset", "MsgFlags", "OriginalLength")


class QueuedMessage(msgspec.Struct, eq=False):
    """A message on the transmission queue: `bridge.mq.backend.Transmission` of a queue manager elsewhere."""

    msg_id: bytes
    client_id: str
    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int
    #: as it lies there, for the dead-letter queue
    got: Got
    #: time.monotonic() when its MQMD.Expiry runs down: from then on the queue manager takes it away
    expires: float = math.inf
    #: its MQMD says it
    put_time: float = 0.0
    #: It came through the temporary subscription that replays retained publications.
    replay: bool = False

    @property
    def raw(self) -> bytes:
        """Return the data as they lie on the transmission queue."""
        return self.got.data

    @property
    def expired(self) -> bool:
        """Return whether the message has expired: it was browsed in time, but may have waited for its client since."""
        return time.monotonic() >= self.expires

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the MQMD.Expiry of the message runs down; None: it has none."""
        return None if self.expires == math.inf else self.expires - time.monotonic()

    @property
    def queue_manager(self) -> str:
        """Return RemoteQMgrName: the queue manager name of the client."""
        return decode_mqxqh(self.got.data).RemoteQMgrName.decode("utf-8", "replace")

    @property
    def undelivered(self) -> tuple[MQMD, bytes]:
        """Return the MQMD and the data as whoever put the message had them, properties in an RFH2."""
        header = decode_mqxqh(self.got.data)
        return header.MsgDesc, self.got.data[MQXQH_LENGTH:]


def read_transmission(got: Got) -> QueuedMessage:
    """Read a message of the transmission queue and its headers. Raises MalformedHeader when there is no MQXQH in front."""
    if got.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
        raise MalformedHeader("MQXQH", 0, f"Format of the message is {got.md.Format!r}, not MQXMIT")
    header = decode_mqxqh(got.data)
    embedded = header.MsgDesc
    raw = _with_version_2(Message(embedded, got.data[MQXQH_LENGTH:]))
    embedded = raw.md
    remote_queue = header.RemoteQName.decode("utf-8", "replace")
    message: AnyMessage = raw
    topic: str | None = None
    user_data: str | None = None
    retained = False
    if is_for_subscription(remote_queue):
        # Headers that cannot be read: the session reads them again and has the message dead-lettered.
        with contextlib.suppress(Unmappable):
            headers = Headers(raw, discard_others=True)
            topic, user_data, retained = headers.topic or None, headers.user_data, headers.retained
            message = _publication(headers) or raw
    replay = False
    if user_data is not None and user_data.endswith(REPLAY):
        user_data, replay = user_data.removesuffix(REPLAY), True
    return QueuedMessage(
        got.md.MsgId,
        header.RemoteQMgrName.decode("utf-8", "replace"),
        remote_queue,
        message,
        topic,
        user_data,
        retained,
        embedded.Persistence == cmqc.MQPER_PERSISTENT,
        int.from_bytes(got.md.MsgId[-8:], "big"),
        got,
        math.inf if got.md.Expiry == cmqc.MQEI_UNLIMITED else time.monotonic() + got.md.Expiry / 10,
        replay=replay,
    )


def _publication(headers: Headers) -> AnyMessage | None:
    """Return a message for a subscription without its headers; None if the session needs all of them."""
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
    """Return a message with what its MQMDE says in its MQMD; an MQMDE that cannot be read stays where it is."""
    md = message.md
    if md.Format != cmqc.MQFMT_MD_EXTENSION:
        return message
    try:
        extension = decode_mqmde(message.data, byte_order=byte_order_of(md.Encoding, "MQMDE"))
    except MalformedHeader:
        return message  # the session reads it again and has the message dead-lettered
    named = {name: getattr(extension, name) for name in (*_EXTENDED, "Format", "Encoding", "CodedCharSetId")}
    return Message(msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_2, **named), message.data[cmqc.MQMDE_LENGTH_2 :])
