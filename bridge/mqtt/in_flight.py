"""The window of one session: messages sent with QoS 1 and 2 that the client has not acknowledged in full. No I/O.

Each has a phase, and `STEPS` says of each acknowledgement what it does in each phase (MQTT 3.1.1 sections 4.3.2, 4.3.3, 4.8):

    QoS 1:  RECORDING -> AWAITING_PUBACK -> ACKNOWLEDGED -> (free)
    QoS 2:  RECORDING -> AWAITING_PUBREC -> RELEASING -> AWAITING_PUBCOMP -> COMPLETED -> (free)

ACKNOWLEDGED, RELEASING and COMPLETED last until the queue manager has committed what the acknowledgement says: after a crash
the message would go out again, and must not find its message id with another.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final

import msgspec

from bridge.mapping.telemetry.transmission import Transmission
from bridge.mqtt.protocol import ServerProtocol


class WrongAcknowledgement(Exception):
    """An acknowledgement of the wrong kind for a message id that is in flight (MQTT 3.1.1 section 4.8); words for the log."""


class Phase(IntEnum):
    """How far the handshake of a message with QoS 1 or 2 has come."""

    #: its message id is not the one that its MsgId prescribes, and must be on record before it is used
    RECORDING = 0
    #: PUBLISH with QoS 1 is sent
    AWAITING_PUBACK = 1
    #: PUBACK came; that is not committed yet
    ACKNOWLEDGED = 2
    #: PUBLISH with QoS 2 is sent
    AWAITING_PUBREC = 3
    #: PUBREC came; its record is not committed yet, and PUBREL not sent
    RELEASING = 4
    #: PUBREL is sent
    AWAITING_PUBCOMP = 5
    #: PUBCOMP came; that is not committed yet
    COMPLETED = 6


_AWAITING_PUBACK = Phase.AWAITING_PUBACK


class Step(Enum):
    """What an acknowledgement does where it moves no message to another phase."""

    #: it is late, or of a message id that nothing was sent under: nobody is harmed
    NOTHING = "nothing"
    #: it is answered by PUBREL at once: the message is released already, or unknown (MQTT-4.3.3-1)
    PUBREL = "PUBREL"


_NOTHING, _PUBREL = Step.NOTHING, Step.PUBREL
_QOS_1 = "MQTT 3.1.1 section 4.3.2: a message with QoS 1 is acknowledged by PUBACK"
_QOS_2 = "MQTT 3.1.1 section 4.3.3: a message with QoS 2 is acknowledged by PUBREC, then PUBCOMP"
_EARLY = "MQTT 3.1.1 section 4.3.3: PUBCOMP answers PUBREL, which was not sent yet"

#: phase (None: the message id is unknown) -> what PUBACK, PUBREC and PUBCOMP do: the next phase, a step that moves nothing,
#: or the statement that they break
STEPS: Final[dict[Phase | None, tuple[Phase | Step | str, Phase | Step | str, Phase | Step | str]]] = {
    None: (_NOTHING, _PUBREL, _NOTHING),
    Phase.RECORDING: (_NOTHING, _PUBREL, _NOTHING),
    Phase.AWAITING_PUBACK: (Phase.ACKNOWLEDGED, _QOS_1, _QOS_1),
    Phase.ACKNOWLEDGED: (_NOTHING, _QOS_1, _QOS_1),
    Phase.AWAITING_PUBREC: (_QOS_2, Phase.RELEASING, _EARLY),
    Phase.RELEASING: (_QOS_2, _NOTHING, _EARLY),
    Phase.AWAITING_PUBCOMP: (_QOS_2, _PUBREL, Phase.COMPLETED),
    Phase.COMPLETED: (_QOS_2, _NOTHING, _NOTHING),
}
_PACKETS: Final = ("PUBACK", "PUBREC", "PUBCOMP")
_PUBACK, _PUBREC, _PUBCOMP = range(3)
#: Phases in which a message counts for the window.
UNACKNOWLEDGED: Final = frozenset((Phase.RECORDING, Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC))
#: Phase of a message by its QoS once PUBLISH is sent.
SENT: Final = (Phase.RECORDING, Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC)


class Outgoing(msgspec.Struct, gc=False, eq=False):
    """A message with QoS 1 or 2 that the client has not acknowledged in full."""

    transmission: Transmission | None
    qos: int
    #: the topic as PUBLISH carries it
    field: bytes
    payload: bytes
    retain: bool
    phase: Phase
    sent_at: float = 0.0
    #: how often PUBLISH was sent; 2 where it is only known that it was sent before
    times_sent: int = 1

    def publish(self, protocol: ServerProtocol, message_id: int, now: float, *, dup: bool) -> None:
        """Send PUBLISH again, or for the first time where it had to wait."""
        self.sent_at = now
        self.times_sent += dup
        protocol.publish(self.field, self.payload, self.qos, self.retain, dup, message_id)


class InFlight(dict[int, Outgoing]):
    """Messages in flight by message id, in the order they were sent."""

    __slots__ = ("unacknowledged",)

    def __init__(self) -> None:
        #: of these, those in a phase of `UNACKNOWLEDGED`
        self.unacknowledged = 0

    def _step(self, message_id: int, packet: int) -> tuple[Outgoing | None, Phase | Step]:
        """Return what is in flight under a message id, and the step that a packet takes. Raises WrongAcknowledgement."""
        outgoing = self.get(message_id)
        step = STEPS[None if outgoing is None else outgoing.phase][packet]
        if isinstance(step, str):
            raise WrongAcknowledgement(f"{_PACKETS[packet]} for message id {message_id}: {step}")
        return outgoing, step

    def acknowledge(self, message_id: int) -> Transmission | None:
        """Return the message of a PUBACK, which is the client's now; None for a message id that is not awaited.

        Raises WrongAcknowledgement.
        """
        outgoing = self.get(message_id)
        if outgoing is None or outgoing.phase is not _AWAITING_PUBACK:
            self._step(message_id, _PUBACK)
            return None
        outgoing.phase = Phase.ACKNOWLEDGED
        self.unacknowledged -= 1
        transmission, outgoing.transmission = outgoing.transmission, None
        return transmission

    def receive(self, message_id: int) -> tuple[Outgoing | None, Transmission | None]:
        """Take a PUBREC; return the delivery to release and the message to remove.

        The PUBREL goes out when both are committed. (None, None) says that PUBREL can be sent at once: the message id is
        unknown, or was released before. Raises WrongAcknowledgement.
        """
        outgoing, step = self._step(message_id, _PUBREC)
        if step is _PUBREL:
            return None, None
        if outgoing is None or step is _NOTHING:
            return outgoing, None
        outgoing.phase = Phase.RELEASING
        self.unacknowledged -= 1
        transmission, outgoing.transmission = outgoing.transmission, None
        return outgoing, transmission

    def complete(self, message_id: int) -> bool:
        """Take a PUBCOMP; return whether it ends a handshake. Raises WrongAcknowledgement, also before PUBREL was sent."""
        outgoing, step = self._step(message_id, _PUBCOMP)
        if outgoing is None or step is _NOTHING:
            return False
        outgoing.phase = Phase.COMPLETED
        return True

    def add(self, message_id: int, outgoing: Outgoing) -> None:
        """Take up a message that is sent, or waits for its record."""
        self[message_id] = outgoing
        self.unacknowledged += 1

    def free(self, message_ids: Iterable[int]) -> None:
        """Let these message ids be used again: the ends of their deliveries are committed."""
        for message_id in message_ids:
            self.pop(message_id, None)

    def send_again(self, protocol: ServerProtocol, now: float, interval: float = 0.0) -> None:
        """Send again, in the old order, what has been unacknowledged for `interval` seconds (MQTT-4.4.0-1)."""
        for message_id, outgoing in self.items():
            if interval and now - outgoing.sent_at < interval:
                continue
            if outgoing.phase in (Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC):
                outgoing.publish(protocol, message_id, now, dup=True)
            elif outgoing.phase is Phase.AWAITING_PUBCOMP:
                protocol.release(message_id)
                outgoing.sent_at = now
