"""Links to other brokers, and the mappings that are connected by them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.administration.answers import LinkStatus
from bridge.administration.requests import ListLinks, TestLink
from bridge.console.access import Who
from bridge.console.console import Console, Done


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        found = await console.asked(ListLinks(), list[LinkStatus], who)
        return console.render("links.html", request, who, links=found)

    async def test(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        name = form.get("name", "")
        console.note("link test", who, name=name)
        return await console.changed(TestLink(name=name), who, "/links")

    return [console.page("/links", page), console.change("/links/test", test)]
