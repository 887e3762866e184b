"""Messages that a client does not get, and why."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mapping.telemetry.transmission import Transmission

#: Why a message is finished without having been sent: its expiry, or that it had QoS 0 and the client was too slow.
EXPIRED: Final = "expired"
SLOW: Final = "the client was too slow"
#: Or that its client published it itself, and subscribed with No Local.
OWN: Final = "No Local"
#: Or that there was no room for all that waits for its client.
FULL: Final = "more waited for the client than there was room for"
#: Or that its client may no longer subscribe to the topic.
NOT_ALLOWED: Final = "the client may no longer receive it"


class Refusal(msgspec.Struct):
    """A message that cannot become a publication, with the reason code for the dead-letter queue and words for the log."""

    transmission: Transmission
    reason: int
    why: str
