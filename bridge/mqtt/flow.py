"""The state machines of QoS 1 and 2, of sender and receiver (MQTT 3.1.1 sections 4.3.2, 4.3.3, 4.8; MQTT 5.0 section 4.9).

Sessions and links use them. The states of the sender:

    QoS 1:  AWAITING_PUBACK -> ACKNOWLEDGED -> (free)
    QoS 2:  AWAITING_PUBREC -> RELEASING -> AWAITING_PUBCOMP -> COMPLETED -> (free)

ACKNOWLEDGED, RELEASING and COMPLETED last until the effect of the acknowledgement is committed. After a crash, the
message would be sent again, so its packet identifier must not be reused before the commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import Enum, IntEnum
from typing import Final, Generic, TypeVar


class WrongAcknowledgement(Exception):
    """An acknowledgement of the wrong kind for a packet identifier that is in flight (MQTT 3.1.1 section 4.8)."""


class Phase(IntEnum):
    """The progress of a delivery with QoS 1 or 2."""

    #: PUBLISH with QoS 1 is sent
    AWAITING_PUBACK = 1
    #: PUBACK, or a PUBREC that rejects the message, was received and is not committed yet
    ACKNOWLEDGED = 2
    #: PUBLISH with QoS 2 is sent
    AWAITING_PUBREC = 3
    #: PUBREC was received, its record is not committed yet, and PUBREL is not sent
    RELEASING = 4
    #: PUBREL is sent
    AWAITING_PUBCOMP = 5
    #: PUBCOMP was received and is not committed yet
    COMPLETED = 6


class Step(Enum):
    """The effect of an acknowledgement that does not move a delivery to another phase."""

    #: the acknowledgement is late, or its packet identifier is unknown
    NOTHING = "nothing"
    #: PUBREL is sent at once, because the message is already released, or unknown (MQTT-4.3.3-1)
    PUBREL = "PUBREL"


_QOS_1: Final = "MQTT 3.1.1 section 4.3.2: a message with QoS 1 is acknowledged by PUBACK"
_QOS_2: Final = "MQTT 3.1.1 section 4.3.3: a message with QoS 2 is acknowledged by PUBREC, then PUBCOMP"
_EARLY: Final = "MQTT 3.1.1 section 4.3.3: PUBCOMP answers PUBREL, which was not sent yet"

#: Columns of STEPS. A PUBREC with a reason code of failure ends the delivery without PUBREL (MQTT 5.0 section 4.3.3).
PUBACK, PUBREC, PUBCOMP, FAILED_PUBREC = range(4)
_PACKETS: Final = ("PUBACK", "PUBREC", "PUBCOMP", "PUBREC")

_Step = Phase | Step | str
#: phase, or None for an unknown packet identifier -> the effects of PUBACK, PUBREC, PUBCOMP and a failed PUBREC: the next
#: phase, a step without a change of the phase, or the statement that the packet breaks
STEPS: Final[dict[Phase | None, tuple[_Step, _Step, _Step, _Step]]] = {
    None: (Step.NOTHING, Step.PUBREL, Step.NOTHING, Step.NOTHING),
    Phase.AWAITING_PUBACK: (Phase.ACKNOWLEDGED, _QOS_1, _QOS_1, _QOS_1),
    Phase.ACKNOWLEDGED: (Step.NOTHING, _QOS_1, _QOS_1, _QOS_1),
    Phase.AWAITING_PUBREC: (_QOS_2, Phase.RELEASING, _EARLY, Phase.ACKNOWLEDGED),
    Phase.RELEASING: (_QOS_2, Step.NOTHING, _EARLY, Step.NOTHING),
    Phase.AWAITING_PUBCOMP: (_QOS_2, Step.PUBREL, Phase.COMPLETED, Step.NOTHING),
    Phase.COMPLETED: (_QOS_2, Step.NOTHING, Step.NOTHING, Step.NOTHING),
}
#: The phase of a delivery after PUBLISH, by QoS.
SENT: Final = {1: Phase.AWAITING_PUBACK, 2: Phase.AWAITING_PUBREC}
#: By phase: 1 if neither PUBACK nor PUBREC was received. Phases begin with 1.
_UNACKNOWLEDGED: Final = (0, 1, 0, 1, 0, 0, 0)
#: By phase: 1 if the receiver owes PUBACK or PUBCOMP, which a Receive Maximum counts.
_UNFINISHED: Final = (0, 1, 0, 1, 1, 1, 0)
#: By phase: 1 if PUBACK or PUBREC was received, and the removal of the message is not committed.
_UNREMOVED: Final = (0, 0, 1, 0, 1, 0, 0)
#: The largest packet identifier, and so the largest window.
MAX_IDENTIFIER: Final = 65_535


class Delivery:
    """One message with QoS 1 or 2 in a window. Subclasses add data about the message."""

    __slots__ = ("phase",)

    def __init__(self, phase: Phase) -> None:
        self.phase = phase


D = TypeVar("D", bound=Delivery)


class SenderWindow(Generic[D]):
    """Deliveries that the receiver has not acknowledged completely, by packet identifier, in sending order."""

    __slots__ = ("deliveries", "receive_maximum", "size", "unacknowledged", "unfinished", "unremoved")

    def __init__(self, size: int = MAX_IDENTIFIER, receive_maximum: int = MAX_IDENTIFIER) -> None:
        self.deliveries: dict[int, D] = {}
        #: the maximum number of unacknowledged deliveries
        self.size = size
        #: the maximum number of unfinished deliveries (MQTT 5.0 section 4.9)
        self.receive_maximum = receive_maximum
        #: the number of deliveries for which neither PUBACK nor PUBREC was received
        self.unacknowledged = 0
        #: the number of deliveries for which the receiver owes PUBACK or PUBCOMP
        self.unfinished = 0
        #: the number of acknowledged deliveries for which the removal of the message is not committed
        self.unremoved = 0

    @property
    def room(self) -> int:
        """The number of deliveries that may be added. It is negative after a limit was lowered."""
        room, unfinished_room = self.size - self.unacknowledged, self.receive_maximum - self.unfinished
        return room if room < unfinished_room else unfinished_room  # `min` takes three times as long

    def free_identifier(self, candidate: int, reserved: Container[int] = (), highest: int = MAX_IDENTIFIER) -> int:
        """Return the first packet identifier, starting at `candidate`, that is neither in the window nor reserved.

        1 follows `highest`. Raises ValueError if all are in use, which the limits of the window prevent.
        """
        for _ in range(highest + 1):
            if not 0 < candidate <= highest:
                candidate = 1
            if candidate not in self.deliveries and candidate not in reserved:
                return candidate
            candidate += 1
        raise ValueError(f"all {highest} packet identifiers are in flight")

    def add(self, identifier: int, delivery: D) -> None:
        """Add a delivery under a packet identifier that is not in the window."""
        self.deliveries[identifier] = delivery
        phase = delivery.phase
        self.unacknowledged += _UNACKNOWLEDGED[phase]
        self.unfinished += _UNFINISHED[phase]
        self.unremoved += _UNREMOVED[phase]

    def move(self, delivery: D, phase: Phase) -> None:
        """Move a delivery of the window to another phase."""
        before = delivery.phase
        delivery.phase = phase
        self.unacknowledged += _UNACKNOWLEDGED[phase] - _UNACKNOWLEDGED[before]
        self.unfinished += _UNFINISHED[phase] - _UNFINISHED[before]
        self.unremoved += _UNREMOVED[phase] - _UNREMOVED[before]

    def answered(self, packet: int, identifier: int) -> tuple[D | None, Phase | Step]:
        """Process an acknowledgement, given by its column of STEPS. Return its delivery, or None, and the step.

        Raises WrongAcknowledgement if MQTT forbids the packet in the phase of the delivery.
        """
        delivery = self.deliveries.get(identifier)
        step = STEPS[None if delivery is None else delivery.phase][packet]
        if isinstance(step, str):
            raise WrongAcknowledgement(f"{_PACKETS[packet]} for message id {identifier}: {step}")
        if delivery is not None and isinstance(step, Phase):
            self.move(delivery, step)
        return delivery, step

    def free(self, identifiers: Iterable[int]) -> None:
        """Remove existing deliveries. Their packet identifiers can be reused."""
        for identifier in identifiers:
            delivery = self.deliveries.pop(identifier, None)
            if delivery is not None:
                self.unacknowledged -= _UNACKNOWLEDGED[delivery.phase]
                self.unfinished -= _UNFINISHED[delivery.phase]
                self.unremoved -= _UNREMOVED[delivery.phase]

    def clear(self) -> None:
        """Remove all deliveries."""
        self.deliveries.clear()
        self.unacknowledged = self.unfinished = self.unremoved = 0


class Arrival(Enum):
    """The receiver's classification of a QoS 2 PUBLISH."""

    NEW = "new"
    #: PUBREC is sent, but the message is not delivered again
    REPEATED = "repeated"
    #: the sender has exceeded the limit of unreleased publications
    TOO_MANY = "too many"


