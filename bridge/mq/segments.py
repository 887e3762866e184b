"""Segments of messages for MQTT clients, joined to whole messages before they are handed over.

A transmission queue holds each segment as a message of its own. The MQMD of that message is never one of a segment, so
MQGMO_COMPLETE_MSG joins nothing there: GroupId, Offset and MsgFlags of the application are in an MQMDE behind the MQXQH.
Source: IBM MQ documentation, "Overview for MQXQH" (the separate message descriptor), "Message segmentation".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from bridge.mq.backend import Consumer
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage, Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQXQH, MalformedHeader, byte_order_of, decode_rfh2, encode_mqxqh

SEGMENT: Final = cmqc.MQMF_SEGMENT | cmqc.MQMF_LAST_SEGMENT

#: Client identifier, RemoteQName, GroupId and MsgSeqNumber of a message that is in segments.
_Key: TypeAlias = tuple[str, str, bytes, int]


class JoinedMessage(msgspec.Struct, eq=False):
    """A message whose segments have all arrived, as one Transmission: the first segment with the data of all."""

    client_id: str
    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int
    put_time: float
    segments: Sequence[Transmission]

    @property
    def raw(self) -> bytes | None:
        """Return the data as they would be on the transmission queue of IBM MQ without segmentation."""
        if self.segments[0].raw is None:
            return None
        md = msgspec.structs.replace(self.message.md, Version=cmqc.MQMD_VERSION_1)
        header = MQXQH(RemoteQName=self.remote_queue.encode(), RemoteQMgrName=self.client_id.encode(), MsgDesc=md)
        return encode_mqxqh(header) + self.message.data

    @property
    def expired(self) -> bool:
        """Return whether the queue manager may have removed a segment: its MQMD.Expiry has run down."""
        return any(segment.expired for segment in self.segments)

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the first of the segments expires; None if none does."""
        return min([left for one in self.segments if (left := one.seconds_left) is not None], default=None)


class SegmentJoiner:
    """Hands batches over to a consumer; segments wait until their message is whole. Called on one thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._incomplete: dict[_Key, list[Transmission]] = {}

    def __call__(self, batch: Sequence[Transmission]) -> None:
        """Hand over what is whole, each message in the place of its segment that came last."""
        for one in batch:
            if one.message.md.MsgFlags & SEGMENT:
                batch = self._joined(batch)
                break
        if batch:
            self._consumer(batch)

    def _joined(self, batch: Sequence[Transmission]) -> list[Transmission]:
        for key, segments in list(self._incomplete.items()):
            if any(one.expired for one in segments):
                del self._incomplete[key]  # the message will never be whole; the queue manager discards its segments
        whole: list[Transmission] = []
        for one in batch:
            md = one.message.md
            if not md.MsgFlags & SEGMENT:
                whole.append(one)
                continue
            key = (one.client_id, one.remote_queue, md.GroupId, md.MsgSeqNumber)
            segments = self._incomplete.setdefault(key, [])
            segments.append(one)
            if md.MsgFlags & cmqc.MQMF_LAST_SEGMENT or any(_is_last(other) for other in segments):
                segments.sort(key=_offset)
                if _are_whole(segments):
                    whole.append(_join(segments))
                    del self._incomplete[key]
        return whole


def separate(removals: Sequence[Transmission]) -> Sequence[Any]:
    """Return the messages on the transmission queue that these are: themselves, or their segments."""
    for one in removals:
        if type(one) is JoinedMessage:
            break
    else:
        return removals
    return [part for one in removals for part in (one.segments if isinstance(one, JoinedMessage) else (one,))]


def _offset(segment: Transmission) -> int:
    return segment.message.md.Offset


def _is_last(segment: Transmission) -> bool:
    return bool(segment.message.md.MsgFlags & cmqc.MQMF_LAST_SEGMENT)


def _are_whole(segments: Sequence[Transmission]) -> bool:
    """Return whether segments, in the order of their Offsets, are all of a message."""
    places = {0}
    for segment in segments:
        if _offset(segment) not in places:
            return False
        end = _offset(segment) + segment.message.length
        # An RFH2 that the queue manager made of message properties does not count for the Offset; an application's does.
        places = {end, end - _rfh2_length(segment.message)} if not _offset(segment) else {end}
    return _is_last(segments[-1])


def _rfh2_length(message: Any) -> int:
    if message.md.Format != cmqc.MQFMT_RF_HEADER_2:
        return 0
    try:
        return decode_rfh2(message.data, byte_order=byte_order_of(message.md.Encoding, "MQRFH2")).StrucLength
    except MalformedHeader:
        return 0


def _join(segments: Sequence[Transmission]) -> JoinedMessage:
    first = segments[0]
    md = msgspec.structs.replace(
        first.message.md, MsgFlags=first.message.md.MsgFlags & ~SEGMENT, GroupId=cmqc.MQGI_NONE, Offset=0
    )
    data = b"".join([segment.message.put_data for segment in segments])
    return JoinedMessage(
        first.client_id,
        first.remote_queue,
        Message(md, data),
        first.topic,
        first.user_data,
        first.retained,
        first.persistent,
        first.msg_number,
        first.put_time,
        tuple(segments),
    )
