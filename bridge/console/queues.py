"""Queues: their depths, and the messages on them, looked at and left where they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.console.access import Who
from bridge.console.console import Console
from bridge.console.message import MessagePage, message_page
from bridge.console.problem import Problem
from bridge.console.urls import asked_for, link, number
from bridge.mapping.message_view import MessageView, body_text
from bridge.mq.dead_letter_queue import DeadLetterQueue
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError
from bridge.mq.worker import LOST
from bridge.wire import cmqc

#: Queues of a page, messages of a page, and messages that are gone past at most to come to a page.
ROWS: Final = 200
MESSAGES: Final = 50
FARTHEST: Final = 10_000
#: Bytes of a message that are read for the list, and for its own page; characters of a body in the list.
_GLANCE: Final = 4_096
_WHOLE: Final = 262_144
_BODY: Final = 100
_DISPLAY: Final = "DISPLAY QLOCAL(*) CURDEPTH MAXDEPTH IPPROCS OPPROCS USAGE GET PUT DESCR"
_OPEN: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_FAIL_IF_QUIESCING
_BROWSE: Final = (
    cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A local queue in the list."""

    name: str
    depth: int
    most: int
    readers: int
    writers: int
    transmission: bool
    #: words for what is inhibited
    inhibited: str
    description: str


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the list of a queue."""

    message_id: str
    #: which of the messages with this MsgId it is
    repeat: int
    put_at: str
    application: str
    format: str
    persistent: bool
    size: int
    body: str


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    def named(connection: Connection) -> dict[str, str]:
        """Return what the bridge uses queues for, by name."""
        return {
            console.configuration.transmission_queue: "messages for clients",
            dead_letter_queue(console.dead_letter_queue, connection): "dead letters",
        }

    async def page(request: Request, who: Who) -> Response:
        asked = request.query_params
        wanted, system, filled = asked.get("search", ""), bool(asked.get("system")), bool(asked.get("filled"))
        first = number(asked.get("from"), 0, 1_000_000)
        queues, roles = await console.queue_manager.run(lambda connection: (_queues(connection), named(connection)))
        rows = [
            row
            for row in queues
            if wanted.upper() in row.name.upper()
            and (system or not row.name.startswith("SYSTEM.") or row.name in roles)
            and (row.depth or not filled)
        ]
        more = len(rows) > first + ROWS
        query = {"search": wanted, "system": "1" if system else "", "filled": "1" if filled else ""}
        return console.render(
            "queues.html",
            request,
            who,
            queues=rows[first : first + ROWS],
            found=len(rows),
            following=link("/queues", **query, **{"from": first + ROWS}) if more else None,
            search=wanted,
            system=system,
            filled=filled,
            roles=roles,
        )

    async def queue(request: Request, who: Who) -> Response:
        name = asked_for(request, "name")
        first = number(request.query_params.get("from"), 0, FARTHEST)
        payloads = console.payloads
        (messages, more), roles = await console.queue_manager.run(
            lambda connection: (_messages(name, first, payloads, connection), named(connection))
        )
        following = link("/queues/show", name=name, **{"from": first + MESSAGES}) if more else None
        return console.render(
            "queue.html",
            request,
            who,
            name=name,
            messages=messages,
            first=first,
            following=following if first + MESSAGES <= FARTHEST else None,
            role=roles.get(name, ""),
        )

    async def message(request: Request, who: Who) -> Response:
        name, written = asked_for(request, "name"), asked_for(request, "id")
        repeat = number(request.query_params.get("repeat"), 0, FARTHEST)
        try:
            message_id = bytes.fromhex(written)
        except ValueError as error:
            raise Problem(400, "A MsgId is 48 hexadecimal digits") from error
        if len(message_id) != cmqc.MQ_MSG_ID_LENGTH:
            raise Problem(400, "A MsgId is 48 hexadecimal digits")
        found = await console.queue_manager.run(partial(_message, name, message_id, repeat, console.payloads))
        if found is None:
            raise Problem(404, "The message is not on the queue any more", [f"Queue {name}, MsgId {written}."])
        return console.render("message.html", request, who, name=name, message=found)

    return [
        console.page("/queues", page),
        console.page("/queues/show", queue),
        console.page("/queues/message", message),
    ]


def depths(names: Sequence[str], connection: Connection) -> list[int | None]:
    """Return how many messages are on each of some queues; None of one that cannot be asked."""
    found: list[int | None] = []
    for name in names:
        try:
            handle = connection.open(MQOD(ObjectName=name), cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING)
            try:
                (depth,), _ = connection.inquire(handle, (cmqc.MQIA_CURRENT_Q_DEPTH,))
            finally:
                connection.close(handle)
        except MQError as error:
            if error.reason in LOST:
                raise
            found.append(None)
        else:
            found.append(depth)
    return found


def dead_letter_queue(configured: str, connection: Connection) -> str:
    """Return the name of the dead-letter queue: that which is configured, or the queue manager names; "" where none is."""
    try:
        return DeadLetterQueue(connection, configured).name
    except MQError as error:
        if error.reason != cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            raise
        return ""


def _queues(connection: Connection) -> list[QueueRow]:
    (response,) = connection.command(_DISPLAY)
    if not response.ok:
        raise MQError(cmqc.MQRC_UNEXPECTED_ERROR, response.message)
    rows = []
    for one in response.objects:
        inhibited = [word for word, key in (("gets", "GET"), ("puts", "PUT")) if one.get(key) == "DISABLED"]
        rows.append(
            QueueRow(
                name=str(one["QUEUE"]),
                depth=_int(one.get("CURDEPTH")),
                most=_int(one.get("MAXDEPTH")),
                readers=_int(one.get("IPPROCS")),
                writers=_int(one.get("OPPROCS")),
                transmission=one.get("USAGE") == "XMITQ",
                inhibited=" and ".join(inhibited),
                description=str(one.get("DESCR", "")).strip(),
            )
        )
    return sorted(rows, key=lambda row: row.name)


def _int(value: str | int | None) -> int:
    return value if isinstance(value, int) else 0


def _messages(name: str, first: int, payloads: bool, connection: Connection) -> tuple[list[MessageRow], bool]:
    """Return messages of a queue from a position on, and whether there are more."""
    handle = connection.open(MQOD(ObjectName=name), _OPEN)
    try:
        rows: list[MessageRow] = []
        seen: dict[bytes, int] = {}
        gmo = GetOptions(Options=_BROWSE | cmqc.MQGMO_BROWSE_NEXT, MatchOptions=cmqc.MQMO_NONE, MaxLength=_GLANCE)
        for place in range(first + MESSAGES + 1):
            try:
                got = connection.get(handle, gmo)
            except MQError as error:
                if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                    raise
                return rows, False
            repeat = seen.get(got.md.MsgId, 0)
            seen[got.md.MsgId] = repeat + 1
            if first <= place < first + MESSAGES:
                rows.append(_row(got, repeat, payloads))
        return rows, True
    finally:
        connection.close(handle)


def _row(got: Got, repeat: int, payloads: bool) -> MessageRow:
    view = MessageView(got.md, got.data)
    md = got.md
    put = (md.PutDate + md.PutTime).decode("ascii", "replace")
    return MessageRow(
        message_id=md.MsgId.hex().upper(),
        repeat=repeat,
        put_at=f"{put[:4]}-{put[4:6]}-{put[6:8]} {put[8:10]}:{put[10:12]}:{put[12:14]}" if len(put) == 16 else put,
        application=md.PutApplName.decode("utf-8", "replace").strip(" \0"),
        format=md.Format.decode("ascii", "replace").strip(" \0"),
        persistent=md.Persistence == cmqc.MQPER_PERSISTENT,
        size=got.DataLength,
        body=body_text(view.body[:_BODY]) if payloads else "",
    )


def _message(name: str, message_id: bytes, repeat: int, payloads: bool, connection: Connection) -> MessagePage | None:
    """Return a message of a queue; None where it is not there any more."""
    handle = connection.open(MQOD(ObjectName=name), _OPEN)
    try:
        gmo = GetOptions(
            Options=_BROWSE | cmqc.MQGMO_BROWSE_NEXT,
            MatchOptions=cmqc.MQMO_MATCH_MSG_ID,
            MsgId=message_id,
            MaxLength=_WHOLE,
        )
        for _ in range(repeat + 1):
            got = connection.get(handle, gmo)
    except MQError as error:
        if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
            raise
        return None
    finally:
        connection.close(handle)
    return message_page(got.md, got.data, got.DataLength, payloads)
