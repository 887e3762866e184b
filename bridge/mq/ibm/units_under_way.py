"""Units of work that are given to threads and have not ended."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bridge.mq.ibm.publisher import Part
from bridge.mq.unit_of_work import UnitOfWork


class DividedUnit(msgspec.Struct, eq=False):
    """A unit of work: what publishers do of it, and what the remover does."""

    unit: UnitOfWork
    #: parts that have not ended
    awaited: int = 0
    failure: int = 0
    #: the one with the publications
    part: Part | None = None


class UnitsUnderWay:
    """All of them; false when there are none."""

    def __init__(self) -> None:
        self._open: set[DividedUnit] = set()
        #: what is to be called when some of these have ended
        self._waiting: list[tuple[set[DividedUnit], Callable[[], None]]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, unit: DividedUnit) -> None:
        """Add a unit that is given now."""
        self._open.add(unit)

    def end(self, unit: DividedUnit) -> None:
        """Take out a unit that has ended, and call what waited for it."""
        self._open.remove(unit)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for units, call in waiting:
                units.discard(unit)
                self._when_ended(units, call)

    def when_published(self, call: Callable[[], None]) -> None:
        """Call a function when the units of now that publish have ended; at once where there are none."""
        self._when_ended({one for one in self._open if one.unit.publications}, call)

    def _when_ended(self, units: set[DividedUnit], call: Callable[[], None]) -> None:
        if units:
            self._waiting.append((units, call))
        else:
            call()
