"""The session of one MQTT client: what outlives its connections. Packets in, work and answers out; no I/O, no connection.

A session takes packets in the batches in which they arrived and makes one `Work` of each: what the queue manager has to
commit before the client is answered, and the answers. MQTT 3.1.1 sections 3.1.2.4, 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from bridge.mqtt.connection import Answer
from bridge.mqtt.events import MessagePacket
from bridge.mqtt.flow import Phase, WrongAcknowledgement
from bridge.mqtt.packets import PacketType, Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reason_codes import FAILURE, ReasonCode
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity, Principal
from bridge.telemetry.in_flight import Outgoing
from bridge.telemetry.outbox import SENT_AT_A_TURN, Backlog, Outbox, PublicationCounts, Requests
from bridge.telemetry.record import ReceivedRecord, RequestRecord, SentRecord, SessionRecord
from bridge.telemetry.subscription import shared_subscription
from bridge.telemetry.topic_access import TopicAccess
from bridge.telemetry.transmission import PublicationMessage, Transmission

_PUBACK: Final = PacketType.PUBACK
_PUBREC: Final = PacketType.PUBREC
_PUBREL: Final = PacketType.PUBREL
_PUBCOMP: Final = PacketType.PUBCOMP
#: A Session Expiry Interval that says that the session does not expire; as a durable one before MQTT 5 does not.
NEVER: Final = 0xFFFFFFFF
_PINGRESP: Final[Answer] = (PacketType.PINGRESP, 0)


class Work:
    """What one batch of packets asks of the queue manager, and what the client is told once that is committed."""

    __slots__ = (
        "acknowledged",
        "answers",
        "completed",
        "forgotten",
        "ordered",
        "publications",
        "received_at",
        "recording",
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
        #: bytes that the publications count for until they are committed (limits.pending_publication_bytes)
        self.weight = 0
        #: when the packets came, in microseconds since the epoch; for observers
        self.received_at = 0
        self.removals: list[Transmission] = []
        #: of these, those that the client acknowledged by PUBACK, with their message ids
        self.acknowledged: list[tuple[int, Transmission]] = []
        self.answers: list[Answer] = []
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
        #: message ids of publications received that are released by this
        self.forgotten: frozenset[int] = frozenset()
        #: of the answers, those about message ids that nothing is known of: MQTT 5 has a reason code for them
        self.unknown: frozenset[Answer] = frozenset()
        #: message identifiers of messages that are to be sent again; None: no packet needed them yet
        self.resent_later: set[int] | None = None
        #: the rule that the last packet taken broke: what came before it counts, then the connection is closed
        self.violation = ""
        #: with which MQTT 5 tells the client so
        self.violation_code = ReasonCode.PROTOCOL_ERROR

    def qos_2(self, refused: Iterable[int]) -> set[int]:
        """Return the message ids of those publications, by index, that have QoS 2."""
        publications = self.publications
        return {publications[index][0].message_id for index in refused if publications[index][0].qos == 2}

    def answer_to(self, index: int) -> Answer:
        """Return the acknowledgement of a publication, by index; one that is never sent for QoS 0."""
        message = self.publications[index][0]
        return (_PUBACK if message.qos == 1 else _PUBREC), message.message_id

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
        unreleased: int = 65535,
        turn_bytes: int = SENT_AT_A_TURN,
        request_bytes: int = 262_144,
        backlog: Backlog | None = None,
    ) -> None:
        self.identity = identity
        self.client_id = identity.client_id
        self.durable = durable
        #: what it asked with MQTT 5, as far as answers do not say it
        self.requests = Requests(self.client_id, durable=durable, most_bytes=request_bytes)
        self.outbox = Outbox(window, self.requests, durable=durable, turn_bytes=turn_bytes, backlog=backlog)
        self.outbox.replies = identity.replies
        #: most message ids in `received`
        self.unreleased = unreleased
        #: message ids received with QoS 2 and not released (MQTT 3.1.1 section 4.3.3, method A)
        self.received: set[int] = set()
        #: `received` or `requests` has changed and has to be on record (durable sessions only)
        self.record = False
        #: topic filters subscribed to, with the user data of their subscriptions
        self.filters: dict[str, str] = {}
        #: shared subscriptions that it is a member of, by remote queue manager: `$share/NAME/FILTER`, user data
        self.shares: dict[str, tuple[str, str]] = {}
        #: seconds that it outlives its connection; 0: it ends with it (MQTT 5 section 3.1.2.11.2)
        self.expiry_interval: int = NEVER if durable else 0
        #: time.time() when it expires while its client is away; 0.0: it does not
        self.expires_at = 0.0
        #: it has been answered with CONNACK; what came for subscriptions before is not its own
        self.begun = False
        #: its client is connected, or its CONNECT is being committed
        self.connected = False
        #: time.time() when its client connected, or left; 0.0 where that is not known
        self.since = 0.0
        #: the channel by which its client is, or was last, connected; blank where that is not known
        self.channel = ""
        #: messages that its client has sent since it connected, and when the last of them came, in microseconds
        self.messages_received = 0
        self.last_received_at = 0
        #: the owner, whose clients alone may resume the session; None if no client has connected since an older bridge ran
        self.principal: Principal | None = None
        #: the network that the session began from; blank for a Unix socket, or if an older bridge wrote the record
        self.network = ""
        #: the protocol level by which its client is, or was last, connected; 0 where that is not known
        self.level = 0
        #: counts what its client publishes; None: nothing does
        self.counts: PublicationCounts | None = None
        #: which topics its channel lets its client use; None: any
        self.topics: TopicAccess | None = None
        #: clients that resume it while its subscriptions are being authorized for another one; None while none are
        self.resuming: list[Callable[[], None]] | None = None

    def attach(self, identity: ClientIdentity) -> None:
        """Begin a connection of the client: CONNACK is sent."""
        self.connected = self.begun = True
        self.messages_received = self.outbox.messages_sent = 0
        self.last_received_at, self.outbox.last_sent = 0, 0.0
        self.expires_at = 0.0
        self.identity = identity
        self.outbox.open = True
        self.outbox.uncertain = False

    def detach(self, now: float) -> None:
        """End a connection of the client at `now`, in seconds since the epoch; a durable session lives on for its expiry."""
        self.connected = self.outbox.open = False
        self.since = now
        self.expires_at = 0.0 if self.expiry_interval == NEVER else now + self.expiry_interval

    def receive(self, packets: Sequence[MessagePacket]) -> Work:
        """Take packets; what follows a packet that breaks a rule, which `violation` tells, is not taken."""
        work = Work()
        publications, answers = work.publications, work.answers
        identity, outbox, counts = self.identity, self.outbox, self.counts
        # By QoS, summed up here: this is done for each message.
        size_0, count_1, size_1 = 0, 0, 0
        before_2 = 0 if counts is None else counts.received_2
        try:
            for packet in packets:
                if type(packet) is Publish:
                    qos = packet.qos
                    if qos == 2:
                        if not self._receive_once(packet, work):
                            break
                        continue
                    publications.append((to_mq(packet, identity), packet.retain))
                    if packet.properties is not None and self.requests.add(packet.properties):
                        self.record = True
                    if qos:
                        answers.append((_PUBACK, packet.message_id))
                        count_1 += 1
                        size_1 += len(packet.payload)
                    else:
                        size_0 += len(packet.payload)
                elif type(packet) is Puback:
                    message_id = packet.message_id
                    transmission = outbox.acknowledge(message_id)
                    if transmission is not None:
                        work.removals.append(transmission)
                        work.acknowledged.append((message_id, transmission))
                elif type(packet) is Pubrec:
                    if packet.reason_code >= FAILURE:
                        self._rejected(packet.message_id, work)
                    else:
                        self._release(packet.message_id, work)
                elif type(packet) is Pubrel:
                    # The message id is forgotten on disk before PUBCOMP: the client may use it for another message then.
                    message_id = packet.message_id
                    if message_id in self.received:
                        self.received.discard(message_id)
                        work.forgotten |= {message_id}
                        self.record = self.durable
                    else:
                        work.ordered = True  # an earlier unit of work may be about to forget it
                        if message_id not in work.forgotten:
                            work.unknown |= {(_PUBCOMP, message_id)}
                    answers.append((_PUBCOMP, message_id))
                elif type(packet) is Pubcomp:
                    if outbox.complete(packet.message_id):
                        work.completed.append(packet.message_id)
                else:
                    answers.append(_PINGRESP)
        except WrongAcknowledgement as error:
            work.violation = str(error)
        work.weight += size_0 + size_1
        if counts is not None:
            counts.received_0 += len(publications) - count_1 - (counts.received_2 - before_2)
            counts.received_size_0 += size_0
            counts.received_1 += count_1
            counts.received_size_1 += size_1
        return work

    def _receive_once(self, publish: Publish, work: Work) -> bool:
        """Take a PUBLISH with QoS 2; return False for one too many that is not released."""
        message_id = publish.message_id
        if message_id not in self.received:
            if len(self.received) >= self.unreleased:
                work.violation = (
                    f"more than {self.unreleased} publications with QoS 2 are not released by PUBREL (limits.unreleased)"
                )
                work.violation_code = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
                return False
            self.received.add(message_id)
            work.publications.append((to_mq(publish, self.identity), publish.retain))
            work.weight += len(publish.payload)
            if self.counts is not None:
                self.counts.received_2 += 1
                self.counts.received_size_2 += len(publish.payload)
            if publish.properties is not None:
                self.requests.add(publish.properties)
            self.record = self.durable
            work.answers.append((_PUBREC, message_id))
        else:
            work.repeated.append(message_id)
        return True

    def _release(self, message_id: int, work: Work) -> None:
        outgoing, transmission = self.outbox.receive(message_id)
        if transmission is not None:
            work.removals.append(transmission)
        if outgoing is None:
            if message_id not in self.outbox.in_flight:
                if work.resent_later is None:
                    work.resent_later = self.outbox.resent_later()
                if message_id in work.resent_later:
                    # PUBLISH must not follow PUBREL (MQTT-4.3.3-6): PUBREL answers the PUBREC for the PUBLISH sent again.
                    return
                work.unknown |= {(_PUBREL, message_id)}
            work.answers.append((_PUBREL, message_id))
        elif transmission is not None:
            work.released.append((message_id, outgoing, transmission))

    def _rejected(self, message_id: int, work: Work) -> None:
        """Take a PUBREC of MQTT 5 that refuses the message: it is the client's, and there is no PUBREL (section 4.3.3)."""
        outgoing, transmission = self.outbox.receive(message_id)
        if outgoing is not None and transmission is not None:
            self.outbox.in_flight.reject(outgoing)
            work.removals.append(transmission)
            work.acknowledged.append((message_id, transmission))

    def committed(
        self, work: Work, refused: Collection[int], now: float, *, answerable: bool = True, answer_refused: bool = False
    ) -> list[Answer]:
        """Return what the client is told now that `work` is committed.

        `refused` are indices of publications that were not taken; they are acknowledged only where `answer_refused` says that
        the client is told why (MQTT 5). Where the connection that the packets came over is gone,
        `answerable` is False: PUBREL alone goes out over the one that has taken its place.
        """
        in_flight = self.outbox.in_flight
        for message_id, _ in work.acknowledged:
            in_flight.pop(message_id, None)
        answers = work.answers if answerable else []
        if work.released or work.completed:
            in_flight.free(work.completed)
            for message_id, outgoing, _ in work.released:
                outgoing.phase = Phase.AWAITING_PUBCOMP
                outgoing.payload = b""
                outgoing.sent_at = now
                answers.append((_PUBREL, message_id))
        if refused:
            if work.refused is None:
                self.refuse(work, refused)
            if not answer_refused:
                withheld = {work.answer_to(index) for index in refused}
                answers = [answer for answer in answers if answer not in withheld]
        if work.repeated and answerable:
            # A publication refused here may have come once more since: it is in a later unit of work, not committed yet.
            awaited = self.received - (work.refused or set())
            answers += [(_PUBREC, message_id) for message_id in work.repeated if message_id in awaited]
        return answers

    def failed(self, work: Work) -> None:
        """Take back what `work` did to the session: nothing of it took effect.

        What the client sent is unknown to MQ, what it acknowledged is still there.
        """
        unknown = {message.message_id for message, _ in work.publications if message.qos == 2}
        self.received -= unknown - (work.refused or set())
        self.outbox.restore(work.acknowledged + [(message_id, one) for message_id, _, one in work.released])
        for message_id in work.completed:
            self.outbox.in_flight.release(message_id, self.outbox.in_flight[message_id])
        self.requests.lose()
        self.record = self.outbox.record = self.durable

    def refuse(self, work: Work, refused: Iterable[int]) -> None:
        """Forget publications of `work`, by index, that are not taken.

        The client will send them again, and they are new then.
        """
        work.refused = work.qos_2(refused)
        self.received -= work.refused
        self.record = self.durable

    def received_record(self) -> ReceivedRecord:
        """Return the record of the receiving half, which is up to date with it."""
        self.record = False
        return ReceivedRecord(self.client_id, sorted(self.received))

    def sent_record(self) -> SentRecord:
        """Return the record of the sending half, which is up to date with it."""
        outbox = self.outbox
        outbox.record = False
        released, sent = [], []
        for message_id, outgoing in outbox.in_flight.items():
            if outgoing.phase in (Phase.RELEASING, Phase.AWAITING_PUBCOMP):
                released.append(message_id)
            elif outgoing.transmission is not None:
                sent.append(outgoing.transmission.msg_number)
        return SentRecord(
            self.client_id,
            released,
            list(outbox.assigned.items()),
            sent,
            connected=self.connected,
            expiryInterval=self.expiry_interval,
            expiresAt=self.expires_at,
            shares=list(self.shares.values()),
            since=self.since,
            channel=self.channel,
            principal=self.principal,
            network=self.network,
            mqUser=self.identity.user.decode("utf-8", "replace"),
        )

    def restore(self, record: SessionRecord, now: float) -> None:
        """Take over a record after a restart, at `now` in seconds since the epoch.

        The time of a client that was connected when the bridge died begins to run now.
        """
        if isinstance(record, ReceivedRecord):
            self.received = set(record.received)
            return
        if isinstance(record, RequestRecord):
            self.requests.restore(record)
            return
        self.outbox.assigned = dict(record.assigned)
        # A message may have been sent if it has a message identifier. `sent` lacks those that were taken back and not resent.
        self.outbox.sent_before = {*record.sent, *self.outbox.assigned}
        self.outbox.uncertain = record.connected
        self.expiry_interval = record.expiryInterval
        self.expires_at = record.expiresAt
        self.since, self.channel = record.since, record.channel
        self.principal, self.network = record.principal, record.network
        self.identity = ClientIdentity(self.client_id, record.mqUser.encode(), self.identity.replies)
        self.shares = {shared_subscription(one[0]).remote_queue_manager: one for one in record.shares}
        if record.connected:
            self.detach(now)
        for message_id in record.released:
            self.outbox.in_flight.release(message_id, Outgoing(None, 2, b"", b"", False, Phase.AWAITING_PUBCOMP))
