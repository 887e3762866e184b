"""What the queue manager adds to the MQMD of a message that is put: identifiers, group, reply-to queue, context.

Source: IBM MQ documentation, "MQPMO - Put-message options", "Message context", "Reply-to queue alias".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bridge.mq.embedded.verbs.descriptor import (
    BYTE_FIELDS,
    IDENTITY,
    ORIGIN,
    Completed,
    blank,
    check_descriptor,
    copied,
    group_fields,
    is_grouped,
)
from bridge.mq.embedded.verbs.handle import QueueHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.logical_message import Place
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQPMO
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

MAX_PRIORITY: Final = 9
#: The options that say where the context comes from.
CONTEXTS: Final = (
    cmqc.MQPMO_PASS_IDENTITY_CONTEXT
    | cmqc.MQPMO_PASS_ALL_CONTEXT
    | cmqc.MQPMO_SET_IDENTITY_CONTEXT
    | cmqc.MQPMO_SET_ALL_CONTEXT
    | cmqc.MQPMO_NO_CONTEXT
    | cmqc.MQPMO_DEFAULT_CONTEXT
)
_PASSES: Final = cmqc.MQPMO_PASS_ALL_CONTEXT | cmqc.MQPMO_PASS_IDENTITY_CONTEXT
#: Options with which two messages of one MQMD are not completed alike.
_ANOTHER_EACH_TIME: Final = cmqc.MQPMO_NEW_CORREL_ID | _PASSES


def completed(hconn: Hconn, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
    """Complete the MQMD, its group as well, of a message in no logical order. Raises MQError.

    With the name of the application where the context is its own. An application that puts many messages of a kind does it
    with one and the same MQMD: it is completed once.
    """
    ccsid = hconn.queue_manager.attributes["CCSID"]
    last = hconn.completed
    if last is not None and last.given is md and last.options == pmo.Options and last.ccsid == ccsid:
        pmo.Reason = last.reason
        return last.md, last.application
    made, application = _complete(hconn, md, pmo)
    group = group_fields(made)
    grouped = is_grouped(made)
    if grouped and made.GroupId == cmqc.MQGI_NONE:
        group["GroupId"] = hconn.generated()
    made = msgspec.structs.replace(made, **group)
    if not pmo.Options & _ANOTHER_EACH_TIME and not grouped:
        hconn.completed = Completed(md, pmo.Options, ccsid, made, application, pmo.Reason)
    return made, application


def completed_at(hconn: Hconn, md: MQMD, pmo: MQPMO, place: Place, length: int) -> tuple[MQMD, str | None, Place]:
    """Complete the MQMD of a message of `length` bytes at a place in logical order. Raises MQError.

    The group is the queue manager's; with it comes the place behind the message.
    """
    made, application = _complete(hconn, md, pmo)
    group = group_fields(made)
    own, following = place.put(group["MsgFlags"], made.GroupId, length, hconn.generated)
    return msgspec.structs.replace(made, **group | own), application, following


def _complete(hconn: Hconn, md: MQMD, pmo: MQPMO) -> tuple[MQMD, str | None]:
    """Check the fields of an MQMD and fill it in, but for its group."""
    check_descriptor(md)
    flags = pmo.Options
    pmo.Reason = cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM if md.Priority > MAX_PRIORITY else cmqc.MQRC_NONE
    changes: dict[str, Any] = {"BackoutCount": 0}
    for name, length in BYTE_FIELDS:
        if len(value := getattr(md, name)) < length:
            changes[name] = value.ljust(length, b"\0")
    if flags & cmqc.MQPMO_NEW_MSG_ID:
        changes["MsgId"] = cmqc.MQMI_NONE
    if flags & cmqc.MQPMO_NEW_CORREL_ID:
        changes["CorrelId"] = hconn.generated()
    if flags & cmqc.MQPMO_SUPPRESS_REPLYTO:
        changes |= {"ReplyToQ": b"", "ReplyToQMgr": b""}
    elif md.ReplyToQ and not md.ReplyToQMgr:
        changes |= _reply_to(hconn, md.ReplyToQ)
    if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
        changes["CodedCharSetId"] = int(hconn.queue_manager.attributes["CCSID"])
    application = _add_context(hconn, changes, pmo)
    return msgspec.structs.replace(md, **changes), application


def _reply_to(hconn: Hconn, queue: bytes) -> dict[str, bytes]:
    """Return ReplyToQ and ReplyToQMgr where the application gave no ReplyToQMgr.

    Those of a remote queue's definition of that name, or the queue at this queue manager (IBM MQ, "Reply-to queue alias").
    """
    remote = hconn.queue_manager.remotes.get(queue.decode("ascii", "replace"))
    if remote is not None and remote["RNAME"]:
        return {"ReplyToQ": str(remote["RNAME"]).encode(), "ReplyToQMgr": str(remote["RQMNAME"]).encode()}
    return {"ReplyToQMgr": hconn.queue_manager.name.encode()}


def _add_context(hconn: Hconn, changes: dict[str, Any], pmo: MQPMO) -> str | None:
    """Add identity and origin of the message; the result is None where the MQMD says all of them itself."""
    choice = pmo.Options & CONTEXTS
    if choice == cmqc.MQPMO_SET_ALL_CONTEXT:
        return None
    if choice == cmqc.MQPMO_NO_CONTEXT:
        changes |= blank(IDENTITY) | blank(ORIGIN)
        return None
    if choice & _PASSES:
        source = _saved_context(hconn, pmo.Context)
        changes |= copied(IDENTITY, source)
        if choice == cmqc.MQPMO_PASS_ALL_CONTEXT:
            changes |= copied(ORIGIN, source)
            return None
    elif choice != cmqc.MQPMO_SET_IDENTITY_CONTEXT:
        changes |= blank(IDENTITY)
        changes["UserIdentifier"] = hconn.user
    changes |= blank(ORIGIN)
    return hconn.name


def _saved_context(hconn: Hconn, hobj: int) -> MQMD:
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, QueueHandle) or not handle.options & cmqc.MQOO_SAVE_ALL_CONTEXT:
        raise MQError(cmqc.MQRC_CONTEXT_HANDLE_ERROR, f"handle {hobj} saves no context: open it to")
    if handle.context is None:
        raise MQError(cmqc.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got with the handle")
    return handle.context
