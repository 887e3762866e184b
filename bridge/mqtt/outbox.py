"""Messages on their way to one client: the in-flight window, acknowledgements, and what is sent again.

MQTT 3.1.1 sections 4.3 and 4.4; which message becomes which publication is `bridge.mapping.telemetry.from_mq`'s business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum

import msgspec

from bridge.mapping.telemetry.from_mq import from_mq
from bridge.mapping.telemetry.message_id import message_id_from
from bridge.mapping.telemetry.qos import DIRECT_MESSAGE_QOS, subscription_qos
from bridge.mqtt.transmission import Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MalformedHeader
from bridge.wire.mqtt import (
    ByteOrder,
    MalformedPacket,
    PacketType,
    encode_acknowledgement,
    encode_publish,
    encode_topic,
)

#: Encoded topic fields remembered, and the longest topic among them; forgotten all at once when there are more.
TOPIC_FIELDS = 8_192
TOPIC_FIELD_LENGTH = 256
_topic_fields: dict[str, bytes] = {}


def topic_field(topic: str) -> bytes:
    """Return a topic name as PUBLISH carries it, and remember it. Raises MalformedPacket for one that MQTT cannot carry."""
    field = _topic_fields.get(topic)
    if field is None:
        field = encode_topic(topic)
        if len(topic) <= TOPIC_FIELD_LENGTH:
            if len(_topic_fields) >= TOPIC_FIELDS:
                _topic_fields.clear()
            _topic_fields[topic] = field
    return field


#: Bytes, about, that are sent to one client in one turn; the rest waits for the next one, when it may have read these.
SENT_AT_A_TURN = 256 * 1024
#: Bytes of a turn that a message costs beside its payload.
_MESSAGE_BYTES = 64


class WrongAcknowledgement(Exception):
    """An acknowledgement of the wrong kind for a message id that is in flight (MQTT 3.1.1 section 4.8); words for the log."""


class Phase(IntEnum):
    """How far the handshake of a message with QoS 1 or 2 has come."""

    #: its message id is not the one that its MsgId prescribes, and must be on record before it is used
    RECORDING = 0
    #: PUBLISH sent; PUBACK or PUBREC awaited
    SENT = 1
    #: PUBREC came; its record is not committed yet
    RELEASING = 2
    #: PUBREL sent; PUBCOMP awaited
    RELEASED = 3
    #: PUBACK or PUBCOMP came; that is not committed yet, so the message id is still taken
    COMPLETING = 4


#: Why a message is finished without having been sent: its expiry, or that it had QoS 0 and the client was too slow.
EXPIRED = "expired"
SLOW = "the client was too slow"


class Outgoing(msgspec.Struct, gc=False, eq=False):
    """A message with QoS 1 or 2 that the client has not acknowledged in full."""

    transmission: Transmission | None
    qos: int
    field: bytes
    payload: bytes
    retain: bool
    phase: Phase
    sent_at: float = 0.0
    #: how often PUBLISH was sent; 2 where it is only known that it was sent before
    times_sent: int = 1


class Refusal(msgspec.Struct):
    """A message that cannot become a publication, with the reason code for the dead-letter queue and words for the log."""

    transmission: Transmission
    reason: int
    why: str


class Outbox:
    """The sending side of one session.

    `window` is the number of messages sent and not acknowledged by PUBACK or PUBREC at a time. `record` is set when
    something changed that must outlive a crash of the bridge (durable sessions only).
    """

    def __init__(
        self, window: int, *, durable: bool, byte_order: ByteOrder = "big", turn_bytes: int = SENT_AT_A_TURN
    ) -> None:
        self.window = window
        self.turn_bytes = turn_bytes
        #: bytes that may still be sent in this turn; `more` says that there is more to send in the next one
        self._room = turn_bytes
        self.more = False
        self.durable = durable
        self.byte_order: ByteOrder = byte_order
        #: QoS of messages without a subscription; the client alters it by subscribing to DEFAULT.QoS
        self.direct_qos = DIRECT_MESSAGE_QOS
        self.in_flight: dict[int, Outgoing] = {}
        #: of these, those in phase SENT or RECORDING
        self.unacknowledged = 0
        #: the message that waits for its record: what follows it waits behind it
        self.recording: Outgoing | None = None
        self.backlog: deque[Transmission] = deque()
        #: the client is connected, and its connection takes more bytes
        self.open = False
        self.connected = False
        #: publications with QoS 0 that a connected client was too slow for
        self.dropped = 0
        #: of what was put to `done`, the msg_numbers of messages that were not sent, with the reason; None: nobody asks
        self.discarded: dict[int, str] | None = None
        self.record = False
        #: msg_numbers of messages that went out before, on a connection or in a life of the bridge that has ended
        self.sent_before: set[int] = set()
        #: the bridge died while the client was connected: what waits may have been sent before (MQTT-3.3.1-1)
        self.uncertain = False
        #: message ids that differ from what the MsgId prescribes: msg_number -> message id
        self.assigned: dict[int, int] = {}

    def deliver(
        self, batch: Iterable[Transmission], now: float, out: list[bytes], done: list[Transmission]
    ) -> list[Refusal]:
        """Take messages from the transmission queue, in order.

        What can be sent is appended to `out`; transmissions that are finished (QoS 0, expired) to `done`.
        """
        refusals: list[Refusal] = []
        backlog = self.backlog
        self._room = self.turn_bytes
        if self.uncertain:
            batch = list(batch)
            self.sent_before.update(transmission.msg_number for transmission in batch)
        slow = self.connected and not self.open
        for transmission in batch:
            if slow and not self._qos(transmission):
                # At most once: QoS 0 does not wait for a client that does not read.
                done.append(transmission)
                self.dropped += 1
                if self.discarded is not None:
                    self.discarded[transmission.msg_number] = SLOW
            elif backlog or not self.connected or not self._send(transmission, now, out, done, refusals):
                backlog.append(transmission)
        return refusals

    def pump(self, now: float, out: list[bytes], done: list[Transmission]) -> list[Refusal]:
        """Send what waits as far as the window allows."""
        refusals: list[Refusal] = []
        backlog = self.backlog
        self._room = self.turn_bytes
        while backlog and self.connected:
            if not self._send(backlog[0], now, out, done, refusals):
                break
            backlog.popleft()
        return refusals

    def _send(
        self,
        transmission: Transmission,
        now: float,
        out: list[bytes],
        done: list[Transmission],
        refusals: list[Refusal],
    ) -> bool:
        """Send one message; False when it has to wait."""
        if not self.open:
            return False
        if self._room <= 0:
            self.more = True
            return False
        if (self.unacknowledged >= self.window or self.recording is not None) and self._qos(transmission):
            return False
        if transmission.expired and transmission.msg_number not in self.sent_before:
            # One that the client may have: it holds the message id, and would take another message for this one.
            done.append(transmission)
            if self.discarded is not None:
                self.discarded[transmission.msg_number] = EXPIRED
            return True
        try:
            publication = from_mq(
                transmission.message,
                topic=transmission.topic or transmission.remote_queue,
                retained=transmission.retained,
                persistent=transmission.persistent,
                requested_qos=subscription_qos(transmission.user_data),
                direct_qos=self.direct_qos,
            )
            field = topic_field(publication.topic)
        except MalformedHeader as error:
            refusals.append(Refusal(transmission, cmqc.MQRC_RFH_ERROR, str(error)))
            return True
        except MalformedPacket as error:
            refusals.append(Refusal(transmission, cmqc.MQRC_TOPIC_STRING_ERROR, str(error)))
            return True
        except Exception as error:
            # Whatever it is, it is this message's alone: those behind it go on.
            refusals.append(Refusal(transmission, cmqc.MQRC_UNEXPECTED_ERROR, f"{type(error).__name__}: {error}"))
            return True
        self._room -= len(publication.payload) + _MESSAGE_BYTES
        qos = publication.qos
        if not qos:
            out.append(encode_publish(field, publication.payload, 0, publication.retain, False, 0, self.byte_order))
            done.append(transmission)
            return True
        number = transmission.msg_number
        in_flight = self.in_flight
        taken = in_flight.keys() | self.assigned.values() if self.assigned else in_flight
        message_id = self.assigned.get(number) or message_id_from(number, taken)
        outgoing = Outgoing(transmission, qos, field, publication.payload, publication.retain, Phase.SENT, now)
        in_flight[message_id] = outgoing
        self.unacknowledged += 1
        # That it is sent needs no record: the session's says that the client is connected, and so that it may have been.
        if self.durable and message_id != number & 0xFFFF and number not in self.assigned:
            self.record = True
            self.assigned[number] = message_id
            outgoing.phase = Phase.RECORDING
            self.recording = outgoing
            return True
        again = bool(self.sent_before) and number in self.sent_before
        if again:
            self.sent_before.discard(number)
            outgoing.times_sent = 2
        out.append(
            encode_publish(field, publication.payload, qos, publication.retain, again, message_id, self.byte_order)
        )
        return True

    def _qos(self, transmission: Transmission) -> int:
        """Return the QoS that a waiting message would go with.

        A message of which it cannot be told is treated as reliable.
        """
        requested = subscription_qos(transmission.user_data)
        if requested is None:
            return self.direct_qos
        if not requested:
            return 0
        source = getattr(transmission.message, "qos", None)
        return min(requested, 2 if source is None else source)

    def acknowledge(self, message_id: int) -> Transmission | None:
        """Return the message of a PUBACK, which is the client's now; None for a message id that is not awaited.

        Raises WrongAcknowledgement.

        The message id is free only once the removal of the message is committed: after a crash the message would go out
        again, and must not find its message id with another.
        """
        outgoing = self.in_flight.get(message_id)
        if outgoing is None or outgoing.qos != 1:
            outgoing = self._acknowledged(message_id, "PUBACK", 1)
        if outgoing is None or outgoing.phase is not Phase.SENT:
            return None
        transmission, outgoing.transmission = outgoing.transmission, None
        outgoing.phase = Phase.COMPLETING
        self.unacknowledged -= 1
        if transmission is not None and transmission.msg_number in self.assigned:
            del self.assigned[transmission.msg_number]
            self.record = self.durable
        return transmission

    def receive(self, message_id: int) -> tuple[Outgoing | None, Transmission | None]:
        """Take a PUBREC; return the delivery to release and the message to remove.

        The PUBREL goes out when both are committed. (None, None) says that PUBREL can be sent at once: the message id is
        unknown, or was released before. Raises WrongAcknowledgement.
        """
        outgoing = self._acknowledged(message_id, "PUBREC", 2)
        if outgoing is None or outgoing.phase is Phase.RELEASED:
            return None, None
        if outgoing.phase is not Phase.SENT:
            return outgoing, None
        transmission, outgoing.transmission = outgoing.transmission, None
        outgoing.phase = Phase.RELEASING
        self.unacknowledged -= 1
        self.assigned.pop(transmission.msg_number if transmission is not None else 0, None)
        self.record = self.durable
        return outgoing, transmission

    def restore(self, acknowledged: Iterable[tuple[int, Transmission]]) -> None:
        """Take back messages whose acknowledgements by the client could not be committed.

        They are still there, and go out again.
        """
        again: list[Transmission] = []
        for message_id, transmission in acknowledged:
            del self.in_flight[message_id]
            self.assigned[transmission.msg_number] = message_id
            again.append(transmission)
        again.sort(key=lambda transmission: transmission.msg_number)
        self.sent_before.update(transmission.msg_number for transmission in again)
        self.backlog.extendleft(reversed(again))

    def complete(self, message_id: int) -> bool:
        """End a handshake at PUBCOMP; return True when the message id is free only once that is committed.

        Raises WrongAcknowledgement, also for one that comes before PUBREL was sent.
        """
        outgoing = self._acknowledged(message_id, "PUBCOMP", 2)
        if outgoing is not None and outgoing.phase in (Phase.SENT, Phase.RELEASING):
            raise WrongAcknowledgement(f"PUBCOMP for message id {message_id} before PUBREL was sent")
        if outgoing is None or outgoing.phase is not Phase.RELEASED:
            return False
        if not self.durable:
            del self.in_flight[message_id]
            return False
        outgoing.phase = Phase.COMPLETING
        self.record = True
        return True

    def _acknowledged(self, message_id: int, kind: str, qos: int) -> Outgoing | None:
        """Return what is in flight under a message id; None for one that nothing was sent under yet.

        MQTT 3.1.1 section 4.3 says which acknowledgement answers which QoS; another is a protocol violation (section 4.8).
        """
        outgoing = self.in_flight.get(message_id)
        if outgoing is None or outgoing.phase is Phase.RECORDING:
            return None
        if outgoing.qos != qos:
            raise WrongAcknowledgement(f"{kind} for message id {message_id}, which was sent with QoS {outgoing.qos}")
        return outgoing

    def free(self, message_ids: Iterable[int]) -> None:
        """Let these message ids be used again: the ends of their deliveries are committed."""
        for message_id in message_ids:
            self.in_flight.pop(message_id, None)

    def recorded(self, out: list[bytes], now: float) -> None:
        """Send the messages that waited for the record of unusual message ids, which is committed."""
        self.recording = None
        for message_id, outgoing in self.in_flight.items():
            if outgoing.phase is Phase.RECORDING:
                outgoing.phase = Phase.SENT
                self._repeat(message_id, outgoing, now, out, dup=False)

    def resume(self, now: float, out: list[bytes]) -> None:
        """Send again what the client did not acknowledge on its last connection, in the old order (MQTT-4.4.0-1)."""
        for message_id, outgoing in self.in_flight.items():
            if outgoing.phase is Phase.SENT:
                self._repeat(message_id, outgoing, now, out, dup=True)
            elif outgoing.phase is Phase.RELEASED:
                out.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))
                outgoing.sent_at = now

    def retry(self, now: float, interval: float, out: list[bytes]) -> None:
        """Send again what has been unacknowledged for `interval` seconds (clients of MQTT 3.1 only)."""
        for message_id, outgoing in self.in_flight.items():
            if now - outgoing.sent_at < interval:
                continue
            if outgoing.phase is Phase.SENT:
                self._repeat(message_id, outgoing, now, out, dup=True)
            elif outgoing.phase is Phase.RELEASED:
                out.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))
                outgoing.sent_at = now

    def _repeat(self, message_id: int, outgoing: Outgoing, now: float, out: list[bytes], *, dup: bool) -> None:
        outgoing.sent_at = now
        outgoing.times_sent += dup
        out.append(
            encode_publish(
                outgoing.field, outgoing.payload, outgoing.qos, outgoing.retain, dup, message_id, self.byte_order
            )
        )

    def pending(self) -> list[Transmission]:
        """Return all messages for this client that are still on the transmission queue."""
        held = [one.transmission for one in self.in_flight.values() if one.transmission is not None]
        return held + list(self.backlog)
