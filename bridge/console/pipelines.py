"""Pipelines on Spark: how far they are, and what went wrong."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.config import Configuration
from bridge.console.access import Who
from bridge.console.console import Console
from bridge.extras import install


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        found: list[dict[str, Any]] = []
        wrong = ""
        if console.configuration.pipelines:
            # They have processes of their own, and say how they are in files; what waits is asked of the queue manager.
            found, wrong = await asyncio.to_thread(_conditions, console.configuration, console.bridge.bridge.file)
        return console.render("pipelines.html", request, who, pipelines=found, wrong=wrong)

    return [console.page("/pipelines", page)]


def _conditions(configuration: Configuration, file: Path | None) -> tuple[list[dict[str, Any]], str]:
    """Return the condition of each pipeline, and in words what cannot be found out."""
    # Imported where there are pipelines: what is asked of them is packages' that a bridge alone does without.
    try:
        from bridge.spark.administration import StatusDamaged, condition
        from bridge.spark.pipeline_environment import environment_of
        from bridge.spark.remote_queue_manager import OutOfReach
    except ImportError as error:
        return [], f"{error.name} is not installed: `{install('spark')}` brings it"
    settings = configuration.queue_manager
    directory = settings.data_directory if settings.type == "embedded" else Path()
    try:
        environment = environment_of(configuration, file, directory)
        now = time.time()
        return [condition(name, one, environment, now) for name, one in configuration.pipelines.items()], ""
    except (OutOfReach, StatusDamaged, OSError) as error:
        return [], str(error)
