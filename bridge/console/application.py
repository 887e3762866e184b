"""The HTTP application of the admin port: which path is answered by which function."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bridge.console import (
    archive,
    clients,
    dead_letters,
    links,
    log,
    login,
    mappings,
    overview,
    pipelines,
    queues,
    topics,
)
from bridge.console.console import Console
from bridge.console.health import health, readiness
from bridge.console.metrics import MetricsPage
from bridge.console.problem import Problem
from bridge.console.security_headers import SecurityHeaders

_SUBJECTS = (login, overview, clients, topics, queues, mappings, links, dead_letters, log, pipelines, archive)


def application(console: Console) -> Starlette:
    """Return the application of one bridge's admin port."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(console.sampler.run())
        try:
            yield
        finally:
            sampling.cancel()
            await console.live_views.stop()

    async def may_scrape(request: Request) -> bool:
        return console.configuration.admin.open_metrics or await console.access.who(request) is not None

    async def unknown(request: Request) -> Response:
        raise Problem(404, "There is no such page")

    return Starlette(
        routes=[
            Route("/healthz", partial(health, console.bridge)),
            Route("/readyz", partial(readiness, console.bridge)),
            console.open("/metrics", MetricsPage(console.bridge, may_scrape).answer),
            Mount("/static", _Static(directory=Path(__file__).parent / "static")),
            *(route for subject in _SUBJECTS for route in subject.routes(console)),
            console.open("/{rest:path}", unknown),
        ],
        middleware=[Middleware(SecurityHeaders, console.configuration.admin.address)],
        lifespan=lifespan,
    )


class _Static(StaticFiles):
    """Style sheet, scripts and pictures, which browsers may keep and ask for again."""

    def file_response(self, *args: object, **options: object) -> Response:
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response
