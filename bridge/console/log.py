"""The last lines of the log, and its level."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.administration.answers import BridgeStatus
from bridge.administration.requests import LogLevel, SetLogLevel, ShowStatus
from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.problem import Problem

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        level, wanted = request.query_params.get("level", "debug"), request.query_params.get("search", "")
        if level not in _LEVELS:
            raise Problem(400, f"?level= is one of {', '.join(_LEVELS)}")
        status = await console.asked(ShowStatus(), BridgeStatus, who)
        return console.render(
            "log.html",
            request,
            who,
            lines=console.tail.lines(_LEVELS[level], wanted[:200]),
            level=level,
            search=wanted,
            levels=list(_LEVELS),
            written=status.log_level,
            names={number: name for name, number in _LEVELS.items()} | {logging.CRITICAL: "critical"},
        )

    async def set_level(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        level = form.get("level", "")
        if level not in get_args(LogLevel):
            raise Problem(400, f"A level of the log is one of {', '.join(get_args(LogLevel))}")
        return await console.changed(msgspec.convert({"command": "log level", "level": level}, SetLogLevel), who, "/log")

    return [console.page("/log", page), console.change("/log/level", set_level)]
