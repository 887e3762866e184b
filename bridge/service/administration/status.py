"""The bridge as a whole, as an administrator looks at it, and reads its configuration again."""

from __future__ import annotations

import logging
import os

import bridge
from bridge.administration.answers import BridgeState, BridgeStatus
from bridge.administration.requests import Answer, Reload, ShowStatus
from bridge.config import Configuration
from bridge.service.administration.parts import Parts
from bridge.service.administration.problems import problems


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
        problems=await problems(parts),
    )


def _queue_manager_state(parts: Parts) -> str:
    if parts.service.backend.available:
        return "answers"
    embedded = parts.configuration.queue_manager.type == "embedded"
    return "takes nothing persistent: its disk is full" if embedded else "does not answer"


def standby_status(configuration: Configuration, started_at: float, waits_for: str) -> BridgeStatus:
    """Return the status of a bridge that stands by: a healthy one has no problems."""
    settings = configuration.queue_manager
    return BridgeStatus(
        state=BridgeState.STANDING_BY,
        version=bridge.__version__,
        started_at=started_at,
        process_id=os.getpid(),
        queue_manager=settings.name,
        queue_manager_type=settings.type,
        queue_manager_available=True,
        queue_manager_state=f"is served by another bridge: {waits_for}",
        channels=len(configuration.channels),
        channels_running=0,
        clients=0,
        sessions=0,
        units_of_work=0,
        mappings=len(configuration.mappings),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
    )
