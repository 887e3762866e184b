"""The body of a message to put: from the command line or standard input, and what its MQMD says of it."""

from __future__ import annotations

import sys

from bridge.cli.output import note
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

CCSID_UTF8 = 1208


def read_body(argument: str | None) -> bytes:
    """The body that an argument gives: itself in UTF-8, or standard input for `-` and for none."""
    if argument is not None and argument != "-":
        return argument.encode("utf-8", "surrogateescape")
    if sys.stdin.isatty():
        note("the body is what you type now; Ctrl-D at the start of a line ends it")
    return sys.stdin.buffer.read()


def descriptor(body: bytes, *, persistent: bool, priority: int | None, expiry: int | None) -> MQMD:
    """The MQMD of a body: text (MQFMT_STRING in UTF-8) if it is UTF-8, else MQFMT_NONE.

    What is not asked for is left to the attributes of the queue or topic. `expiry` is in tenths of a second.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        format_, ccsid = cmqc.MQFMT_NONE, cmqc.MQCCSI_Q_MGR
    else:
        format_, ccsid = cmqc.MQFMT_STRING, CCSID_UTF8
    return MQMD(
        Format=format_,
        CodedCharSetId=ccsid,
        Persistence=cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_PERSISTENCE_AS_Q_DEF,
        Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF if priority is None else priority,
        Expiry=cmqc.MQEI_UNLIMITED if expiry is None else expiry,
    )
