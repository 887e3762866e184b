"""Commands for a running bridge: status, activity, channels, clients, topics, mappings, links, log level, and completion."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from bridge.administration import answers, requests
from bridge.administration.answers import age, moment
from bridge.administration.control_socket import NoBridge
from bridge.administration.counters import Counters, Rates, rates
from bridge.administration.mapping_status import MappingStatus
from bridge.administration.protocol import Request
from bridge.administration.search import SearchMatch
from bridge.cli import options, output
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, YES, argument, flag, option, settings, takes
from bridge.cli.queue_manager import asked, done, shown
from bridge.cli.request_commands import action, listing
from bridge.telemetry.subscription import user_data_in_words

if TYPE_CHECKING:
    from rich.console import Group


# Completion of names ---------------------------------------------------------------------------------------------------

Named = TypeVar("Named", MappingStatus, answers.LinkStatus)

#: Seconds that a bridge may take to answer while a shell completes a word.
COMPLETION_TIMEOUT = 0.5
#: The maximum number of names that a shell offers.
MAX_NAMES = 100

#: Names that need no quoting in a shell. Others are not offered.
_WORD = re.compile(r"[\w./:@%+,=-]+")


class Shell(StrEnum):
    """Shells with a completion script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, argument("SHELL", "The shell: bash, zsh or fish.")]) -> None:
    """Print the completion script for a shell.

    The shell then completes commands, options, and names that the running bridge knows. In bash, add this to ~/.bashrc:
    source <(mqbridge completion bash). In zsh, do the same with zsh, after compinit. In fish: mqbridge completion fish >
    ~/.config/fish/completions/mqbridge.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="mqbridge", complete_var="_MQBRIDGE_COMPLETE", shell=shell.value))


def _names(request: Callable[[str], Request[Any]], key: str = "name") -> Callable[[str], list[str]]:
    """Return a function that completes names in a list of the running bridge. It offers none if no bridge answers."""

    def complete(incomplete: str) -> list[str]:
        from bridge.config.problems import ConfigurationError

        try:
            answer: Any = shown(request(incomplete), timeout=COMPLETION_TIMEOUT)
        except (Failure, NoBridge, ConfigurationError, OSError):
            return []
        names = [getattr(row, key) for row in getattr(answer, "clients", answer)]
        return [name for name in names if name.startswith(incomplete) and _WORD.fullmatch(name)]

    return complete


_channels = _names(lambda _: requests.ListChannels())
_clients = _names(lambda incomplete: requests.ListClients(pattern=f"{incomplete}*", rows=MAX_NAMES), "client_id")
_mappings = _names(lambda _: requests.ListMappings())
_links = _names(lambda _: requests.ListLinks())

ClientId = Annotated[str, argument("CLIENT", "Client identifier.", autocompletion=_clients)]
MappingName = Annotated[str, argument("MAPPING", "Name of the mapping.", autocompletion=_mappings)]
LinkName = Annotated[str, argument("LINK", "Name of the link.", autocompletion=_links)]
OfChannel = Annotated[
    str | None, option("CHANNEL", "Only clients of this channel.", "--channel", autocompletion=_channels)
]


def _named(records: list[Named], kind: str, name: str) -> Named:
    """Return the record with a name. Raises Failure."""
    for record in records:
        if record.name == name:
            return record
    raise Failure(f"no {kind} {name}", NOT_FOUND)


# The bridge ------------------------------------------------------------------------------------------------------------


@takes(BRIDGE | OUTPUT)
def status() -> None:
    """Show the status of the running bridge and any problems.

    Exit status 1 if there is a problem or if the bridge is starting, otherwise 0. A healthy standby has no problem.
    """
    report = shown(requests.ShowStatus())
    output.print_record(report, report.state, _print_status)
    if report.problems or report.state is answers.BridgeState.STARTING:
        raise typer.Exit(FAILED)


def _print_status(report: answers.BridgeStatus) -> None:
    since = age(time.time() - report.started_at)
    typer.echo(f"mqbridge {report.version} is {report.state}, process {report.process_id}, for {since}")
    if report.waits_for:
        typer.echo(f"it waits for {report.waits_for}, since {moment(report.waits_since)}")
    typer.echo(f"queue manager {report.queue_manager} ({report.queue_manager_type}) {report.queue_manager_state}")
    if report.shard:
        typer.echo(f"shard {report.shard}")
    typer.echo(f"{report.channels_running} of {report.channels} channels listen")
    typer.echo(f"clients connected: {report.clients:,}, sessions: {report.sessions:,}")
    typer.echo(
        f"mappings: {report.mappings}, units of work in progress: {report.units_of_work}, log level: {report.log_level}"
    )
    for problem in report.problems:
        print_problem(problem)


def print_problem(problem: answers.Problem) -> None:
    """Print a problem, the command that shows it, and its remedy."""
    severity = output.styled(f"PROBLEM ({problem.severity}):", "yellow" if problem.severity == "warning" else "red")
    typer.echo(f"{severity} {problem.what}; see `{as_typed(problem.command)}`")
    remedy = re.sub(r"(?<=[`|])( ?)(mqbridge [^`]+)", lambda match: match[1] + as_typed(match[2]), problem.remedy)
    typer.echo(f"  since {moment(problem.since)}. {remedy}")


#: Commands and groups without the option --data-dir. `explain` does not take a configuration file, either.
_WITHOUT_DATA_DIR = ("check", "explain", "group", "report")


def as_typed(command: str) -> str:
    """Return a command of `mqbridge` with the options that reach this bridge."""
    program, name, *_ = f"{command} ".split(" ")
    if program == "mqbridge":
        if settings.config is not None and name != "explain":
            command += f" -c {shlex.quote(str(settings.config))}"
        if settings.data_dir is not None and name not in _WITHOUT_DATA_DIR:
            command += f" --data-dir {shlex.quote(str(settings.data_dir))}"
    return command


class SearchKinds(StrEnum):
    """Kinds of objects that `search` finds."""

    problem = "problem"
    client = "client"
    topic = "topic"
    queue = "queue"
    mapping = "mapping"
    link = "link"
    pipeline = "pipeline"
    channel = "channel"
    setting = "setting"


@takes(BRIDGE | OUTPUT)
def search(
    text: Annotated[str, argument("TEXT", "A part of a name, address, user or value. Case does not matter.")],
    kind: Annotated[
        list[SearchKinds] | None,
        option("KIND", f"Only this kind: {', '.join(SearchKinds)}. Can be repeated.", "--kind"),
    ] = None,
    limit: Annotated[
        int, option("N", "Print at most N matches of each kind.", "--limit", "-n", show_default=True, min=1, max=100)
    ] = 20,
) -> None:
    """Search for clients, topics, queues, mappings, links, pipelines, channels, settings and problems of the running bridge.

    Exact matches come first. The last column is the command that shows the object.
    """
    result = shown(requests.Search(text=text, kinds=[searched_kind.value for searched_kind in kind or ()], rows=limit))
    for line in result.incomplete:
        output.note(f"warning: {line}")

    def table(matches: list[SearchMatch]) -> None:
        columns = {
            "kind": "kind",
            "name": "name",
            "state or value": "text",
            "command": lambda hit: as_typed(hit.command),
        }
        output.print_table(*output.table_of(matches, columns), "nothing found")

    output.print_records(result.matches, lambda match: match.name, table=table)


@takes(BRIDGE)
def reload() -> None:
    """Reload the configuration file of the running bridge.

    Channels, mappings and links that were added, changed, removed, enabled or disabled take effect, and so do certificates,
    channel authentication records, limits and the log. The others are not interrupted. Changes that require a restart are
    listed. A file with mistakes changes nothing: each mistake is a line on standard error.

    Exit status 1 if nothing was changed, or if a channel cannot listen.
    """
    answer = asked(requests.Reload())
    if not answer.ok:
        raise Failure("", FAILED, lines=tuple(answer.lines))
    for line in answer.lines:
        output.say(line)


yield_ = action(
    requests.YieldToStandby, "This disconnects all clients, which reconnect to the standby. Yield to the standby?"
)

LOG = {"level": action(requests.SetLogLevel)}


# Channels --------------------------------------------------------------------------------------------------------------


def _transport(channel: answers.ChannelStatus) -> str:
    return " ".join(["TLS"] * channel.tls + ["WebSockets"] * channel.websocket) or "plain"


CHANNEL = {
    "list": listing(
        requests.ListChannels,
        {
            "channel": "name",
            "state": "state",
            "listens on": "endpoint",
            "transport": _transport,
            "clients": "clients",
            "connections": "connections",
            "max_clients": "max_clients",
            "defined by": "defined_by",
        },
        "the bridge has no channels",
        lambda channel: [f"{channel.name}: {channel.problem}"] if channel.problem else [],
    ),
    "start": action(requests.StartChannel, complete=_channels),
    "stop": action(requests.StopChannel, "Stop channel {name} and disconnect its clients?", _channels),
}


# Clients ---------------------------------------------------------------------------------------------------------------


class ClientOrder(StrEnum):
    """Orders of `client list`."""

    client_id = "client_id"
    waiting = "waiting"
    oldest = "oldest"
    since = "since"


@takes(BRIDGE | OUTPUT)
def list_client(
    pattern: Annotated[
        str, argument("[PATTERN]", "Client identifiers. * matches any characters.", show_default=True)
    ] = "*",
    channel: OfChannel = None,
    connected: Annotated[
        bool | None, flag("Only clients in this state.", "--connected/--disconnected", show_default=False)
    ] = None,
    away: options.Away = None,
    after: Annotated[str, option("CLIENT", "Start after this client identifier (for paging).")] = "",
    sort: Annotated[
        ClientOrder, option("COLUMN", "Order: client_id, waiting, oldest or since.", show_default=True)
    ] = ClientOrder.client_id,
    limit: options.Limit = 1_000,
) -> None:
    """List clients and their sessions.

    By default, the list is sorted by client identifier. --sort waiting puts the largest backlogs first, --sort oldest the
    longest waiting messages, and --sort since the most recent changes.
    """
    request = requests.ListClients(
        pattern=pattern,
        channel=channel,
        connected=connected,
        away_for=away,
        after=after,
        rows=limit,
        sort=sort.value,
        descending=sort in (ClientOrder.waiting, ClientOrder.since),
    )
    clients = shown(request).clients

    def table(clients: list[answers.ClientRow]) -> None:
        now = time.time()
        heads = ("client", "state", "channel", "user", "session", "subscriptions", "waiting", "in flight")
        output.print_table(heads, [_client_row(client, now) for client in clients], "no such clients")
        if len(clients) == limit and sort is ClientOrder.client_id:
            output.say(f"there may be more clients: --after {clients[-1].client_id}")

    output.print_records(clients, lambda client: client.client_id, table=table)


@takes(BRIDGE | OUTPUT)
def show_client(client: ClientId) -> None:
    """Show the connection, session, subscriptions, backlog and messages in flight of a client."""
    output.print_record(shown(requests.ShowClient(client_id=client)), client, _print_client)


Clients = Annotated[
    list[str] | None,
    argument(
        "[CLIENT]...", "Client identifiers, or patterns, in which * matches any characters.", autocompletion=_clients
    ),
]
DryRun = Annotated[bool, flag("Print the effect without changing anything.", "--dry-run")]


@takes(BRIDGE | YES)
def disconnect_client(clients: Clients = None, channel: OfChannel = None, dry_run: DryRun = False) -> None:
    """Disconnect clients. Their sessions and their backlogs are kept.

    Select clients by name or pattern, or all clients of a channel. A pattern also matches a client identifier that contains
    an asterisk.
    """
    ids, patterns = _names_and_patterns(clients)
    _change_clients(
        requests.DisconnectClients(ids=ids, patterns=patterns, channel=channel, dry_run=dry_run), "Disconnect"
    )


@takes(BRIDGE | YES)
def purge_client(
    clients: Clients = None, channel: OfChannel = None, away: options.Away = None, dry_run: DryRun = False
) -> None:
    """Delete sessions with their subscriptions, backlogs and wills.

    Select clients by name or pattern, or all clients that have been disconnected for some time. Clients that never reconnect
    leave messages on the transmission queue. The option `session_expiry` of a channel deletes such sessions automatically.
    """
    ids, patterns = _names_and_patterns(clients)
    request = requests.PurgeClients(ids=ids, patterns=patterns, channel=channel, away_for=away, dry_run=dry_run)
    _change_clients(request, "Delete the session and the backlog of")


def _names_and_patterns(clients: list[str] | None) -> tuple[list[str], list[str]]:
    names = clients or []
    return [name for name in names if "*" not in name], [name for name in names if "*" in name]


def _change_clients(request: requests.DisconnectClients | requests.PurgeClients, verb: str) -> None:
    """Confirm and execute a change of clients. Raises Failure."""
    away = getattr(request, "away_for", None)
    if not (request.ids or request.patterns) and request.channel is None and away is None:
        raise Failure("expected a client identifier, a pattern, --channel or --away", WRONG_USAGE)
    if not request.dry_run:
        targets = [f"client {name}" for name in request.ids]
        which = targets[0] if len(targets) == 1 and not request.patterns else "all of them"
        if which not in targets and output.asks():
            done(msgspec.structs.replace(request, dry_run=True))
        output.confirm(f"{verb} {which}?")
    done(request)


@takes(BRIDGE | OUTPUT)
def show_client_history(client: ClientId, limit: options.Limit = 1_000) -> None:
    """Show the past of a client, the newest event first, also after the client has left.

    The bridge keeps connections and their ends, takeovers, rejections, subscriptions, dropped and dead-lettered messages
    (`client_history` in the configuration).
    """
    columns = {"time": lambda event: moment(event.time), "event": "text"}

    def table(events: list[answers.ClientEvent]) -> None:
        output.print_table(*output.table_of(events, columns), "the bridge has no events of this client")

    events = shown(requests.ShowClientHistory(client_id=client, rows=limit))
    output.print_records(events, lambda event: event.kind, table=table)


#: Seconds between requests for the entries of a trace.
TRACE_INTERVAL = 0.5


@takes(BRIDGE | OUTPUT)
def trace_client(
    client: ClientId,
    payloads: Annotated[bool, flag("Print the beginnings of payloads.", "--payloads")] = False,
    file: Annotated[Path | None, option("FILE", "Write lines of JSON to this new file.", "--file")] = None,
    duration: Annotated[
        float, option("TIME", "End after this time.", "--for", parser=options.duration, show_default="1h")
    ] = 3_600.0,
    limit: Annotated[
        int, option("N", "End after N entries.", "--limit", "-n", show_default=True, min=1, max=1_000_000)
    ] = 100_000,
) -> None:
    """Trace a client: print its events and messages as they happen, until Ctrl-C.

    The client does not have to be connected. The audit log records the trace. The bridge keeps the last 1,000 entries, so
    entries of a very busy client may be missing. The trace ends with an error if the bridge stops.
    """
    entries = _trace(client, payloads, time.monotonic() + duration, limit)
    with contextlib.suppress(KeyboardInterrupt):
        if file is None:
            output.print_records(entries, lambda entry: entry.number, each=_print_entry)
            return
        try:
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            try:
                for entry in entries:
                    stream.write(msgspec.json.encode(entry) + b"\n")
            except Exception:
                if not stream.tell():  # otherwise the same command would fail, because the file exists
                    file.unlink()
                raise


def _trace(client_id: str, payloads: bool, end: float, limit: int) -> Iterator[answers.TraceEntry]:
    """Yield the entries of a trace from now on."""
    recent = shown(requests.TraceClient(client_id=client_id, payloads=payloads))
    last = recent.entries[-1].number if recent.entries else 0
    output.note(f"tracing client {client_id} (Ctrl-C ends the trace)")
    while limit and (seconds := end - time.monotonic()) > 0:
        time.sleep(min(TRACE_INTERVAL, seconds))
        request = requests.TraceClient(client_id=client_id, after=last, first=False, payloads=payloads)
        recent = shown(request)
        if recent.missed:
            output.note(f"{recent.missed:,} entries are missing")
        for entry in recent.entries[:limit]:
            yield entry
            limit, last = limit - 1, entry.number


def _print_entry(entry: answers.TraceEntry) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(entry.time))
    text = entry.text
    if entry.kind != "event":
        quality = "" if entry.qos is None else f", QoS {entry.qos}"
        text = f"{entry.kind} {entry.topic!r}{quality}, {entry.size:,} bytes: {entry.text}"
    if entry.payload:
        text += f": {entry.payload}"
    output.write(f"{clock}.{int(entry.time % 1 * 1_000):03} {output.printable(text)}")


_LEVELS = {3: "3.1", 4: "3.1.1", 5: "5"}


def _client_row(client: answers.ClientStatus, now: float) -> tuple[str | int, ...]:
    state = f"MQTT {_LEVELS.get(client.protocol_level, '?')}" if client.connected else "away"
    if client.since:
        state += f" for {age(now - client.since)}"
    session = "durable" if client.durable else "clean"
    return (
        client.client_id,
        state,
        client.channel,
        client.user,
        session,
        client.subscriptions,
        client.waiting,
        client.in_flight,
    )


def _print_client(details: answers.ClientDetails) -> None:
    client = details.status
    limit = "" if details.removal_limit is None else f" of at most {details.removal_limit}"
    facts: list[tuple[str, object]] = [
        ("client identifier", client.client_id),
        ("state", _client_row(client, time.time())[1]),
        ("channel", client.channel),
        ("address", client.address),
        ("user", client.user),
        ("owner", details.owner),
        ("session", "durable" if client.durable else "clean"),
        ("since", moment(client.since)),
        ("expires", moment(client.expires_at)),
        ("keep-alive", f"{details.keep_alive} s" if client.connected else ""),
        ("will", details.will_topic or ""),
        ("waiting", client.waiting),
        ("in flight", client.in_flight),
        ("acknowledged, not removed", f"{details.unremoved}{limit}"),
        ("QoS 2 received, not released", details.received),
        ("invalid publications", details.invalid_publications),
    ]
    facts += [
        ("subscription", f"{subscription.topic_filter}  {user_data_in_words(subscription.user_data)}")
        for subscription in details.subscriptions
    ]
    for message in details.in_flight:
        phase = f"{message.phase}, sent {message.times_sent} times"
        facts.append(("in flight", f"{message.topic}  QoS {message.qos}, message id {message.message_id}, {phase}"))
    facts += [("waiting", topic) for topic in details.waiting]
    output.print_facts(facts, 29)


CLIENT = {
    "list": list_client,
    "show": show_client,
    "history": show_client_history,
    "trace": trace_client,
    "disconnect": disconnect_client,
    "purge": purge_client,
}


# Topics ----------------------------------------------------------------------------------------------------------------

#: Characters of a payload in a table.
_PAYLOAD_WIDTH = 60


@takes(BRIDGE | OUTPUT)
def list_topic(
    below: Annotated[str | None, argument("[TOPIC]", "Parent topic. Default: the root.")] = None,
    after: Annotated[str | None, option("NAME", "Start after this name (for paging).")] = None,
    limit: options.Limit = 1_000,
) -> None:
    """List the levels of the topic tree below a topic, with retained publications and subscriptions.

    A level exists while there is a retained publication at it or below it, or a subscription. + and # are levels, too.
    """

    def table(topics: list[answers.TopicNode]) -> None:
        columns = {
            "topic": lambda topic: f"{output.printable(topic.topic) or '(no name)'}{'/...' * topic.has_lower}",
            "publication": lambda topic: "retained" * topic.retained,
            "subscriptions": "subscriptions",
        }
        output.print_table(*output.table_of(topics, columns), "no topics")
        if len(topics) == limit:
            output.say(f"there may be more topics: --after {topics[-1].name!r}")

    topics = shown(requests.ListTopics(below=below, after=after, rows=limit))
    output.print_records(topics, lambda topic: topic.topic, table=table)


@takes(BRIDGE | OUTPUT)
def show_topic(
    topic_filter: Annotated[str, argument("FILTER", "A topic, or a topic filter such as 'plant/#'.")],
    limit: options.Limit = 1_000,
    payloads: Annotated[bool, flag("Show the beginnings of payloads.", "--payloads/--no-payloads")] = True,
) -> None:
    """Show the retained publications that match a topic filter, and the subscriptions to its topics."""

    def text(details: answers.TopicDetails) -> None:
        retained = [
            (
                publication.topic,
                publication.size,
                "persistent" if publication.persistent else "",
                publication.publisher,
                _payload(publication),
            )
            if publication.size >= 0
            else (publication.topic, "", "", "", "")
            for publication in details.retained
        ]
        heads = ("retained at", "bytes", "", "publisher", "payload" if payloads else "")
        output.print_table(heads, retained, "no retained publications")
        typer.echo()
        subscriptions = [
            (
                subscription.client_id or subscription.name,
                subscription.topic_filter,
                user_data_in_words(subscription.user_data),
                "durable" if subscription.durable else "",
                subscription.destination,
            )
            for subscription in details.subscriptions
        ]
        output.print_table(
            ("subscriber", "filter", "QoS and options", "", "destination"), subscriptions, "no subscriptions"
        )
        if details.more:
            output.say(f"there are more than {limit}: use a narrower filter, or a higher --limit")

    request = requests.ShowTopic(topic_filter=topic_filter, rows=limit, payloads=payloads)
    output.print_record(shown(request), topic_filter, text)


def _payload(publication: answers.RetainedStatus) -> str:
    try:
        text = output.printable(publication.payload.decode()) if publication.payload else ""
    except UnicodeDecodeError:
        text = f"0x{publication.payload.hex()}"
    return text if len(text) <= _PAYLOAD_WIDTH else text[:_PAYLOAD_WIDTH] + "..."


@takes(BRIDGE | OUTPUT)
def list_publisher(
    topic_filter: Annotated[str, argument("FILTER", "A topic, or a topic filter such as 'plant/#'.")],
    limit: options.Limit = 100,
    seconds: Annotated[
        float, option("TIME", "Count for this time first.", "--for", parser=options.duration, show_default="5s")
    ] = 5.0,
) -> None:
    """List the clients that publish to the topics of a filter, with the rate of each.

    The bridge counts publications only while they are requested. Before that, it knows the last publication of each connected
    client.
    """
    request = requests.ListPublishers(topic_filter=topic_filter, rows=limit)
    if seconds:
        shown(request)
        time.sleep(seconds)
    answer = shown(request)
    columns = {
        "client": "client_id",
        "last publication": lambda publisher: moment(publisher.last),
        "topic": "topic",
        "publications": lambda publisher: "" if publisher.count is None else publisher.count,
        "per second": lambda publisher: "" if publisher.rate is None else f"{publisher.rate:,.1f}",
    }

    def table(publishers: list[answers.TopicPublisher]) -> None:
        output.print_table(*output.table_of(publishers, columns), "no client has published there")

    output.print_records(answer.publishers, lambda publisher: publisher.client_id, table=table)


@takes(BRIDGE | OUTPUT)
def route_topic(
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    payload: Annotated[str, option("TEXT", "The payload, for filters and destinations of mappings.")] = "",
    qos: Annotated[int, option("N", "QoS.", show_default=True, min=0, max=2)] = 1,
    retain: Annotated[bool, flag("Set RETAIN.", "--retain")] = False,
    client: Annotated[
        str, option("CLIENT", "The publisher, whose rules and authorities apply.", autocompletion=_clients)
    ] = "",
) -> None:
    """Print the route of a publication: rules, subscriptions, mappings and queues. Nothing is published.

    Exit status 1 if a rule rejects it.
    """
    request = requests.RouteTopic(topic=topic, payload=payload.encode(), qos=qos, retain=retain, client_id=client)

    def text(route: answers.TopicRoute) -> None:
        for rule in route.rules:
            typer.echo(f"{rule.kind}: {'permits' if rule.permits else 'REJECTS'}: {output.printable(rule.text)}")
        subscriptions = {
            "subscriber": "subscriber",
            "filter": "topic_filter",
            "QoS": lambda receiver: "" if receiver.qos is None else receiver.qos,
            "state": "state",
            "waiting": "waiting",
            "destination": "destination",
        }
        output.print_table(*output.table_of(route.subscriptions, subscriptions), "no subscriptions")
        for mapping in route.mappings:
            typer.echo(f"mapping {mapping.name} ({mapping.state}): {output.printable(mapping.outcome)}")
        for queue in route.queues:
            problem = f": {queue.problem}" if queue.problem else ""
            typer.echo(f"queue {queue.name}: {queue.depth:,} of {queue.max_depth:,} messages{problem}")

    route = shown(request)
    output.print_record(route, topic, text)
    if not route.accepted:
        raise typer.Exit(FAILED)


@takes(BRIDGE)
def publish_topic(
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    payload: Annotated[str, argument("PAYLOAD", "The payload.")],
    retain: Annotated[bool, flag("Retain the publication.", "--retain")] = False,
    persistent: Annotated[bool, flag("Publish a persistent message.", "--persistent")] = False,
) -> None:
    """Publish a message to a topic through the running bridge."""
    done(requests.Publish(topic=topic, payload=payload.encode(), retain=retain, persistent=persistent))


TOPIC = {
    "list": list_topic,
    "show": show_topic,
    "publishers": list_publisher,
    "route": route_topic,
    "publish": publish_topic,
    "clear": action(requests.ClearTopic, "Delete the retained publication of {topic}?"),
}


# Users -----------------------------------------------------------------------------------------------------------------


@takes(BRIDGE | OUTPUT)
def may_publish(
    user: Annotated[str, argument("USER", "The user name, or '' for none.")],
    channel: Annotated[str, argument("CHANNEL", "Name of the channel.", autocompletion=_channels)],
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    client: Annotated[str, option("CLIENT", "Client identifier, for rules with %c.")] = "",
    address: Annotated[str, option("IP", "Address of the client, for rules with addresses.")] = "",
) -> None:
    """Print whether a user may publish to a topic via a channel, and the rule that decides.

    The rules are those of channel authentication records, of the channel's topics, of topic objects, and the authorities of
    the queue manager. Exit status 1 if the user may not.
    """

    def text(decision: answers.AccessDecision) -> None:
        for rule in decision.rules:
            typer.echo(f"{rule.kind}: {'permits' if rule.permits else 'REJECTS'}: {output.printable(rule.text)}")
        verb = "may" if decision.permitted else "may not"
        typer.echo(f"user {user!r} {verb} publish to {topic!r} via channel {channel}")

    decision = shown(requests.ExplainAccess(user=user, channel=channel, topic=topic, client_id=client, address=address))
    output.print_record(decision, "yes" if decision.permitted else "no", text)
    if not decision.permitted:
        raise typer.Exit(FAILED)


@takes(BRIDGE | OUTPUT)
def list_user() -> None:
    """List the password files of the running bridge's configuration, with their users."""
    columns = {
        "user": lambda row: row[1],
        "file": lambda row: row[0].file,
        "used by": lambda row: ", ".join(row[0].used_by),
    }

    def table(files: list[answers.PasswordFileStatus]) -> None:
        rows = [(file, user) for file in files for user in file.users]
        output.print_table(*output.table_of(rows, columns), "no users")
        for file in files:
            if file.problem:
                typer.echo(f"{file.file}: {file.problem}")

    output.print_records(shown(requests.ListUsers()), lambda file: file.file, table=table)


