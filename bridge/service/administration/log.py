"""The log of the bridge as an administrator sets it."""

from __future__ import annotations

from bridge.administration.requests import SetLogLevel
from bridge.service.administration.parts import Done, Parts
from bridge.service.log import set_level


async def set_log_level(parts: Parts, request: SetLogLevel) -> Done:
    """Write the log from a level on, until the bridge ends or reads its configuration file again with another."""
    set_level(request.level)
    return Done([f"the log has {request.level} and above"])
