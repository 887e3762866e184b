"""What is done with an archive: `mqbridge audit`, `mqbridge report` and `mqbridge replay`."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.output import note
from bridge.cli.period import Archives, From, ReplayTo, To, archives, period

if TYPE_CHECKING:
    from bridge.archive.reading import Selection
    from bridge.archive.replay import Replay
    from bridge.config import Configuration

@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Say that an archive is read. Raises Failure for what cannot be: exit status 1 is kept for what the audit finds."""
    from bridge.extras import install

    try:
        import duckdb
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: `{install('archive')}` brings it", WRONG_USAGE) from error
    from rich.console import Console

    from bridge.archive.database import NoRows

    try:
        with Console(stderr=True).status(f"{name}: reading the archive"):
            yield
    except NoRows as error:
        raise Failure(str(error), WRONG_USAGE) from error
    except (OSError, duckdb.Error) as error:
        raise Failure(f"the archive cannot be read: {error}", WRONG_USAGE) from error


def audit(
    start: From = None,
    end: To = None,
    archive: Archives = None,
    late: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Deliveries that took longer break the promise as well.", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as one object of JSON.")] = False,
    config: options.ConfigurationFile = None,
) -> None:
    """Find what was lost, doubled, late or out of order, in the archive.

    The promise is: QoS 1 at least once, QoS 2 exactly once, in order. Exit status 0: it held, as far as the archive tells;
    how many deliveries cannot be judged, because rows are missing, is said, and in JSON is totals.unknown. 1: it was broken.
    2: there is nothing to judge, for no client had to get a message, or got one, and no mapping took one; or the command is
    wrong.
    """
    from bridge.cli.queue_manager import configuration_of

    first, last = period(start, end)
    directories = archives(archive, configuration_of(config, None))
    with _reading("audit"):
        from bridge.archive.audit.audit import audit as judge

        result = judge(directories, start=first, end=last, late=late)
    if json:
        from bridge.cli.output import write_json

        write_json(result)
    else:
        from bridge.cli.archive_view import show_audit

        show_audit(result)
    if result.is_empty and not result.mappings:
        raise typer.Exit(WRONG_USAGE)
    if not result.held:
        raise typer.Exit(FAILED)


def report(
    start: From = None,
    end: To = None,
    archive: Archives = None,
    levels: Annotated[int, typer.Option(min=1, max=20, metavar="N", help="Topic levels to tell apart.")] = 2,
    top: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Longest topics and clients lists.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print the whole report as one object of JSON.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with charts that needs no network.", show_default=False),
    ] = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Say what passed: traffic, latency, dead letters.

    By topic, client, QoS, size and hour; top talkers; percentiles; dead letters by reason.
    """
    from bridge.cli.queue_manager import configuration_of

    first, last = period(start, end)
    directories = archives(archive, configuration_of(config, None))
    with _reading("report"):
        from bridge.archive.report.page import page
        from bridge.archive.report.report import report as figures

        result = figures(directories, start=first, end=last, levels=levels, top=top)
    if html is not None:
        html.write_text(page(result), encoding="utf-8")
    if json:
        from bridge.cli.output import write_json

        write_json(result)
    elif html is None:
        from bridge.cli.archive_view import show_report

        show_report(result)
    else:
        typer.echo(f"{html} is written")


def replay(
    start: From = None,
    end: ReplayTo = None,
    archive: Archives = None,
    topic_filter: Annotated[str, typer.Option("--filter", metavar="FILTER", help="Topics to replay.")] = "#",
    clients: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="ID", help="Publishers to replay; any number of times.", show_default=False),
    ] = None,
    mapping: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="What this mapping took, instead of publications of clients.", show_default=False
        ),
    ] = "",
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="N", help="Most messages a second; without it, as fast as it goes.", show_default=False
        ),
    ] = None,
    to_queue: Annotated[
        str, typer.Option(metavar="QUEUE", help="Put to this queue, not to topics.", show_default=False)
    ] = "",
    to_topic: Annotated[
        str, typer.Option(metavar="PREFIX", help="Put to PREFIX/TOPIC instead of TOPIC.", show_default=False)
    ] = "",
    retain: Annotated[bool, typer.Option("--retain", help="Retain again what was published with RETAIN.")] = False,
    run: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the run; without it, one made of what is asked.", show_default=False)
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Begin from the start, whatever was put already.")] = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Put archived publications back, in their order, each once.

    They go to the topics that they were published to, or where --to-queue or --to-topic says, and are marked: property
    usr.replayed is the name of the run, usr.published the time of the original. The same command goes on where it was
    interrupted: how far it came is in the queue manager, in the unit of work of the messages.

    The time that a run is about is fixed when it is first started: -2h goes on meaning what it meant then, and without --to
    it ends then. The same command puts what the archive has of that time and was not put yet. What came later is for a run
    with another --from.

    With --mapping, what a mapping took goes back to where it took it from, as it was then; --filter is about those topics.
    What it took from a queue needs --to-queue.

    Exit status 0: all that the archive has of it is put, now or before. 1: it could not be put. 2: nothing matches, or the
    command is wrong. 130, 143: it was stopped by Ctrl-C or SIGTERM, behind a unit of work.
    """
    from bridge.cli.queue_manager import configuration_of, connected
    from bridge.extras import install

    if to_queue and to_topic:
        raise Failure("--to-queue and --to-topic: one of the two", WRONG_USAGE)
    first, last = period(start, end)
    configuration = configuration_of(config, data_dir)
    directories = archives(archive, configuration)
    if len(directories) > 1:
        raise Failure("--archive: replay takes one directory, for the order of two is not known", WRONG_USAGE)
    try:
        from bridge.archive.reading import Selection
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: `{install('archive')}` brings it", WRONG_USAGE) from error
    from bridge.archive.replay import Replay, ReplayDestination
    from bridge.mqtt.topics import topic_filter_error

    if why := topic_filter_error(topic_filter):
        raise Failure(f"--filter {topic_filter!r}: {why}", WRONG_USAGE)
    words = (str(directories[0].absolute()), start, end, topic_filter, *sorted(clients or ()), to_queue, to_topic, retain)
    if mapping:  # the name of a run without it is what it always was
        words = (*words, mapping)
    with connected(data_dir, config) as connection:
        one = Replay(connection, run or _name(*words), ReplayDestination(to_queue, to_topic, retain))
        if again:
            one.forget()
        position = one.position
        if not position.sequence:
            position.start, position.end = first, last or datetime.now(UTC)
        selection = Selection(
            directories[0],
            start=position.start,
            end=position.end,
            topic_filter=topic_filter,
            clients=clients or (),
            mapping=mapping,
        )
        left = selection.count(position.sequence)
        if not left and not position.sequence:
            raise Failure(_nothing(one, directories[0], mapping, topic_filter, clients or []), WRONG_USAGE)
        if left and mapping and not to_queue and not to_topic:
            _refuse_queue(one, selection, mapping, configuration)
        if left:
            one.check()
            _put(one, selection, rate, left)
        else:
            typer.echo(f"replay {one.run} is complete: {position.count} messages were put; --again puts them again")
        if last is None and position.end is not None:
            note(f"it was begun at {position.end.isoformat()}: for what came later, say --from that time")


