"""The sender's state machine for QoS 1 and 2 (MQTT 3.1.1 sections 4.3.2, 4.3.3 and 4.8), for sessions and links.

    QoS 1:  RECORDING -> AWAITING_PUBACK -> ACKNOWLEDGED -> (free)
    QoS 2:  RECORDING -> AWAITING_PUBREC -> RELEASING -> AWAITING_PUBCOMP -> COMPLETED -> (free)

ACKNOWLEDGED, RELEASING and COMPLETED last until the effect of the acknowledgement is committed. After a crash the
message would be sent again, and its packet identifier must not belong to another message by then.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


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


class Step(Enum):
    """What an acknowledgement does where it moves no message to another phase."""

    #: it is late, or of a message id that nothing was sent under: nobody is harmed
    NOTHING = "nothing"
    #: it is answered by PUBREL at once: the message is released already, or unknown (MQTT-4.3.3-1)
    PUBREL = "PUBREL"


_QOS_1: Final = "MQTT 3.1.1 section 4.3.2: a message with QoS 1 is acknowledged by PUBACK"
_QOS_2: Final = "MQTT 3.1.1 section 4.3.3: a message with QoS 2 is acknowledged by PUBREC, then PUBCOMP"
_EARLY: Final = "MQTT 3.1.1 section 4.3.3: PUBCOMP answers PUBREL, which was not sent yet"

#: phase (None: the message id is unknown) -> what PUBACK, PUBREC and PUBCOMP do: the next phase, a step that moves nothing,
#: or the statement that they break
STEPS: Final[dict[Phase | None, tuple[Phase | Step | str, Phase | Step | str, Phase | Step | str]]] = {
    None: (Step.NOTHING, Step.PUBREL, Step.NOTHING),
    Phase.RECORDING: (Step.NOTHING, Step.PUBREL, Step.NOTHING),
    Phase.AWAITING_PUBACK: (Phase.ACKNOWLEDGED, _QOS_1, _QOS_1),
    Phase.ACKNOWLEDGED: (Step.NOTHING, _QOS_1, _QOS_1),
    Phase.AWAITING_PUBREC: (_QOS_2, Phase.RELEASING, _EARLY),
    Phase.RELEASING: (_QOS_2, Step.NOTHING, _EARLY),
    Phase.AWAITING_PUBCOMP: (_QOS_2, Step.PUBREL, Phase.COMPLETED),
    Phase.COMPLETED: (_QOS_2, Step.NOTHING, Step.NOTHING),
}
_PACKETS: Final = ("PUBACK", "PUBREC", "PUBCOMP")
#: Which acknowledgement it is, in a row of STEPS.
PUBACK, PUBREC, PUBCOMP = range(3)
#: Phase of a message by its QoS once PUBLISH is sent.
SENT: Final = (Phase.RECORDING, Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC)


def step_of(phase: Phase | None, packet: int, message_id: int) -> Phase | Step:
    """Return the step that an acknowledgement takes in a phase. Raises WrongAcknowledgement where MQTT forbids it there."""
    step = STEPS[phase][packet]
    if isinstance(step, str):
        raise WrongAcknowledgement(f"{_PACKETS[packet]} for message id {message_id}: {step}")
    return step
