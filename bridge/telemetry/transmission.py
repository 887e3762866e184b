"""Messages on the transmission queue, for clients."""

from __future__ import annotations

import calendar
from typing import Protocol

import msgspec

from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import rfh2_of, size_of_properties, whole_seconds
from bridge.telemetry.message import Message
from bridge.telemetry.record import MessageKey
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class PublicationMessage(msgspec.Struct, tag="p", array_like=True, gc=False):
    """An MQ message converted from an MQTT publication (integration tables 1 to 3).

    `md` is shared by publications with the same user and persistence. The other fields are those of the incoming PUBLISH.
    `packet_id` is 0 for QoS 0.
    """

    md: MQMD
    client_id: str
    topic: str
    payload: bytes
    qos: int = 0
    packet_id: int = 0
    #: MQTT 5 properties except the expiry (`bridge.telemetry.headers.kept`). Absent in logs of older bridges
    properties: PublishProperties | None = None
    #: queue and queue manager of a reply to a request from MQ, used instead of the topic
    reply_to: tuple[str, str] | None = None

    @property
    def data(self) -> bytes:
        """RFH2 and payload, as received by an MQ application."""
        return self.data_as()

    def data_as(self, *, retained: bool = False, user_data: str | None = None, correl_id: bytes | None = None) -> bytes:
        """Return RFH2 and payload of one delivery.

        `retained` means a retained publication (mqps.Ret). `user_data` is the subscription's (mqps.Sud). `correl_id` is
        the CorrelId of the delivery, or None for the message's own.
        """
        return self._with((self.topic, retained, user_data), self.md.CorrelId if correl_id is None else correl_id)

    @property
    def put_data(self) -> bytes:
        """The data for MQPUT.

        It has no mqps folder, because the queue manager writes one for each subscription. Correlation Data is in the mqtt
        folder, because the queue manager usually replaces the CorrelId.
        """
        return self._with(None, cmqc.MQCI_NONE)

    def put_data_of(self, user: str) -> bytes:
        """Return the data for MQPUT with the user of the client, which copies for subscriptions do not have in their MQMD."""
        return self._with(None, cmqc.MQCI_NONE, user)

    def _with(self, mqps: tuple[str, bool, str | None] | None, correl_id: bytes, user: str = "") -> bytes:
        header = rfh2_of(self.client_id, self.qos, self.packet_id, self.properties, correl_id, mqps=mqps, user=user)
        return header + self.payload

    @property
    def length(self) -> int:
        """The length in bytes of the message data without its RFH2: message properties do not count towards MAXMSGL."""
        return len(self.payload)

    @property
    def size(self) -> int:
        """The bytes of payload, topic and properties in memory, for the limits of backlogs and dead letters."""
        size = len(self.payload) + len(self.topic)
        return size if self.properties is None else size + size_of_properties(self.properties)


AnyMessage = Message | PublicationMessage


class Transmission(Protocol):
    """A message on the transmission queue."""

    #: RemoteQMgrName: the client identifier
    client_id: str
    #: RemoteQName: PUBLICATION_QUEUE, or the topic of a direct message
    remote_queue: str
    message: AnyMessage
    #: topic string of the publication, or None for a direct message
    topic: str | None
    #: user data of the subscription, or None without a subscription
    user_data: str | None
    #: whether it is a retained publication
    retained: bool
    persistent: bool
    #: unique while the bridge runs, and in the order in which the bridge saw the messages. The last two bytes are the last
    #: two bytes of MQMD.MsgId on the transmission queue. The embedded queue manager keeps its numbers across restarts
    msg_number: int
    #: put time in seconds since the epoch, or 0.0 if only the MQMD contains it
    put_time: float

    @property
    def key(self) -> MessageKey:
        """The identity of the message in session records."""

    @property
    def put_at(self) -> bytes:
        """MQMD.PutDate and PutTime on the transmission queue, or b"" if numbers are in the order of puts."""

    @property
    def raw(self) -> bytes | None:
        """The data on IBM MQ's transmission queue, including the MQXQH, or None if the message is stored in parts."""

    @property
    def expired(self) -> bool:
        """Whether the message has expired (MQMD.Expiry)."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the message expires (MQMD.Expiry), or None if it does not expire."""


def message_expiry_interval(transmission: Transmission) -> int | None:
    """Return the remaining Message Expiry Interval in seconds (MQTT-3.3.2-6), or None."""
    seconds = transmission.seconds_left
    return None if seconds is None else whole_seconds(seconds)


def put_time_of(transmission: Transmission) -> float:
    """Return the put time of a message, in seconds since the epoch, or 0.0 if unknown."""
    if transmission.put_time:
        return transmission.put_time
    md = transmission.message.md
    return _time(md.PutDate, md.PutTime)


def _time(date: bytes, time: bytes) -> float:
    """Convert MQMD.PutDate (YYYYMMDD) and PutTime (HHMMSSTH, GMT) to seconds since the epoch, or 0.0 if invalid."""
    if len(date) != 8 or len(time) != 8 or not (date + time).isdigit():
        return 0.0
    moment = (int(date[:4]), int(date[4:6]), int(date[6:]), int(time[:2]), int(time[2:4]), int(time[4:6]), 0, 0, 0)
    try:
        return calendar.timegm(moment) + int(time[6:]) / 100
    except ValueError:
        return 0.0
