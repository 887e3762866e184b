"""Publications to the broker, their pending acknowledgements, and the conversion from and to PUBLISH packets.

A worker and the network thread share the outbox. MQTT does not identify the publisher to subscribers. Two User Properties do:
the client identifier of the original publisher, and the mappings on the path. They are used only if the link's publishers
are trusted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from bridge.link.client import HIGHEST_PACKET_ID, Answer
from bridge.link.state import Limits, LinkCounters, LinkLost, PublicationRefusal
from bridge.link.violations import Reaction, Violation, Violations
from bridge.mqtt.flow import (
    FAILED_PUBREC,
    PUBACK,
    PUBCOMP,
    PUBREC,
    SENT,
    Delivery,
    Phase,
    SenderWindow,
    Step,
    WrongAcknowledgement,
)
from bridge.mqtt.packets import MAX_REMAINING_LENGTH, PacketType, Puback, Pubcomp, Publish, PublishProperties, Pubrec
from bridge.mqtt.properties import encode_properties
from bridge.mqtt.reason_codes import FAILURE, MalformedPacket, ReasonCode, reason_name
from bridge.mqtt.writer import encode_acknowledgement, encode_publish, encode_publish_5, topic_field
from bridge.telemetry.headers import kept, whole_seconds
from bridge.telemetry.message import NO_PROPERTIES, Publication, Received

#: User Property: the mappings that forwarded a publication, comma-separated, oldest first
HOPS = "mqbridge-hops"
#: User Property: client identifier of the original publisher
CLIENT_ID = "mqbridge-clientId"

# Enum member access is slow, so bind once.
_PUBLISH = PacketType.PUBLISH

_NEVER = 0xFFFFFFFF
"""The largest Message Expiry Interval in seconds (136 years)."""


def to_properties(publication: Publication) -> PublishProperties:
    """Return a publication's MQTT 5 properties. The expiry is rounded up to whole seconds."""
    users = publication.properties.user_property
    if users:
        users = tuple([pair for pair in users if pair[0] not in (HOPS, CLIENT_ID)])
    if publication.client_id:
        users += ((CLIENT_ID, publication.client_id),)
    if publication.hops:
        users += ((HOPS, ",".join(publication.hops)),)
    expiry = publication.expiry
    return msgspec.structs.replace(
        publication.properties,
        message_expiry_interval=None if expiry is None else min(whole_seconds(expiry), _NEVER),
        user_property=users,
    )


def received(packet: Publish, origin: str, generation: int, trusted: bool) -> Received:
    """Convert a PUBLISH from the broker.

    `origin` becomes the client identifier unless the link is `trusted` and a property contains one. Subscription Identifiers
    are ignored. Raises MalformedPacket for a Topic Alias.
    """
    properties = packet.properties
    qos = packet.qos
    publication = Publication(
        topic=packet.topic,
        payload=packet.payload,
        qos=qos,
        retain=packet.retain,
        packet_id=packet.packet_id,
        client_id=origin,
    )
    if properties is not None:
        _set_properties(properties, publication, trusted)
    return Received(publication, qos, packet.packet_id, packet.dup, generation)


def _set_properties(properties: PublishProperties, publication: Publication, trusted: bool) -> None:
    if properties.topic_alias is not None:
        raise MalformedPacket(
            "PUBLISH", 0, f"MQTT-3.3.2-11: Topic Alias is {properties.topic_alias}, of which the link allows none"
        )
    users = properties.user_property
    if users:
        own = dict(users)
        hops, client_id = own.get(HOPS), own.get(CLIENT_ID)
        if hops is not None or client_id is not None:
            users = tuple([pair for pair in users if pair[0] not in (HOPS, CLIENT_ID)])
            properties = msgspec.structs.replace(properties, user_property=users)
        if trusted:
            if hops is not None:
                publication.hops = tuple(hops.split(",")) if hops else ()
            if client_id is not None:
                publication.client_id = client_id
    if properties.message_expiry_interval is not None:
        publication.expiry = float(properties.message_expiry_interval)
    publication.properties = kept(properties) or NO_PROPERTIES


