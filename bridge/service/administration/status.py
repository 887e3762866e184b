"""The bridge as a whole, as an administrator looks at it, and reads its configuration again."""

from __future__ import annotations

import logging
import os

import bridge
from bridge.administration.requests import Answer, Reload, ShowStatus
from bridge.administration.status import BridgeStatus
from bridge.service.administration.parts import Parts
from bridge.service.mappings.status import State


async def reload(parts: Parts, request: Reload) -> Answer:
    """Read the configuration file again."""
    ok, lines = await parts.reload()
    # Taken over it is, but not all of it was done.
    ok = ok and not parts.channels.problems
    return Answer(ok=ok, lines=lines)


async def show_status(parts: Parts, request: ShowStatus) -> BridgeStatus:
    """Return how the bridge is, and what is not as it should be."""
    statuses = parts.mappings.statuses()
    settings = parts.configuration.queue_manager
    return BridgeStatus(
        state=parts.state,
        version=bridge.__version__,
        started_at=parts.started_at,
        process_id=os.getpid(),
        queue_manager=parts.host.name,
        queue_manager_type=settings.type,
        queue_manager_available=parts.service.backend.available,
        queue_manager_state=_queue_manager_state(parts),
        channels=len(parts.channels.configs),
        channels_running=len(parts.channels),
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        units_of_work=parts.service.units.under_way,
        mappings=len(statuses),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
        problems=_problems(parts),
    )


def _queue_manager_state(parts: Parts) -> str:
    if parts.service.backend.available:
        return "answers"
    embedded = parts.configuration.queue_manager.type == "embedded"
    return "takes nothing persistent: its disk is full" if embedded else "does not answer"


def _problems(parts: Parts) -> list[str]:
    found = []
    if not parts.service.backend.available:
        found.append(f"queue manager {parts.host.name} {_queue_manager_state(parts)}")
    if parts.host.memory.problem:
        found.append(parts.host.memory.problem)
    found += parts.queue_manager_watch.problems
    found += [f"in the last minute, {one}" for one in parts.service.backend.failures]
    found += parts.channels.problems.values()
    running = (State.RUNNING, State.STARTING, State.DISABLED, State.PAUSED)
    for one in parts.mappings.statuses():
        if one.state not in running:
            found.append(f"mapping {one.name} is {one.state}{f': {one.last_error}' if one.last_error else ''}")
    return found
