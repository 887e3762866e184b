"""The session of one MQTT client: what outlives its connections. Bytes and packets in, bytes and work out; no I/O.

A session takes packets in the batches in which they arrived and makes one `Work` of each: what the queue manager has to
commit before the client is answered, and the answers. MQTT 3.1.1 sections 3.1.2.4, 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mqtt.outbox import SENT_AT_A_TURN, Outbox, Outgoing, Phase, WrongAcknowledgement
from bridge.mqtt.transmission import Transmission
from bridge.wire.mqtt import (
    ByteOrder,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    encode,
    encode_acknowledgement,
)

_PINGRESP = encode(Pingresp())


class ReceivedRecord(msgspec.Struct):
    """What is kept of the receiving side of a durable session on SYSTEM.MQTT.PERSISTENT.STATE, as JSON."""

    clientIdentifier: str
    #: message ids received with QoS 2 and not released
    received: list[int]


def without(record: bytes, message_ids: Container[int]) -> bytes:
    """Return a record of the receiving side without some message ids."""
    told = msgspec.json.decode(record, type=ReceivedRecord)
    told.received = [one for one in told.received if one not in message_ids]
    return msgspec.json.encode(told)


class SentRecord(msgspec.Struct, omit_defaults=True):
    """What is kept of the sending side of a durable session on SYSTEM.MQTT.PERSISTENT.STATE, as JSON."""

    clientIdentifier: str
    #: message ids for which PUBREL was sent and PUBCOMP has not come
    released: list[int] = []
    #: unusual message ids: [number of the message, message id]
    assigned: list[tuple[int, int]] = []
    #: numbers of the messages sent and not acknowledged: they go out again with DUP
    sent: list[int] = []
    #: the client was connected: should the bridge die now, any message on the queue may have been sent
    connected: bool = False


class Work:
    """What one batch of packets asks of the queue manager, and what the client is told once that is committed."""

    __slots__ = (
        "acknowledged",
        "completed",
        "connection",
        "ordered",
        "publications",
        "received_at",
        "recording",
        "refused",
        "released",
        "removals",
        "repeated",
        "replies",
        "violation",
    )

    def __init__(self, connection: Any) -> None:
        #: the connection the packets came over: answers go nowhere else
        self.connection = connection
        self.publications: list[tuple[PublicationMessage, bool]] = []
        #: when the packets came, in microseconds since the epoch; told to the archive only
        self.received_at = 0
        self.removals: list[Transmission] = []
        #: of these, those that the client acknowledged by PUBACK, with their message ids
        self.acknowledged: list[tuple[int, Transmission]] = []
        self.replies: list[bytes] = []
        #: message ids to answer by PUBREC although their publications are in an earlier unit of work, unless refused there
        self.repeated: list[int] = []
        #: message ids of publications with QoS 2 that the queue manager did not take; None while nobody has said so
        self.refused: set[int] | None = None
        #: the answers depend on units of work before this one
        self.ordered = False
        #: the message whose unusual message id goes on record with this
        self.recording: Outgoing | None = None
        #: (message id, message, what it was on the transmission queue) to release by PUBREL
        self.released: list[tuple[int, Outgoing, Transmission]] = []
        #: message ids that are free once this is committed
        self.completed: list[int] = []
        #: the rule that the last packet taken broke: what came before it counts, then the connection is closed
        self.violation = ""

    def qos_2(self, refused: Iterable[int]) -> set[int]:
        """Return the message ids of those publications, by index, that have QoS 2."""
        publications = self.publications
        return {publications[index][0].message_id for index in refused if publications[index][0].qos == 2}

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to commit."""
        return not (
            self.publications or self.removals or self.released or self.completed or self.repeated or self.ordered
        )


