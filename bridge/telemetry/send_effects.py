"""The effects of sending messages to a client, in addition to the packets: messages to remove, dead letters, and reasons."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.telemetry.backlog import NotAdmitted
from bridge.telemetry.transmission import Transmission

#: Reasons for messages that were not sent: expired, or QoS 0 and the client was too slow.
EXPIRED: Final = "expired"
SLOW: Final = "the client was too slow"
#: The client published the message itself, and subscribed with No Local.
OWN: Final = "No Local"
#: The backlog of the client was full.
FULL: Final = "the backlog of the client was full"
#: The client cannot receive it, and the dead-letter queue may take no more messages for this client.
UNDELIVERABLE: Final = "the client cannot receive it, and too many dead letters wait"
#: The client may no longer subscribe to the topic.
NOT_ALLOWED: Final = "the client may no longer receive it"


class Refusal(msgspec.Struct):
    """A message that cannot become a publication, with the reason code for the dead-letter queue and words for the log."""

    transmission: Transmission
    reason: int
    why: str


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