UserName = Annotated[str, argument("USER", "The user.")]
OfFile = Annotated[
    str, option("FILE", "A password file of the configuration. It can be omitted if there is only one.", "--file")
]


@takes(BRIDGE)
def set_user_password(
    user: UserName,
    file: OfFile = "",
    stdin: Annotated[bool, flag("Read the password from the first line of standard input.", "--stdin")] = False,
) -> None:
    """Set the password of a user in a password file of the running bridge's configuration.

    A new user is added. `mqbridge passwd` does the same without a running bridge. Clients and logins that are connected stay
    connected.
    """
    from bridge.cli.passwd import ask_password

    password = ask_password(user, stdin)
    if not password:
        raise Failure("the password is empty")
    done(requests.SetPassword(user_name=user, file=file, password=password))


@takes(BRIDGE | YES)
def delete_user(user: UserName, file: OfFile = "") -> None:
    """Delete a user from a password file of the running bridge's configuration.

    Clients and logins that are connected stay connected.
    """
    output.confirm(f"Delete user {user}?")
    done(requests.DeleteUser(user_name=user, file=file))


USER = {
    "list": list_user,
    "set-password": set_user_password,
    "delete": delete_user,
    "may-publish": may_publish,
}


# Mappings --------------------------------------------------------------------------------------------------------------