class Session:
    """A session, clean or durable, of one client identifier."""

    def __init__(
        self,
        identity: ClientIdentity,
        *,
        durable: bool,
        window: int,
        byte_order: ByteOrder = "big",
        unreleased: int = 65535,
        turn_bytes: int = SENT_AT_A_TURN,
    ) -> None:
        self.identity = identity
        self.client_id = identity.client_id
        self.durable = durable
        self.byte_order: ByteOrder = byte_order
        self.outbox = Outbox(window, durable=durable, byte_order=byte_order, turn_bytes=turn_bytes)
        #: most message ids in `received`
        self.unreleased = unreleased
        #: message ids received with QoS 2 and not released (MQTT 3.1.1 section 4.3.3, method A)
        self.received: set[int] = set()
        #: `received` has changed and has to be on record (durable sessions only)
        self.record = False
        #: topic filters subscribed to
        self.filters: set[str] = set()
        #: it has been answered with CONNACK; what came for subscriptions before is not its own
        self.begun = False
        #: the connection whose CONNECT is being committed, before its CONNACK
        self.arriving: Any = None
        #: the connection that is attached, None while the client is away
        self.connection: Any = None

    def attach(self, connection: Any, identity: ClientIdentity, byte_order: ByteOrder) -> None:
        """Attach the connection over which the client is connected."""
        self.connection = connection
        self.arriving = None
        self.begun = True
        self.identity = identity
        self.byte_order = self.outbox.byte_order = byte_order
        self.outbox.connected = self.outbox.open = True
        self.outbox.uncertain = False

    def detach(self) -> None:
        """Detach the connection, which is gone; a durable session lives on."""
        self.connection = self.arriving = None
        self.outbox.connected = self.outbox.open = False

    def receive(self, packets: Sequence[Packet], start: int, work: Work, stop: int | None = None) -> int:
        """Take packets from index `start`, up to `stop` or the first that is not about messages; returns its index.

        After a packet that breaks a rule, which `work.violation` tells, nothing more is taken: returns the number of packets.
        """
        count = len(packets)
        stop = count if stop is None else stop
        publications, replies, byte_order = work.publications, work.replies, self.byte_order
        identity, outbox = self.identity, self.outbox
        try:
            for index in range(start, stop):
                packet = packets[index]
                kind = type(packet)
                if kind is Publish:
                    qos = packet.qos  # type: ignore[union-attr]
                    if qos == 0:
                        publications.append((to_mq(packet, identity), packet.retain))  # type: ignore[arg-type,union-attr]
                    elif qos == 1:
                        publications.append((to_mq(packet, identity), packet.retain))  # type: ignore[arg-type,union-attr]
                        replies.append(encode_acknowledgement(PacketType.PUBACK, packet.message_id, byte_order))  # type: ignore[union-attr]
                    elif not self._receive_once(packet, work):  # type: ignore[arg-type]
                        return count
                elif kind is Puback:
                    transmission = outbox.acknowledge(packet.message_id)  # type: ignore[union-attr]
                    if transmission is not None:
                        work.removals.append(transmission)
                        work.acknowledged.append((packet.message_id, transmission))  # type: ignore[union-attr]
                elif kind is Pubrec:
                    self._release(packet.message_id, work)  # type: ignore[union-attr]
                elif kind is Pubrel:
                    # The message id is forgotten on disk before PUBCOMP: the client may use it for another message then.
                    message_id = packet.message_id  # type: ignore[union-attr]
                    if message_id in self.received:
                        self.received.discard(message_id)
                        self.record = self.durable
                    else:
                        work.ordered = True  # an earlier unit of work may be about to forget it
                    replies.append(encode_acknowledgement(PacketType.PUBCOMP, message_id, byte_order))
                elif kind is Pubcomp:
                    if outbox.complete(packet.message_id):  # type: ignore[union-attr]
                        work.completed.append(packet.message_id)  # type: ignore[union-attr]
                elif kind is Pingreq:
                    replies.append(_PINGRESP)
                else:
                    return index
        except WrongAcknowledgement as error:
            work.violation = f"MQTT 3.1.1 section 4.8: {error}"
            return count
        return stop

    def _receive_once(self, publish: Publish, work: Work) -> bool:
        """Take a PUBLISH with QoS 2; return False for one too many that is not released."""
        message_id = publish.message_id
        if message_id not in self.received:
            if len(self.received) >= self.unreleased:
                work.violation = (
                    f"more than {self.unreleased} publications with QoS 2 are not released by PUBREL (limits.unreleased)"
                )
                return False
            self.received.add(message_id)
            work.publications.append((to_mq(publish, self.identity), publish.retain))
            self.record = self.durable
            work.replies.append(encode_acknowledgement(PacketType.PUBREC, message_id, self.byte_order))
        else:
            work.repeated.append(message_id)
        return True

    def _release(self, message_id: int, work: Work) -> None:
        outgoing, transmission = self.outbox.receive(message_id)
        if transmission is not None:
            work.removals.append(transmission)
        if outgoing is None:
            work.replies.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))
        elif transmission is not None:
            work.released.append((message_id, outgoing, transmission))

    def committed(self, work: Work, refused: Sequence[int], now: float) -> list[bytes]:
        """Return the packets to send now that `work` is committed.

        `refused` are indices of publications that were not taken.
        """
        for _, outgoing, _ in work.released:
            outgoing.phase = Phase.RELEASED
            outgoing.payload = b""
            outgoing.sent_at = now
        self.outbox.free(work.completed)
        self.outbox.free(message_id for message_id, _ in work.acknowledged)
        replies = work.replies
        if refused:
            if work.refused is None:
                self.refuse(work, refused)
            replies = self._without(work, refused, replies)
        if self.connection is None:
            return []
        if work.connection is not self.connection:
            replies = []
        elif work.repeated:
            # A publication refused here may have come once more since: it is in a later unit of work, not committed yet.
            awaited = self.received - (work.refused or set())
            replies += [
                encode_acknowledgement(PacketType.PUBREC, message_id, self.byte_order)
                for message_id in work.repeated
                if message_id in awaited
            ]
        for message_id, _, _ in work.released:
            replies.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))
        return replies

    def failed(self, work: Work) -> None:
        """Take back what `work` did to the session: nothing of it took effect.

        What the client sent is unknown to MQ, what it acknowledged is still there.
        """
        unknown = {message.message_id for message, _ in work.publications if message.qos == 2}
        self.received -= unknown - (work.refused or set())
        self.outbox.restore(work.acknowledged + [(message_id, one) for message_id, _, one in work.released])
        for message_id in work.completed:
            self.outbox.in_flight[message_id].phase = Phase.RELEASED
        self.record = self.outbox.record = self.durable

    def refuse(self, work: Work, refused: Iterable[int]) -> None:
        """Forget publications of `work`, by index, that are not taken.

        The client will send them again, and they are new then.
        """
        work.refused = work.qos_2(refused)
        self.received -= work.refused
        self.record = self.durable

    def _without(self, work: Work, refused: Sequence[int], replies: list[bytes]) -> list[bytes]:
        """Return the answers to a batch without those to publications that were refused: these are not acknowledged."""
        withheld = set()
        for index in refused:
            message = work.publications[index][0]
            if message.qos == 1:
                withheld.add(encode_acknowledgement(PacketType.PUBACK, message.message_id, self.byte_order))
            elif message.qos == 2:
                withheld.add(encode_acknowledgement(PacketType.PUBREC, message.message_id, self.byte_order))
        return [reply for reply in replies if reply not in withheld]

    def received_record(self) -> bytes:
        """Return the record of the receiving side, as it is kept on SYSTEM.MQTT.PERSISTENT.STATE."""
        self.record = False
        return msgspec.json.encode(ReceivedRecord(self.client_id, sorted(self.received)))

    def sent_record(self) -> bytes:
        """Return the record of the sending side, as it is kept on SYSTEM.MQTT.PERSISTENT.STATE."""
        outbox = self.outbox
        outbox.record = False
        released, sent = [], []
        for message_id, outgoing in outbox.in_flight.items():
            if outgoing.phase in (Phase.RELEASING, Phase.RELEASED):
                released.append(message_id)
            elif outgoing.transmission is not None:
                sent.append(outgoing.transmission.msg_number)
        return msgspec.json.encode(
            SentRecord(
                self.client_id,
                released,
                list(outbox.assigned.items()),
                sent,
                connected=(self.connection or self.arriving) is not None,
            )
        )

    def restore_received(self, data: bytes) -> None:
        """Take over the record of the receiving side after a restart. Raises msgspec.DecodeError."""
        self.received = set(msgspec.json.decode(data, type=ReceivedRecord).received)

    def restore_sent(self, data: bytes) -> None:
        """Take over the record of the sending side after a restart. Raises msgspec.DecodeError."""
        record = msgspec.json.decode(data, type=SentRecord)
        self.outbox.assigned = dict(record.assigned)
        self.outbox.sent_before = set(record.sent)
        self.outbox.uncertain = record.connected
        for message_id in record.released:
            self.outbox.in_flight[message_id] = Outgoing(None, 2, b"", b"", False, Phase.RELEASED)
