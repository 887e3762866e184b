"""A bridge on the event loop of a test, and its problems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridge.administration.answers import BridgeState, Problem
from bridge.config.models import Configuration
from bridge.service.lifecycle import Bridge
from bridge.service.reload import ConfigurationSource


@asynccontextmanager
async def running(configuration: Configuration, source: ConfigurationSource | None = None) -> AsyncIterator[Bridge]:
    bridge = Bridge(configuration, lambda _: None, source=source)
    await bridge.start()
    bridge.enter(BridgeState.RUNNING)
    try:
        yield bridge
    finally:
        await bridge.stop()


async def current_problems(bridge: Bridge) -> list[Problem]:
    assert bridge.problems is not None
    return await bridge.problems.current()
