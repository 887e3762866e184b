"""`mqbridge mq`: MQ applications for the shell, each command one connection to the queue manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, Failure

# What belongs to MQ is imported by the functions that use it: `mqbridge --help` and `version` do without.
if TYPE_CHECKING:
    from bridge.mq.mqi import MQOD, MQSD, Connection, Got
    from bridge.wire.mq import MQMD


def put(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")],
    body: options.Body = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT_ID",
            help="Send to this MQTT client (ObjectQMgrName); QUEUE is then the topic name it gets.",
            show_default=False,
        ),
    ] = None,
    reply_to: Annotated[
        str | None,
        typer.Option(metavar="QUEUE", help="Queue for the answer (ReplyToQ): the message is a request.", show_default=False),
    ] = None,
    correl_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="CorrelId, as 48 hexadecimal digits or as text.", show_default=False),
    ] = None,
    ccsid: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="N", help="The body is text in this CCSID.", show_default=False),
    ] = None,
    properties: options.Properties = None,
    persistent: options.Persistent = False,
    priority: options.Priority = None,
    expiry: options.Expiry = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Put a message to a queue, or send one to an MQTT client.

    The body is text (MQFMT_STRING) in UTF-8 where it is that, else bytes (MQFMT_NONE); with --ccsid it is text in
    that CCSID, and not converted: 500 and 1047 are EBCDIC.

    Prints the MsgId, or with --json the MQMD, as the queue manager filled it in.
    """
    from bridge.cli.body import as_answer, as_request, properties_in, read_body
    from bridge.cli.queue_manager import connected
    from bridge.mapping.made_message import descriptor
    from bridge.mq.mqi import MQOD
    from bridge.wire import cmqc

    data = read_body(body)
    md = descriptor(data, persistent=persistent, priority=priority, expiry=expiry, ccsid=ccsid)
    md = as_answer(as_request(md, reply_to), correl_id)
    beside = properties_in(properties or [])
    with connected(data_dir, config) as connection:
        _put(connection, MQOD(ObjectName=queue, ObjectQMgrName=to or ""), md, data, cmqc.MQPMO_NONE, beside, json)


def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic string to publish to.")],
    body: options.Body = None,
    retain: Annotated[bool, typer.Option("--retain", help="Make it the topic's retained publication.")] = False,
    properties: options.Properties = None,
    persistent: options.Persistent = False,
    priority: options.Priority = None,
    expiry: options.Expiry = None,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Publish a message to a topic.

    Prints the MsgId, or with --json the MQMD, as the queue manager filled it in.
    """
    from bridge.cli.body import properties_in, read_body
    from bridge.cli.queue_manager import connected
    from bridge.mapping.made_message import descriptor
    from bridge.mq.mqi import MQOD
    from bridge.wire import cmqc

    data = read_body(body)
    md = descriptor(data, persistent=persistent, priority=priority, expiry=expiry)
    beside = properties_in(properties or [])
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    with connected(data_dir, config) as connection:
        _put(connection, od, md, data, cmqc.MQPMO_RETAIN if retain else cmqc.MQPMO_NONE, beside, json)


def _put(
    connection: Connection, od: MQOD, md: MQMD, data: bytes, pmo: int, properties: dict[str, str], json: bool
) -> None:
    from bridge.cli.output import write, write_json
    from bridge.mapping.message_view import md_json
    from bridge.mq.mqi import Property
    from bridge.telemetry.message import Message
    from bridge.wire import cmqc

    beside = [Property(name=name, value=value) for name, value in properties.items()]
    pmo |= cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
    md = connection.put1(od, Message(md, data), pmo, beside)
    if json:
        write_json(md_json(md))
    else:
        write(md.MsgId.hex().upper())


def get(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")],
    wait: options.Wait = 0,
    count: options.Count = 1,
    browse: Annotated[bool, typer.Option("--browse", help="Leave the messages on the queue.")] = False,
    json: options.Json = False,
    verbose: options.Verbose = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Take messages from a queue and print them.

    A message is gone from the queue only when it has been printed: each is taken in a unit of work of its own.
    Exit status 1 when there was none.
    """
    from bridge.cli.queue_manager import connected
    from bridge.mq.mqi import MQOD
    from bridge.wire import cmqc

    with connected(data_dir, config) as connection:
        how = cmqc.MQOO_BROWSE if browse else cmqc.MQOO_INPUT_AS_Q_DEF
        handle = connection.open(MQOD(ObjectName=queue), how | cmqc.MQOO_FAIL_IF_QUIESCING)
        if not _print_all(connection, handle, count or None, wait, browse=browse, json=json, verbose=verbose):
            raise _no_message(f"queue {queue!r}")


