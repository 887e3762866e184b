"""The dead-letter queue: why each letter is there, in words; tried again, exported, deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.console.access import Who
from bridge.console.console import Console, Done
from bridge.console.message import MessagePage, message_page
from bridge.console.problem import Problem
from bridge.console.urls import asked_for, link
from bridge.mq.dead_letter import Letter, Selection, exported, reason_number
from bridge.mq.dead_letter_queue import DeadLetterQueue, Outcome, sources_of
from bridge.mq.mqi import Connection
from bridge.mqtt.topics import topic_filter_error
from bridge.security.audit_log import LONGEST

#: Letters of a page, and letters that one request tries again, exports or deletes, at most.
ROWS: Final = 100
MOST: Final = 500
#: Seconds that a page waits for what becomes of retried messages.
_FOLLOW_TIMEOUT: Final = 2.0
#: Bytes of an export, about, at most.
_EXPORT: Final = 16_000_000
#: Fields of a form that choose letters.
FIELDS: Final = ("reason", "queue", "client", "topic")


def routes(console: Console) -> list[Route]:
    """Return the routes."""

    def opened(connection: Connection) -> DeadLetterQueue:
        return DeadLetterQueue(connection, console.dead_letter_queue)

    async def page(request: Request, who: Who) -> Response:
        selection = _selection(request.query_params)

        def browse(connection: Connection) -> tuple[str, list[Letter]]:
            letters = opened(connection)
            return letters.name, list(letters.browse(selection, count=ROWS + 1))

        name, found = await console.queue_manager.run(browse)
        return console.render(
            "dead_letters.html",
            request,
            who,
            name=name,
            letters=found[:ROWS],
            more=len(found) > ROWS,
            chosen={field: request.query_params.get(field, "") for field in FIELDS},
            most=MOST,
        )

    async def letter(request: Request, who: Who) -> Response:
        wanted = asked_for(request, "id")

        def read(connection: Connection) -> tuple[Letter, MessagePage] | None:
            for one, md, data in opened(connection).read(Selection(ids=(wanted,)), count=1):
                return one, message_page(md, data, len(data), console.payloads)
            return None

        found = await console.queue_manager.run(read)
        if found is None:
            raise Problem(404, "The letter is not on the dead-letter queue any more")
        return console.render("dead_letter.html", request, who, letter=found[0], message=found[1])

    async def retry(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        selection, back = _chosen(form)
        configuration = console.configuration

        def work(connection: Connection) -> tuple[int, list[str]]:
            failed, lines = 0, []
            for one in opened(connection).retry(
                selection,
                count=MOST,
                to=form.get("to", ""),
                sources=sources_of(configuration.mappings),
                transmission_queue=configuration.transmission_queue,
                timeout=_FOLLOW_TIMEOUT,
            ):
                failed += one.outcome in (Outcome.RETURNED, Outcome.STAYED)
                lines.append(f"{one.letter.name}: {one.outcome}: {one.place}{f': {one.failure}' if one.failure else ''}")
            return len(lines) - failed, lines

        done, lines = await _changed(console, who, "dead letters retry", form, work)
        first = f"Retried {len(lines)} messages; {len(lines) - done} are on the dead-letter queue as before"
        return Done([first, *lines], back, done == len(lines) > 0)

    async def delete(request: Request, who: Who, form: Mapping[str, str]) -> Done:
        selection, back = _chosen(form)
        if not form.get("sure"):
            return Done(["Nothing was deleted: tick that the letters may go for good"], back, ok=False)

        def work(connection: Connection) -> tuple[int, list[str]]:
            gone = [one.name for one in opened(connection).delete(selection, count=MOST)]
            return len(gone), gone

        done, lines = await _changed(console, who, "dead letters delete", form, work)
        return Done([f"{done} letters are deleted", *lines], "/dead-letters", done > 0)

    async def export(request: Request, who: Who) -> Response:
        if not console.payloads:
            raise Problem(403, "What is in messages is not shown here (admin.payloads)")
        selection = _selection(request.query_params)

        def read(connection: Connection) -> bytes:
            lines, size = [], 0
            for one, md, data in islice(opened(connection).read(selection), MOST):
                lines.append(exported(one, md, data))
                size += len(lines[-1])
                if size > _EXPORT:
                    break
            return b"".join(lines)

        lines = await console.queue_manager.run(read)
        console.note("dead letters export", who, chosen=_chosen_by(request.query_params))
        name = 'attachment; filename="dead-letters.jsonl"'
        return Response(lines, media_type="application/x-ndjson", headers={"Content-Disposition": name})

    return [
        console.page("/dead-letters", page),
        console.page("/dead-letters/show", letter),
        console.page("/dead-letters/export", export),
        console.change("/dead-letters/retry", retry),
        console.change("/dead-letters/delete", delete),
    ]


async def _changed(
    console: Console,
    who: Who,
    what: str,
    form: Mapping[str, str],
    work: Callable[[Connection], tuple[int, list[str]]],
) -> tuple[int, list[str]]:
    """Do some work on letters, and note it in the audit log, whatever becomes of it."""
    facts = {"chosen": _chosen_by(form), "to": form.get("to", "")}
    try:
        done, lines = await console.queue_manager.run(work, repeatable=False)
    except Exception as error:
        console.note(what, who, ok=False, lines=[str(error)], **facts)
        raise
    console.note(what, who, ok=done > 0, lines=lines[:20], letters=done, **facts)
    return done, lines


def _chosen_by(asked: Mapping[str, str]) -> dict[str, str]:
    """Return for the audit log by what a query or a form chooses letters."""
    return {name: asked[name][:LONGEST] for name in ("id", *FIELDS) if asked.get(name)}


def _chosen(form: Mapping[str, str]) -> tuple[Selection, str]:
    """Return the letters that a form names, and the page that it was on. Raises Problem where it names none."""
    selection = _selection(form)
    if selection.is_everything and not form.get("all"):
        raise Problem(400, "Which letters?", ["Choose them by reason, queue, client or topic, or tick that it is all."])
    if form.get("id"):
        return selection, "/dead-letters"
    return selection, link("/dead-letters", **{name: form.get(name, "") for name in FIELDS})


def _selection(asked: Mapping[str, str]) -> Selection:
    """Return the letters that a query or a form chooses. Raises Problem."""
    topic, reason = asked.get("topic", ""), asked.get("reason", "")
    if topic and (why := topic_filter_error(topic)) is not None:
        raise Problem(400, f"The topic filter is not right: {why}")
    try:
        reasons = (reason_number(reason),) if reason else ()
    except ValueError as error:
        raise Problem(400, str(error)) from error
    return Selection(
        ids=(asked["id"],) if asked.get("id") else (),
        reasons=reasons,
        queue=asked.get("queue") or None,
        client=asked.get("client") or None,
        topic_filter=topic or None,
    )
