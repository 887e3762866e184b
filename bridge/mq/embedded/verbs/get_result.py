"""The result of MQGET: a message as the application asks for it, converted, and as much as its buffer takes.

Source: IBM MQ documentation, "MQGMO - Get-message options", "MQGET - Get message".
"""

from __future__ import annotations

from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.verbs.conversion import convert
from bridge.mq.embedded.verbs.get_options import token_of
from bridge.mq.embedded.verbs.handle import QueueHandle
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.logical_message import joined
from bridge.mq.embedded.verbs.rendering import manner, render
from bridge.mq.mqi import GetOptions, Got, TruncatedMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


def manner_of(handle: QueueHandle, options: GetOptions) -> str:
    """Return the manner in which properties come. Raises MQError."""
    attributes = handle.attributes if handle.kind == "QALIAS" else handle.queue.attributes
    return manner(options.Options, str(attributes["PROPCTL"]), bool(options.MsgHandle))


def get_result(hconn: Hconn, handle: QueueHandle, parts: list[StoredMessage], options: GetOptions, how: str) -> Got:
    """Return a message, or the segments of one, as the application sees it. Raises TruncatedMessage."""
    flags = options.Options
    stored, *rest = parts
    queue_manager = hconn.queue_manager
    appearance = queue_manager.appearance
    md, data, properties = render(appearance, stored, how)
    if rest:
        md, data = joined(md, data, (appearance.seen(one)[1] for one in rest))
    reason = cmqc.MQRC_NONE
    room = options.MaxLength
    if flags & cmqc.MQGMO_CONVERT and (room is None or len(data) <= room):
        wanted = options.CodedCharSetId
        own = int(queue_manager.attributes["CCSID"])
        converted = convert(md, data, wanted if wanted > 0 else own, options.Encoding)
        if room is not None and len(converted[1]) > room and not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
            reason = cmqc.MQRC_CONVERTED_MSG_TOO_BIG  # it fits as it is, and so it comes
        else:
            md, data, reason = converted
    length = len(data)
    got = Got(
        md=md,
        data=data,
        ResolvedQName=handle.queue.name,
        DataLength=length,
        Reason=reason,
        MsgToken=token_of(stored),
        ReturnedLength=length,
        GroupStatus=_group_status(md),
        SegmentStatus=_segment_status(md),
        Segmentation=b"A" if md.MsgFlags & cmqc.MQMF_SEGMENTATION_ALLOWED else b" ",
        properties=properties,
    )
    if room is None or length <= room:
        return got
    got.data = data[:room]
    got.ReturnedLength = room
    got.Reason = cmqc.MQRC_TRUNCATED_MSG_ACCEPTED
    if not flags & cmqc.MQGMO_ACCEPT_TRUNCATED_MSG:
        if flags & cmqc.MQGMO_BROWSE_FIRST:
            handle.cursor = None  # "positioned logically before the highest-priority message" (MQRC 2080)
        got.Reason = cmqc.MQRC_TRUNCATED_MSG_FAILED
        raise TruncatedMessage(got, f"{length} bytes, the buffer has {room}")
    return got


def _group_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        return cmqc.MQGS_LAST_MSG_IN_GROUP
    return cmqc.MQGS_MSG_IN_GROUP if md.MsgFlags & cmqc.MQMF_MSG_IN_GROUP else cmqc.MQGS_NOT_IN_GROUP


def _segment_status(md: MQMD) -> bytes:
    if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT:
        return cmqc.MQSS_LAST_SEGMENT
    return cmqc.MQSS_SEGMENT if md.MsgFlags & cmqc.MQMF_SEGMENT else cmqc.MQSS_NOT_A_SEGMENT
