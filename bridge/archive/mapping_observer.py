"""Interface for observers of a mapping. They learn the outcome of each message after its commit."""

from __future__ import annotations

from typing import Final

from bridge.archive.schema import Outcome
from bridge.mq.mqi import Got
from bridge.telemetry.message import Received

#: The taken message, its outcome, the reason, and the destination queue or topic.
Fate = tuple[Got | Received, Outcome, str | None, str | None]

#: Values of `reason` for messages that a mapping discarded.
FILTERED: Final = "the mapping's filter does not take it"
CAME_ROUND: Final = "it has come round"
LINK_LOST: Final = "the link was lost, and it is sent once at most"


class MappingObserver:
    """Observer of one mapping, called on the mapping's thread. This base class ignores everything."""

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Process the messages of a committed unit of work.

        `began` is in microseconds since the epoch. `queue` is empty if the source is a topic or link.
        """
