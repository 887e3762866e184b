"""Clients and their sessions: search, show, watch, disconnect and purge. Subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from bridge.administration import requests
from bridge.administration.answers import ClientDetails, ClientPage, SubscriptionPage
from bridge.administration.protocol import Request
from bridge.console.bridge_access import NotRunning
from bridge.console.console import Done, Routes, Visit
from bridge.console.forms import RequestProblem
from bridge.console.live_views import Seen, event

routes = Routes()

#: Clients of a page.
ROWS: Final = 100
#: Seconds between requests for the messages of a watched client, and number of messages shown each time.
WATCH_INTERVAL: Final = 0.5
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
    page: PageNumber = 1


class ClientQuery(msgspec.Struct):
    """A client identifier."""

    id: Annotated[str, msgspec.Meta(min_length=1)]


class ClientsForm(msgspec.Struct):
    """The selected clients."""

    ids: list[str] = []


@routes.page("/clients", "clients.html")
async def clients(visit: Visit, query: ClientsQuery) -> ClientPage:
    """Return one page of clients, and the totals of all that match."""
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


@routes.change("/clients/disconnect", "Disconnect these clients? Durable sessions and their messages are kept.")
async def disconnect(visit: Visit, form: ClientsForm) -> Done:
    """Disconnect clients. Durable sessions are kept."""
    return await _each(visit, [requests.DisconnectClient(client_id=one) for one in form.ids])


@routes.change("/clients/purge", "Purge these clients? Their sessions end, and waiting messages are deleted for good.")
async def purge(visit: Visit, form: ClientsForm) -> Done:
    """End sessions with their subscriptions and messages."""
    done = await _each(visit, [requests.PurgeClients(client_id=one) for one in form.ids])
    return msgspec.structs.replace(done, to="/clients" if done.ok and len(form.ids) == 1 else "")


async def _each(visit: Visit, changes: Sequence[Request[Any]]) -> Done:
    """Perform changes and return their combined result."""
    if not changes:
        raise RequestProblem(400, "No clients were selected")
    results = [await visit.change(one) for one in changes]
    if len(results) == 1:
        return results[0]
    succeeded = sum(one.ok for one in results)
    # Failures first.
    lines = [line for one in sorted(results, key=lambda one: one.ok) for line in one.lines]
    return Done([f"{succeeded} of {len(results)} succeeded", *lines], succeeded == len(results))


# Watching a client ---------------------------------------------------------------------------------------------------


@routes.page("/clients/watch", "watch_client.html")
async def watch(visit: Visit, query: ClientQuery) -> ClientQuery:
    """Return the page that shows messages from and to a client."""
    await visit.ask(requests.ShowClient(client_id=query.id))
    return query


@routes.page("/clients/events")
async def events(visit: Visit, query: ClientQuery) -> Response:
    """Return server-sent events with the messages from and to a client."""
    traffic = await visit.ask(requests.WatchClient(client_id=query.id, payloads=visit.payloads))
    last = traffic.messages[-1].number if traffic.messages else 0
    return visit.console.live_views.stream(visit.who.name, _traffic(visit, query.id, last))


async def _traffic(visit: Visit, client_id: str, last: int) -> AsyncIterator[bytes]:
    """Yield the messages after the last one."""
    yield event(Seen("notice", f"Watching {client_id}"))
    while not visit.console.live_views.ended and visit.is_valid():
        try:
            request = requests.WatchClient(client_id=client_id, after=last, first=False, payloads=visit.payloads)
            traffic = await visit.ask(request)
        except (RequestProblem, NotRunning) as error:
            yield event(Seen("end", f"The view ends: {error}"))
            return
        for message in traffic.messages[-_SHOWN:]:
            topic = f"{message.direction}: {message.topic}"
            yield event(Seen("message", message.payload, topic, message.size, time=message.time))
        if (hidden := max(len(traffic.messages) - _SHOWN, 0) + traffic.missed) > 0:
            yield event(Seen("notice", f"{hidden:,} messages were not shown"))
        if traffic.messages:
            last = traffic.messages[-1].number
        else:
            yield b": alive\n\n"
        await asyncio.sleep(WATCH_INTERVAL)
    yield event(Seen("end", "The view ends: the login has ended"))


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