def sub(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="Topic string, + for one level, # for any number of levels.")
    ],
    durable: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make or resume the durable subscription NAME.", show_default=False),
    ] = None,
    wait: options.Wait = None,
    count: options.Count = None,
    remove: Annotated[bool, typer.Option("--remove", help="At the end, remove the durable subscription.")] = False,
    json: options.Json = False,
    verbose: options.Verbose = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Subscribe to topics and print what is published.

    Each publication is printed as it comes, until Ctrl-C, or as --wait and --count say.
    A durable subscription outlives the command, and gathers publications until it is resumed.
    Exit status 1 when --count was given and nothing came.
    """
    from bridge.cli.output import note
    from bridge.cli.queue_manager import connected
    from bridge.mq.mqi import MQSD
    from bridge.wire import cmqc

    if remove and durable is None:
        raise typer.BadParameter("only a durable subscription can be removed: give --durable NAME as well")
    kind = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    if durable is not None:
        kind = cmqc.MQSO_CREATE | cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE
    kind |= cmqc.MQSO_MANAGED | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_FAIL_IF_QUIESCING
    sd = MQSD(Options=kind, ObjectString=topic_filter, SubName=durable or "")
    try:
        with connected(data_dir, config) as connection:
            subscription, queue = connection.subscribe(sd)
            note(f"subscribed to {topic_filter}")
            printed = _print_all(connection, queue, count or None, wait, json=json, verbose=verbose)
            if remove:
                connection.close(subscription, cmqc.MQCO_REMOVE_SUB)
    except KeyboardInterrupt:
        if remove:  # by a connection of its own: on the first an MQGET may be waiting
            with connected(data_dir, config) as connection:
                _remove(connection, sd)
        raise
    if count and not printed:
        raise _no_message(f"topic {topic_filter!r}")


def _remove(connection: Connection, sd: MQSD) -> None:
    """Remove a subscription as soon as the connection that had it open has ended."""
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

    from bridge.mq.mqi import MQError
    from bridge.wire import cmqc

    def is_open(error: BaseException) -> bool:
        return isinstance(error, MQError) and error.reason == cmqc.MQRC_SUBSCRIPTION_IN_USE

    resume = Retrying(retry=retry_if_exception(is_open), wait=wait_fixed(0.05), stop=stop_after_delay(5), reraise=True)
    handle, _ = resume(connection.subscribe, sd)
    connection.close(handle, cmqc.MQCO_REMOVE_SUB)


def _no_message(place: str) -> Exception:
    from bridge.mq.mqi import MQError
    from bridge.wire import cmqc

    return MQError(cmqc.MQRC_NO_MSG_AVAILABLE, place)


def _print_all(
    connection: Connection,
    handle: int,
    count: int | None,
    wait: float | None,
    *,
    browse: bool = False,
    json: bool,
    verbose: bool,
) -> int:
    """Print messages of a queue, and commit each one that was taken as soon as it is printed. Returns how many."""
    from bridge.cli.output import write, write_json
    from bridge.mapping.message_view import MessageView

    printed = 0
    for got in _messages(connection, handle, count, wait, browse):
        view = MessageView(got.md, got.data)
        if json:
            write_json(view.json())
        else:
            write(view.text(verbose=verbose))
        if not browse:
            connection.commit()
        printed += 1
    return printed


def _messages(
    connection: Connection, handle: int, count: int | None, wait: float | None, browse: bool
) -> Iterator[Got]:
    """Yield at most `count` messages of a queue, until none comes for `wait` seconds.

    None, for either of the two, knows no end.
    """
    from bridge.mq.mqi import GetOptions, MQError
    from bridge.wire import cmqc

    flags = cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_NO_SYNCPOINT if browse else cmqc.MQGMO_SYNCPOINT
    flags |= cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    interval = cmqc.MQWI_UNLIMITED if wait is None else round(wait * 1000)
    gmo = GetOptions(Options=flags | cmqc.MQGMO_WAIT if interval else flags, WaitInterval=interval)
    left = count
    while left is None or left > 0:
        try:
            yield connection.get(handle, gmo)
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
            return
        left = None if left is None else left - 1


def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT.mqsc", help="File with MQSC commands; - is standard input.")],
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Run a script of MQSC commands.

    Prints each command and what it answers, as runmqsc does.
        Exit status 1 when a command failed; standard error then names its line.
    """
    from bridge.cli.output import write
    from bridge.cli.queue_manager import connected
    from bridge.mq.mqsc import render

    text = _script(script)
    with connected(data_dir, config) as connection:
        responses = connection.command(text)
    for response in responses:
        write(f"{response.line:6d} : {response.command}\n{render(response)}")
    failed = [response for response in responses if not response.ok]
    plural = "s" if len(responses) != 1 else ""
    write(f"{len(responses)} MQSC command{plural} run, {len(failed)} failed.")
    if failed:
        raise Failure("\n".join(f"{script}:{one.line}: {one.message}" for one in failed), FAILED)


def _script(script: str) -> str:
    import sys

    data = sys.stdin.buffer.read() if script == "-" else Path(script).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Failure(f"{script}:{line}: expected text in UTF-8, found the byte 0x{data[error.start]:02x}") from error


def display(
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="What follows DISPLAY, such as 'QLOCAL(*)' CURDEPTH.")
    ],
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Show objects, as the DISPLAY command of MQSC does.

    \b
      mqbridge mq display 'QLOCAL(*)'
      mqbridge mq display 'QSTATUS(*)' CURDEPTH
      mqbridge mq display 'SUB(*)'
      mqbridge mq display "TPSTATUS('sensors/#')"
    """  # noqa: D301 click reads the backspace
    from bridge.cli.output import write, write_json
    from bridge.cli.queue_manager import connected
    from bridge.mq.mqsc import render

    with connected(data_dir, config) as connection:
        responses = connection.command("DISPLAY " + " ".join(words).replace("\n", " "))
    for response in responses:
        if not response.ok:
            raise Failure(response.message)
        if not json:
            write(render(response))
        else:
            for found in response.objects:
                write_json(found)