def _mapping_details(mapping: MappingStatus) -> Iterator[str]:
    if mapping.last_error_at is not None:
        yield f"{mapping.name}: last error at {moment(mapping.last_error_at)}: {mapping.last_error}"
    for queue in mapping.blocked:
        yield f"{mapping.name}: since {moment(queue.since)}, {queue}"
    for session in mapping.unfinished:
        yield f"{mapping.name}: since {moment(session.since)}, {session}"
    if mapping.blocked:
        yield f"{mapping.name}: backlog of {mapping.backlog:,} messages, those for other destinations included"


@takes(BRIDGE | OUTPUT)
def show_mapping(name: MappingName) -> None:
    """Show the state and counts of a mapping, and its sessions at brokers in which something is unfinished."""

    def text(state: MappingStatus) -> None:
        typer.echo(f"mapping {state.name}: {state.state}")
        for count in ("taken", "moved", "filtered", "cut", "dead_lettered", "backouts", "commits"):
            typer.echo(f"{count.replace('_', '-')}: {getattr(state, count):,}")
        if state.parts:
            typer.echo(f"parts: {state.parts:,}")
        for why, number in state.left_out.items():
            typer.echo(f"left out ({why}): {number:,}")
        for reason, number in state.discarded.items():
            typer.echo(f"discarded without room on the dead-letter queue: {number:,} with {reason}")
        if state.last_error_at is not None:
            typer.echo(f"last error at {moment(state.last_error_at)}: {state.last_error}")
        for queue in state.blocked:
            typer.echo(f"since {moment(queue.since)}, {queue}")
        for session in state.unfinished:
            typer.echo(f"since {moment(session.since)}, {session}")

    output.print_record(_named(shown(requests.ListMappings()), "mapping", name), name, text)