def _name(*words: object) -> str:
    import hashlib

    return hashlib.sha256(repr(words).encode()).hexdigest()[:12]


def _nothing(one: Replay, directory: Path, mapping: str, topic_filter: str, clients: list[str]) -> str:
    """Return in words that there is nothing to replay."""
    start, end = one.position.start, one.position.end
    what = f"what mapping {mapping} took" if mapping else "publications of clients"
    by = f" from client {' or '.join(clients)}" if clients else ""
    since = f"from {start.isoformat()} " if start is not None else ""
    until = f"to {end.isoformat()}" if end is not None else ""
    return (
        f"nothing is put: no row of archive {directory} matches ({what}{by}, filter {topic_filter}, {since}{until});"
        " rows can be read once their file is finished (archive.roll)"
    )


def _refuse_queue(one: Replay, selection: Selection, mapping: str, configuration: Configuration | None) -> None:
    """Raise Failure where a mapping took from a queue, whose name is no topic to publish to.

    The configuration says so; where it does not know the mapping, a queue with the name in the archive does.
    """
    if configuration is not None and mapping in configuration.mappings:
        queue = getattr(configuration.mappings[mapping].source, "queue", None)
    else:
        source = next(row["topic"] for rows in selection.batches(one.position.sequence, ["topic"]) for row in rows)
        queue = source if one.is_queue(source) else None
    if queue is not None:
        raise Failure(
            f"mapping {mapping} took its messages from queue {queue}: say where they go, by --to-queue {queue} (or another"
            " queue) or --to-topic",
            WRONG_USAGE,
        )


@contextlib.contextmanager
def _stopping(one: Replay) -> Iterator[list[int]]:
    """Let SIGINT and SIGTERM end the replay behind its unit of work; the second signal ends it at once.

    The list that is yielded holds the signals that came.
    """
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        one.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _put(one: Replay, selection: Selection, rate: float | None, left: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from bridge.archive.replay import NoPayload
    from bridge.mq.mqi import MQError

    before = one.position.count
    done, total = before, before + left
    if before:
        note(f"replay {one.run} goes on behind {before} messages")
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _stopping(one) as came, Progress(*shown, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"replay {one.run}", total=total, completed=before)

        def tell(count: int) -> None:
            nonlocal done
            done += count
            progress.advance(task, count)

        try:
            one.put(selection, rate, tell)
        except NoPayload:
            raise Failure("the archive was written without payloads (archive.payloads): nothing can be replayed") from None
        except MQError as error:
            raise Failure(f"{error}\n{_part(done, total)}") from error
    if done < total and came:
        note(_part(done, total))
        raise typer.Exit(128 + came[0])
    typer.echo(f"{done - before} messages put (replay {one.run})")


def _part(done: int, total: int) -> str:
    return f"{done} of {total} messages put; the same command goes on"