def encode(
    publication: Publication, packet_id: int, dup: bool, version_5: bool, limits: Limits
) -> bytes | PublicationRefusal:
    """Encode a PUBLISH, or return why the broker would reject it. `packet_id` and `dup` apply to QoS 1 and 2 only."""
    qos = publication.qos
    retain = publication.retain
    if qos > limits.maximum_qos:
        return _refusal(ReasonCode.QOS_NOT_SUPPORTED, f"QoS {qos}, the broker supports at most {limits.maximum_qos}")
    if retain and not limits.retain_available:
        return _refusal(ReasonCode.RETAIN_NOT_SUPPORTED, "the broker keeps no retained publications")
    try:
        field = topic_field(publication.topic)
    except MalformedPacket as error:
        return _refusal(ReasonCode.TOPIC_NAME_INVALID, error.rule)
    properties = b""
    if version_5:
        try:
            properties = encode_properties(_PUBLISH, to_properties(publication))
        except MalformedPacket as error:
            return _refusal(ReasonCode.UNSPECIFIED_ERROR, error.rule)
    if len(field) + len(properties) + len(publication.payload) + 2 > MAX_REMAINING_LENGTH:
        return _refusal(ReasonCode.PACKET_TOO_LARGE, f"MQTT allows {MAX_REMAINING_LENGTH} bytes")
    again, packet_id = (dup, packet_id) if qos else (False, 0)
    if version_5:
        packet = encode_publish_5(field, properties, publication.payload, qos, retain, again, packet_id)
    else:
        packet = encode_publish(field, publication.payload, qos, retain, again, packet_id)
    if len(packet) > limits.maximum_packet_size:
        return _refusal(
            ReasonCode.PACKET_TOO_LARGE, f"{len(packet)} bytes, the broker accepts {limits.maximum_packet_size}"
        )
    return packet


def refusal(answer: Puback | Pubrec | Pubcomp) -> PublicationRefusal:
    """Return the refusal of an acknowledgement with a failure reason code."""
    text = reason_name(answer.reason_code)
    if answer.properties is not None and answer.properties.reason_string:
        text = f"{text} ({answer.properties.reason_string})"
    return PublicationRefusal(answer.reason_code, text)


def _refusal(reason: ReasonCode, why: str) -> PublicationRefusal:
    return PublicationRefusal(reason, f"{reason_name(reason)}: {why}")


# Enum member access is slow, so bind once.
_PUBREL = PacketType.PUBREL
_RELEASING, _COMPLETED = Phase.RELEASING, Phase.COMPLETED

_AT_ONCE = 1000
"""The number of publications to encode before passing them to the network thread, which writes them in parallel."""


def _column(answer: Answer) -> int:
    """Return the acknowledgement table's column for an acknowledgement."""
    if isinstance(answer, Pubrec):
        return PUBREC if answer.reason_code < FAILURE else FAILED_PUBREC
    return PUBCOMP if isinstance(answer, Pubcomp) else PUBACK


