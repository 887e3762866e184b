"""Dead-lettered messages: grouped by reason and destination, retried, exported and deleted."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from bridge.administration import requests
from bridge.administration.answers import DeadLetterContent, DeadLetterPage
from bridge.console.console import Done, Routes, Visit
from bridge.console.forms import RequestProblem
from bridge.security.tokens import Right

routes = Routes()

#: Messages of a page.
ROWS: Final = 100


class DeadLetterCriteria(msgspec.Struct, kw_only=True):
    """Search criteria, which must all match."""

    #: name or number of an MQRC
    reason: str = ""
    #: the original destination
    queue: str = ""
    client: str = ""
    topic: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of a request."""
        return {"reason": self.reason, "queue": self.queue, "client_id": self.client, "topic": self.topic}


class DeadLettersQuery(DeadLetterCriteria, kw_only=True):
    """Search criteria and page."""

    page: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class DeadLetterSelection(DeadLetterCriteria, kw_only=True):
    """Selected messages: identifiers, search criteria, or all."""

    ids: list[str] = []
    all: bool = False

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "ids": self.ids}

    def check(self) -> None:
        """Raise RequestProblem if nothing was selected."""
        if not self.all and not any(self.fields().values()):
            raise RequestProblem(
                400, "Nothing was selected", ["Select messages, enter search criteria, or select all messages."]
            )


class RetryForm(DeadLetterSelection, kw_only=True):
    """Messages to retry."""

    #: a queue for all of them, or blank for their original destinations
    to: str = ""


class DeadLetterQuery(msgspec.Struct):
    """A dead-lettered message."""

    id: Annotated[str, msgspec.Meta(min_length=1)]


@routes.page("/dead-letters", "dead_letters.html")
async def dead_letters(visit: Visit, query: DeadLettersQuery) -> DeadLetterPage:
    """Return dead-lettered messages by reason and destination, and one page of them."""
    request = requests.ListDeadLetters(skip=(query.page - 1) * ROWS, rows=ROWS, **query.fields())
    return await visit.ask(request)


@routes.page("/dead-letters/show", "dead_letter.html")
async def dead_letter(visit: Visit, query: DeadLetterQuery) -> DeadLetterContent:
    """Return a dead-lettered message."""
    return await visit.ask(requests.ShowDeadLetter(id=query.id, payloads=visit.payloads))


@routes.page("/dead-letters/export")
async def export(visit: Visit, query: DeadLetterSelection) -> Response:
    """Return messages, including their contents, as lines of JSON."""
    if not visit.payloads:
        raise RequestProblem(403, "Message contents are not shown here (admin.payloads)")
    lines = await visit.ask(requests.ExportDeadLetters(**query.fields()))
    name = 'attachment; filename="dead-letters.jsonl"'
    return Response(lines, media_type="application/x-ndjson", headers={"Content-Disposition": name})


@routes.change("/dead-letters/retry", operates=True)
async def retry(visit: Visit, form: RetryForm) -> Done:
    """Put messages to their destinations again. Another queue needs the right `change`."""
    form.check()
    if form.to:
        visit.principal.check(Right.CHANGE)
    return await visit.change(
        requests.RetryDeadLetters(to=form.to, **form.fields()), to="/dead-letters" if form.ids else ""
    )


@routes.change("/dead-letters/delete", "Delete these messages for good?")
async def delete(visit: Visit, form: DeadLetterSelection) -> Done:
    """Delete messages."""
    form.check()
    return await visit.change(requests.DeleteDeadLetters(**form.fields()), to="/dead-letters" if form.ids else "")
