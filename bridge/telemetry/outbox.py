"""Messages for one client: the backlog, the window of messages in flight, and their packet identifiers.

MQTT 3.1.1 sections 4.3 and 4.4. Unacknowledged messages are in `in_flight`. `conversion` converts messages to publications.
An Outbox calls the commands of a protocol and does not write itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.flow import FAILED_PUBREC, PUBACK, PUBCOMP, PUBREC, SENT, Delivery, Phase, SenderWindow, Step
from bridge.mqtt.packets import LEVEL_MQTT_5, PublishProperties
from bridge.mqtt.reason_codes import MalformedPacket
from bridge.mqtt.writer import topic_field
from bridge.telemetry.backlog import Backlog, NotAdmitted, size_of
from bridge.telemetry.conversion import from_mq, publisher_of
from bridge.telemetry.headers import size_of_properties
from bridge.telemetry.identifier_release import IdentifierRelease
from bridge.telemetry.message import NO_PROPERTIES, Publication, Unmappable
from bridge.telemetry.packet_identifiers import CHUNK, Chunk, PacketIdentifiers
from bridge.telemetry.pending_requests import PendingRequests, is_request_queue
from bridge.telemetry.publication_counts import PublicationCounts
from bridge.telemetry.record import IdentifiersRecord, MessageKey, Side, StateKey
from bridge.telemetry.removal_limit import NO_LIMIT
from bridge.telemetry.request import (
    ClientRequest,
    ReplyAddresses,
    is_request,
    with_request,
)
from bridge.telemetry.subscription import (
    DIRECT_MESSAGE_QOS,
    FOREIGN,
    SubscriptionData,
    is_remote_queue_manager,
    subscription_data,
    subscription_qos,
)
from bridge.telemetry.transmission import Transmission, message_expiry_interval
from bridge.telemetry.undelivered import EXPIRED, FULL, OWN, SLOW, Refusal
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Approximate maximum number of bytes sent to one client in one turn. The rest waits for the next turn.
SENT_AT_A_TURN: Final = 256 * 1024
#: Bytes of a message that count in a turn, in addition to its payload.
_MESSAGE_BYTES: Final = 64
#: Shared by sessions without such numbers, which are most. An empty set takes 216 bytes.
_NO_NUMBERS: Final[frozenset[int]] = frozenset()
_REQUEST: Final = cmqc.MQMT_REQUEST
#: Enum member access is slow, so bind once.
_ACKNOWLEDGED: Final = Phase.ACKNOWLEDGED
#: Phases in which PUBLISH is sent again.
_RESENT: Final = (Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC)


class Outgoing(Delivery):
    """A message with QoS 1 or 2 that the client has not acknowledged completely."""

    __slots__ = ("field", "payload", "properties", "qos", "retain", "sent_at", "times_sent", "transmission")

    def __init__(
        self,
        transmission: Transmission | None,
        qos: int,
        field: bytes,
        payload: bytes,
        retain: bool,
        phase: Phase,
        sent_at: float = 0.0,
        properties: PublishProperties | None = None,
    ) -> None:
        super().__init__(phase)
        #: None after the client has acknowledged the message
        self.transmission = transmission
        self.qos = qos
        #: the encoded topic of PUBLISH
        self.field = field
        self.payload = payload
        self.retain = retain
        self.sent_at = sent_at
        #: how often PUBLISH was sent, or 2 if only an earlier run sent it
        self.times_sent = 1
        #: the properties of MQTT 5
        self.properties = properties

    def publish(self, protocol: ServerProtocol, packet_id: int, now: float, *, dup: bool) -> None:
        """Send PUBLISH again, or for the first time after a wait."""
        self.sent_at = now
        self.times_sent += dup
        properties = self.properties
        if properties is not None and properties.message_expiry_interval is not None and self.transmission is not None:
            seconds = message_expiry_interval(self.transmission)
            properties = msgspec.structs.replace(properties, message_expiry_interval=seconds)
        protocol.publish(self.field, self.payload, self.qos, self.retain, dup, packet_id, properties)


class SendEffects:
    """The effects of one turn of an outbox, in addition to the packets that it wrote."""

    __slots__ = ("admission", "discarded", "finished", "more", "refusals")

    def __init__(self) -> None:
        #: messages that the backlog did not admit, or None if it admitted all of them
        self.admission: NotAdmitted | None = None
        #: messages to remove from the transmission queue: sent with QoS 0, or discarded
        self.finished: list[Transmission] = []
        #: msg_numbers of finished messages that were not sent, with the reason
        self.discarded: dict[int, str] = {}
        #: messages for the dead-letter queue
        self.refusals: list[Refusal] = []
        #: the byte limit of the turn was reached
        self.more = False

    def discard(self, transmission: Transmission, reason: str) -> None:
        """Finish a message that is not sent."""
        self.finished.append(transmission)
        self.discarded[transmission.msg_number] = reason


class Outbox:
    """The sending side of one session: the order of messages, their packet identifiers, and their acknowledgements.

    `Backlog` contains the limits of waiting messages, `SenderWindow` the exchanges of QoS 1 and 2, and `PacketIdentifiers`
    the identifiers that must be decided. Whether a message can be sent depends on all of them, so `_send` is here.
    `window` is the maximum number of messages sent and not acknowledged with PUBACK or PUBREC.
    """

    __slots__ = (
        "_clash",
        "_room",
        "backlog",
        "counts",
        "direct_qos",
        "dropped",
        "durable",
        "finishing",
        "held",
        "identifiers",
        "in_flight",
        "last_sent",
        "messages_sent",
        "open",
        "recording",
        "release",
        "removal_limit",
        "replaying",
        "replies",
        "requests",
        "resent",
        "sent_before",
        "turn_bytes",
        "uncertain",
        "unsaved",
    )

    def __init__(
        self,
        window: int,
        backlog: Backlog,
        *,
        durable: bool,
        turn_bytes: int = SENT_AT_A_TURN,
    ) -> None:
        self.backlog = backlog
        #: the client's pending requests, or None until it sends a request
        self.requests: PendingRequests | None = None
        #: addresses for answers to requests of MQ applications, or None to deliver requests as ordinary messages
        self.replies: ReplyAddresses | None = None
        self.turn_bytes = turn_bytes
        #: bytes that may still be sent in this turn
        self._room = turn_bytes
        self.durable = durable
        #: QoS of messages without a subscription. The client changes it by subscribing to DEFAULT.QoS
        self.direct_qos = DIRECT_MESSAGE_QOS
        #: messages that were sent and not acknowledged completely
        self.in_flight: SenderWindow[Outgoing] = SenderWindow(window)
        #: how often PUBLISH was sent with DUP. The reader resets it to 0
        self.resent = 0
        #: messages that wait for the record of their packet identifiers. Later messages wait for them
        self.recording: Chunk | None = None
        #: the release of packet identifiers from before a restore, or None
        self.release: IdentifierRelease | None = None
        #: whether the first waiting message needs a packet identifier other than the last two bytes of its MsgId
        self._clash = False
        #: the maximum number of unacknowledged or unremoved messages
        self.removal_limit = NO_LIMIT
        #: number of messages sent with QoS 0 or discarded whose removal is not committed
        self.finishing = 0
        #: whether messages wait until acknowledgements of earlier messages are committed
        self.held = False
        #: whether the client is connected and reads
        self.open = False
        #: number of messages that were sent since the client connected, and the clock's time at the last message
        self.messages_sent = 0
        self.last_sent = 0.0
        #: counts sent publications, or None without metrics
        self.counts: PublicationCounts | None = None
        #: topics of waiting retained messages with QoS 0, and their number for each topic
        self.replaying: dict[str, int] | None = None
        #: number of publications with QoS 0 that were dropped since the client stopped reading
        self.dropped = 0
        #: whether the record of the sending half is outdated (durable sessions only)
        self.unsaved = False
        #: msg_numbers of messages that were sent on an earlier connection or by an earlier run of the bridge
        self.sent_before: set[int] | frozenset[int] = _NO_NUMBERS
        #: whether the bridge ended while the client was connected, so that waiting messages may have been sent (MQTT-3.3.1-1)
        self.uncertain = False
        #: packet identifiers that do not follow from the MsgId, or None until there is one
        self.identifiers: PacketIdentifiers | None = None

    def mark_sent(self, numbers: Sequence[int]) -> None:
        """Note messages, by msg_number, that were sent before."""
        if isinstance(self.sent_before, set):
            self.sent_before.update(numbers)
        elif numbers:
            self.sent_before = set(numbers)

    def may_have_sent(self, transmission: Transmission) -> bool:
        """Return whether an unacknowledged message may have been sent before."""
        if self.uncertain or transmission.msg_number in self.sent_before:
            return True
        return self.identifiers is not None and self.identifiers.was_sent(transmission)

    def pause(self) -> None:
        """Stop sending, because the client does not read or is disconnected."""
        self.open = False

    def resume(self) -> None:
        """Resume sending."""
        self.open = True

    def attach(self) -> None:
        """Begin a connection."""
        if self.release is not None:
            self.release.interrupted()
            if self.release.unanswered:
                log.warning(
                    "MQB2409W client %r does not answer PUBREL; messages may be lost that it takes for repetitions",
                    self.backlog.owner,
                )
                self._released()
        self.resume()

    def take_dropped(self) -> int:
        """Return the number of publications with QoS 0 that were dropped since the last call."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    def deliver(
        self, batch: Iterable[Transmission], now: float, protocol: ServerProtocol | None, *, recovered: bool = False
    ) -> SendEffects:
        """Accept messages from the transmission queue, in order, and send as many as the window allows.

        Without a protocol, the client is disconnected, and all messages wait. The limits of the backlog do not apply to
        messages that the bridge has `recovered` at its start.
        """
        effects = SendEffects()
        backlog, messages = self.backlog, self.backlog.messages
        waiting: list[Transmission] = []
        self._room = self.turn_bytes
        identifiers = self.identifiers
        if identifiers is not None and identifiers.restored:
            batch = list(batch)
            self.mark_sent(identifiers.recognize(batch, self.in_flight.deliveries))
        if self.uncertain:
            batch = list(batch)
            self.mark_sent([transmission.msg_number for transmission in batch])
        slow = protocol is not None and not self.open
        for transmission in batch:
            if slow and not self._qos(transmission) and not self._waits(transmission):
                # At most once: messages with QoS 0 do not wait for a client that does not read.
                effects.discard(transmission, SLOW)
                self.dropped += 1
            elif waiting or messages or protocol is None or not self._send(transmission, now, protocol, effects):
                waiting.append(transmission)
                if transmission.retained:
                    self._replay(transmission)
        if waiting:
            size = size_of(waiting)
            if recovered or not backlog.limits.exceeded(backlog, size, len(waiting)):
                backlog.extend(waiting, size)
            else:
                self._admit(waiting, effects)
        if self.identifiers is not None:
            self._decide(self.identifiers, effects)
        return effects

    def _admit(self, arriving: Sequence[Transmission], effects: SendEffects) -> None:
        """Add messages to the backlog, except those beyond its limits."""
        admission = effects.admission = self.backlog.admit(arriving, self.sent_before)
        for transmission in admission.discarded + admission.dropped:
            effects.discard(transmission, FULL)
        for transmission in (*admission.discarded, *admission.dropped, *admission.dead_letters):
            if transmission.retained:
                self._replayed(transmission)

    def _waits(self, transmission: Transmission) -> bool:
        """Return whether a message with QoS 0 must wait for a client that does not read.

        Retained messages are the state of their topics (MQTT-3.3.1-6). So they are not dropped, nor are later publications to
        the same topic, which may have changed that state. Messages for this client only are not dropped either.
        """
        if transmission.retained or transmission.user_data is None:
            return True
        return self.replaying is not None and transmission.topic in self.replaying

    def _replay(self, transmission: Transmission) -> None:
        """Note the topic of a retained message that waits with QoS 0."""
        topic = transmission.topic
        if topic is None or self._qos(transmission):
            return
        if self.replaying is None:
            self.replaying = {}
        self.replaying[topic] = self.replaying.get(topic, 0) + 1

    def _replayed(self, transmission: Transmission) -> None:
        """Forget the topic of a retained message that no longer waits."""
        topic, replaying = transmission.topic, self.replaying
        if replaying is None or topic is None or topic not in replaying:
            return
        replaying[topic] -= 1
        if not replaying[topic]:
            del replaying[topic]

    def pump(self, now: float, protocol: ServerProtocol) -> SendEffects:
        """Send waiting messages as far as the window allows."""
        effects = SendEffects()
        messages = self.backlog.messages
        size = count = 0
        self._room = self.turn_bytes
        try:
            while messages:
                transmission = messages[0]
                if not self._send(transmission, now, protocol, effects):
                    break
                messages.popleft()
                size += transmission.message.size
                count += 1
                if transmission.retained:
                    self._replayed(transmission)
        finally:
            if not messages:
                self.replaying = None
            if count:
                self.backlog.count(-size, -count)
        if self.identifiers is not None:
            self._decide(self.identifiers, effects)
        return effects

    def _decide(self, identifiers: PacketIdentifiers, effects: SendEffects) -> None:
        """Decide the identifiers of waiting messages if the first needs it, and forget those of finished messages."""
        if identifiers.decided:
            for transmission in effects.finished:
                identifiers.release(transmission.msg_number)
            for refusal in effects.refusals:
                identifiers.release(refusal.transmission.msg_number)
        if self._clash:
            self._clash = False
            self._plan(identifiers)

    def _plan(self, identifiers: PacketIdentifiers) -> Chunk | None:
        """Decide the packet identifiers of the next waiting messages. Return those that wait for a record (`recording`)."""
        messages = [transmission for transmission in islice(self.backlog, CHUNK) if self._qos(transmission)]
        self.recording = identifiers.plan(messages, self.in_flight.deliveries)
        return self.recording

    def prepare(self) -> None:
        """Decide the packet identifiers of waiting messages for a client that connects, to record them with the session."""
        if self.durable and self.backlog.messages and self.recording is None:
            identifiers = self.identifiers or PacketIdentifiers(self.backlog.owner)
            # Not `self.recording`, because mypyc assumes that it is still None here, although `_plan` changes it.
            if self._plan(identifiers) is not None:
                self.identifiers = identifiers

    def _send(self, transmission: Transmission, now: float, protocol: ServerProtocol, effects: SendEffects) -> bool:
        """Send one message, or return False if it must wait. A message that cannot be sent does not affect other messages."""
        try:
            if not self.open:
                return False
            if self._room <= 0:
                effects.more = True
                return False
            if self.removal_limit is not NO_LIMIT:
                # After a message of QoS 0, the acknowledgement of a message in flight must not exceed the limit either.
                room = self.removal_limit.value - self.unremoved - self.in_flight.unacknowledged - len(effects.finished)
                if room <= 0:
                    self.held = True
                    return False
            if (self.in_flight.room <= 0 or self.recording is not None) and self._qos(transmission):
                return False
            if self.release is not None and self.release.delays(self._qos(transmission)):
                self._release_identifiers(self.release, protocol)
                return False
            if transmission.expired and transmission.msg_number not in self.sent_before:
                # A message that the client may have keeps its packet identifier, and is sent even if it has expired.
                effects.discard(transmission, EXPIRED)
                return True
            topic = transmission.topic or transmission.remote_queue
            request = None
            if transmission.topic is None and is_request_queue(topic):
                request = None if self.requests is None else self.requests.find(topic)
                if request is None:
                    why = f"it answers an unknown request ({topic}, see limits.request_bytes)"
                    effects.refusals.append(Refusal(transmission, cmqc.MQRC_UNKNOWN_OBJECT_NAME, why))
                    return True
                topic = request.response_topic
            user_data = transmission.user_data
            subscription = FOREIGN
            if user_data is not None and len(user_data) > 1:  # a QoS alone has no options
                subscription = subscription_data(user_data)
                if subscription.no_local and publisher_of(transmission.message) == transmission.client_id:
                    effects.discard(transmission, OWN)
                    return True
            version_5 = protocol.level == LEVEL_MQTT_5
            publication = from_mq(
                transmission.message,
                topic=topic,
                retained=transmission.retained and _as_published(transmission),
                persistent=transmission.persistent,
                requested_qos=subscription_qos(transmission.user_data),
                direct_qos=self.direct_qos,
                with_properties=version_5,
            )
            field = topic_field(publication.topic)
            properties = None
            if version_5:
                properties = self._properties(transmission, publication, request, subscription)
                if protocol.max_packet_size and not protocol.takes(field, publication.payload, properties):
                    why = f"it is longer than the Maximum Packet Size of the client, {protocol.max_packet_size} bytes"
                    effects.refusals.append(Refusal(transmission, cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL, why))
                    return True
            qos, packet_id = publication.qos, 0
            if qos:
                packet_id = self._identifier(transmission.msg_number)
                if not packet_id:
                    return False
            self._count(publication, now)
            if not qos:
                protocol.publish(field, publication.payload, 0, publication.retain, False, 0, properties)
                effects.finished.append(transmission)
                return True
            outgoing = Outgoing(
                transmission, qos, field, publication.payload, publication.retain, SENT[qos], now, properties
            )
            self._send_reliably(transmission, packet_id, outgoing, protocol)
            return True
        except Unmappable as error:
            refusal = Refusal(transmission, error.reason, str(error))
        except MalformedPacket as error:
            refusal = Refusal(transmission, cmqc.MQRC_TOPIC_STRING_ERROR, str(error))
        except Exception as error:
            log.exception("MQB2407E a message for client %r could not be converted or sent", self.backlog.owner)
            refusal = Refusal(transmission, cmqc.MQRC_UNEXPECTED_ERROR, f"{type(error).__name__}: {error}")
        self._forget(transmission)
        effects.refusals.append(refusal)
        return True

    def _release_identifiers(self, release: IdentifierRelease, protocol: ServerProtocol) -> None:
        """Continue to release packet identifiers. No identifier may be in use."""
        if self.in_flight.deliveries:
            self.held = True
            return
        if not release.begun:
            log.info("MQB2408I releasing packet identifiers of client %r from before a restore", self.backlog.owner)
        release.send(protocol)

    def _released(self) -> None:
        """End the release of packet identifiers. Messages wait until this is recorded, so that it is not repeated."""
        self.release = None
        self.recording = Chunk(StateKey(Side.SENT, self.backlog.owner))
        self.unsaved = True

    def _properties(
        self,
        transmission: Transmission,
        publication: Publication,
        request: ClientRequest | None,
        subscription: SubscriptionData,
    ) -> PublishProperties | None:
        """Return all properties of an MQTT 5 PUBLISH, from the publication and this delivery, or None."""
        properties = publication.properties
        if request is not None:
            properties = msgspec.structs.replace(properties, correlation_data=request.correlation_data)
        md = transmission.message.md
        if md.MsgType == _REQUEST and self.replies is not None and is_request(md):
            properties = with_request(properties, md, self.replies.topic(self.backlog.owner, md))
        expiry, identifiers = message_expiry_interval(transmission), subscription.subscription_identifiers
        if expiry is not None or identifiers:
            return msgspec.structs.replace(
                properties, message_expiry_interval=expiry, subscription_identifier=identifiers
            )
        return None if properties is NO_PROPERTIES else properties

    def _count(self, publication: Publication, now: float) -> None:
        """Count a sent publication, for the turn and for metrics."""
        size = len(publication.payload)
        self._room -= size + _MESSAGE_BYTES
        if publication.properties is not NO_PROPERTIES:
            self._room -= size_of_properties(publication.properties)
        self.messages_sent += 1
        self.last_sent = now
        counts = self.counts
        if counts is None:
            return
        if not publication.qos:
            counts.sent_size_0 += size  # `Traffic.finished` counts the publications
        elif publication.qos == 1:
            counts.sent_1 += 1
            counts.sent_size_1 += size
        else:
            counts.sent_2 += 1
            counts.sent_size_2 += size

    def _identifier(self, number: int) -> int:
        """Return the packet identifier of a message, or 0 if it must be decided and recorded first."""
        packet_id, deliveries, identifiers = number & 0xFFFF, self.in_flight.deliveries, self.identifiers
        if identifiers is None:
            if packet_id and packet_id not in deliveries:
                return packet_id
            identifiers = self._decided()
        else:
            decided = identifiers.decided.get(number)
            if decided is not None:
                return decided
            if packet_id and packet_id not in deliveries and packet_id not in identifiers.taken:
                return packet_id
        if self.durable:
            self._clash = True
            return 0
        return identifiers.next_free(packet_id, deliveries)

    def _decided(self) -> PacketIdentifiers:
        """Return the packet identifiers that do not follow from the MsgId."""
        identifiers = self.identifiers
        if identifiers is None:
            identifiers = self.identifiers = PacketIdentifiers(self.backlog.owner)
        return identifiers

    def _send_reliably(
        self, transmission: Transmission, packet_id: int, outgoing: Outgoing, protocol: ServerProtocol
    ) -> None:
        """Send a message with QoS 1 or 2.

        An identifier that follows from the MsgId needs no record. The session's record shows that the client is connected,
        and therefore that the message may have been sent.
        """
        number = transmission.msg_number
        self.in_flight.add(packet_id, outgoing)
        if self.identifiers is not None:
            self.identifiers.sent(number)
        again = False
        before = self.sent_before
        if isinstance(before, set) and number in before:
            before.discard(number)
            again = True
            outgoing.times_sent = 2
            self.resent += 1
        protocol.publish(
            outgoing.field, outgoing.payload, outgoing.qos, outgoing.retain, again, packet_id, outgoing.properties
        )

    def _forget(self, transmission: Transmission) -> None:
        """Free the packet identifier of a message that was not sent."""
        self.withdraw_sent(lambda entry: entry is transmission)

    def _qos(self, transmission: Transmission) -> int:
        """Return the QoS with which a waiting message will be sent.

        Unreadable messages count as reliable.
        """
        requested = subscription_qos(transmission.user_data)
        if requested is None:
            return self.direct_qos
        if not requested:
            return 0
        source = getattr(transmission.message, "qos", None)
        return min(requested, 2 if source is None else source)

    def acknowledge(self, packet_id: int) -> Transmission | None:
        """Process a PUBACK. Return the message to remove, or None. Raises WrongAcknowledgement."""
        outgoing, step = self.in_flight.answered(PUBACK, packet_id)
        if outgoing is None or step is not _ACKNOWLEDGED:
            return None
        return self._finish(outgoing)

    def receive(self, packet_id: int, *, failed: bool = False) -> tuple[Outgoing | None, Transmission | None]:
        """Process a PUBREC, which rejects the message if `failed`. Return the delivery and the message to remove.

        (None, None) means that PUBREL can be sent at once. Raises WrongAcknowledgement.
        """
        outgoing, step = self.in_flight.answered(FAILED_PUBREC if failed else PUBREC, packet_id)
        if outgoing is None or step is Step.PUBREL:
            return None, None
        if step is Step.NOTHING:
            return outgoing, None
        # The record contains the packet identifiers for which PUBREL is sent.
        self.unsaved = self.durable
        return outgoing, self._finish(outgoing)

    def _finish(self, outgoing: Outgoing) -> Transmission | None:
        """Return the message to remove of a delivery that the client has acknowledged."""
        transmission, outgoing.transmission = outgoing.transmission, None
        return transmission

    def removed(self, transmission: Transmission) -> None:
        """Forget the packet identifier of an acknowledged message after the commit of its removal."""
        if self.identifiers is not None:
            self.identifiers.release(transmission.msg_number)

    def complete(self, packet_id: int) -> bool:
        """Process a PUBCOMP. Return whether its packet identifier must not be reused before a commit.

        Raises WrongAcknowledgement.
        """
        if self.release is not None and self.release.completed(packet_id):
            if self.release.finished:
                self._released()
            return False
        _, step = self.in_flight.answered(PUBCOMP, packet_id)
        if step is not Phase.COMPLETED:
            return False
        if not self.durable:
            self.in_flight.free((packet_id,))
            return False
        self.unsaved = True
        return True

    def send_again(self, protocol: ServerProtocol, now: float, interval: float = 0.0) -> None:
        """Resend messages that have been unacknowledged for `interval` seconds, in order (MQTT-4.4.0-1)."""
        for packet_id, outgoing in self.in_flight.deliveries.items():
            if interval and now - outgoing.sent_at < interval:
                continue
            if outgoing.phase in _RESENT:
                outgoing.publish(protocol, packet_id, now, dup=True)
                self.resent += 1
            elif outgoing.phase is Phase.AWAITING_PUBCOMP:
                protocol.release(packet_id)
                outgoing.sent_at = now

    def fit(self) -> None:
        """Reduce the messages in flight to a smaller Receive Maximum (MQTT-3.3.4-9)."""
        in_flight = self.in_flight
        room = max(in_flight.receive_maximum - (in_flight.unfinished - in_flight.unacknowledged), 0)
        unacknowledged = [
            (packet_id, outgoing.transmission)
            for packet_id, outgoing in in_flight.deliveries.items()
            if outgoing.phase in _RESENT and outgoing.transmission is not None
        ]
        self.restore(unacknowledged[room:])

    def restore(self, acknowledged: Sequence[tuple[int, Transmission]]) -> None:
        """Return sent but unfinished messages to the backlog. They are sent again with their packet identifiers.

        Their acknowledgements could not be committed, or the client's window has become smaller.
        """
        if not acknowledged:
            return
        self.in_flight.free([packet_id for packet_id, _ in acknowledged])
        self._decided().keep(acknowledged, durable=self.durable)
        again = sorted(
            [transmission for _, transmission in acknowledged], key=lambda transmission: transmission.msg_number
        )
        self.mark_sent([transmission.msg_number for transmission in again])
        self.backlog.extendleft(reversed(again))

    def keep_identifier(self, packet_id: int, transmission: Transmission) -> None:
        """Accept a message that was sent to the client before, with its packet identifier, or 0 if unknown.

        It belongs to a shared subscription, so its QoS is 1, and it needs no record.
        """
        self.mark_sent([transmission.msg_number])
        if not packet_id or packet_id == transmission.msg_number & 0xFFFF:
            return
        identifiers = self._decided()
        if packet_id not in identifiers.taken and packet_id not in self.in_flight.deliveries:
            identifiers.keep([(packet_id, transmission)], durable=False)

    def resent_later(self) -> set[int]:
        """Return the packet identifiers of messages that wait to be resent."""
        decided = {} if self.identifiers is None else self.identifiers.decided
        packet_ids = {decided.get(number) or number & 0xFFFF for number in self.sent_before}
        return packet_ids.union(decided.values()) - self.in_flight.deliveries.keys()

    def recorded(self) -> None:
        """Allow sending of the messages whose packet identifiers are now recorded."""
        self.recording = None

    def restore_records(self, assigned: Sequence[tuple[int, int]], sent_keys: Sequence[MessageKey]) -> None:
        """Restore the messages of a session's record after a restart (`PacketIdentifiers.restore_sent`)."""
        if assigned or sent_keys:
            self._decided().restore_sent(assigned, sent_keys)

    def restore_identifiers(self, record: IdentifiersRecord) -> None:
        """Restore a record of packet identifiers after a restart."""
        self._decided().restore(record)

    def caught_up(self, *, renumbered: bool, others_may_come: bool) -> None:
        """Note that all messages from before a restart have arrived. With `renumbered`, their numbers have changed."""
        identifiers = self.identifiers
        if self.uncertain and renumbered and self.backlog.messages:
            identifiers = self._decided()
            reliable = [transmission for transmission in self.backlog if self._qos(transmission)]
            unsent = identifiers.settle(reliable, self.in_flight.deliveries)
            self.sent_before = set(self.sent_before).difference(unsent)
        # New messages were not sent to any client before.
        self.uncertain = False
        if identifiers is not None:
            identifiers.caught_up(others_may_come=others_may_come)
            if identifiers.empty:
                self.identifiers = None

    def keys_of_sent(self) -> list[MessageKey]:
        """Return the keys of sent and unacknowledged messages, for the record of the session."""
        transmissions = [
            delivery.transmission
            for delivery in self.in_flight.deliveries.values()
            if delivery.transmission is not None
        ]
        if self.identifiers is not None:
            before = self.sent_before
            transmissions += [
                transmission for transmission in self.identifiers.taken.values() if transmission.msg_number in before
            ]
        return [transmission.key for transmission in transmissions]

    @property
    def unremoved(self) -> int:
        """The number of messages acknowledged or sent with QoS 0 whose removal is not committed."""
        return self.in_flight.unremoved + self.finishing

    @property
    def room(self) -> int:
        """Return how many messages with QoS 1 or 2 could be sent at once, or 0 while the client does not read."""
        if not self.open or self.recording is not None or (self.release is not None and self.release.in_progress):
            return 0
        room = self.removal_limit.value - self.unremoved - self.in_flight.unacknowledged
        self.held = self.held or room <= 0
        return max(0, min(self.in_flight.room, room) - len(self.backlog.messages))

    def withdraw_waiting(self, is_wanted: Callable[[Transmission], bool]) -> list[tuple[int, Transmission]]:
        """Remove the selected waiting messages. Return them with their packet identifiers, or 0 if undecided."""
        decided = {} if self.identifiers is None else self.identifiers.decided
        transmissions = [
            (decided.get(transmission.msg_number, 0), transmission) for transmission in self.backlog.withdraw(is_wanted)
        ]
        self._release(transmissions)
        return transmissions

    def withdraw_sent(self, is_wanted: Callable[[Transmission], bool]) -> list[tuple[int, Transmission]]:
        """Remove the selected unacknowledged messages. Return them with their packet identifiers."""
        transmissions: list[tuple[int, Transmission]] = []
        for packet_id, outgoing in list(self.in_flight.deliveries.items()):
            transmission = outgoing.transmission
            if transmission is None or not is_wanted(transmission):
                continue
            self.in_flight.free((packet_id,))
            transmissions.append((packet_id, transmission))
        self._release(transmissions)
        return transmissions

    def _release(self, withdrawn: Iterable[tuple[int, Transmission]]) -> None:
        if self.identifiers is not None:
            for _, transmission in withdrawn:
                self.identifiers.release(transmission.msg_number)

    def pending(self) -> list[Transmission]:
        """Return all messages for this client that are still on the transmission queue."""
        transmissions = [
            delivery.transmission
            for delivery in self.in_flight.deliveries.values()
            if delivery.transmission is not None
        ]
        return transmissions + list(self.backlog)


def _as_published(transmission: Transmission) -> bool:
    """Return whether to keep the RETAIN flag. A shared subscription keeps it for members that request it."""
    if not is_remote_queue_manager(transmission.client_id):
        return True
    return transmission.user_data is not None and subscription_data(transmission.user_data).retain_as_published
