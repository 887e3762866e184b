"""Messages on the transmission queue: a client's message with its MQXQH, and when it was put."""

from __future__ import annotations

import calendar
import math
from typing import Protocol

import msgspec

from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import rfh2_of
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class PublicationMessage(msgspec.Struct, tag="p", array_like=True, gc=False):
    """The MQ message that an MQTT publication becomes (integration tables 1 to 3).

    `md` is shared by all publications of one client and persistence; what differs from message to message stands beside
    it: the topic string published to, the QoS (0 to 2) and the message id (0 where QoS is 0) of the incoming PUBLISH, and
    its payload.
    """

    md: MQMD
    client_id: str
    topic: str
    payload: bytes
    qos: int = 0
    message_id: int = 0
    #: what the publisher said beside its expiry (`bridge.telemetry.headers.kept`); rows of older bridges' logs end before it
    properties: PublishProperties | None = None
    #: queue and queue manager that an answer to a request from MQ goes to, instead of the topic
    reply_to: tuple[str, str] | None = None

    @property
    def data(self) -> bytes:
        """Return RFH2 and payload, as an MQ application receives them."""
        return self.data_as()

    def data_as(
        self, *, retained: bool = False, user_data: str | None = None, correl_id: bytes | None = None
    ) -> bytes:
        """Return RFH2 and payload of one delivery.

        `retained` says that the message is received as a retained publication (mqps.Ret); `user_data` is that of the
        subscription it is delivered for (mqps.Sud); `correl_id` is the CorrelId it is delivered with, None for its own.
        """
        return self._with((self.topic, retained, user_data), self.md.CorrelId if correl_id is None else correl_id)

    @property
    def put_data(self) -> bytes:
        """Return the data that are handed to MQPUT.

        The mqps folder is the queue manager's to write, for each subscription. So is the CorrelId, mostly: what it was is
        in the mqtt folder.
        """
        return self._with(None, cmqc.MQCI_NONE)

    def _with(self, mqps: tuple[str, bool, str | None] | None, correl_id: bytes) -> bytes:
        header = rfh2_of(self.client_id, self.qos, self.message_id, self.properties, correl_id, mqps=mqps)
        return header + self.payload

    @property
    def length(self) -> int:
        """Return the length in bytes of the message data without its RFH2.

        Message properties do not count against MAXMSGL.
        """
        return len(self.payload)


AnyMessage = Message | PublicationMessage


class Transmission(Protocol):
    """A message on the transmission queue, waiting for the client that its MQXQH names."""

    #: RemoteQMgrName: the client identifier
    client_id: str
    #: RemoteQName: the topic that an application put a direct message to
    remote_queue: str
    message: AnyMessage
    #: topic string published with; None for a message put straight to the client
    topic: str | None
    #: user data of the subscription that it came for; None without a subscription
    user_data: str | None
    #: it comes as a retained publication
    retained: bool
    persistent: bool
    #: last eight bytes of MQMD.MsgId on the transmission queue, as a number
    msg_number: int
    #: seconds since the epoch when it was put; 0.0 where the message itself has to say so
    put_time: float

    @property
    def raw(self) -> bytes | None:
        """Return the data as they lie on the transmission queue of IBM MQ, MQXQH included; None: there are parts only."""

    @property
    def expired(self) -> bool:
        """Return whether the MQMD.Expiry of the message has run down."""

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the MQMD.Expiry of the message runs down; None: it has none."""


def message_expiry_interval(transmission: Transmission) -> int | None:
    """Return the Message Expiry Interval of a message as it leaves: what is left of it (MQTT-3.3.2-6); None for none.

    A part of a second counts as one.
    """
    left = transmission.seconds_left
    return None if left is None else max(math.ceil(left), 0)


def put_time_of(transmission: Transmission) -> float:
    """Return when a message was put, in seconds since the epoch; 0.0 where nobody says so."""
    if transmission.put_time:
        return transmission.put_time
    md = transmission.message.md
    return _time(md.PutDate, md.PutTime)


def _time(date: bytes, time: bytes) -> float:
    """Return MQMD.PutDate (YYYYMMDD) and PutTime (HHMMSSTH, in GMT) in seconds since the epoch; 0.0 for what is no time."""
    if len(date) != 8 or len(time) != 8 or not (date + time).isdigit():
        return 0.0
    moment = (
        int(date[:4]), int(date[4:6]), int(date[6:]), int(time[:2]), int(time[2:4]), int(time[4:6]), 0, 0, 0
    )  # fmt: skip
    try:
        return calendar.timegm(moment) + int(time[6:]) / 100
    except ValueError:
        return 0.0
