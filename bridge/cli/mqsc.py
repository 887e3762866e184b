"""`mqbridge mqsc`: MQSC commands, interactively and from scripts; and preparing and testing IBM MQ for the bridge."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from bridge.cli import queue_manager
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, CONFIG, OUTPUT, YES, Format, argument, flag, option, settings, takes
from bridge.cli.output import confirm, note, print_records, say, styled, write

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.mq.ibm.acceptance import AcceptanceResult
    from bridge.mq.inquiries import CommandEffect
    from bridge.mq.mqi import CommandResponse, Connection

_HELP = """Type an MQSC command, such as DISPLAY QLOCAL(*) CURDEPTH. A line that ends with + or - continues in the next line.
Commands: {verbs}. Ctrl-D or END ends the session."""


def interactive() -> None:
    """Read MQSC commands from the terminal, or run the script on standard input."""
    if not sys.stdin.isatty():
        run("-")
        return
    with queue_manager.connected() as connection:
        _session(connection)


def _session(connection: Connection) -> None:
    """Run the commands that are typed, until END or the end of the input."""
    import readline

    from bridge.mq.mqsc import NOUNS, VERBS, is_complete

    words = sorted({*VERBS.values(), *NOUNS.values()})

    def complete(text: str, number: int) -> str | None:
        near = [word for word in words if word.startswith(text.upper())]
        return near[number] if number < len(near) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()'")
    readline.parse_and_bind("tab: complete")
    note("MQSC commands; `help` explains, Ctrl-D ends the session")
    text = ""
    while True:
        try:
            line = input("    > " if text else "mqsc> ")
        except KeyboardInterrupt:
            typer.echo()
            text = ""
            continue
        except EOFError:
            typer.echo()
            return
        word = line.strip().rstrip(";").lower()
        if not text and word in ("end", "quit", "exit"):
            return
        if not text and word in ("help", "?"):
            typer.echo(_HELP.format(verbs=", ".join(dict.fromkeys(VERBS.values()))))
            continue
        text += f"{line}\n"
        if is_complete(text):
            if text.strip():
                for response in connection.command(text):
                    _print(response)
            text = ""


#: Verbs of commands that change nothing.
_READING = ("DISPLAY", "PING")


def is_command(words: list[str]) -> bool:
    """Return whether the arguments of `mqbridge mqsc` are an MQSC command instead of the name of a command."""
    from bridge.mq.mqsc import VERBS, fold

    verb, _, rest = words[0].strip().partition(" ")
    return fold(verb) in VERBS and bool(rest or words[1:])


@takes(BRIDGE | OUTPUT | YES)
def command(
    words: Annotated[list[str], argument("COMMAND", "An MQSC command, such as 'DEFINE QLOCAL(ORDERS)'.")],
) -> None:
    """Run MQSC commands that are given as arguments.

    \b
      mqbridge mqsc "DEFINE QLOCAL(ORDERS) MAXDEPTH(10000)"
      mqbridge mqsc "ALTER QLOCAL(ORDERS) PUT(DISABLED)" --yes

    The word `command` can be omitted. Commands that change something ask for confirmation on a terminal. Exit status 1 if a
    command failed.
    """  # noqa: D301 click reads the backspace
    text = " ".join(words)
    with queue_manager.connected() as connection:
        _confirm(text)
        responses = connection.command(text)
    if settings.output is Format.table:
        for response in responses:
            _print(response)
    else:
        print_records(responses, lambda response: response.message)
    if failed := sum(not response.ok for response in responses):
        raise Failure(f"{failed} of {len(responses)} MQSC commands failed", FAILED)


def _confirm(text: str) -> None:
    """Ask before commands that change something, on a terminal. Raises Failure."""
    from bridge.mq.mqsc import read

    changes = [
        mqsc_command.text
        for mqsc_command in read(text)
        if mqsc_command.problem is None and mqsc_command.verb not in _READING
    ]
    if len(changes) == 1:
        confirm(f"Run {changes[0]}?")
    elif changes:
        confirm(f"Run {len(changes)} MQSC commands that change something?")


@takes(BRIDGE | OUTPUT | YES)
def run(
    script: Annotated[str, argument("SCRIPT", "File with MQSC commands. -: standard input.")],
    dry_run: Annotated[
        bool,
        flag("Print the effect of the commands on queues, topics and namelists, without running them.", "--dry-run"),
    ] = False,
) -> None:
    """Run a script of MQSC commands.

    It prints each command and its response, as runmqsc does, and asks for confirmation on a terminal. Exit status 1 if a
    command failed. Its line is on standard error.
    """
    text = _script(script)
    if dry_run:
        _preview(script, text)
        return
    with queue_manager.connected() as connection:
        _confirm(text)
        responses = connection.command(text)

    def table(responses: list[CommandResponse]) -> None:
        for response in responses:
            write(f"{response.line:6d} : {response.command}")
            _print(response)

    print_records(responses, lambda response: response.message, table=table)
    failed = [response for response in responses if not response.ok]
    plural = "s" if len(responses) != 1 else ""
    if settings.output is Format.table:
        say(f"{len(responses)} MQSC command{plural} run, {len(failed)} failed.")
    if failed:
        lines = tuple(f"{script}:{response.line}: {response.message}" for response in failed)
        raise Failure(f"{len(failed)} of {len(responses)} MQSC commands failed", FAILED, lines=lines)


def _preview(script: str, text: str) -> None:
    """Print the effect of a script without running it. Raises Failure if some have mistakes."""
    from bridge.mq.object_changes import TooManyCommands, effects

    try:
        with queue_manager.connected() as connection:
            previews = effects(connection, text)
    except TooManyCommands as error:
        raise Failure(f"{script}: {error}", WRONG_USAGE) from error

    def table(previews: list[CommandEffect]) -> None:
        for effect in previews:
            subject = f"{effect.kind} {effect.name}" if effect.name else effect.command
            write(f"{effect.line:6d} : {effect.effect:<8} {subject}{f': {effect.text}' if effect.text else ''}")
            for change in effect.changes:
                write(f"{'':9}{change.keyword}: {change.before or 'blank'} -> {change.after or 'blank'}")

    print_records(previews, lambda effect: effect.name, table=table)
    if mistakes := [effect for effect in previews if effect.effect == "error"]:
        lines = tuple(f"{script}:{effect.line}: {effect.text}" for effect in mistakes)
        raise Failure(f"{len(mistakes)} of {len(previews)} MQSC commands have mistakes", FAILED, lines=lines)


def _print(response: CommandResponse) -> None:
    from bridge.mq.mqsc import render

    text = render(response)
    write(text if response.ok else styled(text, "red"))


def _script(script: str) -> str:
    data = sys.stdin.buffer.read() if script == "-" else Path(script).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Failure(f"{script}:{line}: expected text in UTF-8, found the byte 0x{data[error.start]:02x}") from error


@takes(BRIDGE | OUTPUT)
def display(
    words: Annotated[list[str], argument("WORDS", "The words after DISPLAY, such as 'QLOCAL(*)' CURDEPTH.")],
) -> None:
    """Run a DISPLAY command of MQSC.

    \b
      mqbridge mqsc display 'QLOCAL(*)'
      mqbridge mqsc display 'QSTATUS(*) TYPE(HANDLE)'
      mqbridge mqsc display 'CONN(*)'
      mqbridge mqsc display "TPSTATUS('sensors/#')"
    """  # noqa: D301 click reads the backspace
    with queue_manager.connected() as connection:
        responses = connection.command("DISPLAY " + " ".join(words).replace("\n", " "))
    for response in responses:
        if not response.ok:
            raise Failure(response.message, NOT_FOUND if response.message.startswith(_NOT_FOUND) else FAILED)
        if settings.output is Format.table:
            _print(response)
        else:
            print_records(response.objects, lambda attributes: next(iter(attributes.values()), ""))


#: AMQ messages of DISPLAY if there is no such object.
_NOT_FOUND = ("AMQ8147E", "AMQ8420I", "AMQ8884E", "AMQ8871E")


# Definitions ------------------------------------------------------------------------------------------------------------


@takes(BRIDGE)
def dump(
    everything: Annotated[bool, flag("Include attributes that have their default values.", "--all", "-a")] = False,
) -> None:
    """Print the MQSC commands that define all objects of the embedded queue manager, like dmpmqcfg.

    Channels and records of the configuration file are not included, and neither are subscriptions of MQTT clients. Run the
    commands at another queue manager with `mqbridge mqsc run`.
    """
    configuration = queue_manager.connection_settings()
    if configuration is not None and configuration.queue_manager.type == "ibm":
        name = configuration.queue_manager.name
        raise Failure("this command is for the embedded queue manager", WRONG_USAGE, hint=f"use dmpmqcfg -m {name} -a")
    from bridge.mq.definitions import definitions

    channels = {channel.name for channel in configuration.channels} if configuration is not None else set()
    records = (
        {(record.channel, record.type) for record in configuration.channel_authentication}
        if configuration is not None
        else set()
    )
    with queue_manager.connected_to(configuration) as connection:
        for line in definitions(connection, channels, records, everything=everything):
            write(line)


# IBM MQ -----------------------------------------------------------------------------------------------------------------


@takes(CONFIG)
def mqsc_script(
    user: Annotated[str | None, option("NAME", "Grant authorities to this user.")] = None,
    group: Annotated[str | None, option("NAME", "Grant authorities to this group.  [default: mqbridge]")] = None,
    aliases: Annotated[
        bool,
        flag("Route messages to clients by queue manager aliases, and do not change DEFXMITQ.", "--aliases"),
    ] = False,
    connect: Annotated[
        bool,
        flag("Connect to the queue manager first, and omit commands that would change its routes.", "--connect"),
    ] = False,
) -> None:
    """Print the MQSC script that prepares a queue manager for a configuration.

    The script defines the queues and the channel of the bridge, and grants its user or group the authorities that the
    configuration needs, and no others. Without a file it is the script of the default configuration. Run it as an
    administrator: mqbridge mqsc-script --config bridge.yaml | runmqsc QM1

    The script sets DEFXMITQ, the default transmission queue. A queue manager that uses DEFXMITQ to reach other queue managers
    needs --aliases. With --connect, the command looks that up.
    """
    from bridge.config.models import default_configuration
    from bridge.mq.ibm.mqsc_script import mqsc_script as script_of
    from bridge.mq.ibm.requirements import QueueManagerAttributes

    if user is not None and group is not None:
        raise Failure("--user and --group exclude each other: authorities are granted to one of them", WRONG_USAGE)
    for name in filter(None, (user, group)):
        if not name.isprintable() or "'" in name or " " in name:
            raise Failure(f"{name!r} is not the name of a user or group", WRONG_USAGE)
    configuration = queue_manager.configuration() or default_configuration()
    ibm = configuration.queue_manager
    connects_as = user or (ibm.user if ibm.type == "ibm" else None) or "mqbridge"
    grantee = f"PRINCIPAL('{user}')" if user is not None else f"GROUP('{group or 'mqbridge'}')"
    existing = None
    if connect:
        if ibm.type != "ibm":
            raise Failure("--connect is for a queue manager of IBM MQ (type: ibm)", WRONG_USAGE)
        connection = queue_manager.connect(None, configuration)
        try:
            existing = QueueManagerAttributes.of(connection)
        finally:
            connection.disconnect()
        if existing.default_route not in ("", configuration.transmission_queue) and not aliases:
            aliases = True
            note(
                f"warning: DEFXMITQ of queue manager {ibm.name} is {existing.default_route}, which routes messages to other"
                " queue managers. The script does not change it. Each client needs a queue manager alias instead"
            )
    elif ibm.type == "ibm" and not aliases:
        note(
            f"warning: the script sets DEFXMITQ of queue manager {ibm.name}. If DISPLAY QMGR DEFXMITQ shows another queue,"
            " use --aliases, or messages for other queue managers go to MQTT clients. --connect looks it up"
        )
    typer.echo(script_of(configuration, grantee, connects_as, aliases=aliases, existing=existing), nl=False)


@takes(CONFIG | OUTPUT | YES)
def ibm_acceptance(
    subscriptions: Annotated[
        int, option("N", "Number of durable subscriptions to create and remove.", min=1, max=1_000_000)
    ] = 10_000,
) -> None:
    """Test a queue manager of IBM MQ before the bridge uses it for the first time.

    The tests connect as the bridge does, publish, subscribe, send messages to clients that do not exist, and kill a bridge
    under load. A failed test does not stop the others. For each test, the command prints what the result means for the
    bridge. The tests use names that begin with MQBRIDGE.ACCEPTANCE, and remove everything that they create. Stop the bridge
    first: tests that need the transmission queue are skipped while a bridge runs.

    The tests load the queue manager, and open as many connections as the bridge does. If other applications are connected, or
    messages for clients wait, the command does nothing without --yes.

    Exit status 1 if a test fails. The report contains the reason for each skipped test.
    """
    from bridge.cli.acceptance_kill import kill_under_load
    from bridge.mq.ibm.acceptance import Acceptance, Trials, traffic
    from bridge.mq.ibm.requirements import requirements_of

    configuration = queue_manager.configuration_in(queue_manager.configuration_path())
    ibm = configuration.queue_manager
    if not settings.yes:
        _refuse_traffic(configuration, traffic)
    trials = Trials(
        wrong_password=_wrong_password(configuration),
        refused=_refused(configuration),
        without_tls=_without_tls(configuration),
        kill=lambda: kill_under_load(configuration),
        connections=_connections(configuration),
        subscriptions=subscriptions,
    )
    acceptance = Acceptance(
        lambda: queue_manager.connect(None, configuration),
        requirements_of(configuration),
        channel=(ibm.channel or "") if ibm.type == "ibm" else "",
        trials=trials,
    )
    results = {"pass": 0, "skip": 0, "fail": 0}

    def counted() -> Iterator[AcceptanceResult]:
        for outcome in acceptance.run():
            results[outcome.result] += 1
            yield outcome

    def text(outcome: AcceptanceResult) -> None:
        color = {"pass": "green", "fail": "red"}.get(outcome.result)
        typer.echo(f"{styled(f'{outcome.result:<5}', color)} {outcome.test}: {outcome.detail}")
        if outcome.meaning:
            typer.echo(f"      for the bridge: {outcome.meaning}")
        if outcome.remedy:
            typer.echo(f"      hint: {outcome.remedy}")

    print_records(counted(), lambda outcome: outcome.test, each=text)
    if settings.output is Format.table:
        say(f"queue manager {ibm.name}: " + ", ".join(f"{number} {word}" for word, number in results.items()))
    raise typer.Exit(FAILED if results["fail"] else 0)


def _connections(configuration: Configuration) -> int:
    """Return the number of connections of a bridge without subscriptions of clean sessions, or 0 for the embedded one."""
    ibm = configuration.queue_manager
    if ibm.type != "ibm":
        return 0
    return ibm.publishers + ibm.removers + 5 + sum(mapping.enabled for mapping in configuration.mappings.values())


def _refuse_traffic(configuration: Configuration, traffic: Callable[[Connection, str, str], list[str]]) -> None:
    """Raise Failure if other applications use the queue manager. A connection that fails is reported by the tests."""
    from bridge.mq.mqi import MQError

    try:
        connection = queue_manager.connect(None, configuration)
    except MQError:
        return
    ibm = configuration.queue_manager
    channel = (ibm.channel or "") if ibm.type == "ibm" else ""
    try:
        users = traffic(connection, channel, configuration.transmission_queue)
    finally:
        connection.disconnect()
    if users:
        raise Failure(
            f"queue manager {ibm.name} is in use: {'; '.join(users)}",
            hint="use --yes to run the tests anyway. They put load on the queue manager and open many connections",
        )


def _changed(configuration: Configuration, **changes: Any) -> Callable[[], Connection]:
    """Return a function that connects with other connection parameters."""
    ibm = configuration.queue_manager
    assert ibm.type == "ibm"
    from bridge.mq.ibm.connection import connect_ibm
    from bridge.mq.ibm.parameters import load_library, parameters

    changed = msgspec.structs.replace(parameters(ibm, os.environ), **changes)
    return lambda: connect_ibm(load_library(ibm.library), changed)


def _refused(configuration: Configuration) -> dict[str, Callable[[], Connection]]:
    """Return connections that a queue manager must reject, by name."""
    ibm = configuration.queue_manager
    if ibm.type != "ibm" or ibm.channel is None:
        return {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        unused_port = server.getsockname()[1]
    return {
        "unknown channel": _changed(configuration, channel="MQBRIDGE.ACCEPTANCE"),
        "unknown queue manager": _changed(configuration, queue_manager="MQBRIDGE.ACCEPTANCE"),
        "unused port": _changed(configuration, connections=f"127.0.0.1({unused_port})"),
    }


def _without_tls(configuration: Configuration) -> dict[str, Callable[[], Connection]]:
    """Return connections that a queue manager with TLS must reject, by name."""
    from bridge.mq.ibm.parameters import parameters

    ibm = configuration.queue_manager
    if ibm.type != "ibm" or ibm.tls is None or ibm.channel is None:
        return {}
    tls = parameters(ibm, os.environ).tls
    assert tls is not None
    other_peer = msgspec.structs.replace(tls, peer_name="CN=mqbridge acceptance,O=nobody")
    return {
        "without TLS": _changed(configuration, tls=None),
        "with another peer name": _changed(configuration, tls=other_peer),
    }


def _wrong_password(configuration: Configuration) -> Callable[[], Connection] | None:
    """Return a function that connects with a wrong password, or None if the configuration has no password."""
    ibm = configuration.queue_manager
    if ibm.type != "ibm" or ibm.user is None:
        return None
    from bridge.mq.ibm.parameters import parameters

    return _changed(configuration, password=f"{parameters(ibm, os.environ).password[:8]}-wrong")
