"""`mqbridge mq`: MQ applications for the shell. Each command has its own connection to the queue manager."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from bridge.cli import options
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, YES, argument, flag, option, settings, takes
from bridge.cli.output import confirm, note, print_record, print_records, say, write, write_bytes
from bridge.cli.queue_manager import connected
from bridge.mapping.message_view import MessageView, descriptor, md_json
from bridge.mapping.rendered import identifier, queue_name
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, Got, MQError, Property, get_or_none
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MalformedHeader, decode_mqxqh

_MQLONG_MAX = 2_147_483_647

#: Maximum WaitInterval of an MQGET, in milliseconds. Python handles Ctrl-C after the current call of IBM's library, and
#: after the current read of a socket if the signal arrived just before it.
_WAIT_INTERVAL = 1_000

Body = Annotated[str | None, argument("[BODY]", "Body of the message. Without it, or with -: standard input.")]
Persistent = Annotated[
    bool, flag("Put a persistent message. Default: as the queue or topic specifies.", "--persistent")
]
Priority = Annotated[
    int | None,
    option("N", "Priority 0 to 9. Default: as the queue or topic specifies.", min=0, max=9),
]
Expiry = Annotated[float | None, option("TIME", "Time until the message expires.", parser=options.duration)]
Wait = Annotated[
    float | None, option("TIME", "Time to wait for each message. 0: do not wait.", parser=options.duration)
]
Limit = Annotated[int | None, option("N", "Stop after N messages. 0: no limit.", "--limit", "-n", min=0)]
Verbose = Annotated[bool, flag("Also print the MQMD and the headers.", "--verbose", "-v")]


@takes(BRIDGE | OUTPUT)
def put(
    queue: Annotated[str, argument("QUEUE", "Name of the queue.")],
    body: Body = None,
    to: Annotated[
        str | None, option("CLIENT", "Send to this MQTT client (ObjectQMgrName). QUEUE is then the topic name.")
    ] = None,
    reply_to: Annotated[
        str | None, option("QUEUE", "Queue for the reply (ReplyToQ). The message is a request.")
    ] = None,
    correl_id: Annotated[str | None, option("ID", "CorrelId, as 48 hexadecimal digits or text.")] = None,
    ccsid: Annotated[int | None, option("N", "The CCSID of the body.", min=1, max=65535)] = None,
    encoding: Annotated[
        int | None, option("N", "The Encoding of the numbers in the body, such as 785 (z/OS).", min=1, max=4095)
    ] = None,
    properties: options.Properties = None,
    persistent: Persistent = False,
    priority: Priority = None,
    expiry: Expiry = None,
) -> None:
    """Put a message to a queue, or send one to an MQTT client.

    A body in UTF-8 is sent as text (MQFMT_STRING), any other body as bytes (MQFMT_NONE). With --ccsid, it is text in that
    CCSID, and is not converted. 500 and 1047 are EBCDIC. With --encoding, it is a record (MQFMT_NONE).

    The command prints the MsgId, or with -o json the MQMD from the queue manager.
    """
    fields: dict[str, Any] = {}
    try:
        if reply_to is not None:
            fields |= {"MsgType": cmqc.MQMT_REQUEST, "ReplyToQ": queue_name(reply_to).encode()}
        if correl_id is not None:
            fields["CorrelId"] = identifier(correl_id, "CorrelId", cmqc.MQRC_CORREL_ID_ERROR)
    except Unmappable as error:
        raise Failure(
            f"{'--correl-id' if fields or reply_to is None else '--reply-to'}: {error}", WRONG_USAGE
        ) from error
    content = read_body(body)
    if encoding is not None:
        fields |= {"Encoding": encoding, "Format": cmqc.MQFMT_NONE}
    md = descriptor(content, persistent=persistent, priority=priority, expiry=_tenths(expiry), ccsid=ccsid)
    md = msgspec.structs.replace(md, **fields)
    od = MQOD(ObjectName=queue, ObjectQMgrName=to or "")
    with connected() as connection:
        _put(connection, od, Message(md, content), cmqc.MQPMO_NONE, properties)


@takes(BRIDGE | OUTPUT)
def pub(
    topic: Annotated[str, argument("TOPIC", "Topic string to publish to.")],
    body: Body = None,
    retain: Annotated[bool, flag("Retain the publication.", "--retain")] = False,
    properties: options.Properties = None,
    persistent: Persistent = False,
    priority: Priority = None,
    expiry: Expiry = None,
) -> None:
    """Publish a message to a topic.

    An empty message with --retain clears the retained publication of the topic, as in MQTT. The command prints the MsgId, or
    with -o json the MQMD from the queue manager.
    """
    content = read_body(body)
    md = descriptor(content, persistent=persistent, priority=priority, expiry=_tenths(expiry))
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    with connected() as connection:
        pmo = cmqc.MQPMO_RETAIN if retain and content else cmqc.MQPMO_NONE
        _put(connection, od, Message(md, content), pmo, properties)
        if retain and not content:
            connection.clear_retained(topic)
            note(f"cleared the retained publication of topic {topic}")


def _put(connection: Connection, od: MQOD, message: Message, pmo: int, properties: list[str] | None) -> None:
    properties_named = [Property(name=name, value=value) for name, value in properties_in(properties or []).items()]
    md = connection.put1(od, message, pmo | cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING, properties_named)
    msg_id = md.MsgId.hex().upper()
    print_record(md_json(md), msg_id, lambda _: write(msg_id))


@takes(BRIDGE | OUTPUT)
def get(
    queue: Annotated[str, argument("QUEUE", "Name of the queue.")],
    wait: Wait = 0.0,
    limit: Limit = 1,
    browse: Annotated[bool, flag("Leave the messages on the queue.", "--browse")] = False,
    raw: Annotated[bool, flag("Print the bytes of the bodies and nothing else.", "--raw")] = False,
    verbose: Verbose = False,
) -> None:
    """Get messages from a queue and print them.

    Without --browse, each message is printed and then removed, in a separate unit of work. By default, the command gets one
    message and does not wait. Exit status 3 if there is no message.
    """
    with connected() as connection:
        access = cmqc.MQOO_BROWSE if browse else cmqc.MQOO_INPUT_AS_Q_DEF
        handle = connection.open(MQOD(ObjectName=queue), access | cmqc.MQOO_FAIL_IF_QUIESCING)
        if not _print_all(connection, handle, limit or None, wait, browse=browse, raw=raw, verbose=verbose):
            raise _no_message(f"queue {queue!r}")


@takes(BRIDGE | OUTPUT)
def sub(
    topic_filter: Annotated[str, argument("FILTER", "Topic filter: + matches one level, # any number of levels.")],
    durable: Annotated[str | None, option("NAME", "Create or resume the durable subscription NAME.")] = None,
    wait: Wait = None,
    limit: Limit = None,
    remove: Annotated[bool, flag("Remove the durable subscription when the command ends.", "--remove")] = False,
    verbose: Verbose = False,
) -> None:
    """Subscribe to topics and print their publications.

    It prints publications until Ctrl-C, or until --wait or --limit applies. A durable subscription outlives the command, and
    keeps publications until it is resumed. Exit status 3 with --limit if no publication arrived.
    """
    if remove and durable is None:
        raise typer.BadParameter("only a durable subscription can be removed: use --durable NAME")
    kind = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    if durable is not None:
        kind = cmqc.MQSO_CREATE | cmqc.MQSO_RESUME | cmqc.MQSO_DURABLE
    kind |= cmqc.MQSO_MANAGED | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_FAIL_IF_QUIESCING
    sd = MQSD(Options=kind, ObjectString=topic_filter, SubName=durable or "")
    try:
        with connected() as connection:
            subscription, queue = connection.subscribe(sd)
            note(f"subscribed to {topic_filter}")
            printed = _print_all(connection, queue, limit or None, wait, verbose=verbose)
            if remove:
                connection.close(subscription, cmqc.MQCO_REMOVE_SUB)
    except KeyboardInterrupt:
        if remove:  # with another connection, because an MQGET may be waiting on the first
            with connected() as connection:
                _remove(connection, sd)
        raise
    if limit and not printed:
        raise _no_message(f"topic {topic_filter!r}")


@takes(BRIDGE | YES)
def remove(
    queue: Annotated[str, argument("QUEUE", "Name of the queue.")],
    msg_id: Annotated[str, argument("MSGID", "MsgId of the message: 48 hexadecimal digits.")],
) -> None:
    """Remove one message from a queue without reading it.

    Use it for a message that cannot be read, for example because it is longer than MAXMSGL of the channel. The log of the
    bridge contains its MsgId (MQB4211E). The message is deleted, and no copy is kept.

    Exit status 3 if there is no such message.
    """
    try:
        message_id = bytes.fromhex(msg_id)
    except ValueError:
        message_id = b""
    if len(message_id) != cmqc.MQ_MSG_ID_LENGTH:
        raise Failure(f"MSGID: expected 48 hexadecimal digits, found {msg_id!r}", WRONG_USAGE)
    flags = cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_FAIL_IF_QUIESCING
    opening = cmqc.MQOO_BROWSE | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_NO_READ_AHEAD | cmqc.MQOO_FAIL_IF_QUIESCING
    with connected() as connection:
        handle = connection.open(MQOD(ObjectName=queue), opening)
        # No more than the header of the transmission queue, because reading a longer part may fail.
        browse = GetOptions(Options=flags | cmqc.MQGMO_BROWSE_FIRST, MsgId=message_id, MaxLength=cmqc.MQXQH_LENGTH_1)
        head = connection.get(handle, browse)
        confirm(f"Delete the message of {head.DataLength} bytes{_recipient(head)} from {queue}?")
        connection.get(handle, GetOptions(Options=flags, MsgId=message_id, MaxLength=0))
    say(f"removed message {message_id.hex().upper()} ({head.DataLength} bytes{_recipient(head)}) from {queue}")


def _recipient(head: Got) -> str:
    """Return "for client CLIENT" for a message of the transmission queue, otherwise ""."""
    if head.md.Format != cmqc.MQFMT_XMIT_Q_HEADER:
        return ""
    try:
        return f" for client {decode_mqxqh(head.data).RemoteQMgrName.decode('utf-8', 'replace').strip()}"
    except MalformedHeader:
        return ""


def _remove(connection: Connection, sd: MQSD) -> None:
    """Remove a subscription after the connection that had it open has ended."""
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

    def is_open(error: BaseException) -> bool:
        return isinstance(error, MQError) and error.reason == cmqc.MQRC_SUBSCRIPTION_IN_USE

    resume = Retrying(retry=retry_if_exception(is_open), wait=wait_fixed(0.05), stop=stop_after_delay(5), reraise=True)
    handle, _ = resume(connection.subscribe, sd)
    connection.close(handle, cmqc.MQCO_REMOVE_SUB)


def _no_message(source: str) -> Exception:
    return MQError(cmqc.MQRC_NO_MSG_AVAILABLE, source)


def _print_all(
    connection: Connection,
    handle: int,
    count: int | None,
    wait: float | None,
    *,
    browse: bool = False,
    raw: bool = False,
    verbose: bool,
) -> int:
    """Print messages of a queue, and commit each get after its message was printed. Return the number of messages."""

    def views() -> Iterator[MessageView]:
        for message in _messages(connection, handle, count, wait, browse):
            yield MessageView(message.md, message.data)
            if not browse:
                connection.commit()  # the message has been printed

    if raw:
        number = 0
        for view in views():
            write_bytes(view.body)
            number += 1
        return number
    if settings.output is options.Format.table:
        return print_records(views(), str, each=lambda view: write(view.text(verbose=verbose)))
    return print_records((view.json() for view in views()), lambda message: message["md"]["MsgId"])


def _messages(
    connection: Connection, handle: int, count: int | None, wait: float | None, browse: bool
) -> Iterator[Got]:
    """Yield at most `count` messages of a queue, until none arrives for `wait` seconds. None means no limit."""
    flags = cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_NO_SYNCPOINT if browse else cmqc.MQGMO_SYNCPOINT
    flags |= cmqc.MQGMO_WAIT | cmqc.MQGMO_FAIL_IF_QUIESCING | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
    for _ in itertools.count() if count is None else range(count):
        deadline = math.inf if wait is None else time.monotonic() + wait
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            gmo = GetOptions(Options=flags, WaitInterval=round(min(remaining * 1_000, _WAIT_INTERVAL)))
            message = get_or_none(connection, handle, gmo)
            if message is not None:
                break
            if time.monotonic() >= deadline:
                return
        yield message


# Messages ---------------------------------------------------------------------------------------------------------------


def read_body(argument: str | None) -> bytes:
    """Return the body of a message: the argument in UTF-8, or standard input."""
    if argument is not None and argument != "-":
        return argument.encode("utf-8", "surrogateescape")
    if sys.stdin.isatty():
        note("type the body; Ctrl-D at the start of a line ends it")
    return sys.stdin.buffer.read()


def properties_in(pairs: list[str]) -> dict[str, str]:
    """Return the properties in options NAME=VALUE. Raises Failure."""
    properties = {}
    for pair in pairs:
        name, equals, properties[name] = pair.partition("=")
        if not name or not equals:
            raise Failure(f"--property: expected NAME=VALUE, found {pair!r}", WRONG_USAGE)
    return properties


def _tenths(seconds: float | None) -> int | None:
    """Return MQMD.Expiry, in tenths of a second. Raises Failure."""
    if seconds is None:
        return None
    if not 0 < seconds <= _MQLONG_MAX / 10:
        raise Failure("--expiry: expected a duration greater than 0 and less than 6 years", WRONG_USAGE)
    return max(1, round(seconds * 10))
