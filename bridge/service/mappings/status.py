"""The counts of one unit of work of a mapping."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.administration.mapping_status import Status
from bridge.archive.events import now_us
from bridge.archive.mapping_observer import Fate

#: Maximum number of messages per mapping that may wait for blocked queues while others continue.
LOOK_AHEAD: Final = 10_000


class Tally(msgspec.Struct):
    """The counts of one unit of work, effective after its commit."""

    taken: int = 0
    moved: int = 0
    filtered: int = 0
    cut: int = 0
    dead_lettered: int = 0
    #: outcome of each message, for observers
    fates: list[Fate] = []
    #: microseconds since the epoch
    began: int = msgspec.field(default_factory=now_us)

    def settle(self, status: Status) -> None:
        """Add the counts of a committed unit of work to the status."""
        status.taken += self.taken
        status.moved += self.moved
        status.filtered += self.filtered
        status.cut += self.cut
        status.dead_lettered += self.dead_lettered
        status.commits += 1
