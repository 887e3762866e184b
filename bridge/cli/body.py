"""What a message to put is made of: its body, from the command line or standard input, its properties and its MQMD."""

from __future__ import annotations

import sys

import msgspec

from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.output import note
from bridge.mapping.rules.rendered import identifier, queue_name
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


def read_body(argument: str | None) -> bytes:
    """Return the body that an argument gives: the argument in UTF-8, or standard input for `-` and for none."""
    if argument is not None and argument != "-":
        return argument.encode("utf-8", "surrogateescape")
    if sys.stdin.isatty():
        note("the body is what you type now; Ctrl-D at the start of a line ends it")
    return sys.stdin.buffer.read()


def properties_in(written: list[str]) -> dict[str, str]:
    """Return the properties that options give as NAME=VALUE, or raise Failure."""
    properties = {}
    for one in written:
        name, equals, properties[name] = one.partition("=")
        if not name or not equals:
            raise Failure(f"--property: expected NAME=VALUE, found {one!r}", WRONG_USAGE)
    return properties


def as_request(md: MQMD, reply_to: str | None) -> MQMD:
    """Return the MQMD, which is that of a request (MQMT_REQUEST) where there is a queue for answers.

    Raises Failure for what is no name of a queue.
    """
    if reply_to is None:
        return md
    try:
        queue = queue_name(reply_to)
    except Unmappable as error:
        raise Failure(f"--reply-to: {error}", WRONG_USAGE) from error
    return msgspec.structs.replace(md, MsgType=cmqc.MQMT_REQUEST, ReplyToQ=queue.encode())


def as_answer(md: MQMD, correl_id: str | None) -> MQMD:
    """Return the MQMD with the CorrelId given, as 48 hexadecimal digits or as text, or raise Failure."""
    if correl_id is None:
        return md
    try:
        found = identifier(correl_id, "CorrelId", cmqc.MQRC_CORREL_ID_ERROR)
    except Unmappable as error:
        raise Failure(f"--correl-id: {error}", WRONG_USAGE) from error
    return msgspec.structs.replace(md, CorrelId=found)
