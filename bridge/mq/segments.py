"""Reassembly of segmented messages for MQTT clients.

On a transmission queue, each segment is a separate message. MQGMO_COMPLETE_MSG does not join segments there, because
GroupId, Offset and MsgFlags are not in the MQMD but in an MQMDE after the MQXQH. Source: IBM MQ documentation, "Overview for
MQXQH" (the separate message descriptor), "Message segmentation".
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

#: Client identifier, RemoteQName, GroupId and MsgSeqNumber of a segmented message.
_Key: TypeAlias = tuple[str, str, bytes, int]


class JoinedMessage(msgspec.Struct, eq=False):
    """A complete message as a Transmission: the first segment, with the data of all segments."""

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
        """The data, MQXQH included, as on a transmission queue of IBM MQ without segmentation; None if a segment has none."""
        if self.segments[0].raw is None:
            return None
        md = msgspec.structs.replace(self.message.md, Version=cmqc.MQMD_VERSION_1)
        header = MQXQH(RemoteQName=self.remote_queue.encode(), RemoteQMgrName=self.client_id.encode(), MsgDesc=md)
        return encode_mqxqh(header) + self.message.data

    @property
    def expired(self) -> bool:
        """Whether a segment has expired, so that the queue manager may have removed it."""
        return any(segment.expired for segment in self.segments)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the first segment expires; None if no segment expires."""
        return min([left for one in self.segments if (left := one.seconds_left) is not None], default=None)


class SegmentJoiner:
    """Passes batches to a consumer, and delays segments until their message is complete. Call it on one thread only."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._incomplete: dict[_Key, list[Transmission]] = {}

    def __call__(self, batch: Sequence[Transmission]) -> None:
        """Pass complete messages to the consumer. A joined message takes the position of its last segment to arrive."""
        for one in batch:
            if one.message.md.MsgFlags & SEGMENT:
                batch = self._joined(batch)
                break
        if batch:
            self._consumer(batch)

    def _joined(self, batch: Sequence[Transmission]) -> list[Transmission]:
        for key, segments in list(self._incomplete.items()):
            if any(one.expired for one in segments):
                del self._incomplete[key]  # cannot become complete: the queue manager discards expired segments
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
    """Return the messages on the transmission queue: joined messages are replaced by their segments."""
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
    """Return whether segments, in order of Offset, form a complete message."""
    places = {0}
    for segment in segments:
        if _offset(segment) not in places:
            return False
        end = _offset(segment) + segment.message.length
        # An application's RFH2 counts towards the Offset, one that the queue manager created from properties does not.
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