MAPPING = {
    "list": listing(
        requests.ListMappings,
        {
            "mapping": "name",
            "state": "state",
            "taken": "taken",
            "moved": "moved",
            "filtered": "filtered",
            "cut": "cut",
            "dead letters": "dead_lettered",
            "backouts": "backouts",
        },
        "the bridge has no mappings",
        _mapping_details,
    ),
    "show": show_mapping,
    "pause": action(requests.PauseMapping, complete=_mappings),
    "resume": action(requests.ResumeMapping, complete=_mappings),
    "give-up": action(requests.GiveUpMapping, "Give up the unfinished sessions of mapping {name}?", _mappings),
}


# Links -----------------------------------------------------------------------------------------------------------------


@takes(BRIDGE | OUTPUT)
def show_link(name: LinkName) -> None:
    """Show a link and the connection of each of its mappings, with the last error."""
    columns = {"mapping": "mapping", "state": _connection_state, "client identifier": "client_id", "address": "address"}

    def text(link: answers.LinkStatus) -> None:
        typer.echo(f"link {link.name}: broker {link.broker}, MQTT {link.version}{', TLS' * link.tls}")
        output.print_table(*output.table_of(link.connections, columns), "no running mapping uses the link")
        for connection in link.connections:
            if connection.last_error:
                typer.echo(
                    f"{connection.mapping}: last error at {moment(connection.last_error_at)}: {connection.last_error}"
                )

    output.print_record(_link(name), name, text)


