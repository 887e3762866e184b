"""Messages that are not sent to a client: the reasons, and the messages for the dead-letter queue."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.telemetry.transmission import Transmission

#: Reasons for messages that were not sent: expired, or QoS 0 and the client was too slow.
EXPIRED: Final = "expired"
SLOW: Final = "the client was too slow"
#: The client published the message itself, and subscribed with No Local.
OWN: Final = "No Local"
#: The backlog of the client was full.
FULL: Final = "the backlog of the client was full"
#: The client cannot receive it, and the limit of dead letters for this client is reached.
UNDELIVERABLE: Final = "the client cannot receive it, and too many dead letters wait"
#: The client may no longer subscribe to the topic.
NOT_ALLOWED: Final = "the client may no longer receive it"


class Refusal(msgspec.Struct):
    """A message that cannot be converted to a publication, with the reason code and a description for the log."""

    transmission: Transmission
    reason: int
    why: str
