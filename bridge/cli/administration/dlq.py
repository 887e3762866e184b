"""`mqbridge dlq`: the letters on the dead-letter queue, by an MQ connection to the queue manager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import moment
from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.period import seconds
from bridge.cli.table import print_table

if TYPE_CHECKING:
    from bridge.config import Configuration
    from bridge.mq.dead_letter import Letter, Selection
    from bridge.mq.dead_letter_queue import DeadLetterQueue

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="MsgIds in hexadecimal digits; ID@STAMP where they repeat.", show_default=False),
]
Queue = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The dead-letter queue; without it that of the bridge, or DEADQ.", show_default=False),
]
Reason = Annotated[
    list[str] | None,
    typer.Option(metavar="REASON", help="Only with this reason, 2053 or MQRC_Q_FULL; any number.", show_default=False),
]
BoundFor = Annotated[
    str | None,
    typer.Option(metavar="QUEUE", help="Only those bound for it (DestQName); * is any characters.", show_default=False),
]
Client = Annotated[
    str | None,
    typer.Option(metavar="CLIENT_ID", help="Only those that the client published, or was to get.", show_default=False),
]
Topic = Annotated[
    str | None, typer.Option(metavar="FILTER", help="Only publications to topics of this filter.", show_default=False)
]
OlderThan = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only those that have been there longer, such as 30d or 12h.", show_default=False),
]
NewerThan = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those that have been there less long.", show_default=False)
]
Count = Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N of them.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All letters: needed where nothing else chooses.")]


def list_(
    ids: Ids = None,
    reason: Reason = None,
    bound_for: BoundFor = None,
    client: Client = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="At most N of them.")] = 1_000,
    queue: Queue = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Show the letters on the dead-letter queue: why each is there, and where it was to go."""
    selection = _selection(ids, reason, bound_for, client, topic, older_than, newer_than)
    with _opened(queue, data_dir, config) as (letters, _):
        if json:
            from bridge.cli.output import note, write_json

            number = 0
            for letter in letters.browse(selection, count=count):
                number += 1
                write_json(letter)
            if number == count:
                note(f"there may be more than these {count}: --count")
            return
        found = list(letters.browse(selection, count=count))
        heads = ("dead-lettered", "reason", "was to go to", "size", "topic", "id")
        print_table(heads, [_row(one) for one in found], f"queue {letters.name} has no such letters")
        if len(found) == count:
            typer.echo(f"there may be more than these {count}: --count")


def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="MsgIds in hexadecimal digits.")],
    queue: Queue = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Show letters whole: the reason in words and what to do, the MQMD, the headers and the body."""
    from bridge.cli.output import write, write_json
    from bridge.mapping.message_view import MessageView

    selection = _selection(ids)
    found = False
    with _opened(queue, data_dir, config) as (letters, _):
        for letter, md, data in letters.read(selection):
            found = True
            view = MessageView(md, data)
            if json:
                write_json({"letter": letter, **view.json()})
            else:
                write("\n".join([*_facts(letter), "", view.text(verbose=True, defaults=False)]))
    if not found:
        raise Failure("there is no such letter")


def retry(
    ids: Ids = None,
    reason: Reason = None,
    bound_for: BoundFor = None,
    client: Client = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    count: Count = None,
    everything: Everything = False,
    to: Annotated[str, typer.Option(metavar="QUEUE", help="Put them to this queue.", show_default=False)] = "",
    queue: Queue = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Retry messages on the dead-letter queue, and report which were delivered.

    A rejected publication is published again. A message that a mapping rejected goes back to the source queue of the
    mapping, which is in the configuration (--config). All others go to the destination in the MQDLH. The command waits up
    to 5 seconds for mappings and the bridge to process them. A message that is rejected again is on the
    dead-letter queue as before, with the time at which it was dead-lettered first.

    Exit status 1 if a message returned to the dead-letter queue or stayed there, or if there was none.
    """
    from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE
    from bridge.mq.dead_letter_queue import Outcome, sources_of

    selection = _selection(ids, reason, bound_for, client, topic, older_than, newer_than, everything=everything)
    counts = dict.fromkeys(Outcome, 0)
    with _opened(queue, data_dir, config, whole=not to) as (letters, configuration):
        sources = {} if configuration is None else sources_of(configuration.mappings)
        transmission_queue = DEFAULT_TRANSMISSION_QUEUE if configuration is None else configuration.transmission_queue
        retried = letters.retry(selection, count=count, to=to, sources=sources, transmission_queue=transmission_queue)
        for one in retried:
            counts[one.outcome] += 1
            if json:
                from bridge.cli.output import write_json

                write_json(
                    {
                        "id": one.letter.id,
                        "stamp": one.letter.stamp,
                        "destination": one.place,
                        "outcome": one.outcome,
                        "failure": one.failure,
                    }
                )
            else:
                text = _RETRIED[one.outcome].format(letter=one.letter, place=one.place, failure=one.failure)
                typer.echo(text, err=one.outcome in (Outcome.RETURNED, Outcome.STAYED))
    if not sum(counts.values()):
        raise Failure("there are no such letters", FAILED)
    if not json:
        words = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number or outcome == "delivered")
        typer.echo(f"retried {sum(counts.values())} messages: {words}")
    if counts[Outcome.RETURNED] or counts[Outcome.STAYED]:
        raise Failure("", FAILED)


