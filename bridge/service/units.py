"""The telemetry service's units of work in progress, and their completion callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bridge.mq.backend import NONE_FORBIDDEN, Backend, Completion, UnitOfWork, resolve
from bridge.service.tracing.tracing import PublicationTraces
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import PublicationMessage

log = logging.getLogger(__name__)

Ended = Callable[[Completion], None]


class Units:
    """Submits units of work and calls their completion callbacks."""

    def __init__(self, backend: Backend) -> None:
        #: None if tracing is disabled
        self.traces: PublicationTraces | None = None
        self._backend = backend
        self._number = 0
        #: number of a unit of work -> completion callback
        self._under_way: dict[int, Ended] = {}

    def submit(self, unit: UnitOfWork, ended: Ended | None = None) -> Mapping[int, int]:
        """Submit a unit to the backend and return publications known to be rejected, as index -> reason."""
        self._number = unit.number = self._number + 1
        if ended is not None:
            self._under_way[unit.number] = ended
        return self._backend.submit(unit)

    def committed(self, unit: UnitOfWork) -> asyncio.Future[Completion]:
        """Submit a unit to the backend and return a future of its completion."""
        completion: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.submit(unit, partial(resolve, completion))
        return completion

    @property
    def under_way(self) -> int:
        """The number of unfinished units of work that have a callback."""
        return len(self._under_way)

    def completed(self, completions: Sequence[Completion]) -> None:
        """Run the completion callbacks of finished units."""
        for completion in completions:
            ended = self._under_way.pop(completion.number, None)
            if ended is None:
                continue
            try:
                ended(completion)
            except Exception:
                # Don't affect other clients.
                log.exception("MQB2303E the completion of a unit of work failed")


def forbidden_of(session: Session, publications: Sequence[tuple[PublicationMessage, bool]]) -> frozenset[int]:
    """Return the indices of publications that the session's channel does not allow."""
    topics = session.topics
    if topics is None:
        return NONE_FORBIDDEN
    return frozenset(
        [index for index, (message, _) in enumerate(publications) if not topics.may_publish(message.topic)]
    )
