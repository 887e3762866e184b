"""A message of the transmission queue as it is browsed: its MQXQH read, and the publication or message behind it."""

from __future__ import annotations

import math
import time

import msgspec

from bridge.mapping.message import Message
from bridge.mapping.telemetry.folders import Properties, properties_of
from bridge.mapping.telemetry.message import AnyMessage, PublicationMessage
from bridge.mapping.telemetry.publish_properties import properties_in, publisher_in
from bridge.mq.mqi import Got
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader, decode_mqxqh

#: Bytes of an MQXQH.
MQXQH_LENGTH = 428
#: What the SubUserData of a subscription ends with that exists only to replay retained publications.
REPLAY = " REPLAY"


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
    raw = Message(embedded, got.data[MQXQH_LENGTH:])
    message: AnyMessage = raw
    try:
        properties = properties_of(raw)
    except MalformedHeader:
        properties = Properties(b"")  # the session comes by it again, and has the message dead-lettered
    else:
        if properties.qos is not None:
            message = PublicationMessage(
                embedded,
                publisher_in(properties),
                properties.topic or "",
                properties.body,
                properties.qos,
                properties=properties_in(properties, embedded.CorrelId),
            )
        elif not properties.mqtt and not properties.usr:
            described = {"Format": properties.format, "CodedCharSetId": properties.ccsid}
            message = Message(msgspec.structs.replace(embedded, **described), properties.body)
    user_data, replay = properties.user_data, False
    if user_data is not None and user_data.endswith(REPLAY):
        user_data, replay = user_data.removesuffix(REPLAY), True
    return QueuedMessage(
        got.md.MsgId,
        header.RemoteQMgrName.decode("utf-8", "replace"),
        header.RemoteQName.decode("utf-8", "replace"),
        message,
        properties.topic,
        user_data,
        properties.retained,
        embedded.Persistence == cmqc.MQPER_PERSISTENT,
        int.from_bytes(got.md.MsgId[-8:], "big"),
        got,
        math.inf if got.md.Expiry == cmqc.MQEI_UNLIMITED else time.monotonic() + got.md.Expiry / 10,
        replay=replay,
    )