def _connection_state(connection: answers.LinkConnectionStatus) -> str:
    state = "connected" if connection.connected else "NOT CONNECTED"
    return f"{state} for {age(time.time() - connection.since)}" if connection.since else state


def _link(name: str) -> answers.LinkStatus:
    return _named(shown(requests.ListLinks()), "link", name)


@takes(BRIDGE)
def test_link(name: LinkName) -> None:
    """Test a connection from the running bridge to a link's broker, step by step.

    The test uses the link's own options, but a new client identifier and a clean session, and leaves nothing behind. A
    broker that accepts only certain client identifiers may reject it. Exit status 1 if a step fails.
    """
    answer = asked(requests.TestLink(name=_link(name).name))
    for line in answer.lines:
        typer.echo(line)
    if not answer.ok:
        raise Failure(f"the test of link {name} failed")


LINK = {
    "list": listing(
        requests.ListLinks,
        {
            "link": "name",
            "broker": "broker",
            "transport": lambda link: f"MQTT {link.version}{' TLS' * link.tls}",
            "connected": lambda link: sum(connection.connected for connection in link.connections),
            "of mappings": lambda link: len(link.connections),
        },
        "the bridge has no links",
    ),
    "show": show_link,
    "test": test_link,
    "connect": action(requests.ConnectLink, complete=_links),
}


