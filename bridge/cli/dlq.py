"""`mqbridge dlq`: dead-lettered messages, through an MQ connection to the queue manager."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Self

import msgspec
import typer

from bridge.administration.answers import counted, moment
from bridge.cli import options
from bridge.cli.failures import NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, YES, Format, argument, flag, option, settings, takes
from bridge.cli.output import confirm, note, print_facts, print_records, print_table, say, write
from bridge.files import sync

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.mq.dead_letter import DeadLetterMessage, Selection
    from bridge.mq.dead_letter_queue import DeadLetterQueue, Retried
    from bridge.wire.mq import MQMD

Queue = Annotated[str | None, option("QUEUE", "The dead-letter queue. Default: that of the bridge, or DEADQ.")]

SetAside = Annotated[
    bool,
    flag("Messages that a mapping took from the dead-letter queue and could not process.", "--set-aside"),
]


def _selection(
    ids: Annotated[list[str] | None, argument("[ID]...", "ID@STAMP as `dlq list` prints it, or the MsgId.")] = None,
    reason: Annotated[
        list[str] | None, option("REASON", "Only with this reason, such as 2053 or MQRC_Q_FULL. Can be repeated.")
    ] = None,
    bound_for: Annotated[
        str | None, option("QUEUE", "Only for this destination (DestQName). * matches any characters.")
    ] = None,
    client: Annotated[str | None, option("CLIENT", "Only messages from or for this client.")] = None,
    topic: Annotated[str | None, option("FILTER", "Only publications to topics of this filter.")] = None,
    older_than: Annotated[
        float | None, option("TIME", "Only dead-lettered longer ago, such as 30d or 12h.", parser=options.duration)
    ] = None,
    newer_than: Annotated[
        float | None, option("TIME", "Only dead-lettered more recently.", parser=options.duration)
    ] = None,
    everything: Annotated[bool, flag("All messages. Required if no other option selects messages.", "--all")] = False,
) -> Selection:
    """Return the selection of the options. Raises Failure if they select nothing, or are wrong."""
    from bridge.mq.dead_letter import Selection, reason_number
    from bridge.mqtt.topics import topic_filter_error

    if topic is not None and (error := topic_filter_error(topic)) is not None:
        raise Failure(f"--topic: {error}", WRONG_USAGE)
    try:
        reasons = tuple(reason_number(name) for name in reason or ())
    except ValueError as error:
        raise Failure(f"--reason: {error}", WRONG_USAGE) from None
    selection = Selection(
        ids=frozenset(identifier.upper() for identifier in ids or ()),
        reasons=reasons,
        queue=bound_for,
        client=client,
        topic_filter=topic,
        older_than=older_than,
        newer_than=newer_than,
    )
    if not everything and selection.is_everything:
        raise Failure("no messages selected", WRONG_USAGE, hint="use an ID, --reason or a similar option, or --all")
    return selection


def selecting(*, everything: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `_selection` to a command, which gets the selection. With `everything`, it needs no option."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        def run(**options: Any) -> None:
            chosen = {name: options.pop(name) for name in [*options] if name in _selection.__annotations__}
            command(selection=_selection(**({"everything": everything} | chosen)), **options)

        # The arguments of `export` precede the identifiers.
        own, new_parameters = (
            _parameters(command, "selection"),
            _parameters(_selection, "everything" if everything else ""),
        )
        first = [parameter for parameter in own if parameter.default is parameter.empty]
        parameters = [*first, *new_parameters, *(parameter for parameter in own if parameter not in first)]
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return add


def _parameters(function: Callable[..., Any], left_out: str) -> list[inspect.Parameter]:
    """Return the parameters of a function with their types."""
    names = {name: value for name, value in globals().items() if name != "Selection"} | {"Selection": object}
    signature = inspect.signature(function, eval_str=True, globals=names, locals={})
    return [parameter for parameter in signature.parameters.values() if parameter.name != left_out]


@takes(BRIDGE | OUTPUT)
@selecting(everything=True)
def list_(selection: Selection, limit: options.Limit = 1_000, queue: Queue = None, set_aside: SetAside = False) -> None:
    """List dead-lettered messages with their reasons and destinations."""
    heads = ("dead-lettered", "reason", "destination", "size", "topic", "id")
    with _opened(queue, set_aside) as (letters, _):
        count = print_records(
            letters.browse(selection, count=limit),
            lambda letter: letter.name,
            table=lambda rows: print_table(
                heads, [_row(letter) for letter in rows], f"no such messages on queue {letters.name}"
            ),
        )
        if count == limit:
            note(f"there may be more than {limit} messages: use a higher --limit")


@takes(BRIDGE | OUTPUT)
def show(
    ids: Annotated[list[str], argument("ID...", "ID@STAMP as `dlq list` prints it, or the MsgId.")],
    queue: Queue = None,
    set_aside: SetAside = False,
) -> None:
    """Show dead-lettered messages completely: reason and remedy, MQMD, headers and body."""
    from bridge.mapping.message_view import MessageView

    with _opened(queue, set_aside) as (letters, _):
        count = 0
        if settings.output is Format.table:
            for letter, md, body in letters.read(_selection(ids)):
                print_facts(_facts(letter), 14)
                write("\n" + MessageView(md, body).text(verbose=True, defaults=False))
                count += 1
        else:
            views = (
                {"letter": dead_letter, **MessageView(md, body).json()}
                for dead_letter, md, body in letters.read(_selection(ids))
            )
            count = print_records(views, lambda view: view["letter"].name)
    if not count:
        raise _nothing(set_aside)


@takes(BRIDGE | OUTPUT)
@selecting()
def retry(
    selection: Selection,
    limit: options.Count = None,
    to: Annotated[str, option("QUEUE", "Put the messages to this queue.")] = "",
    queue: Queue = None,
    set_aside: SetAside = False,
) -> None:
    """Retry dead-lettered messages, and report which were delivered.

    A rejected publication is published again. A message that a mapping rejected goes back to the source queue of the
    mapping, which is in the configuration (--config). All others go to the destination in the MQDLH. The command waits up
    to 5 seconds for mappings and the bridge to process them. A message that is rejected again is on the
    dead-letter queue as before, with the time at which it was dead-lettered first.

    Exit status 1 if a message returned to the dead-letter queue or stayed there, 3 if there was none.
    """
    from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE
    from bridge.mq.dead_letter_queue import RetryOutcome, sources_of

    counts = dict.fromkeys(RetryOutcome, 0)

    def outcomes(retried: Iterator[Retried]) -> Iterator[_RetryResult]:
        for letter in retried:
            counts[letter.outcome] += 1
            yield _RetryResult(
                letter.letter.id, letter.letter.stamp, letter.place, letter.outcome, letter.failure, letter.letter.name
            )

    def text(retry: _RetryResult) -> None:
        template = _RETRIED[retry.outcome]
        line = template.format(name=retry.name, place=retry.destination, failure=retry.failure, queue=_words(set_aside))
        typer.echo(line, err=retry.outcome in (RetryOutcome.RETURNED, RetryOutcome.STAYED))

    with _opened(queue, set_aside, whole=not to) as (letters, configuration):
        sources = {} if configuration is None else sources_of(configuration.mappings)
        transmission_queue = DEFAULT_TRANSMISSION_QUEUE if configuration is None else configuration.transmission_queue
        retried = letters.retry(selection, count=limit, to=to, sources=sources, transmission_queue=transmission_queue)
        print_records(outcomes(retried), lambda retry: retry.name, each=text)
    if not sum(counts.values()):
        raise _nothing(set_aside)
    if settings.output is Format.table:
        words = ", ".join(
            f"{number} {outcome}" for outcome, number in counts.items() if number or outcome == "delivered"
        )
        say(f"retried {counted(sum(counts.values()), 'message')}: {words}")
    if counts[RetryOutcome.RETURNED] or counts[RetryOutcome.STAYED]:
        raise Failure("")


class _RetryResult(msgspec.Struct):
    """The outcome of one retry."""

    id: str
    stamp: str
    destination: str
    outcome: str
    failure: str
    name: str


#: By outcome (`bridge.mq.dead_letter_queue.RetryOutcome`).
_RETRIED = {
    "delivered": "{name} delivered to {place}",
    "waiting": "{name} waiting for {place}: {failure}",
    "returned": "{name} returned to {queue} from {place}: {failure}",
    "stayed": "{name} stayed on {queue}, not put to {place}: {failure}",
}


@takes(BRIDGE | YES)
@selecting()
def export(
    file: Annotated[Path, argument("FILE", "File to create, or an existing directory.")],
    selection: Selection,
    limit: options.Count = None,
    delete: Annotated[bool, flag("Delete each message from the queue when it is on disk.", "--delete")] = False,
    queue: Queue = None,
    set_aside: SetAside = False,
) -> None:
    """Write dead-lettered messages to a file with one JSON object per line, or to a directory with a file for each.

    Each object is as `mqbridge mq get --json` prints it, with `letter` (as `dlq list` prints it) and `data` (the bytes in
    base64). `mqbridge try --message` reads such files. Existing files are not overwritten.
    """
    if delete:
        confirm(f"Delete the exported messages from {_words(set_aside)}?")
    number = 0
    with _opened(queue, set_aside) as (letters, _), Export(file) as export_file:
        walk = letters.take if delete else letters.read
        for number, (letter, md, body) in enumerate(walk(selection, count=limit), 1):
            export_file.write(letter, md, body)
            if delete and number % _BATCH == 0:
                export_file.sync()
                letters.commit()
        if delete:
            export_file.sync()
            letters.commit()
    deleted = f", and deleted them from queue {letters.name}" if delete and number else ""
    say(f"exported {counted(number, 'message')} to {file}{deleted}")


@takes(BRIDGE | OUTPUT | YES)
@selecting()
def delete(
    selection: Selection,
    limit: options.Count = None,
    dry_run: Annotated[bool, flag("Print which messages would be deleted.", "--dry-run")] = False,
    queue: Queue = None,
    set_aside: SetAside = False,
) -> None:
    """Delete dead-lettered messages permanently.

    Exit status 3 if there was none.
    """
    if not dry_run:
        confirm("Delete the selected messages permanently?")
    with _opened(queue, set_aside) as (letters, _):
        walk = letters.browse(selection, count=limit) if dry_run else letters.delete(selection, count=limit)
        number = print_records(
            walk,
            lambda letter: letter.name,
            each=lambda letter: typer.echo(f"{letter.name}  {letter.reason_name}  {_place(letter)}"),
        )
    if not number:
        raise _nothing(set_aside)
    if settings.output is Format.table:
        say(f"{counted(number, 'message')} would be deleted" if dry_run else f"deleted {counted(number, 'message')}")


def _words(set_aside: bool) -> str:
    return "the queue of messages set aside" if set_aside else "the dead-letter queue"


def _nothing(set_aside: bool) -> Failure:
    return Failure(f"no such messages on {_words(set_aside)}", NOT_FOUND)


#: Messages that an export writes to disk, and deletes, together.
_BATCH = 100


@contextlib.contextmanager
def _opened(
    queue: str | None, set_aside: bool, *, whole: bool = False
) -> Iterator[tuple[DeadLetterQueue, Configuration | None]]:
    """Yield the dead-letter queue that the options specify, and the configuration if there is one.

    `whole` means that the configuration must not have mistakes, because its mappings are required.
    """
    from bridge.cli.queue_manager import configuration, connected_to, connection_settings
    from bridge.config.queue_manager import SET_ASIDE_QUEUE
    from bridge.mq.dead_letter_queue import DeadLetterQueue

    if queue is not None and set_aside:
        raise Failure("--queue and --set-aside name different queues", WRONG_USAGE, hint="use one of them")
    connection_config = configuration() if whole else connection_settings()
    name = SET_ASIDE_QUEUE if set_aside else queue or ""
    if not name and connection_config is not None and connection_config.queue_manager.type == "ibm":
        name = connection_config.queue_manager.dead_letter_queue
    with connected_to(connection_config) as connection:
        yield DeadLetterQueue(connection, name), connection_config


def _row(letter: DeadLetterMessage) -> tuple[str | int, ...]:
    reason = f"{letter.reason_name} ({letter.reason})" if letter.has_header else "no MQDLH"
    return moment(letter.dead_lettered), reason, _place(letter), letter.size, letter.topic, letter.name


def _place(letter: DeadLetterMessage) -> str:
    at = f" at {letter.destination_queue_manager}" if letter.destination_queue_manager else ""
    return letter.destination + at


def _facts(letter: DeadLetterMessage) -> list[tuple[str, object]]:
    return [
        ("id", letter.name),
        ("reason", f"{letter.reason_name} ({letter.reason})" if letter.has_header else "none"),
        ("", letter.what),
        ("what to do", letter.advice),
        ("destination", _place(letter)),
        ("put by", letter.put_by),
        ("dead-lettered", moment(letter.dead_lettered)),
        ("put", moment(letter.put_time)),
        ("client", letter.client_id),
        ("topic", letter.topic),
        ("QoS", "" if letter.qos is None else letter.qos),
        ("retained", "yes" if letter.retained else ""),
        ("size", f"{letter.size} bytes"),
        ("backed out", letter.backout_count or ""),
    ]


# Export ----------------------------------------------------------------------------------------------------------------

#: Only the owner may read exported messages.
_MODE = 0o600


class Export:
    """The destination of exported messages: a file, or a directory with a file for each. Existing files are kept."""

    def __init__(self, path: Path) -> None:
        """Create the file `path`, unless it is a directory. Raises OSError."""
        self._directory = path if path.is_dir() else path.parent
        self._file: IO[bytes] | None = None if path.is_dir() else _created(path)

    def write(self, letter: DeadLetterMessage, md: MQMD, body: bytes) -> None:
        """Write a message as a line of JSON. Raises OSError."""
        from bridge.mq.dead_letter import exported

        line = exported(letter, md, body)
        if self._file is not None:
            self._file.write(line)
            return
        for number in itertools.count(1):  # messages can have the same MsgId and time
            suffix = "" if number == 1 else f"-{number}"
            with (
                contextlib.suppress(FileExistsError),
                _created(self._directory / f"{letter.id}-{letter.stamp}{suffix}.json") as file,
            ):
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                return

    def sync(self) -> None:
        """Sync everything that was written, including the names of files. Raises OSError."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        sync(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.sync()
        if self._file is not None:
            self._file.close()


def _created(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb")
