"""Report messages of the queue manager: confirm on arrival (COA), confirm on delivery (COD), expiration.

Source: IBM MQ documentation, "Report (MQLONG)" of MQMD, "Report options and message flags". A report is put in the unit
of work of what it reports. One that cannot be put goes to the dead-letter queue.
"""

from __future__ import annotations

import time
from typing import Any

from bridge.mq.embedded.dead_letter import dead_letter
from bridge.mq.embedded.messages import Messages
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Feedback of a report -> the options that request it: without data, with the first 100 bytes, with all data.
_REQUESTS = {
    cmqc.MQFB_COA: (cmqc.MQRO_COA, cmqc.MQRO_COA_WITH_DATA, cmqc.MQRO_COA_WITH_FULL_DATA),
    cmqc.MQFB_COD: (cmqc.MQRO_COD, cmqc.MQRO_COD_WITH_DATA, cmqc.MQRO_COD_WITH_FULL_DATA),
    cmqc.MQFB_EXPIRATION: (
        cmqc.MQRO_EXPIRATION,
        cmqc.MQRO_EXPIRATION_WITH_DATA,
        cmqc.MQRO_EXPIRATION_WITH_FULL_DATA,
    ),
}
_KINDS = (
    *_REQUESTS.values(),
    (cmqc.MQRO_EXCEPTION, cmqc.MQRO_EXCEPTION_WITH_DATA, cmqc.MQRO_EXCEPTION_WITH_FULL_DATA),
)
#: All options that request a report, from the queue manager or an application.
REQUESTED = sum(full for _, _, full in _KINDS) | cmqc.MQRO_PAN | cmqc.MQRO_NAN | cmqc.MQRO_ACTIVITY
_KNOWN = (
    REQUESTED
    | cmqc.MQRO_PASS_MSG_ID
    | cmqc.MQRO_PASS_CORREL_ID
    | cmqc.MQRO_DISCARD_MSG
    | cmqc.MQRO_PASS_DISCARD_AND_EXPIRY
)
_FIRST_BYTES = 100


def check_report(options: int) -> None:
    """Raise MQError for report options that are unknown or contradictory."""
    wrong = options & ~_KNOWN & ~cmqc.MQRO_ACCEPT_UNSUP_MASK
    for kind in _KINDS:
        wrong |= (options & kind[2]) not in (0, *kind)
    if wrong:
        raise MQError(cmqc.MQRC_REPORT_OPTIONS_ERROR, f"Report 0x{options & 0xFFFFFFFF:x}")


def report(queue_manager: Messages, unit: Unit, stored: StoredMessage, feedback: int) -> None:
    """Put a report if the sender of a message has requested it."""
    original = stored.message.md
    plain, _, with_full_data = _REQUESTS[feedback]
    request = original.Report & with_full_data
    if not request or not original.ReplyToQ:
        return
    md, data = queue_manager.appearance.whole(stored)
    data = b"" if request == plain else data if request == with_full_data else data[:_FIRST_BYTES]
    passed = original.Report & cmqc.MQRO_PASS_DISCARD_AND_EXPIRY
    discard = original.Report & cmqc.MQRO_DISCARD_MSG
    message = Message(
        MQMD(
            Report=discard if passed else cmqc.MQRO_NONE,
            MsgType=cmqc.MQMT_REPORT,
            Expiry=md.Expiry if passed else cmqc.MQEI_UNLIMITED,
            Feedback=feedback,
            Encoding=md.Encoding,
            CodedCharSetId=md.CodedCharSetId,
            Format=md.Format if request != plain else cmqc.MQFMT_NONE,
            Priority=stored.priority,
            Persistence=md.Persistence,
            MsgId=md.MsgId if original.Report & cmqc.MQRO_PASS_MSG_ID else cmqc.MQMI_NONE,
            CorrelId=md.CorrelId if original.Report & cmqc.MQRO_PASS_CORREL_ID else md.MsgId,
            UserIdentifier=md.UserIdentifier,
            AccountingToken=md.AccountingToken,
            ApplIdentityData=md.ApplIdentityData,
            PutApplType=cmqc.MQAT_QMGR,
            PutApplName=queue_manager.name.encode()[:28],
            **_now(),
        ),
        data,
    )
    name, manager = md.ReplyToQ.decode(errors="replace"), md.ReplyToQMgr.decode(errors="replace")
    try:
        destination = queue_manager.resolve(name, manager)
        if destination.queue is None:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"{name} leads to a topic")
        queue_manager.put(unit, destination, message, application=None, replacing=True)
    except MQError as error:
        undelivered = StoredMessage(
            stored.queue,
            queue_manager.next_number(),
            message,
            stored.persistent,
            stored.priority,
            time.time(),
            put_application=None,
        )
        dead_letter(queue_manager, unit, undelivered, error.reason, name, manager, replacing=True)


def _now() -> dict[str, Any]:
    now = time.time()
    seconds = time.gmtime(now)
    return {
        "PutDate": time.strftime("%Y%m%d", seconds).encode(),
        "PutTime": (time.strftime("%H%M%S", seconds) + f"{int(now * 100) % 100:02d}").encode(),
    }
