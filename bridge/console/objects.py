"""Objects of the queue manager: forms for queues, topics and namelists, and MQSC commands with a preview."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.responses import PlainTextResponse, Response

from bridge.administration import requests
from bridge.administration.answers import CommandEffect, ObjectKind, ObjectRow
from bridge.console.console import Nothing, Routes, Visit
from bridge.console.forms import RequestProblem
from bridge.mq.object_changes import LABELS, definition

routes = Routes()

#: Objects of a page.
ROWS: Final = 200

ObjectName = Annotated[str, msgspec.Meta(max_length=48)]


class ObjectsQuery(msgspec.Struct):
    """A kind of objects, a search, and a page."""

    kind: ObjectKind = "QLOCAL"
    search: Annotated[str, msgspec.Meta(max_length=48)] = ""
    #: include the objects of the queue manager itself
    system: bool = False
    page: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1


class ObjectsPage(msgspec.Struct, kw_only=True):
    """One page of objects."""

    objects: list[ObjectRow]
    found: int


class ObjectQuery(msgspec.Struct):
    """An object, or a kind for a new one."""

    kind: ObjectKind
    name: ObjectName = ""


class ObjectForm(msgspec.Struct):
    """The name and the attributes of an object."""

    kind: ObjectKind
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=48)]
    #: the object exists
    exists: bool = False
    # The attributes by keyword. Those that are absent keep their values.
    DESCR: str | None = None
    PUT: str | None = None
    GET: str | None = None
    DEFPRTY: str | None = None
    DEFPSIST: str | None = None
    MAXDEPTH: str | None = None
    MAXMSGL: str | None = None
    MSGDLVSQ: str | None = None
    USAGE: str | None = None
    SHARE: str | None = None
    DEFSOPT: str | None = None
    TARGET: str | None = None
    TARGTYPE: str | None = None
    RNAME: str | None = None
    RQMNAME: str | None = None
    XMITQ: str | None = None
    NAMES: str | None = None
    TOPICSTR: str | None = None
    PUB: str | None = None
    SUB: str | None = None
    DURSUB: str | None = None
    PMSGDLV: str | None = None
    NPMSGDLV: str | None = None
    USEDLQ: str | None = None
    WILDCARD: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """The values of the attributes by keyword."""
        return {keyword: value for keyword in LABELS if (value := getattr(self, keyword)) is not None}


class CommandsForm(msgspec.Struct):
    """MQSC commands: text, or a file."""

    commands: str = ""
    file: bytes = b""


class CommandsPage(msgspec.Struct, kw_only=True):
    """MQSC commands and their effects."""

    commands: str
    effects: list[CommandEffect]
    #: False if the commands are for the tools of IBM MQ
    can_run: bool

    @property
    def changes(self) -> int:
        """Number of commands that would change something."""
        return sum(effect.effect in ("create", "change", "delete", "clear") for effect in self.effects)

    @property
    def mistakes(self) -> int:
        """Number of commands with mistakes."""
        return sum(effect.effect == "error" for effect in self.effects)


@routes.page("/objects", "objects.html")
async def objects(visit: Visit, query: ObjectsQuery) -> ObjectsPage:
    """List the queues, topics or namelists of the queue manager."""
    rows = await visit.ask(requests.ListObjects(kind=query.kind, system=query.system))
    text = query.search.casefold()
    matches = [row for row in rows if text in row.name.casefold() or text in row.detail.casefold()]
    return ObjectsPage(objects=matches[(query.page - 1) * ROWS : query.page * ROWS], found=len(matches))


routes.show("/objects/show", requests.ShowObject, "object.html")


@routes.form("/objects/preview", "commands.html")
async def preview(visit: Visit, form: ObjectForm) -> CommandsPage:
    """Return the MQSC command that gives an object the attributes of a form, and its effect."""
    current = await visit.ask(requests.ShowObject(kind=form.kind, name=form.name if form.exists else ""))
    try:
        command = definition(form.kind, form.name, form.attributes, current)
    except ValueError as error:
        raise RequestProblem(400, f"The attributes are not valid: {error}") from error
    return await _preview(visit, command)


@routes.page("/objects/commands", "commands_form.html")
async def commands(visit: Visit, query: Nothing) -> Nothing:
    """Return the form for MQSC commands."""
    return query


@routes.form("/objects/commands", "commands.html")
async def preview_commands(visit: Visit, form: CommandsForm) -> CommandsPage:
    """Return the effects of MQSC commands."""
    try:
        text = form.file.decode("utf-8-sig") if form.file else form.commands
    except UnicodeDecodeError as error:
        line = form.file.count(b"\n", 0, error.start) + 1
        raise RequestProblem(400, f"The file is not text in UTF-8: line {line}") from error
    return await _preview(visit, text)


@routes.form("/objects/remove", "commands.html")
async def preview_removal(visit: Visit, form: ObjectQuery) -> CommandsPage:
    """Return the MQSC command that deletes an object, and its effect. A queue with messages is not deleted."""
    return await _preview(visit, f"DELETE {form.kind}({_quoted(form.name)})")


@routes.form("/objects/empty", "commands.html")
async def preview_clearing(visit: Visit, form: ObjectQuery) -> CommandsPage:
    """Return the MQSC command that deletes all messages of a queue, and its effect."""
    return await _preview(visit, f"CLEAR {form.kind}({_quoted(form.name)})")


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


async def _preview(visit: Visit, text: str) -> CommandsPage:
    effects = await visit.ask(requests.PreviewCommands(commands=text))
    status = await visit.ask(requests.ShowStatus())
    return CommandsPage(commands=text, effects=effects, can_run=status.queue_manager_type == "embedded")


# The question is the page of the preview, which sends the confirmation.
routes.request("/objects/run", requests.RunCommands, "Run these MQSC commands?")


@routes.page("/objects/dump")
async def dump(visit: Visit, query: requests.DumpDefinitions) -> Response:
    """Return the MQSC commands that define all objects, as a file."""
    text = await visit.ask(query)
    return PlainTextResponse(text, headers={"Content-Disposition": 'attachment; filename="objects.mqsc"'})