class LinkOutbox:
    """Sends the publications of one call at a time, within the in-flight limits of the broker and the configuration."""

    def __init__(
        self,
        limit: int,
        version_5: bool,
        counters: LinkCounters,
        submit: Callable[[int, bytes], object],
        abandon: Callable[[int, str], None],
        configured: Limits | None = None,
        violations: Violations | None = None,
    ) -> None:
        """Create an outbox without a connection.

        `submit` writes packets to the connection of a generation. `abandon` closes that connection for a reason. `configured`
        limits apply in addition to the broker's, because MQTT 3.1.1 brokers do not announce any. `violations` are those of
        the link's broker.
        """
        self._limit = limit
        self._version_5 = version_5
        self._counters = counters
        self._submit = submit
        self._abandon = abandon
        self._calls = threading.Lock()
        self._changed = threading.Condition()
        #: generation of the current connection, or 0 if not connected
        self._generation = 0
        #: the broker address of the connection, and the address that `publish_exactly` and `release` require, or "" for any
        self._address = self.bound = ""
        #: the broker acknowledges QoS 2 with PUBACK, so QoS 1 is used from then on
        self.no_qos_2 = False
        #: why the broker does not support exactly-once delivery, or ""
        self.unsuitable = ""
        self._violations = violations or Violations()
        self._violation: Violation | None = None
        self._error = "not connected yet"
        #: an attempt to connect has failed, or a connection was lost
        self._has_failed = False
        self._configured = configured or Limits()
        self.limits = self._configured
        self._window: SenderWindow[Delivery] = SenderWindow()
        #: packet identifier -> index in the call, for the publications that the call waits for. Others in the window are
        #: held: the broker has answered with PUBREC, and only `release` sends PUBREL.
        self._positions: dict[int, int] = {}
        #: the current call waits only for PUBREC, or is `release`
        self._holding = False
        self._refusals: dict[int, PublicationRefusal] = {}
        #: indices in the call that were unacknowledged when the connection was lost
        self._unanswered: set[int] = set()
        #: wake the caller when at most this number is unacknowledged
        self._enough = 0
        #: packet identifiers of interrupted QoS 2 flows that the broker may still know
        self._stale: set[int] = set()
        #: packet identifiers that the broker has answered with PUBREC and not yet with PUBCOMP, in the order of PUBREC
        self._recorded: dict[int, None] = {}
        self._last_packet_id = 0
        self._submitted = self._written = 0

    @property
    def in_flight_limit(self) -> int:
        """See LinkConnection.in_flight_limit."""
        return min(self._limit, self.limits.receive_maximum)

    @property
    def in_flight(self) -> int:
        """See LinkConnection.in_flight."""
        return len(self._window.deliveries)

    @property
    def waiting(self) -> bool:
        """Whether a call waits for acknowledgements."""
        return bool(self._positions)

    @property
    def _held(self) -> int:
        """The number of publications that are held."""
        return len(self._window.deliveries) - len(self._positions)

    # On the network thread -------------------------------------------------------------------------------------------

    def begin(self, generation: int, limits: Limits, session_present: bool, address: str = "") -> None:
        """Start a connection to an address that is ready for sending."""
        with self._changed:
            self._address = address
            self._generation = generation
            self.limits = msgspec.structs.replace(
                limits,
                maximum_qos=min(limits.maximum_qos, self._configured.maximum_qos, 1 if self.no_qos_2 else 2),
                retain_available=limits.retain_available and self._configured.retain_available,
                maximum_packet_size=min(limits.maximum_packet_size, self._configured.maximum_packet_size),
            )
            self._clear()
            self._window.receive_maximum = self.in_flight_limit
            if not session_present:
                self._stale.clear()
                self._recorded.clear()
            stale = self._in_order_of_pubrec(sorted(self._stale))
            self._submitted = self._written = 0
            self._changed.notify_all()
        if stale:
            # The worker sends the affected publications again with other packet identifiers.
            self._submit(generation, _releases(stale))

    def lost(self, error: str, violation: Violation | None = None) -> None:
        """End the current call, because the connection was lost."""
        with self._changed:
            self._generation, self._error = 0, error
            self._has_failed = True
            self._violation = violation
            self._unanswered.update(self._positions.values())
            if not self._holding:
                deliveries = self._window.deliveries
                self._stale.update(
                    packet_id
                    for packet_id in self._positions
                    if deliveries[packet_id].phase is not Phase.AWAITING_PUBACK
                )
            self._clear()
            self._changed.notify_all()

    def _clear(self) -> None:
        self._window.clear()
        self._positions.clear()

    def written(self, everything: Callable[[], bool]) -> None:
        """Note that all submitted packets have been written, if `everything` returns True."""
        if self._written == self._submitted:
            return
        with self._changed:
            # Under the lock, so that nothing is submitted during the check.
            if everything():
                self._written = self._submitted
                self._changed.notify_all()

    def answered(self, answers: Iterable[Answer]) -> None:
        """Process received PUBACKs, PUBRECs and PUBCOMPs.

        Raises WrongAcknowledgement, after which the caller must close the connection.
        """
        releases = []
        with self._changed:
            window = self._window
            for answer in answers:
                packet_id = answer.packet_id
                try:
                    delivery, step = window.answered(_column(answer), packet_id)
                except WrongAcknowledgement as wrong:
                    self._accept(answer, wrong)
                    continue
                if step is _RELEASING:
                    # If the publication was sent again, the last PUBREC counts.
                    self._recorded.pop(packet_id, None)
                    self._recorded[packet_id] = None
                elif isinstance(answer, Pubcomp):
                    self._recorded.pop(packet_id, None)
                if delivery is None or isinstance(step, Step):
                    if step is Step.PUBREL and (delivery is not None or packet_id in self._stale):
                        # The worker may still send any other packet identifier again, and PUBLISH must not follow PUBREL
                        # (MQTT 5.0 section 4.3.3). PUBREL then answers the PUBREC for that PUBLISH.
                        releases.append(packet_id)
                    elif isinstance(answer, Pubcomp):
                        self._stale.discard(packet_id)
                elif step is _RELEASING and not self._holding:
                    self._counters.sent += 1
                    window.move(delivery, Phase.AWAITING_PUBCOMP)
                    releases.append(packet_id)
                else:
                    position = self._positions.pop(packet_id)
                    if step is not _RELEASING:
                        window.free((packet_id,))
                    # PUBCOMP is final for any reason code: Packet Identifier not found means that the flow was complete
                    # before.
                    if step is not _COMPLETED:
                        if answer.reason_code >= FAILURE:
                            self._refusals[position] = refusal(answer)
                        else:
                            self._counters.sent += 1
            generation = self._generation
            if len(self._positions) <= self._enough:
                self._changed.notify_all()
        if releases:
            self._submit(generation, _releases(releases))

    def _accept(self, answer: Answer, wrong: WrongAcknowledgement) -> None:
        """Accept an acknowledgement that MQTT forbids, if that is the configured reaction. Otherwise raise it again."""
        packet_id = answer.packet_id
        for_qos_2 = isinstance(answer, Puback) and packet_id in self._positions
        violation = Violation.PUBACK_FOR_QOS_2 if for_qos_2 else Violation.WRONG_ACKNOWLEDGEMENT
        reaction = self._violations.react(violation, exactly=self._holding)
        if for_qos_2:
            self.no_qos_2 = True
            self.limits = msgspec.structs.replace(self.limits, maximum_qos=min(self.limits.maximum_qos, 1))
        if reaction is Reaction.STOP:
            self.unsuitable = str(wrong)
        if reaction is not Reaction.ACCEPT or packet_id not in self._positions:
            raise wrong
        position = self._positions.pop(packet_id)
        self._window.free((packet_id,))
        if answer.reason_code >= FAILURE:
            self._refusals[position] = refusal(answer)
        else:
            self._counters.sent += 1

    # On the worker's thread ------------------------------------------------------------------------------------------

    def wait_ready(self, wait: float, *, once: bool = False) -> bool:
        """Wait up to `wait` seconds for a connection, or with `once` for the first attempt. Return whether connected."""
        with self._changed:
            self._changed.wait_for(lambda: self._generation != 0 or (once and self._has_failed), wait)
            return self._generation != 0

    def publish(
        self,
        publications: Sequence[Publication],
        packet_ids: Sequence[int] | None,
        dup: bool,
        exactly_once: bool,
        timeout: float,
    ) -> dict[int, PublicationRefusal]:
        """Implement LinkConnection.publish and, with `exactly_once`, LinkConnection.publish_exactly."""
        if packet_ids is not None:
            _check_packet_ids(packet_ids, len(publications))
        start = time.monotonic()
        deadline = start + timeout
        with self._calls:
            with self._changed:
                generation = self._begin_call(exactly_once)
                limit = self.in_flight_limit - self._held
                # Publications that the broker already has are not sent again on the same connection (MQTT-4.4.0-1).
                new = (
                    sum(packet_id not in self._window.deliveries for packet_id in packet_ids)
                    if exactly_once and packet_ids is not None
                    else 1
                )
                if limit < new:
                    raise ValueError(
                        f"{new} publications at once: {self.in_flight_limit} may be in flight, and"
                        f" {self._held} are not released"
                    )
            position = 0
            try:
                while position < len(publications):
                    with self._changed:
                        # Refill the window in halves, so that neither side idles and few wake-ups are needed.
                        self._await(generation, limit // 2, False, deadline)
                        room = self._window.room
                    position = self._send(generation, publications, position, packet_ids, dup, exactly_once, room)
                with self._changed:
                    self._await(generation, 0, True, deadline)
            except LinkLost as error:
                if not exactly_once:
                    with self._changed:
                        unsent = range(position, len(publications))
                        error.unanswered = sorted({*self._unanswered, *self._refusals, *unsent})
                raise
            with self._changed:
                refusals, self._refusals = self._refusals, {}
                self._counters.sent += sum(
                    not publication.qos and index not in refusals for index, publication in enumerate(publications)
                )
                self._counters.refused += len(refusals)
                self._counters.seconds.observe(time.monotonic() - start)
                return refusals

    def release(self, packet_ids: Sequence[int], timeout: float) -> None:
        """Implement LinkConnection.release."""
        _check_packet_ids(packet_ids, len(packet_ids))
        deadline = time.monotonic() + timeout
        with self._calls, self._changed:
            generation = self._begin_call(True)
            self._add((packet_id, Phase.AWAITING_PUBCOMP, index) for index, packet_id in enumerate(packet_ids))
            self._hand_over(generation, _releases(self._in_order_of_pubrec(packet_ids)))
            self._await(generation, 0, True, deadline)

    def _in_order_of_pubrec(self, packet_ids: Sequence[int]) -> list[int]:
        """Return packet identifiers in the order of PUBREL (MQTT-4.6.0-4). Those of earlier processes precede the others."""
        positions = {packet_id: position for position, packet_id in enumerate(self._recorded)}
        return sorted(packet_ids, key=lambda packet_id: positions.get(packet_id, -1))

    def _begin_call(self, holding: bool) -> int:
        failure = None
        if not self._generation:
            failure = self._lost()
        elif holding and self.bound not in ("", self._address):
            failure = LinkLost(f"the link is connected to {self._address} instead of {self.bound}")
        if failure is not None:
            failure.unsent = True
            raise failure
        self._refusals, self._unanswered = {}, set()
        self._holding = holding
        return self._generation

    def _send(
        self,
        generation: int,
        publications: Sequence[Publication],
        position: int,
        packet_ids: Sequence[int] | None,
        dup: bool,
        exactly_once: bool,
        room: int,
    ) -> int:
        """Send publications starting at `position`. Return the position after the last one sent."""
        packets: list[bytes] = []
        entries: list[tuple[int, Phase, int]] = []
        refusals: dict[int, PublicationRefusal] = {}
        end = min(len(publications), position + _AT_ONCE)
        while position < end:
            publication = publications[position]
            if self.no_qos_2 and publication.qos == 2 and not exactly_once:
                publication = msgspec.structs.replace(publication, qos=1)
            qos = publication.qos
            if exactly_once and packet_ids is not None and packet_ids[position] in self._window.deliveries:
                position += 1
                continue
            if qos:
                if len(entries) == room:
                    break
                packet_id = self._new_packet_id() if packet_ids is None else packet_ids[position]
            else:
                packet_id = 0
            packet = encode(publication, packet_id, dup, self._version_5, self.limits)
            if isinstance(packet, PublicationRefusal):
                refusals[position] = packet
            else:
                packets.append(packet)
                if qos:
                    entries.append((packet_id, SENT[qos], position))
            position += 1
        with self._changed:
            if self._generation != generation:
                raise self._lost()
            self._refusals |= refusals
            self._add(entries)
            self._hand_over(generation, b"".join(packets))
        return position

    def _add(self, deliveries: Iterable[tuple[int, Phase, int]]) -> None:
        """Add packet identifiers with their phases and call indices."""
        for packet_id, phase, position in deliveries:
            # A released publication may still be in the window.
            self._window.free((packet_id,))
            self._window.add(packet_id, Delivery(phase))
            self._positions[packet_id] = position

    def _hand_over(self, generation: int, packets: bytes) -> None:
        if packets:
            self._submitted += 1
            self._submit(generation, packets)

    def _await(self, generation: int, enough: int, until_written: bool, deadline: float) -> None:
        """Wait until at most `enough` are unacknowledged and, if `until_written`, all output is written. Needs the lock."""

        def over() -> bool:
            return self._generation != generation or (
                len(self._positions) <= enough and not (until_written and self._written != self._submitted)
            )

        self._enough = enough
        if not over() and not self._changed.wait_for(over, max(deadline - time.monotonic(), 0)):
            # The packet identifiers cannot be reused on this connection, so it must be closed.
            error = f"the broker did not acknowledge {len(self._positions) or 'all'} publications in time"
            self._generation, self._error = 0, error
            self._unanswered.update(self._positions.values())
            self._violation = Violation.UNANSWERED
            self._abandon(generation, error)
            raise self._lost()
        if self._generation != generation:
            raise self._lost()

    def _lost(self) -> LinkLost:
        failure = LinkLost(self._error)
        failure.violation = self._violation
        return failure

    def _new_packet_id(self) -> int:
        self._last_packet_id = self._window.free_identifier(self._last_packet_id + 1, self._stale, HIGHEST_PACKET_ID)
        return self._last_packet_id


def _releases(packet_ids: Iterable[int]) -> bytes:
    return b"".join(encode_acknowledgement(_PUBREL, packet_id) for packet_id in packet_ids)


def _check_packet_ids(packet_ids: Sequence[int], number: int) -> None:
    if (
        len(packet_ids) != number
        or len(set(packet_ids)) != number
        or not all(0 < packet_id <= HIGHEST_PACKET_ID for packet_id in packet_ids)
    ):
        raise ValueError(f"message ids have to be {number} different numbers of 1 to {HIGHEST_PACKET_ID}: {packet_ids}")
