"""The HTTP application of the admin port: which path is answered by which function."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.routing import Route

from bridge.console.bridge_access import BridgeAccess
from bridge.console.health import health, readiness
from bridge.console.metrics import MetricsPage


def application(access: BridgeAccess) -> Starlette:
    """Return the application that asks one bridge."""
    admin = access.bridge.configuration.admin
    return Starlette(
        routes=[
            Route("/healthz", partial(health, access)),
            Route("/readyz", partial(readiness, access)),
            Route("/metrics", MetricsPage(access, lambda _: admin.open_metrics).answer),
        ]
    )
