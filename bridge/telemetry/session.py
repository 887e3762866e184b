"""The session of one MQTT client, which may outlive its connections (MQTT 3.1.1 sections 3.1.2.4, 4.1 and 4.3). No I/O.

`Session.receive` processes a batch of packets and returns `ReceiveEffects`: the changes for the queue manager to commit, and
the answers to the client after the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from bridge.mqtt.connection import Answer
from bridge.mqtt.flow import MAX_IDENTIFIER, Arrival, Phase, Receiver, WrongAcknowledgement
from bridge.mqtt.packets import MessagePacket, PacketType, Puback, Pubcomp, Publish, PublishProperties, Pubrec, Pubrel
from bridge.mqtt.reason_codes import FAILURE, ReasonCode
from bridge.telemetry.backlog import Backlog
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identifier_release import IdentifierRelease
from bridge.telemetry.identity import ClientIdentity, Principal, TopicAccess
from bridge.telemetry.outbox import SENT_AT_A_TURN, Outbox, Outgoing
from bridge.telemetry.packet_identifiers import Chunk
from bridge.telemetry.pending_requests import PendingRequests
from bridge.telemetry.publication_counts import PublicationCounts
from bridge.telemetry.record import (
    SESSION_VERSION,
    VERSION,
    IdentifiersRecord,
    ReceivedRecord,
    RequestRecord,
    SentRecord,
    SessionRecord,
    StateKey,
    StateRecord,
)
from bridge.telemetry.request import request_to_keep
from bridge.telemetry.subscription import shared_subscription, subscription_data
from bridge.telemetry.transmission import PublicationMessage, Transmission

_PUBACK: Final = PacketType.PUBACK
_PUBREC: Final = PacketType.PUBREC
_PUBREL: Final = PacketType.PUBREL
_PUBCOMP: Final = PacketType.PUBCOMP
#: The Session Expiry Interval of a session that does not expire, such as a durable session before MQTT 5.
NEVER: Final = 0xFFFFFFFF
_PINGRESP: Final[Answer] = (PacketType.PINGRESP, 0)


class SessionState(IntEnum):
    """The state of a session. While it is CONNECTING or RESUMING, the CONNECT of its client is being committed."""

    #: CONNACK has not been sent yet, so messages for its subscriptions belong to a previous session
    NEW = 0
    CONNECTING = 1
    AWAY = 2
    RESUMING = 3
    ONLINE = 4
    #: it was removed with its subscriptions, and its messages and records are being removed
    ENDED = 5


#: Enum member access is slow, so bind once.
_NEW: Final = SessionState.NEW
_CONNECTING: Final = SessionState.CONNECTING
_AWAY: Final = SessionState.AWAY
_RESUMING: Final = SessionState.RESUMING
_ONLINE: Final = SessionState.ONLINE
_ENDED: Final = SessionState.ENDED
_CONNECTED: Final = (_ONLINE, _CONNECTING, _RESUMING)
#: The state after CONNECT (another CONNECT may be in progress), after its commit, and after the end of the connection. A
#: session that ends while its client is connected stays ended.
_CONNECT: Final = {
    _NEW: _CONNECTING,
    _CONNECTING: _CONNECTING,
    _AWAY: _RESUMING,
    _RESUMING: _RESUMING,
    _ENDED: _ENDED,
}
_ATTACH: Final = {_CONNECTING: _ONLINE, _RESUMING: _ONLINE, _ENDED: _ENDED}
_DETACH: Final = {_CONNECTING: _NEW, _RESUMING: _AWAY, _ONLINE: _AWAY, _ENDED: _ENDED}


#: The empty mapping of publication indexes to violations of schemas.
NONE_INVALID: Final[Mapping[int, str]] = MappingProxyType({})


class ReceiveEffects:
    """The effects of one batch of packets: the changes to commit, and the answers after the commit."""

    __slots__ = (
        "acknowledged",
        "answers",
        "completed",
        "finishing",
        "forgotten",
        "invalid",
        "ordered",
        "publications",
        "received_at",
        "recording",
        "records",
        "refused",
        "released",
        "removals",
        "repeated",
        "resent_later",
        "unknown",
        "violation",
        "violation_code",
        "weight",
    )

    def __init__(self) -> None:
        self.publications: list[tuple[PublicationMessage, bool]] = []
        #: the violations of schemas of the channel, by index of the publication
        self.invalid: Mapping[int, str] = NONE_INVALID
        #: bytes of the publications that count until they are committed (limits.pending_publication_bytes)
        self.weight = 0
        #: when the packets arrived, in microseconds since the epoch
        self.received_at = 0
        #: messages to remove from the transmission queue
        self.removals: list[Transmission] = []
        #: number of removed messages that were sent with QoS 0, or discarded
        self.finishing = 0
        #: removed messages that PUBACK acknowledged, with their packet identifiers
        self.acknowledged: list[tuple[int, Transmission]] = []
        self.answers: list[Answer] = []
        #: packet identifiers of publications with QoS 2 that arrived again. An earlier unit of work contains them
        self.repeated: list[int] = []
        #: packet identifiers of publications with QoS 2 that the queue manager rejected, or None until one is rejected
        self.refused: set[int] | None = None
        #: whether the answers depend on earlier units of work
        self.ordered = False
        #: the messages whose packet identifiers are recorded with these effects
        self.recording: Chunk | None = None
        #: keys of the records that are committed with these effects
        self.records: Iterable[StateKey] = ()
        #: (packet identifier, message, its transmission) for which PUBREL is sent
        self.released: list[tuple[int, Outgoing, Transmission]] = []
        #: packet identifiers that are free after the commit
        self.completed: list[int] = []
        #: packet identifiers of received publications that PUBREL released
        self.forgotten: frozenset[int] = frozenset()
        #: answers about packet identifiers that are not in use, for which MQTT 5 has a reason code
        self.unknown: frozenset[Answer] = frozenset()
        #: packet identifiers of messages that will be sent again, or None until a packet needs them
        self.resent_later: set[int] | None = None
        #: the rule that the last packet broke. Earlier packets take effect, then the connection is closed
        self.violation = ""
        #: the reason code of the violation
        self.violation_code = ReasonCode.PROTOCOL_ERROR

    def qos_2(self, refused: Iterable[int]) -> set[int]:
        """Return the packet identifiers of publications with QoS 2 among these indexes."""
        publications = self.publications
        return {publications[index][0].packet_id for index in refused if publications[index][0].qos == 2}

    def answer_to(self, index: int) -> Answer:
        """Return the acknowledgement of a publication, by index. For QoS 0 it is never sent."""
        message = self.publications[index][0]
        return (_PUBACK if message.qos == 1 else _PUBREC), message.packet_id

    @property
    def empty(self) -> bool:
        """Whether nothing must be committed."""
        return not (
            self.publications or self.removals or self.released or self.completed or self.repeated or self.ordered
        )


#: Shared by sessions that have not left a shared subscription, which are most.
_NONE_LEFT: Final[Mapping[str, str]] = {}


class Session:
    """The session of one client identifier, clean or durable."""

    __slots__ = (
        "_request_bytes",
        "_unsaved",
        "channel",
        "client_id",
        "counts",
        "durable",
        "ending",
        "epoch",
        "expires_at",
        "expiry_interval",
        "filters",
        "identity",
        "invalid_publications",
        "last_received_at",
        "left",
        "level",
        "messages_received",
        "network",
        "outbox",
        "principal",
        "receiver",
        "shares",
        "since",
        "state",
        "topics",
    )

    def __init__(
        self,
        identity: ClientIdentity,
        *,
        durable: bool,
        window: int,
        unreleased: int = MAX_IDENTIFIER,
        turn_bytes: int = SENT_AT_A_TURN,
        request_bytes: int = 262_144,
        backlog: Backlog | None = None,
        epoch: str = "",
    ) -> None:
        self.identity = identity
        self.client_id = identity.client_id
        self.durable = durable
        #: identifies the last restore of the queue manager, or blank
        self.epoch = epoch
        #: maximum number of bytes of the client's requests
        self._request_bytes = request_bytes
        waiting = Backlog(self.client_id) if backlog is None else backlog
        self.outbox = Outbox(window, waiting, durable=durable, turn_bytes=turn_bytes)
        self.outbox.replies = identity.replies
        self.receiver = Receiver(limit=unreleased)
        #: whether the records of `receiver` and of requests are outdated (durable sessions only)
        self._unsaved = False
        #: topic filter -> user data of its subscription
        self.filters: dict[str, str] = {}
        #: remote queue manager -> `$share/NAME/FILTER` and user data, for each shared subscription of the session
        self.shares: dict[str, tuple[str, str]] = {}
        #: shared subscriptions that it has left with unacknowledged messages: remote queue manager -> user data
        self.left: Mapping[str, str] = _NONE_LEFT
        #: seconds for which the session outlives its connection (MQTT 5 section 3.1.2.11.2)
        self.expiry_interval: int = NEVER if durable else 0
        #: time.time() at which the session expires, or 0.0 if the client is connected or the session does not expire
        self.expires_at = 0.0
        #: whether its backlog exceeded the limits, so that it ends when its client has received the waiting messages
        self.ending = False
        self.state = _NEW
        #: time.time() at which the client connected or disconnected, or 0.0 if unknown
        self.since = 0.0
        #: the channel of the current or last connection, or blank if unknown
        self.channel = ""
        #: number of messages that the client has sent since it connected, and the time of the last message in microseconds
        self.messages_received = 0
        self.last_received_at = 0
        #: publications that violated a schema of the channel since the client connected
        self.invalid_publications = 0
        #: the owner, whose clients alone may resume the session. None if no client has connected since an older bridge ran
        self.principal: Principal | None = None
        #: the network from which the session began, or blank for a Unix socket, or if an older bridge wrote the record
        self.network = ""
        #: the protocol level of the current or last connection, or 0 if unknown
        self.level = 0
        #: counts publications of the client, or None without metrics
        self.counts: PublicationCounts | None = None
        #: the topic rules of the channel, or None for any topic
        self.topics: TopicAccess | None = None

    @property
    def begun(self) -> bool:
        """Whether CONNACK was sent, and the session has not ended."""
        return _AWAY <= self.state < _ENDED

    @property
    def connected(self) -> bool:
        """Whether the client is connected, or its CONNECT is being committed."""
        return self.state in _CONNECTED

    @property
    def ended(self) -> bool:
        """Whether the session was removed. Another session may have its client identifier."""
        return self.state == _ENDED

    def end(self) -> None:
        """End the session."""
        self.state = _ENDED

    def connect(self, channel: str, level: int, expiry_interval: int, now: float) -> None:
        """Begin a connection of the client whose CONNECT is being committed, at `now` in seconds since the epoch."""
        self.state = _CONNECT[self.state]
        self.since, self.channel, self.level = now, channel, level
        self.expiry_interval = expiry_interval

    def attach(self, identity: ClientIdentity, receive_maximum: int = MAX_IDENTIFIER) -> None:
        """Start sending and receiving after CONNECT is committed."""
        outbox = self.outbox
        self.state = _ATTACH[self.state]
        self.messages_received = outbox.messages_sent = self.invalid_publications = 0
        self.last_received_at, outbox.last_sent = 0, 0.0
        self.expires_at = 0.0
        self.identity = identity
        outbox.uncertain = False
        outbox.in_flight.receive_maximum = receive_maximum
        outbox.fit()
        outbox.attach()

    def detach(self, now: float) -> None:
        """End a connection of the client at `now`, in seconds since the epoch."""
        self.state = _DETACH[self.state]
        self.outbox.pause()
        self._leave(now)

    def _leave(self, now: float) -> None:
        self.since = now
        self.expires_at = 0.0 if self.expiry_interval == NEVER else now + self.expiry_interval

    def recover(self) -> None:
        """Recover a session of an earlier run of the bridge."""
        self.state = _AWAY

    def caught_up(self, *, renumbered: bool) -> None:
        """Note that all messages from before a restart have arrived. With `renumbered`, their numbers have changed."""
        self.outbox.caught_up(renumbered=renumbered, others_may_come=bool(self.shares))

    # Records of a durable session ------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        """Whether records are outdated, so that the next unit of work must contain them."""
        outbox = self.outbox
        identifiers = outbox.identifiers
        return self._unsaved or outbox.unsaved or (identifiers is not None and identifiers.unsaved)

    def save_again(self) -> None:
        """Write the records again, because the client connected or disconnected."""
        self._unsaved = self.outbox.unsaved = self.durable

    def records_lost(self, failed: Iterable[StateKey]) -> None:
        """Write the records again, including those of requests, after the failure of a unit of work with these records."""
        if self.outbox.requests is not None:
            self.outbox.requests.lose(failed)
        if self.outbox.identifiers is not None:
            self.outbox.identifiers.lose(failed)
        self.save_again()

    def save_sent(self) -> None:
        """Write the record of the sending half again, because the connection or the shared subscriptions have changed."""
        self.outbox.unsaved = self.durable

    def take_records(self, records: dict[StateKey, StateRecord | None]) -> Chunk | None:
        """Add the outdated records to a unit of work.

        Return the messages that can be sent after the commit, because their packet identifiers are then recorded.
        """
        saves_all = self._unsaved
        if saves_all:
            received = ReceivedRecord(self.client_id, sorted(self.receiver.identifiers))
            self._unsaved = False
            records[received.key] = received if received.received else None
            if self.outbox.requests is not None:
                records.update(self.outbox.requests.changes())
        if self.outbox.unsaved:
            sent_record = self._sent_record()
            self.outbox.unsaved = False
            records[sent_record.key] = sent_record
        return self.take_identifiers(records, saves_all)

    def take_identifiers(self, records: dict[StateKey, StateRecord | None], saves_all: bool = False) -> Chunk | None:
        """Add the outdated records of packet identifiers, like `take_records`.

        If records must only be deleted, delete them only if the unit of work `saves_all` records of the session.
        """
        outbox = self.outbox
        if outbox.identifiers is not None and (saves_all or outbox.identifiers.unsaved):
            records.update(outbox.identifiers.changes())
        recording = outbox.recording
        return recording if recording is not None and recording.key in records else None

    def receive(self, packets: Sequence[MessagePacket]) -> ReceiveEffects:
        """Process packets up to the first one that breaks a rule. `violation` contains that rule."""
        effects = ReceiveEffects()
        publications, answers = effects.publications, effects.answers
        identity, outbox, counts = self.identity, self.outbox, self.counts
        # Counted by QoS in local variables, because this loop runs for each message.
        size_0, count_1, size_1 = 0, 0, 0
        before_2 = 0 if counts is None else counts.received_2
        try:
            for packet in packets:
                if type(packet) is Publish:
                    qos = packet.qos
                    if qos == 2:
                        if not self._receive_once(packet, effects):
                            break
                        continue
                    publications.append((to_mq(packet, identity), packet.retain))
                    if packet.properties is not None and self._keep_request(packet.properties):
                        self._unsaved = True
                    if qos:
                        answers.append((_PUBACK, packet.packet_id))
                        count_1 += 1
                        size_1 += len(packet.payload)
                    else:
                        size_0 += len(packet.payload)
                elif type(packet) is Puback:
                    packet_id = packet.packet_id
                    transmission = outbox.acknowledge(packet_id)
                    if transmission is not None:
                        effects.removals.append(transmission)
                        effects.acknowledged.append((packet_id, transmission))
                elif type(packet) is Pubrec:
                    if packet.reason_code >= FAILURE:
                        self._rejected(packet.packet_id, effects)
                    else:
                        self._release(packet.packet_id, effects)
                elif type(packet) is Pubrel:
                    # The identifier is removed on disk before PUBCOMP, after which the client may use it for another message.
                    packet_id = packet.packet_id
                    if self.receiver.release(packet_id):
                        effects.forgotten |= {packet_id}
                        self._unsaved = self.durable
                    else:
                        effects.ordered = True  # an earlier unit of work may be removing it
                        if packet_id not in effects.forgotten:
                            effects.unknown |= {(_PUBCOMP, packet_id)}
                    answers.append((_PUBCOMP, packet_id))
                elif type(packet) is Pubcomp:
                    if outbox.complete(packet.packet_id):
                        effects.completed.append(packet.packet_id)
                else:
                    answers.append(_PINGRESP)
        except WrongAcknowledgement as error:
            effects.violation = str(error)
        effects.weight += size_0 + size_1
        if counts is not None:
            counts.received_0 += len(publications) - count_1 - (counts.received_2 - before_2)
            counts.received_size_0 += size_0
            counts.received_1 += count_1
            counts.received_size_1 += size_1
        return effects

    def _keep_request(self, properties: PublishProperties) -> bool:
        """Keep the request in a PUBLISH if it does not fit into an MQMD. Return whether records must be written."""
        request = request_to_keep(properties)
        return request is not None and self._requests().add(request)

    def _requests(self) -> PendingRequests:
        requests = self.outbox.requests
        if requests is None:
            requests = PendingRequests(self.client_id, durable=self.durable, most_bytes=self._request_bytes)
            self.outbox.requests = requests
        return requests

    def _receive_once(self, publish: Publish, effects: ReceiveEffects) -> bool:
        """Process a PUBLISH with QoS 2. Return False if too many are not released."""
        packet_id = publish.packet_id
        arrival = self.receiver.arrival(packet_id)
        if arrival is Arrival.TOO_MANY:
            limit = self.receiver.limit
            effects.violation = (
                f"more than {limit} publications with QoS 2 are not released by PUBREL (limits.unreleased)"
            )
            effects.violation_code = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
            return False
        if arrival is Arrival.NEW:
            effects.publications.append((to_mq(publish, self.identity), publish.retain))
            effects.weight += len(publish.payload)
            if self.counts is not None:
                self.counts.received_2 += 1
                self.counts.received_size_2 += len(publish.payload)
            if publish.properties is not None:
                self._keep_request(publish.properties)
            self._unsaved = self.durable
            effects.answers.append((_PUBREC, packet_id))
        else:
            effects.repeated.append(packet_id)
        return True

    def _release(self, packet_id: int, effects: ReceiveEffects) -> None:
        outgoing, transmission = self.outbox.receive(packet_id)
        if transmission is not None:
            effects.removals.append(transmission)
        if outgoing is None:
            if packet_id not in self.outbox.in_flight.deliveries:
                if effects.resent_later is None:
                    effects.resent_later = self.outbox.resent_later()
                if packet_id in effects.resent_later:
                    # PUBLISH must not follow PUBREL (MQTT-4.3.3-6). PUBREL answers the PUBREC for the next PUBLISH.
                    return
                effects.unknown |= {(_PUBREL, packet_id)}
            effects.answers.append((_PUBREL, packet_id))
        elif transmission is not None:
            effects.released.append((packet_id, outgoing, transmission))

    def _rejected(self, packet_id: int, effects: ReceiveEffects) -> None:
        """Process an MQTT 5 PUBREC that rejects the message. It completes the delivery without PUBREL (section 4.3.3)."""
        _, transmission = self.outbox.receive(packet_id, failed=True)
        if transmission is not None:
            effects.removals.append(transmission)
            effects.acknowledged.append((packet_id, transmission))

    def committed(
        self,
        effects: ReceiveEffects,
        refused: Collection[int],
        now: float,
        *,
        answerable: bool = True,
        answer_refused: bool = False,
    ) -> list[Answer]:
        """Return the answers to the client after the commit.

        `refused` contains the indices of publications that the queue manager rejected. They are acknowledged only with
        `answer_refused`, because only MQTT 5 has reason codes for them. `answerable` is False if the connection of the
        packets was lost. Then only PUBREL is sent, on the next connection.
        """
        in_flight = self.outbox.in_flight
        if effects.acknowledged:
            in_flight.free([packet_id for packet_id, _ in effects.acknowledged])
        if self.outbox.identifiers is not None:
            for _, transmission in effects.acknowledged:
                self.outbox.removed(transmission)
            for _, _, transmission in effects.released:
                self.outbox.removed(transmission)
        answers = effects.answers if answerable else []
        if effects.released or effects.completed:
            in_flight.free(effects.completed)
            for packet_id, outgoing, _ in effects.released:
                in_flight.move(outgoing, Phase.AWAITING_PUBCOMP)
                outgoing.payload = b""
                outgoing.sent_at = now
                answers.append((_PUBREL, packet_id))
        if refused:
            if effects.refused is None:
                self.refuse(effects, refused)
            if not answer_refused:
                withheld = {effects.answer_to(index) for index in refused}
                answers = [answer for answer in answers if answer not in withheld]
        if effects.repeated and answerable:
            # A publication rejected here may have arrived again since. Then a later unit of work contains it.
            unreleased = self.receiver.identifiers - (effects.refused or set())
            answers += [(_PUBREC, packet_id) for packet_id in effects.repeated if packet_id in unreleased]
        return answers

    def failed(self, effects: ReceiveEffects) -> None:
        """Undo the changes of a unit of work that failed.

        The queue manager has none of the publications, and still has the messages that the client acknowledged.
        """
        unknown = {message.packet_id for message, _ in effects.publications if message.qos == 2}
        self.receiver.identifiers -= unknown - (effects.refused or set())
        self.outbox.restore(
            effects.acknowledged + [(packet_id, transmission) for packet_id, _, transmission in effects.released]
        )
        in_flight = self.outbox.in_flight
        for packet_id in effects.completed:
            # PUBREL is sent again on the next connection.
            in_flight.move(in_flight.deliveries[packet_id], Phase.AWAITING_PUBCOMP)
        self.records_lost(effects.records)

    def refuse(self, effects: ReceiveEffects, refused: Iterable[int]) -> None:
        """Forget rejected publications, by index. If the client sends them again, they are new."""
        effects.refused = effects.qos_2(refused)
        self.receiver.identifiers -= effects.refused
        self._unsaved = self.durable

    def _sent_record(self) -> SentRecord:
        outbox = self.outbox
        released = [
            packet_id
            for packet_id, outgoing in outbox.in_flight.deliveries.items()
            if outgoing.phase in (Phase.RELEASING, Phase.AWAITING_PUBCOMP)
        ]
        keys = outbox.keys_of_sent()
        return SentRecord(
            self.client_id,
            released,
            sent=keys,
            connected=self.connected,
            expiryInterval=self.expiry_interval,
            expiresAt=self.expires_at,
            shares=list(self.shares.values()),
            left=self._left(),
            ending=self.ending,
            since=self.since,
            channel=self.channel,
            principal=self.principal,
            network=self.network,
            mqUser=self.identity.user.decode("utf-8", "replace"),
            epoch=self.epoch if outbox.release is None else "",
            version=VERSION if keys and isinstance(keys[0], bytes) else SESSION_VERSION,
        )

    def _left(self) -> list[tuple[str, str]]:
        """Return the shared subscriptions that the session has left with unacknowledged messages."""
        if self.left:
            client_ids = {transmission.client_id for transmission in self.outbox.pending()}
            self.left = {
                name: user_data
                for name, user_data in self.left.items()
                if name in client_ids and name not in self.shares
            }
        return list(self.left.items())

    def restore(self, record: SessionRecord, now: float) -> None:
        """Restore a record after a restart, at `now` in seconds since the epoch.

        If the client was connected when the bridge ended, its Session Expiry Interval begins now.
        """
        if isinstance(record, ReceivedRecord):
            self.receiver = Receiver(record.received, self.receiver.limit)
            return
        if isinstance(record, RequestRecord):
            self._requests().restore(record)
            return
        if isinstance(record, IdentifiersRecord):
            self.outbox.restore_identifiers(record)
            return
        self.outbox.restore_records(record.assigned, record.sent)
        self.outbox.uncertain = record.connected
        self.expiry_interval = record.expiryInterval
        self.expires_at = record.expiresAt
        self.since, self.channel = record.since, record.channel
        self.principal, self.network = record.principal, record.network
        self.identity = ClientIdentity(self.client_id, record.mqUser.encode(), self.identity.replies)
        self.shares = {shared_subscription(share[0]).remote_queue_manager: share for share in record.shares}
        self.left = dict(record.left)
        self.ending = record.ending
        if record.connected:
            self._leave(now)
        if record.epoch != self.epoch:
            qos_2 = any(subscription_data(user_data).qos == 2 for user_data in self.filters.values())
            self.outbox.release = IdentifierRelease(reliable=qos_2)
        for packet_id in record.released:
            self.outbox.in_flight.add(packet_id, Outgoing(None, 2, b"", b"", False, Phase.AWAITING_PUBCOMP))