#: whether the packet identifier was received and not released -> classification of a PUBLISH
ARRIVALS: Final = {False: Arrival.NEW, True: Arrival.REPEATED}


#: Shared by receivers without packet identifiers, which are most. An empty set takes 216 bytes.
_NONE: Final[frozenset[int]] = frozenset()


class Receiver:
    """Packet identifiers received with QoS 2 and not released by PUBREL (MQTT 3.1.1 figure 4.3, method B)."""

    __slots__ = ("identifiers", "limit")

    def __init__(self, identifiers: Iterable[int] = (), limit: int = MAX_IDENTIFIER) -> None:
        self.identifiers: set[int] | frozenset[int] = set(identifiers) or _NONE
        #: the maximum number of packet identifiers
        self.limit = limit

    def arrival(self, identifier: int) -> Arrival:
        """Classify a PUBLISH, and store its packet identifier if it is new."""
        arrival = ARRIVALS[identifier in self.identifiers]
        if arrival is Arrival.NEW:
            if len(self.identifiers) >= self.limit:
                return Arrival.TOO_MANY
            if isinstance(self.identifiers, frozenset):
                self.identifiers = {identifier}
            else:
                self.identifiers.add(identifier)
        return arrival

    def release(self, identifier: int) -> bool:
        """Process a PUBREL. Return whether its packet identifier was known. PUBCOMP is sent in either case."""
        identifiers = self.identifiers
        if isinstance(identifiers, frozenset) or identifier not in identifiers:
            return False
        identifiers.discard(identifier)
        return True
