"""`mqbridge audit`, `mqbridge report` and `mqbridge replay`: the archive of messages."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import counted
from bridge.cli import options
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, CONFIG, OUTPUT, From, Limit, To, flag, option, period, settings, takes
from bridge.cli.output import note, print_record, print_table, printable, progress, say, styled, table_of
from bridge.cli.queue_manager import configuration, connected

if TYPE_CHECKING:
    from bridge.archive.audit import Audit, Counts
    from bridge.archive.completeness import Loss
    from bridge.archive.replay import Replay, ReplaySelection
    from bridge.archive.report_page import Report
    from bridge.config.models import Configuration

Archives = Annotated[
    list[Path] | None,
    option(
        "DIR", "Directory of the archive. Can be repeated. Default: the one in the configuration file.", "--archive"
    ),
]


AcceptLoss = Annotated[
    bool, flag("Continue without files of the archive that are missing or damaged.", "--accept-loss")
]


def _reporter(accept_loss: bool) -> Callable[[Loss], None]:
    """Return what happens for each missing or damaged file."""
    from bridge.archive.completeness import refuse

    return (lambda loss: note(f"without rows that are lost: {loss.text}")) if accept_loss else refuse


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Show progress while an archive is read.

    Raises Failure with exit status 2 if the archive cannot be read, because 1 is for audit findings.
    """
    import duckdb

    from bridge.archive.completeness import ArchiveDamaged

    try:
        with progress(f"{name}: reading the archive"):
            yield
    except (ArchiveDamaged, OSError, duckdb.Error) as error:
        raise Failure(f"the archive cannot be read: {error}", WRONG_USAGE) from error


