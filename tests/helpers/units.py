"""Units of work with their results, and requests for subscriptions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import msgspec

from bridge.mq.backend import Completion, SubscriptionRequest, UnitOfWork
from bridge.telemetry.subscription import SubscriptionData

_numbers = itertools.count(1)


class Unit(UnitOfWork):
    """A unit of work that records its completion, and then calls `done`."""

    number: int = msgspec.field(default_factory=lambda: next(_numbers))
    completion: Completion | None = None
    done: Callable[[Unit], None] = lambda unit: None

    @property
    def failure(self) -> int:
        assert self.completion is not None
        return self.completion.failure

    @property
    def refusals(self) -> Mapping[int, int]:
        assert self.completion is not None
        return self.completion.refusals

    @property
    def diverted(self) -> Mapping[int, int]:
        assert self.completion is not None
        return self.completion.diverted


class Units:
    """The units submitted to a backend. Its `on_completed` is `completed`."""

    def __init__(self) -> None:
        self._under_way: dict[int, Unit] = {}

    def add(self, unit: Unit) -> None:
        self._under_way[unit.number] = unit

    def completed(self, completions: object) -> None:
        for completion in completions:  # type: ignore[attr-defined]
            unit = self._under_way.pop(completion.number)
            unit.completion = completion
            unit.done(unit)


def requests(*filters: tuple[str, int]) -> list[SubscriptionRequest]:
    """Return a request to a backend."""
    return [SubscriptionRequest(topic_filter, SubscriptionData(qos)) for topic_filter, qos in filters]