# Activity -------------------------------------------------------------------------------------------------------------

#: Rows of each table.
TOP_ROWS = 10


@takes(BRIDGE | OUTPUT)
def top(
    interval: Annotated[
        float, option("TIME", "Time between two readings.", parser=options.duration, show_default="1s")
    ] = 1.0,
    limit: Annotated[
        int, option("N", "End after N readings. 0: continue.", "--limit", "-n", show_default=True, min=0)
    ] = 0,
) -> None:
    """Show the activity of the running bridge, updated every second.

    It shows the rates of publications, the backlog, the slowest channels, the busiest clients, and the mappings. Press `q`
    or Ctrl-C to quit. Publications are counted only while the command runs. Other formats than table print each reading,
    with rates per second.
    """
    if not 0.1 <= interval <= 3_600:
        raise Failure("--interval: expected a duration from 100ms to 1h", WRONG_USAGE)
    with _keyboard() as keyboard, contextlib.suppress(KeyboardInterrupt):
        readings = _readings(interval, limit, keyboard)
        if settings.output is options.Format.table:
            _show_rates(readings)
        else:
            output.print_records(readings, lambda reading: reading.time)


def _readings(interval: float, count: int, keyboard: int | None) -> Iterator[Rates]:
    """Yield the rates of each interval, until the user quits."""
    before, due = _reading(), time.monotonic()
    for _ in range(count) if count else itertools.count():
        due = max(due + interval, time.monotonic())
        if _quits_within(due - time.monotonic(), keyboard):
            return
        after = _reading()
        yield rates(before, after)
        before = after