@takes(CONFIG | OUTPUT)
def audit(
    start: From = None,
    end: To = None,
    archive: Archives = None,
    late: Annotated[
        float | None, option("TIME", "Also report deliveries that took longer as late.", parser=options.duration)
    ] = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Find lost, duplicated, late and reordered messages in the archive.

    It checks that QoS 1 messages were delivered at least once, QoS 2 messages exactly once, and all in order.

    A file of the archive that is missing or damaged is an error. With --accept-loss, it is a gap.

    Exit status 0 if no message was lost, duplicated or reordered, as far as the archive contains the rows. Deliveries
    without rows are counted as unknown. 1 if there are findings. 3 if there is nothing to check.
    """
    first, last = period(start, end)
    directories = archives(archive, configuration())
    with _reading("audit"):
        from bridge.archive.audit import audit as audit_archive

        findings = audit_archive(directories, start=first, end=last, late=late, report=_reporter(accept_loss))
    print_record(findings, "held" if findings.held else "broken", show_audit)
    if findings.is_empty and not findings.mappings:
        raise typer.Exit(NOT_FOUND)
    if not findings.held:
        raise typer.Exit(FAILED)


@takes(CONFIG | OUTPUT)
def report(
    start: From = None,
    end: To = None,
    archive: Archives = None,
    levels: Annotated[int, option("N", "Topic levels to distinguish.", show_default=True, min=1, max=20)] = 2,
    limit: Limit = 20,
    html: Annotated[Path | None, option("FILE", "Write an HTML page with charts to this file.")] = None,
    accept_loss: AcceptLoss = False,
) -> None:
    """Report traffic, latency and dead letters in the archive.

    By topic, client, QoS, size and hour, with the busiest clients, percentiles, and dead letters by reason.
    """
    first, last = period(start, end)
    directories = archives(archive, configuration())
    with _reading("report"):
        from bridge.archive.report import report as report_of
        from bridge.archive.report_page import page

        figures = report_of(directories, start=first, end=last, levels=levels, top=limit, report=_reporter(accept_loss))
    if html is not None:
        html.write_text(page(figures), encoding="utf-8")
    if settings.output is not options.Format.table or html is None:
        print_record(figures, "report", show_report)
    else:
        say(f"wrote {html}")


@takes(BRIDGE)
def replay(
    start: From = None,
    end: Annotated[
        str | None, option("TIME", "End time, exclusive. Default: the time at which the run was first started.", "--to")
    ] = None,
    archive: Archives = None,
    topic_filter: Annotated[str, option("FILTER", "Topics to replay.", "--filter", show_default=True)] = "#",
    clients: Annotated[list[str] | None, option("CLIENT", "Publisher to replay. Can be repeated.", "--client")] = None,
    mapping: Annotated[
        str, option("MAPPING", "Replay the source messages of this mapping instead of publications.")
    ] = "",
    rate: Annotated[
        float | None, option("N", "Maximum number of messages per second. Default: no limit.", min=0.1)
    ] = None,
    to_queue: Annotated[str, option("QUEUE", "Put to this queue instead of topics.")] = "",
    to_topic: Annotated[str, option("PREFIX", "Put to PREFIX/TOPIC instead of TOPIC.")] = "",
    retain: Annotated[bool, flag("Retain publications that were published with RETAIN.", "--retain")] = False,
    run: Annotated[str, option("NAME", "Name of the run. Default: derived from the options.")] = "",
    again: Annotated[bool, flag("Start from the beginning of the run.", "--again")] = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Put archived publications again, in order, each exactly once.

    They go to their original topics, or as --to-queue or --to-topic specifies. Property usr.replayed contains the name of
    the run, and usr.published the original time. The same command continues an interrupted run: its position is stored in
    the queue manager, in the unit of work of the messages.

    The period of a run is fixed when it is first started: -2h keeps its meaning, and without --to the period ends at that
    time. The same command later puts the rows of that period that were archived meanwhile. Use another --from for later
    publications.

    With --mapping, the source messages of a mapping go back to their source. --filter then applies to their topics. If the
    source is a queue, use --to-queue.

    Exit status 0 if all matching rows were put, now or before. 1 if a message could not be put. 3 if no row matches. 130 or
    143 if it was stopped by Ctrl-C or SIGTERM, after a unit of work.
    """
    if to_queue and to_topic:
        raise Failure("--to-queue and --to-topic exclude each other", WRONG_USAGE)
    first, last = period(start, end)
    loaded = configuration()
    directories = archives(archive, loaded)
    if len(directories) > 1:
        raise Failure(
            "--archive: replay takes one directory, because the order of rows in several is unknown", WRONG_USAGE
        )
    from bridge.archive.replay import Replay, ReplayDestination, ReplaySelection
    from bridge.mqtt.topics import topic_filter_error

    if error := topic_filter_error(topic_filter):
        raise Failure(f"--filter {topic_filter!r}: {error}", WRONG_USAGE)
    words = (
        str(directories[0].absolute()),
        start,
        end,
        topic_filter,
        *sorted(clients or ()),
        to_queue,
        to_topic,
        retain,
    )
    if mapping:  # runs without it keep their names
        words = (*words, mapping)
    with connected() as connection:
        job = Replay(connection, run or _name(*words), ReplayDestination(to_queue, to_topic, retain))
        if again:
            job.forget()
        position = job.position
        if not position.sequence:
            position.start, position.end = first, last or datetime.now(UTC)
        selection = ReplaySelection(
            directories[0],
            start=position.start,
            end=position.end,
            topic_filter=topic_filter,
            clients=clients or (),
            mapping=mapping,
            report=_reporter(accept_loss),
        )
        remaining = selection.count(position.sequence)
        if not remaining and not position.sequence:
            raise Failure(_nothing(job, directories[0], mapping, topic_filter, clients or []), NOT_FOUND)
        if remaining and mapping and not to_queue and not to_topic:
            _refuse_queue(job, selection, mapping, loaded)
        if remaining:
            job.check()
            _put(job, selection, rate, remaining)
        else:
            say(f"replay {job.run} is complete: {position.count} messages were put; --again puts them again")
        if last is None and position.end is not None:
            note(f"the run was started at {position.end.isoformat()}; use that time as --from for later publications")


def _name(*words: object) -> str:
    import hashlib

    return hashlib.sha256(repr(words).encode()).hexdigest()[:12]


def _nothing(job: Replay, directory: Path, mapping: str, topic_filter: str, clients: list[str]) -> str:
    """Return the message for a selection without rows."""
    start, end = job.position.start, job.position.end
    rows = f"source messages of mapping {mapping}" if mapping else "publications of clients"
    by = f" from client {' or '.join(clients)}" if clients else ""
    since = f"from {start.isoformat()} " if start is not None else ""
    until = f"to {end.isoformat()}" if end is not None else ""
    return (
        f"no row of archive {directory} matches ({rows}{by}, filter {topic_filter}, {since}{until});"
        " rows can be read once their file is finished (archive.roll)"
    )


def _refuse_queue(job: Replay, selection: ReplaySelection, mapping: str, configuration: Configuration | None) -> None:
    """Raise Failure if the source of a mapping is a queue, whose name is not a topic.

    If the mapping is not in the configuration, the source in the archive is a queue if a queue of that name exists.
    """
    if configuration is not None and mapping in configuration.mappings:
        queue = getattr(configuration.mappings[mapping].source, "queue", None)
    else:
        source = next(row["topic"] for rows in selection.batches(job.position.sequence, ["topic"]) for row in rows)
        queue = source if job.is_queue(source) else None
    if queue is not None:
        raise Failure(
            f"the source of mapping {mapping} is queue {queue}",
            WRONG_USAGE,
            hint=f"specify the destination with --to-queue {queue} (or another queue) or --to-topic",
        )


@contextlib.contextmanager
def _stopping(job: Replay) -> Iterator[list[int]]:
    """Stop the replay after its unit of work at the first SIGINT or SIGTERM, and immediately at the second.

    Yields the list of received signals.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        job.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _put(job: Replay, selection: ReplaySelection, rate: float | None, remaining: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from bridge.archive.replay import NoPayload
    from bridge.mq.mqi import MQError

    before = job.position.count
    position, total = before, before + remaining
    if before:
        note(f"replay {job.run} continues after {before} messages")
    console = Console(stderr=True, no_color=not settings.colored)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _stopping(job) as received, Progress(*columns, console=console, disable=settings.quiet) as bar:
        task = bar.add_task(f"replay {job.run}", total=total, completed=before)

        def count_messages(count: int) -> None:
            nonlocal position
            position += count
            bar.advance(task, count)

        try:
            job.put(selection, rate, count_messages)
        except NoPayload:
            raise Failure("the archive contains no payloads (archive.payloads), so nothing can be replayed") from None
        except MQError as error:
            raise Failure(f"{error}\n{_part(position, total)}") from error
    if position < total and received:
        note(_part(position, total))
        raise typer.Exit(128 + received[0])
    say(f"{counted(position - before, 'message')} put (replay {job.run})")


def _part(count: int, total: int) -> str:
    return f"{count} of {total} messages put; the same command continues"


def archives(option: list[Path] | None, configuration: Configuration | None) -> list[Path]:
    """Return the directories of the archive, from the option or the configuration. Raises Failure."""
    directories = option or []
    if not directories and configuration is not None and configuration.archive.directory is not None:
        directories = [configuration.archive.directory]
    if not directories:
        raise Failure(
            "no archive", WRONG_USAGE, hint="use --archive DIR, or --config FILE with a file that has archive.directory"
        )
    for directory in directories:
        if not directory.is_dir():
            raise Failure(f"--archive: {directory} is not a directory", WRONG_USAGE)
    return directories


# Tables -----------------------------------------------------------------------------------------------------------------

#: Rows of clients and topics that are shown. Other formats have all.
SHOWN = 20
_ALWAYS = ("expected", "delivered", "lost", "doubled", "disordered", "late")
_SOMETIMES = (
    "missing",
    "repeated",
    "pending",
    "ended",
    "dead_lettered",
    "discarded",
    "unknown",
    "unmatched",
)
_OF_MAPPINGS = ("taken", "put", "dead_lettered", "discarded", "doubled", "late")


def show_audit(audit: Audit) -> None:
    """Print the totals by QoS, the findings with breaches first, examples, and the verdict."""
    from bridge.archive.report_page import period as shown_period

    names = [*_ALWAYS, *(name for name in _SOMETIMES if getattr(audit.totals, name))]
    counts = {_head(name): f"counts.{name}" for name in names}
    totals: list[tuple[str, Counts]] = [*audit.by_qos.items(), ("all", audit.totals)]
    heads = ("QoS", *map(_head, names))
    rows = [(qos, *(getattr(total, name) for name in names)) for qos, total in totals]
    print_table(heads, rows, title=f"Deliveries, {shown_period(audit.start, audit.end)}")
    broken = [
        client_audit
        for client_audit in audit.findings
        if client_audit.first or (audit.late_limit is not None and client_audit.counts.late)
    ]
    if broken:
        columns = {"client": "client_id", "topic": "topic", "QoS": lambda finding: str(finding.qos), **counts}
        print_table(*table_of(broken[:SHOWN], columns), title="Findings")
        if len(broken) > SHOWN:
            typer.echo(f"and {len(broken) - SHOWN} more; -o json prints all")
    if audit.mappings:
        print_table(
            *table_of(audit.mappings, {_head(name): name for name in ("mapping", *_OF_MAPPINGS)}), title="Mappings"
        )
    for example in audit.examples:
        row = " ".join(f"{name}={value}" for name, value in example.row.items())
        typer.echo(printable(f"{example.breach}, for example: {row}"))
    for gap in audit.gaps:
        loss = (
            "the bridge was killed: rows may be missing" if gap["rows"] is None else f"{gap['rows']} rows are missing"
        )
        typer.echo(f"{loss} in the archive between {gap['from']} and {gap['to']}")
    typer.echo(styled(verdict(audit), bold=True))


def _head(name: str) -> str:
    return name.replace("_", "-")


def verdict(audit: Audit) -> str:
    """Return the verdict of an audit as a sentence."""
    if audit.is_empty:
        return "No client had to receive or received a message in that period, so there is nothing to check."
    unknown, expected = audit.totals.unknown, audit.totals.expected
    if not unknown:
        return "The audit passed." if audit.held else "The audit failed."
    since = max((gap["to"] for gap in audit.gaps), default=None)
    return (
        ("No violation was found, but " if audit.held else "The audit failed, and ")
        + f"{unknown:,} deliveries cannot be checked ({expected:,} were expected), because rows are missing in the archive."
        + (f" Later publications can be checked: --from {since.isoformat()}" if since is not None else "")
    )


def show_report(report: Report) -> None:
    """Print each section as a table."""
    from bridge.archive.report_page import cell
    from bridge.archive.report_page import period as shown_period

    typer.echo(f"{shown_period(report.start, report.end)}: {report.rows:,} messages")
    for section in report.sections:
        if not section.rows:
            typer.echo(f"{section.title}: none")
            continue
        rows = [[str(cell(value)) for value in row] for row in section.rows]
        print_table(section.columns, rows, title=section.title, numbers=True)
