"""Reactions of a link to first and repeated violations of the protocol by the broker.

A strict reaction must not repeat. It would close the connection for each message, and the broker would send the same messages
again and again. A message is never dead-lettered for a violation, because the message did not cause it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Violation(StrEnum):
    """A kind of violation of the protocol by the broker."""

    #: some brokers do so instead of announcing Maximum QoS 1, and with MQTT 3.1.1 they cannot announce it
    PUBACK_FOR_QOS_2 = "PUBACK for a publication of QoS 2"
    #: any other acknowledgement that does not fit the QoS or the step
    WRONG_ACKNOWLEDGEMENT = "wrong acknowledgement"
    #: a packet or WebSocket frame that cannot be decoded, or is not allowed
    MALFORMED = "malformed packet"
    #: no acknowledgement of a publication in time
    UNANSWERED = "publication left unanswered"
    #: no CONNACK, SUBACK or UNSUBACK in time
    NO_HANDSHAKE = "handshake left unanswered"
    #: data that causes an error in the bridge
    UNEXPECTED = "unexpected error"


class Reaction(StrEnum):
    """A link's reaction to a violation."""

    #: at least once: accept the packet as the acknowledgement
    ACCEPT = "accept"
    #: close the connection, and reconnect at once or after the usual pause. Publications in flight are sent again
    CLOSE = "close"
    #: like CLOSE, with a pause as after a rejected CONNECT (REFUSED_PAUSE or longer)
    PAUSE = "pause"
    #: exactly once: the mapping stops with the reason until it is resumed or reloaded
    STOP = "stop"


class Reactions(NamedTuple):
    """The reactions to the first violation of a kind, and to a second violation without a success in between."""

    first: Reaction
    again: Reaction


#: violation -> reactions at least once (or at most once), and exactly once
REACTIONS: Final[dict[Violation, tuple[Reactions, Reactions]]] = {
    Violation.PUBACK_FOR_QOS_2: (
        Reactions(Reaction.ACCEPT, Reaction.ACCEPT),
        Reactions(Reaction.STOP, Reaction.STOP),
    ),
    Violation.WRONG_ACKNOWLEDGEMENT: (
        Reactions(Reaction.CLOSE, Reaction.ACCEPT),
        Reactions(Reaction.CLOSE, Reaction.STOP),
    ),
    Violation.MALFORMED: (
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
    ),
    Violation.UNANSWERED: (
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
    ),
    Violation.NO_HANDSHAKE: (
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
        Reactions(Reaction.CLOSE, Reaction.PAUSE),
    ),
    Violation.UNEXPECTED: (
        Reactions(Reaction.PAUSE, Reaction.PAUSE),
        Reactions(Reaction.PAUSE, Reaction.PAUSE),
    ),
}


class Violations:
    """The violations of one broker since the last success."""

    def __init__(self) -> None:
        self._seen: set[Violation] = set()

    def react(self, violation: Violation, *, exactly: bool) -> Reaction:
        """Note a violation and return the reaction."""
        reactions = REACTIONS[violation][exactly]
        reaction = reactions.again if violation in self._seen else reactions.first
        self._seen.add(violation)
        return reaction

    def forget(self) -> None:
        """Forget violations after a success, except wrong acknowledgements, whose acceptance led to the success."""
        self._seen.intersection_update((Violation.WRONG_ACKNOWLEDGEMENT,))
