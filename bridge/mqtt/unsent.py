"""Messages that a client does not get, and why."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mapping.telemetry.transmission import Transmission
from bridge.wire import cmqc

#: Why a message is finished without having been sent: its expiry, or that it had QoS 0 and the client was too slow.
EXPIRED: Final = "expired"
SLOW: Final = "the client was too slow"
#: Or that its client published it itself, and subscribed with No Local.
OWN: Final = "No Local"
#: Or that the backlog of its client was full.
FULL: Final = "the backlog of the client was full"
#: Or that its client may no longer subscribe to the topic.
NOT_ALLOWED: Final = "the client may no longer receive it"


class Refusal(msgspec.Struct):
    """A message that cannot become a publication, with the reason code for the dead-letter queue and words for the log."""

    transmission: Transmission
    reason: int
    why: str


def too_many(transmission: Transmission, limit: int) -> Refusal:
    """Return the refusal of a message that exceeds the limit of its backlog, in bytes."""
    return Refusal(transmission, cmqc.MQRC_Q_SPACE_NOT_AVAILABLE, f"{FULL}, {limit} bytes (limits.waiting_bytes)")