#: By outcome (`bridge.mq.dead_letter_queue.Outcome`).
_RETRIED = {
    "delivered": "{letter.name} delivered to {place}",
    "waiting": "{letter.name} waiting for {place}: {failure}",
    "returned": "{letter.name} returned to the dead-letter queue from {place}: {failure}",
    "stayed": "{letter.name} stayed on the dead-letter queue, not put to {place}: {failure}",
}


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A file to make, one line for each; or a directory.")],
    ids: Ids = None,
    reason: Reason = None,
    bound_for: BoundFor = None,
    client: Client = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    count: Count = None,
    everything: Everything = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete each from the queue once it is on disk.")] = False,
    queue: Queue = None,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Write letters to a file, a line of JSON for each, or to a directory, a file for each.

    It is what `mqbridge mq get --json` prints, with `letter` (the facts of `dlq list`) and `data` (the bytes, in base64);
    `mqbridge try --message` takes such a file. A file that is there already is not written over.
    """
    from bridge.cli.administration.letter_file import Export

    selection = _selection(ids, reason, bound_for, client, topic, older_than, newer_than, everything=everything)
    number = 0
    with _opened(queue, data_dir, config) as (letters, _), Export(file) as written:
        if delete:
            for letter, md, data in letters.take(selection, count=count):
                written.write(letter, md, data)
                number += 1
                if number % _AT_ONCE == 0:
                    written.sync()
                    letters.commit()
            written.sync()
            letters.commit()
        else:
            for letter, md, data in letters.read(selection, count=count):
                written.write(letter, md, data)
                number += 1
    typer.echo(f"{number} letters are in {file}" + (f", and on queue {letters.name} no more" if delete else ""))


def delete(
    ids: Ids = None,
    reason: Reason = None,
    bound_for: BoundFor = None,
    client: Client = None,
    topic: Topic = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    count: Count = None,
    everything: Everything = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which would be deleted.")] = False,
    queue: Queue = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Delete letters for good.

    Exit status 1 when there was none.
    """
    selection = _selection(ids, reason, bound_for, client, topic, older_than, newer_than, everything=everything)
    number = 0
    with _opened(queue, data_dir, config) as (letters, _):
        walk = letters.browse(selection, count=count) if dry_run else letters.delete(selection, count=count)
        for letter in walk:
            number += 1
            if json:
                from bridge.cli.output import write_json

                write_json(letter)
            else:
                typer.echo(f"{letter.name}  {letter.reason_name}  {_place(letter)}")
    if not number:
        raise Failure("there are no such letters", FAILED)
    if not json:
        typer.echo(f"{number} letters would be deleted" if dry_run else f"{number} letters are deleted")


#: Letters that an export writes to disk, and deletes, together.
_AT_ONCE = 100


@contextlib.contextmanager
def _opened(
    queue: str | None, data_dir: Path | None, file: Path | None, *, whole: bool = False
) -> Iterator[tuple[DeadLetterQueue, Configuration | None]]:
    """Yield the dead-letter queue that the options name, and the configuration where there is one.

    `whole`: the configuration must be without mistakes, because its mappings are needed.
    """
    from bridge.cli.queue_manager import configuration_of, connected_to, connection_settings_of
    from bridge.mq.dead_letter_queue import DeadLetterQueue

    configuration = configuration_of(file, data_dir) if whole else connection_settings_of(file, data_dir)
    name = queue or ""
    if not name and configuration is not None and configuration.queue_manager.type == "ibm":
        name = configuration.queue_manager.dead_letter_queue
    with connected_to(data_dir, configuration) as connection:
        yield DeadLetterQueue(connection, name), configuration


def _selection(
    ids: list[str] | None = None,
    reason: list[str] | None = None,
    bound_for: str | None = None,
    client: str | None = None,
    topic: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
    *,
    everything: bool | None = None,
) -> Selection:
    """Return what the options choose; `everything` is False where all letters must be asked for. Raises Failure."""
    from bridge.mq.dead_letter import Selection, reason_number
    from bridge.mqtt.topics import topic_filter_error

    if topic is not None and (why := topic_filter_error(topic)) is not None:
        raise Failure(f"--topic: {why}", WRONG_USAGE)
    try:
        reasons = tuple(reason_number(one) for one in reason or ())
    except ValueError as error:
        raise Failure(f"--reason: {error}", WRONG_USAGE) from None
    selection = Selection(
        ids=frozenset(one.upper() for one in ids or ()),
        reasons=reasons,
        queue=bound_for,
        client=client,
        topic_filter=topic,
        older_than=seconds(older_than, "--older-than"),
        newer_than=seconds(newer_than, "--newer-than"),
    )
    if everything is False and selection.is_everything:
        raise Failure("expected which letters: an ID, --reason or another option that chooses; or --all", WRONG_USAGE)
    return selection


def _row(letter: Letter) -> tuple[str | int, ...]:
    reason = f"{letter.reason_name} ({letter.reason})" if letter.has_header else "no MQDLH"
    return moment(letter.dead_lettered), reason, _place(letter), letter.size, letter.topic, letter.name


def _place(letter: Letter) -> str:
    at = f" at {letter.destination_queue_manager}" if letter.destination_queue_manager else ""
    return letter.destination + at


def _facts(letter: Letter) -> Iterator[str]:
    """Yield lines with what is to be known of a letter."""
    facts = [
        ("letter", letter.name),
        ("reason", f"{letter.reason_name} ({letter.reason})" if letter.has_header else "none"),
        ("", letter.what),
        ("what to do", letter.advice),
        ("was to go to", _place(letter)),
        ("put by", letter.put_by),
        ("dead-lettered", moment(letter.dead_lettered)),
        ("put at first", moment(letter.put_time)),
        ("client", letter.client_id),
        ("topic", letter.topic),
        ("QoS", "" if letter.qos is None else letter.qos),
        ("retained", "yes" if letter.retained else ""),
        ("size", f"{letter.size} bytes"),
        ("backed out", letter.backout_count or ""),
    ]
    for name, value in facts:
        if value != "":
            yield f"{name:<14} {value}"