def _reading() -> Counters:
    return shown(requests.ShowCounters(clients=TOP_ROWS))


def _show_rates(readings: Iterator[Rates]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not settings.colored)
    if not console.is_terminal:
        for reading in readings:
            console.print(_rates_view(reading))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for reading in readings:
            live.update(_rates_view(reading), refresh=True)


def _rates_view(now: Rates) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(*heads: str) -> Table:
        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for number, head in enumerate(heads):
            grid.add_column(head, justify="right" if number else "left", no_wrap=True)
        return grid

    depth = "not known" if now.transmission_queue_depth is None else f"{now.transmission_queue_depth:,}"
    head = Text.assemble(
        (time.strftime("%H:%M:%S", time.localtime(now.time)), "bold"),
        f"   publications in {now.received:,.0f}/s   out {now.sent:,.0f}/s\n",
        f"{now.clients:,} clients connected, {now.sessions:,} sessions   in flight {now.in_flight:,}   "
        f"transmission queue {depth}   units of work {now.units_of_work:,}",
    )
    channels = table("channel, slowest first", "clients", "in/s", "out/s", "commit")
    for channel in now.channels[:TOP_ROWS]:
        duration = "" if channel.unit_seconds is None else f"{channel.unit_seconds * 1_000:,.1f} ms"
        channels.add_row(
            Text(channel.name), f"{channel.clients:,}", f"{channel.received:,.0f}", f"{channel.sent:,.0f}", duration
        )
    clients = table("client, busiest first", "channel", "in/s", "out/s")
    for client in now.busiest_clients:
        clients.add_row(
            Text(output.printable(client.client_id)),
            Text(client.channel),
            f"{client.received:,.1f}",
            f"{client.sent:,.1f}",
        )
    mappings = table("mapping", "state", "taken/s", "moved/s", "dead letters/s")
    for mapping in sorted(now.mappings, key=lambda mapping: -mapping.taken)[:TOP_ROWS]:
        rates = (mapping.taken, mapping.moved, mapping.dead_lettered)
        mappings.add_row(Text(mapping.name), Text(mapping.state), *(f"{rate:,.1f}" for rate in rates))
    tables = [rates_table for rates_table in (channels, clients, mappings) if rates_table.row_count]
    return Group(head, *(part for rates_table in tables for part in (Text(), rates_table)))


def _quits_within(seconds: float, keyboard: int | None) -> bool:
    """Wait, and return True as soon as `q` is pressed. Without a keyboard, no key is ever pressed."""
    before = time.monotonic() + seconds
    while (remaining := before - time.monotonic()) > 0:
        if keyboard is None:
            time.sleep(remaining)
        elif select.select([keyboard], [], [], remaining)[0]:
            keys = os.read(keyboard, 64)
            if b"q" in keys.lower() or not keys:
                return True
    return False


@contextlib.contextmanager
def _keyboard() -> Iterator[int | None]:
    """Read keys without the Enter key, and restore the terminal in the end. Yields None without a terminal."""
    import termios
    import tty

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield None
        return
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
