"""Queues: list, attributes and handles, browse, put, move and clear."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from bridge.administration import requests
from bridge.administration.answers import MessageContent, MessagePage, QueueDetails, QueueRow
from bridge.console.console import Done, Routes, Visit

routes = Routes()

#: Queues of a page, and messages of a page.
ROWS: Final = 200
MESSAGES: Final = 50

PageNumber = Annotated[int, msgspec.Meta(ge=1, le=200)]
QueueName = Annotated[str, msgspec.Meta(min_length=1, max_length=48)]


class QueuesQuery(msgspec.Struct):
    """Search criteria and page of queues."""

    search: Annotated[str, msgspec.Meta(max_length=48)] = ""
    #: include the queues of the queue manager itself
    system: bool = False
    #: only queues with messages
    filled: bool = False
    sort: Literal["name", "depth", "max_depth", "oldest_age", "input_handles", "output_handles"] = "name"
    descending: bool = False
    page: PageNumber = 1


class QueuesPage(msgspec.Struct, kw_only=True):
    """One page of local queues."""

    queues: list[QueueRow]
    found: int


class QueueQuery(msgspec.Struct):
    """A queue, and a page of its messages."""

    name: QueueName
    page: PageNumber = 1


class QueuePage(msgspec.Struct, kw_only=True):
    """A queue with some of its messages."""

    details: QueueDetails
    messages: MessagePage


class MessageQuery(msgspec.Struct):
    """A message on a queue."""

    name: QueueName
    #: MsgId in hexadecimal
    id: Annotated[str, msgspec.Meta(pattern="^[0-9A-Fa-f]{48}$")]
    repeat: Annotated[int, msgspec.Meta(ge=0)] = 0


class PutForm(msgspec.Struct):
    """A message to put: text, or a file."""

    name: QueueName
    payload: str = ""
    file: bytes = b""
    persistent: bool = False


@routes.page("/queues", "queues.html")
async def queues(visit: Visit, query: QueuesQuery) -> QueuesPage:
    """Return one page of local queues."""
    matches = [
        row
        for row in await visit.ask(requests.ListQueues())
        if query.search.upper() in row.name.upper()
        and (query.system or not row.name.startswith("SYSTEM.") or row.role)
        and (row.depth or not query.filled)
    ]
    # Queues without an age come first, like those with the age 0.
    matches.sort(
        key=lambda row: getattr(row, query.sort) or ("" if query.sort == "name" else 0), reverse=query.descending
    )
    return QueuesPage(queues=matches[(query.page - 1) * ROWS : query.page * ROWS], found=len(matches))


@routes.page("/queues/show", "queue.html")
async def queue(visit: Visit, query: QueueQuery) -> QueuePage:
    """Return a queue with its attributes, open handles and some of its messages."""
    skip = (query.page - 1) * MESSAGES
    browse = requests.BrowseQueue(name=query.name, skip=skip, rows=MESSAGES, payloads=visit.payloads)
    return QueuePage(
        details=await visit.ask(requests.ShowQueue(name=query.name)),
        messages=await visit.ask(browse),
    )


@routes.page("/queues/message", "message.html")
async def message(visit: Visit, query: MessageQuery) -> MessageContent:
    """Return the MQMD, the headers and the body of a message."""
    request = requests.ShowMessage(name=query.name, message_id=query.id, repeat=query.repeat, payloads=visit.payloads)
    return await visit.ask(request)


@routes.change("/queues/put")
async def put(visit: Visit, form: PutForm) -> Done:
    """Put a message to a queue."""
    payload = form.file or form.payload.encode("utf-8", "surrogateescape")
    return await visit.change(requests.PutMessage(name=form.name, payload=payload, persistent=form.persistent))


routes.request("/queues/move", requests.MoveMessages, "Move these messages to the other queue?")
routes.request("/queues/clear", requests.ClearQueue, "Delete these messages for good?")
