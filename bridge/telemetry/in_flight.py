"""The window of one session: messages sent with QoS 1 and 2 that the client has not acknowledged in full. No I/O.

Each has a phase, and `acknowledgement.STEPS` says what an acknowledgement does in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.flow import PUBACK, PUBCOMP, PUBREC, Phase, Step, step_of
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.message import Held
from bridge.telemetry.transmission import Transmission, message_expiry_interval

# A member of an enumeration takes long to get.
_AWAITING_PUBACK: Final = Phase.AWAITING_PUBACK


class Outgoing(Held):
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
    #: of MQTT 5
    properties: PublishProperties | None = None

    def publish(self, protocol: ServerProtocol, message_id: int, now: float, *, dup: bool) -> None:
        """Send PUBLISH again, or for the first time where it had to wait."""
        self.sent_at = now
        self.times_sent += dup
        properties = self.properties
        if properties is not None and properties.message_expiry_interval is not None and self.transmission is not None:
            left = message_expiry_interval(self.transmission)
            properties = msgspec.structs.replace(properties, message_expiry_interval=left)
        protocol.publish(self.field, self.payload, self.qos, self.retain, dup, message_id, properties)


class InFlight(dict[int, Outgoing]):
    """Messages in flight by message id, in the order they were sent."""

    __slots__ = ("resent", "unacknowledged", "unfinished")

    def __init__(self) -> None:
        #: of these, those that neither PUBACK nor PUBREC has come for: they count for the window
        self.unacknowledged = 0
        #: those that the client still owes PUBACK or PUBCOMP for, which count for a Receive Maximum (MQTT 5 section 4.9)
        self.unfinished = 0
        #: how often PUBLISH went out with DUP set; whoever counts takes it
        self.resent = 0

    def _step(self, message_id: int, packet: int) -> tuple[Outgoing | None, Phase | Step]:
        """Return what is in flight under a message id, and the step that a packet takes. Raises WrongAcknowledgement."""
        outgoing = self.get(message_id)
        return outgoing, step_of(None if outgoing is None else outgoing.phase, packet, message_id)

    def acknowledge(self, message_id: int) -> Transmission | None:
        """Return the message of a PUBACK, which is the client's now; None for a message id that is not awaited.

        Raises WrongAcknowledgement.
        """
        outgoing = self.get(message_id)
        if outgoing is None or outgoing.phase is not _AWAITING_PUBACK:
            self._step(message_id, PUBACK)
            return None
        outgoing.phase = Phase.ACKNOWLEDGED
        self.unacknowledged -= 1
        self.unfinished -= 1
        transmission, outgoing.transmission = outgoing.transmission, None
        return transmission

    def receive(self, message_id: int) -> tuple[Outgoing | None, Transmission | None]:
        """Take a PUBREC; return the delivery to release and the message to remove.

        The PUBREL goes out when both are committed. (None, None) says that PUBREL can be sent at once: the message id is
        unknown, or was released before. Raises WrongAcknowledgement.
        """
        outgoing, step = self._step(message_id, PUBREC)
        if step is Step.PUBREL:
            return None, None
        if outgoing is None or step is Step.NOTHING:
            return outgoing, None
        outgoing.phase = Phase.RELEASING
        self.unacknowledged -= 1
        transmission, outgoing.transmission = outgoing.transmission, None
        return outgoing, transmission

    def complete(self, message_id: int) -> bool:
        """Take a PUBCOMP; return whether it ends a handshake. Raises WrongAcknowledgement, also before PUBREL was sent."""
        outgoing, step = self._step(message_id, PUBCOMP)
        if outgoing is None or step is Step.NOTHING:
            return False
        outgoing.phase = Phase.COMPLETED
        self.unfinished -= 1
        return True

    def reject(self, outgoing: Outgoing) -> None:
        """Take it that a PUBREC which was received refuses the message: there is no PUBREL (MQTT 5 section 4.3.3)."""
        outgoing.phase = Phase.ACKNOWLEDGED
        self.unfinished -= 1

    def take_back(self, message_id: int) -> None:
        """Forget a message that is to be sent anew, or to another client."""
        phase = self.pop(message_id).phase
        if phase is not Phase.ACKNOWLEDGED:
            self.unfinished -= 1
            self.unacknowledged -= phase is not Phase.RELEASING

    def release(self, message_id: int, outgoing: Outgoing) -> None:
        """Await PUBCOMP: PUBREL was sent on a connection before, or PUBCOMP came and could not be committed."""
        outgoing.phase = Phase.AWAITING_PUBCOMP
        self[message_id] = outgoing
        self.unfinished += 1

    def add(self, message_id: int, outgoing: Outgoing) -> None:
        """Take up a message that is sent, or waits for its record."""
        self[message_id] = outgoing
        self.unacknowledged += 1
        self.unfinished += 1

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
                self.resent += 1
            elif outgoing.phase is Phase.AWAITING_PUBCOMP:
                protocol.release(message_id)
                outgoing.sent_at = now
