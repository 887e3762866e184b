"""What an observer of a mapping is told: what became of each message that it took, once that is committed."""

from __future__ import annotations

from typing import Final

from bridge.archive.schema import Outcome
from bridge.mq.mqi import Got
from bridge.telemetry.message import Received

#: A message as it was taken, what became of it, why, and the queue or topic that it went to.
Fate = tuple[Got | Received, Outcome, str | None, str | None]

#: `reason` of messages that a mapping discarded.
FILTERED: Final = "the mapping's filter does not take it"
CAME_ROUND: Final = "it has come round"
LINK_LOST: Final = "the link was lost, and it is sent once at most"


class MappingObserver:
    """Is told what becomes of the messages of one mapping; called by its thread. This one has nobody to tell."""

    def settled(self, fates: list[Fate], began: int, queue: str) -> None:
        """Note the messages of a unit of work that is committed.

        `began` in microseconds since the epoch; `queue` is blank for a topic or link.
        """
