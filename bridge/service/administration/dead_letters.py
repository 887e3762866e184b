"""Administration of the dead-letter queue: list, group, show, retry, delete and export messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from bridge.administration.answers import DeadLetter, DeadLetterContent, DeadLetterGroup, DeadLetterPage, counted
from bridge.administration.protocol import Answer, Invalid, NotFound
from bridge.administration.requests import (
    DeadLetterRequest,
    DeleteDeadLetters,
    ExportDeadLetters,
    ListDeadLetters,
    RetryDeadLetters,
    ShowDeadLetter,
)
from bridge.mq.dead_letter import DeadLetterMessage, Selection, exported, reason_number
from bridge.mq.dead_letter_queue import DeadLetterQueue, Retried, RetryOutcome, sources_of
from bridge.mq.mqi import Connection
from bridge.mqtt.topics import topic_filter_error
from bridge.service.administration.parts import Parts
from bridge.service.administration.queues import content_of_message

T = TypeVar("T")

#: Maximum number of messages that a list examines.
MAX_EXAMINED: Final = 10_000
#: Maximum number of messages that one request retries, deletes or exports.
MAX_CHANGED: Final = 500
#: Approximate maximum size of an export in bytes.
EXPORT_SIZE: Final = 16_000_000
#: Seconds to wait for the outcome of retried messages.
FOLLOW_TIMEOUT: Final = 2.0
#: Maximum number of messages described one by one in an answer.
_MAX_LINES: Final = 50


async def list_dead_letters(parts: Parts, request: ListDeadLetters) -> DeadLetterPage:
    selection = _selection(request)

    def work(queue: DeadLetterQueue) -> DeadLetterPage:
        letters = list(queue.browse(selection, count=MAX_EXAMINED + 1))
        more = len(letters) > MAX_EXAMINED
        letters = letters[:MAX_EXAMINED]
        page = letters[request.skip : request.skip + request.rows]
        return DeadLetterPage(
            queue=queue.name, letters=list(map(_row, page)), groups=_groups(letters), found=len(letters), more=more
        )

    return await _run(parts, work, repeatable=True)


def _groups(letters: list[DeadLetterMessage]) -> list[DeadLetterGroup]:
    counts: Counter[tuple[int, str, str]] = Counter()
    first: dict[tuple[int, str, str], DeadLetterMessage] = {}
    last: dict[tuple[int, str, str], DeadLetterMessage] = {}
    for letter in letters:
        key = letter.reason, letter.destination, letter.destination_queue_manager
        counts[key] += 1
        first.setdefault(key, letter)
        last[key] = letter
    return [
        DeadLetterGroup(
            reason=letter.reason,
            reason_name=letter.reason_name,
            what=letter.what,
            destination=letter.destination,
            destination_queue_manager=letter.destination_queue_manager,
            count=count,
            oldest=letter.dead_lettered,
            newest=last[key].dead_lettered,
        )
        for key, count in counts.most_common()
        if (letter := first[key])
    ]


def _row(letter: DeadLetterMessage) -> DeadLetter:
    return msgspec.convert(letter, DeadLetter, from_attributes=True)


async def show_dead_letter(parts: Parts, request: ShowDeadLetter) -> DeadLetterContent:

    def work(queue: DeadLetterQueue) -> DeadLetterContent:
        for letter, md, data in queue.read(Selection(ids=(request.id,)), count=1):
            content = content_of_message(md, data, len(data), request.payloads)
            return DeadLetterContent(letter=_row(letter), content=content)
        raise NotFound("the message is no longer on the dead-letter queue")

    return await _run(parts, work, repeatable=True)


async def retry_dead_letters(parts: Parts, request: RetryDeadLetters) -> Answer:
    """Put messages to their destinations again. The answer is ok only if all of them left the queue. Raises Refused."""
    selection, configuration = _selection(request), parts.configuration

    def work(queue: DeadLetterQueue) -> list[Retried]:
        return list(
            queue.retry(
                selection,
                count=MAX_CHANGED,
                to=request.to,
                sources=sources_of(configuration.mappings),
                transmission_queue=configuration.transmission_queue,
                timeout=FOLLOW_TIMEOUT,
            )
        )

    retried = await _run(parts, work)
    if not retried:
        raise NotFound("no such messages are on the dead-letter queue")
    counts = Counter(retry.outcome for retry in retried)
    # "Stayed" and "returned" differ for a single message, but both messages are still on the dead-letter queue.
    failed = counts[RetryOutcome.RETURNED] + counts[RetryOutcome.STAYED]
    summary = f"Retried {counted(len(retried), 'message')}: {counts[RetryOutcome.DELIVERED]} delivered"
    if counts[RetryOutcome.WAITING]:
        summary += f", {counts[RetryOutcome.WAITING]} waiting"
    lines = [f"{summary}, {failed} still on the dead-letter queue"]
    for retry in sorted(retried, key=lambda retry: retry.outcome not in (RetryOutcome.RETURNED, RetryOutcome.STAYED))[
        :_MAX_LINES
    ]:
        lines.append(
            f"{retry.letter.name}: {retry.outcome}: {retry.place}{f': {retry.failure}' if retry.failure else ''}"
        )
    return Answer(ok=not failed, lines=lines)


async def delete_dead_letters(parts: Parts, request: DeleteDeadLetters) -> Answer:
    selection = _selection(request)

    def work(queue: DeadLetterQueue) -> list[str]:
        return [letter.name for letter in queue.delete(selection, count=MAX_CHANGED)]

    names = await _run(parts, work)
    if not names:
        raise NotFound("no such messages are on the dead-letter queue")
    return Answer(lines=[f"Deleted {counted(len(names), 'message')}", *names[:_MAX_LINES]])


async def export_dead_letters(parts: Parts, request: ExportDeadLetters) -> str:
    selection = _selection(request)

    def work(queue: DeadLetterQueue) -> str:
        def lines() -> Iterator[str]:
            size = 0
            for letter, md, data in islice(queue.read(selection), MAX_CHANGED):
                line = exported(letter, md, data).decode()
                yield line
                if (size := size + len(line)) > EXPORT_SIZE:
                    return

        return "".join(lines())

    return await _run(parts, work, repeatable=True)


def _selection(request: DeadLetterRequest[Any]) -> Selection:
    if request.topic and (why := topic_filter_error(request.topic)) is not None:
        raise Invalid(f"topic filter {request.topic[:100]!r} is not valid: {why}")
    try:
        reasons = (reason_number(request.reason),) if request.reason else ()
    except ValueError as error:
        raise Invalid(str(error)) from error
    return Selection(
        ids=request.ids,
        reasons=reasons,
        queue=request.queue or None,
        client=request.client_id or None,
        topic_filter=request.topic or None,
    )


async def _run(parts: Parts, work: Callable[[DeadLetterQueue], T], *, repeatable: bool = False) -> T:
    def opened(connection: Connection) -> T:
        return work(DeadLetterQueue(connection, parts.host.dead_letter_queue))

    return await parts.queue_manager_connection.run(opened, repeatable=repeatable)
