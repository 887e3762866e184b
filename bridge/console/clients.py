"""Clients and their sessions: looked for, looked at, disconnected, purged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.administration.answers import ClientDetails, ClientStatus
from bridge.administration.requests import DisconnectClient, ListClients, PurgeClients, ShowClient
from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.problem import Problem
from bridge.console.urls import asked_for, link

#: Clients of a page, and rows of a table of one client.
ROWS: Final = 100
_SHOWN: Final = 500
#: Characters of what is searched for.
_PATTERN: Final = 256
#: Versions of MQTT by protocol level.
_VERSIONS: Final = {0: "", 3: "3.1", 4: "3.1.1", 5: "5"}
_CONNECTED: Final = {"": None, "yes": True, "no": False}


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    async def page(request: Request, who: Who) -> Response:
        asked = request.query_params
        wanted, channel, connected = asked.get("search", ""), asked.get("channel", ""), asked.get("connected", "")
        if len(wanted) > _PATTERN:
            raise Problem(400, f"A search has at most {_PATTERN} characters")
        if connected not in _CONNECTED:
            raise Problem(400, "?connected= is yes or no")
        found = await console.asked(
            ListClients(
                pattern=_pattern(wanted),
                channel=channel or None,
                connected=_CONNECTED[connected],
                after=asked.get("after", ""),
                rows=ROWS + 1,
            ),
            list[ClientStatus],
            who,
        )
        following = None
        if len(found) > ROWS:
            found.pop()
            following = link(
                "/clients", search=wanted, channel=channel, connected=connected, after=found[-1].client_id
            )
        return console.render(
            "clients.html",
            request,
            who,
            clients=found,
            following=following,
            search=wanted,
            channel=channel,
            connected=connected,
            after=asked.get("after", ""),
            channels=[one.name for one in console.configuration.channels],
            versions=_VERSIONS,
        )

    async def client(request: Request, who: Who) -> Response:
        details = await console.asked(ShowClient(client_id=asked_for(request, "id")), ClientDetails, who)
        return console.render("client.html", request, who, client=details, versions=_VERSIONS, most=_SHOWN)

    async def disconnect(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        client_id = form.get("id", "")
        return await console.changed(DisconnectClient(client_id=client_id), who, link("/clients/show", id=client_id))

    async def purge(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        client_id = form.get("id", "")
        here = link("/clients/show", id=client_id)
        if not client_id or not form.get("sure"):
            return Done(["Nothing was purged: tick that its session may end"], here, ok=False)
        done = await console.changed(PurgeClients(client_id=client_id), who, here)
        return Done(done.lines, "/clients", done.ok) if done.ok else done

    return [
        console.page("/clients", page),
        console.page("/clients/show", client),
        console.change("/clients/disconnect", disconnect),
        console.change("/clients/purge", purge),
    ]


def _pattern(wanted: str) -> str:
    """Return the pattern of a search: what is in an identifier, or with a `*` the whole of it."""
    return wanted if "*" in wanted else f"*{wanted}*" if wanted else "*"
