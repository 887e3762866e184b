"""Clients and their sessions: search, show, disconnect and purge. Their histories, traces and subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response

from bridge.administration import requests
from bridge.administration.answers import ClientDetails, ClientEvent, ClientPage, SubscriptionPage
from bridge.console.bridge_access import NotRunning
from bridge.console.console import Done, Routes, Visit
from bridge.console.forms import RequestProblem
from bridge.console.live_views import ViewEvent, event

routes = Routes()

#: Clients of a page.
ROWS: Final = 100
#: Seconds between requests for the entries of a trace, and number of entries shown each time.
TRACE_INTERVAL: Final = 0.5
JSON_LINES: Final = "application/jsonl"
_SHOWN: Final = 20
_CONNECTED: Final = {"": None, "yes": True, "no": False}

PageNumber = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class ClientsQuery(msgspec.Struct):
    """Search criteria, order and page of clients."""

    #: a part of the client identifier, or a pattern with `*`
    search: Annotated[str, msgspec.Meta(max_length=256)] = ""
    channel: str = ""
    connected: Literal["", "yes", "no"] = ""
    sort: requests.ClientColumn = "client_id"
    descending: bool = False
    #: the columns to show. An empty list selects those of the last choice in this login, or the usual ones
    columns: list[requests.ClientColumn] = []
    page: PageNumber = 1


class ClientQuery(msgspec.Struct):
    """A client identifier."""

    id: Annotated[str, msgspec.Meta(min_length=1)]


@routes.page("/clients", "clients.html")
async def clients(visit: Visit, query: ClientsQuery) -> ClientPage:
    """Return one page of clients, and the totals of all that match."""
    if (login := visit.principal.login) is not None:
        query.columns = login.columns = query.columns or login.columns
    pattern = query.search if "*" in query.search else f"*{query.search}*" if query.search else "*"
    return await visit.ask(
        requests.ListClients(
            pattern=pattern,
            channel=query.channel or None,
            connected=_CONNECTED[query.connected],
            sort=query.sort,
            descending=query.descending,
            skip=(query.page - 1) * ROWS,
            rows=ROWS,
            rates=True,
        ),
    )


@routes.page("/clients/show", "client.html")
async def client(visit: Visit, query: ClientQuery) -> ClientDetails:
    """Return a client with its session, subscriptions, messages and recent events."""
    return await visit.ask(requests.ShowClient(client_id=query.id, rates=True))


routes.request(
    "/clients/disconnect",
    requests.DisconnectClients,
    "Disconnect these clients? Durable sessions and their messages are kept.",
)


@routes.change("/clients/purge", "Purge these clients? Their sessions end, and waiting messages are deleted for good.")
async def purge(visit: Visit, form: requests.PurgeClients) -> Done:
    """End sessions with their subscriptions and messages."""
    return await visit.change(form, to="/clients" if len(form.ids) == 1 else "")


# History and traces --------------------------------------------------------------------------------------------------


class ClientHistoryQuery(msgspec.Struct):
    """A client identifier, or blank for the form alone."""

    id: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class ClientHistoryPage(msgspec.Struct):
    """The past of a client."""

    #: the newest first
    events: list[ClientEvent]


@routes.page("/clients/history", "client_history.html")
async def history(visit: Visit, query: ClientHistoryQuery) -> ClientHistoryPage:
    """Return the events of a client, also after it has left."""
    request = requests.ShowClientHistory(client_id=query.id)
    return ClientHistoryPage(await visit.ask(request) if query.id else [])


class TraceQuery(msgspec.Struct):
    """A client, and whether the trace shows payloads."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    #: needs the right to change
    payloads: bool = False


@routes.page("/clients/trace", "trace_client.html")
async def trace(visit: Visit, query: TraceQuery) -> TraceQuery:
    """Return the page that shows events and messages of a client as they happen."""
    _check_payloads(visit, query)
    return query


@routes.page("/clients/events")
async def events(visit: Visit, query: TraceQuery) -> Response:
    """Return server-sent events with the events and messages of a client."""
    _check_payloads(visit, query)
    recent = await visit.ask(requests.TraceClient(client_id=query.id, payloads=query.payloads))
    last = recent.entries[-1].number if recent.entries else 0
    return visit.console.live_views.stream(visit.principal.name, _entries(visit, query, last))


@routes.page("/clients/trace/file")
async def trace_file(visit: Visit, query: TraceQuery) -> Response:
    """Return the last entries of the trace, as lines of JSON."""
    _check_payloads(visit, query)
    recent = await visit.ask(requests.TraceClient(client_id=query.id, payloads=query.payloads))
    lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in recent.entries)
    return Response(lines, headers={"Content-Disposition": 'attachment; filename="trace.jsonl"'}, media_type=JSON_LINES)


def _check_payloads(visit: Visit, query: TraceQuery) -> None:
    """Raise RequestProblem if a user asks for payloads without the right to see them in a trace."""
    if query.payloads and not (visit.principal.may_change and visit.payloads):
        raise RequestProblem(403, "Payloads in a trace need the right to change, and admin.payloads")


async def _entries(visit: Visit, query: TraceQuery, last: int) -> AsyncIterator[bytes]:
    """Yield the entries after the last one."""
    yield event(ViewEvent("notice", f"Tracing {query.id}"))
    while not visit.console.live_views.ended and visit.is_valid():
        try:
            request = requests.TraceClient(client_id=query.id, after=last, first=False, payloads=query.payloads)
            recent = await visit.ask(request)
        except (RequestProblem, NotRunning) as error:
            yield event(ViewEvent("end", f"The view ends: {error}"))
            return
        for entry in recent.entries[-_SHOWN:]:
            topic = "" if entry.kind == "event" else f"{entry.kind}: {entry.topic}"
            text = entry.text if entry.payload is None else f"{entry.text}: {entry.payload}"
            yield event(ViewEvent("message", text, topic, entry.size, time=entry.time))
        if (hidden := max(len(recent.entries) - _SHOWN, 0) + recent.missed) > 0:
            yield event(ViewEvent("notice", f"{hidden:,} entries were not shown"))
        if recent.entries:
            last = recent.entries[-1].number
        else:
            yield b": alive\n\n"
        await asyncio.sleep(TRACE_INTERVAL)
    yield event(ViewEvent("end", "The view ends: the login has ended"))


# Subscriptions -------------------------------------------------------------------------------------------------------


class SubscriptionsQuery(msgspec.Struct):
    """Search criteria and page of subscriptions."""

    filter: str = "#"
    search: Annotated[str, msgspec.Meta(max_length=256)] = ""
    page: PageNumber = 1


@routes.page("/subscriptions", "subscriptions.html")
async def subscriptions(visit: Visit, query: SubscriptionsQuery) -> SubscriptionPage:
    """Return one page of the subscriptions of clients and applications that overlap with a topic filter."""
    skip = (query.page - 1) * ROWS
    request = requests.ListSubscriptions(topic_filter=query.filter, search=query.search, skip=skip, rows=ROWS)
    return await visit.ask(request)
