"""Messages on their way to one client: what waits, what the window lets go, and under which message id.

MQTT 3.1.1 sections 4.3 and 4.4. The messages that are sent and not acknowledged are `bridge.mqtt.in_flight`; which message
becomes which publication is `bridge.mapping.telemetry`'s business; an Outbox writes nothing but commands of a protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from bridge.mapping.telemetry.from_mq import from_mq, publisher_of
from bridge.mapping.telemetry.message_id import message_id_from
from bridge.mapping.telemetry.publish_properties import size_of_properties
from bridge.mapping.telemetry.qos import DIRECT_MESSAGE_QOS, subscription_qos
from bridge.mapping.telemetry.reply_address import ReplyAddresses, is_request
from bridge.mapping.telemetry.shared_subscription import is_remote_queue_manager
from bridge.mapping.telemetry.subscription import FOREIGN, subscription_data
from bridge.mapping.telemetry.transmission import Transmission, message_expiry_interval
from bridge.mqtt.acknowledgement import SENT, Phase
from bridge.mqtt.backlog import Backlog
from bridge.mqtt.in_flight import InFlight, Outgoing
from bridge.mqtt.protocol import ServerProtocol
from bridge.mqtt.publication_counts import PublicationCounts
from bridge.mqtt.requests import Requests, is_request_queue
from bridge.mqtt.topic_field import topic_field
from bridge.mqtt.unsent import EXPIRED, FULL, OWN, SLOW, Refusal, too_many
from bridge.wire import cmqc
from bridge.wire.mq import MalformedHeader
from bridge.wire.mqtt import LEVEL_MQTT_5, MalformedPacket

log = logging.getLogger(__name__)

#: Receive Maximum of a client that says none: all message ids there are.
NO_RECEIVE_MAXIMUM: Final = 65_535
#: Bytes, about, that are sent to one client in one turn; the rest waits for the next one, when it may have read these.
SENT_AT_A_TURN: Final = 256 * 1024
#: Bytes of a turn that a message costs beside its payload.
_MESSAGE_BYTES: Final = 64
_REQUEST: Final = cmqc.MQMT_REQUEST


class Outbox:
    """The sending side of one session.

    `window` is the number of messages sent and not acknowledged by PUBACK or PUBREC at a time. `record` is set when
    something changed that must outlive a crash of the bridge (durable sessions only).
    """

    def __init__(
        self,
        window: int,
        requests: Requests,
        *,
        durable: bool,
        turn_bytes: int = SENT_AT_A_TURN,
        backlog: Backlog | None = None,
    ) -> None:
        self.window = window
        self._requests = requests
        #: where answers to requests from MQ go; None: requests come as any other message
        self.replies: ReplyAddresses | None = None
        #: messages that the client owes PUBACK or PUBCOMP for, at most (MQTT 5 section 4.9)
        self.receive_maximum = NO_RECEIVE_MAXIMUM
        self.turn_bytes = turn_bytes
        #: bytes that may still be sent in this turn; `more` says that there is more to send in the next one
        self._room = turn_bytes
        self.more = False
        self.durable = durable
        #: QoS of messages without a subscription; the client alters it by subscribing to DEFAULT.QoS
        self.direct_qos = DIRECT_MESSAGE_QOS
        self.in_flight = InFlight()
        #: the message that waits for its record: what follows it waits behind it
        self.recording: Outgoing | None = None
        self.backlog = Backlog(requests.client_id) if backlog is None else backlog
        #: the client is connected, and its connection takes more bytes
        self.open = False
        #: messages that were sent since the client connected, and the clock's time at the last of them
        self.messages_sent = 0
        self.last_sent = 0.0
        #: counts what is sent; None: nothing does
        self.counts: PublicationCounts | None = None
        #: publications with QoS 0 that a connected client was too slow for
        self.dropped = 0
        #: of what was put to `done`, the msg_numbers of messages that were not sent, with the reason; whoever tells takes it
        self.discarded: dict[int, str] = {}
        self.record = False
        #: msg_numbers of messages that went out before, on a connection or in a life of the bridge that has ended
        self.sent_before: set[int] = set()
        #: the bridge died while the client was connected: what waits may have been sent before (MQTT-3.3.1-1)
        self.uncertain = False
        #: message ids that differ from what the MsgId prescribes: msg_number -> message id
        self.assigned: dict[int, int] = {}

    def deliver(
        self, batch: Iterable[Transmission], now: float, protocol: ServerProtocol | None, done: list[Transmission]
    ) -> list[Refusal]:
        """Take messages from the transmission queue, in order; without a protocol, the client is away, and they wait.

        What can be sent is; transmissions that are finished (QoS 0, expired) are appended to `done`.
        """
        refusals: list[Refusal] = []
        backlog, messages = self.backlog, self.backlog.messages
        waiting: list[Transmission] = []
        self._room = self.turn_bytes
        if self.uncertain:
            batch = list(batch)
            self.sent_before.update(transmission.msg_number for transmission in batch)
        slow = protocol is not None and not self.open
        for transmission in batch:
            if slow and not self._qos(transmission):
                # At most once: QoS 0 does not wait for a client that does not read.
                done.append(transmission)
                self.dropped += 1
                self.discarded[transmission.msg_number] = SLOW
            elif waiting or messages or protocol is None or not self._send(transmission, now, protocol, done, refusals):
                waiting.append(transmission)
        if waiting:
            backlog.extend(waiting)
        if backlog.bytes > backlog.limit:
            dropped, dead = backlog.make_room(self.sent_before)
            done += dropped
            self.discarded.update(dict.fromkeys([one.msg_number for one in dropped], FULL))
            refusals += [too_many(one, backlog.limit) for one in dead]
        return refusals

    def pump(self, now: float, protocol: ServerProtocol, done: list[Transmission]) -> list[Refusal]:
        """Send what waits as far as the window allows."""
        refusals: list[Refusal] = []
        messages = self.backlog.messages
        size = count = 0
        self._room = self.turn_bytes
        try:
            while messages:
                transmission = messages[0]
                if not self._send(transmission, now, protocol, done, refusals):
                    break
                messages.popleft()
                size += transmission.message.length
                count += 1
        finally:
            if count:
                self.backlog.count(-size, -count)
        return refusals

    def _send(
        self,
        transmission: Transmission,
        now: float,
        protocol: ServerProtocol,
        done: list[Transmission],
        refusals: list[Refusal],
    ) -> bool:
        """Send one message; False when it has to wait.

        A message that cannot be sent affects no other message: a refusal is appended to `refusals`.
        """
        try:
            if not self.open:
                return False
            if self._room <= 0:
                self.more = True
                return False
            version_5 = protocol.level == LEVEL_MQTT_5
            in_flight = self.in_flight
            full = in_flight.unacknowledged >= self.window or in_flight.unfinished >= self.receive_maximum
            if (full or self.recording is not None) and self._qos(transmission):
                return False
            if transmission.expired and transmission.msg_number not in self.sent_before:
                # One that the client may have: it holds the message id, and would take another message for this one.
                done.append(transmission)
                self.discarded[transmission.msg_number] = EXPIRED
                return True
            topic = transmission.topic or transmission.remote_queue
            request = None
            if transmission.topic is None and is_request_queue(topic):
                request = self._requests.find(topic)
                if request is None:
                    why = f"it answers a request that is not known any more ({topic}; limits.request_bytes)"
                    refusals.append(Refusal(transmission, cmqc.MQRC_UNKNOWN_OBJECT_NAME, why))
                    return True
                topic = request.response_topic
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
                user_data = transmission.user_data
                subscription = FOREIGN
                if user_data is not None and len(user_data) > 1:  # a QoS alone has no options
                    subscription = subscription_data(user_data)
                if subscription.no_local and publisher_of(transmission.message) == transmission.client_id:
                    done.append(transmission)
                    self.discarded[transmission.msg_number] = OWN
                    return True
                if request is not None:
                    publication.answer(request)
                md = transmission.message.md
                if md.MsgType == _REQUEST and self.replies is not None and is_request(md):
                    publication.ask(md, self.replies.topic(self._requests.client_id, md))
                properties = publication.properties_with(
                    message_expiry_interval(transmission), subscription.subscription_identifiers
                )
                if protocol.max_packet_size and not protocol.takes(field, publication.payload, properties):
                    why = f"it is longer than the Maximum Packet Size of the client, {protocol.max_packet_size} bytes"
                    refusals.append(Refusal(transmission, cmqc.MQRC_MSG_TOO_BIG_FOR_CHANNEL, why))
                    return True
            size = len(publication.payload)
            self._room -= size + _MESSAGE_BYTES
            self.messages_sent += 1
            self.last_sent = now
            if publication.properties is not None:
                self._room -= size_of_properties(publication.properties)
            qos = publication.qos
            counts = self.counts
            if counts is not None:
                if not qos:
                    counts.sent_size_0 += size  # how many they are, `finished` of bridge.service.traffic counts
                elif qos == 1:
                    counts.sent_1 += 1
                    counts.sent_size_1 += size
                else:
                    counts.sent_2 += 1
                    counts.sent_size_2 += size
            if not qos:
                protocol.publish(field, publication.payload, 0, publication.retain, False, 0, properties)
                done.append(transmission)
                return True
            number = transmission.msg_number
            taken = in_flight.keys() | self.assigned.values() if self.assigned else in_flight
            message_id = self.assigned.get(number) or message_id_from(number, taken)
            outgoing = Outgoing(transmission, qos, field, publication.payload, publication.retain, SENT[qos], now)
            outgoing.properties = properties
            in_flight.add(message_id, outgoing)
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
                in_flight.resent += 1
            protocol.publish(field, publication.payload, qos, publication.retain, again, message_id, properties)
            return True
        except MalformedHeader as error:
            reason = cmqc.MQRC_RFH_ERROR if error.structure == "MQRFH2" else cmqc.MQRC_HEADER_ERROR
            refusal = Refusal(transmission, reason, str(error))
        except MalformedPacket as error:
            refusal = Refusal(transmission, cmqc.MQRC_TOPIC_STRING_ERROR, str(error))
        except Exception as error:
            log.exception("MQB2407E a message for client %r cannot be converted or sent", self._requests.client_id)
            refusal = Refusal(transmission, cmqc.MQRC_UNEXPECTED_ERROR, f"{type(error).__name__}: {error}")
        self._forget(transmission)
        refusals.append(refusal)
        return True

    def _forget(self, transmission: Transmission) -> None:
        """Free the message id of a message that was not sent after all."""
        self.withdraw_sent(lambda sent: sent is transmission)

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
        """Return the message of a PUBACK, to be removed; None where there is none. Raises WrongAcknowledgement."""
        transmission = self.in_flight.acknowledge(message_id)
        if transmission is not None and transmission.msg_number in self.assigned:
            del self.assigned[transmission.msg_number]
            self.record = self.durable
        return transmission

    def receive(self, message_id: int) -> tuple[Outgoing | None, Transmission | None]:
        """Take a PUBREC; return the delivery to release and the message to remove. Raises WrongAcknowledgement.

        (None, None) says that PUBREL can be sent at once.
        """
        outgoing, transmission = self.in_flight.receive(message_id)
        if transmission is not None:
            self.assigned.pop(transmission.msg_number, None)
            self.record = self.durable
        return outgoing, transmission

    def complete(self, message_id: int) -> bool:
        """Take a PUBCOMP; return whether the message id is free only once that is committed. Raises WrongAcknowledgement."""
        if not self.in_flight.complete(message_id):
            return False
        if not self.durable:
            del self.in_flight[message_id]
            return False
        self.record = True
        return True

    def fit(self) -> None:
        """Have what is in flight fit into a Receive Maximum that is smaller than the one before (MQTT-3.3.4-9)."""
        in_flight = self.in_flight
        room = max(self.receive_maximum - (in_flight.unfinished - in_flight.unacknowledged), 0)
        unacknowledged = [
            (message_id, outgoing.transmission)
            for message_id, outgoing in in_flight.items()
            if outgoing.phase in (Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC) and outgoing.transmission is not None
        ]
        if len(unacknowledged) > room:
            self.restore(unacknowledged[room:])
            self.record = self.durable

    def restore(self, acknowledged: Iterable[tuple[int, Transmission]]) -> None:
        """Take back messages that are not finished, though they were sent; they go out again, under their message ids.

        Their acknowledgements by the client could not be committed, or its window has become smaller.
        """
        again: list[Transmission] = []
        for message_id, transmission in acknowledged:
            self.in_flight.take_back(message_id)
            self.assigned[transmission.msg_number] = message_id
            again.append(transmission)
        again.sort(key=lambda transmission: transmission.msg_number)
        self.sent_before.update(transmission.msg_number for transmission in again)
        self.backlog.extendleft(reversed(again))

    def resent_later(self) -> set[int]:
        """Return the message identifiers of messages that were sent before and wait to be sent again."""
        message_ids = {message_id_from(number, ()) for number in self.sent_before - self.assigned.keys()}
        return message_ids.union(self.assigned.values()) - self.in_flight.keys()

    def recorded(self, protocol: ServerProtocol | None, now: float) -> None:
        """Send the message that waited for the record of its unusual message id, which is committed.

        Without a protocol, the client is away: the message counts as sent, and goes out again when it is back.
        """
        self.recording = None
        for message_id, outgoing in self.in_flight.items():
            if outgoing.phase is Phase.RECORDING:
                outgoing.phase = SENT[outgoing.qos]
                if protocol is not None:
                    outgoing.publish(protocol, message_id, now, dup=False)

    @property
    def room(self) -> int:
        """Return how many messages with QoS 1 or 2 could be sent at once; 0 while the client does not read."""
        if not self.open or self.recording is not None:
            return 0
        in_flight = self.in_flight
        room = min(self.window - in_flight.unacknowledged, self.receive_maximum - in_flight.unfinished)
        return max(0, room - len(self.backlog.messages))

    def withdraw_waiting(self, wanted: Callable[[Transmission], bool]) -> list[Transmission]:
        """Remove the wanted ones of the messages that wait, and return them."""
        return self.backlog.withdraw(wanted)

    def withdraw_sent(self, wanted: Callable[[Transmission], bool]) -> list[Transmission]:
        """Remove the wanted ones of the messages that are sent and not acknowledged, and return them."""
        taken: list[Transmission] = []
        for message_id, outgoing in list(self.in_flight.items()):
            transmission = outgoing.transmission
            if transmission is None or not wanted(transmission):
                continue
            self.in_flight.take_back(message_id)
            if outgoing is self.recording:
                self.recording = None
            if self.assigned.pop(transmission.msg_number, None) is not None:
                self.record = self.durable
            taken.append(transmission)
        return taken

    def pending(self) -> list[Transmission]:
        """Return all messages for this client that are still on the transmission queue."""
        held = [one.transmission for one in self.in_flight.values() if one.transmission is not None]
        return held + list(self.backlog)


def _as_published(transmission: Transmission) -> bool:
    """Return whether RETAIN stays; the subscription of a share keeps it for those of its members that ask for it."""
    if not is_remote_queue_manager(transmission.client_id):
        return True
    return transmission.user_data is not None and subscription_data(transmission.user_data).retain_as_published
