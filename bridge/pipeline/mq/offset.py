"""Offsets of streaming reads: the very messages of a batch, by their MsgIds.

Spark keeps the offset of a batch in its checkpoint before the batch runs, and gives it back after a crash: so the batch
that is run again has the same messages, whatever has come to the queue, or been put in front, meanwhile.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

_MSG_ID: Final = 24
_ENTRY: Final = _MSG_ID + 1  # a MsgId, and a byte that is 1 for a message with an Expiry
#: As an offset in JSON names a message: MsgId, and whether it may expire.
Entry = tuple[bytes, bool]


class Offset(msgspec.Struct, frozen=True):
    """A batch: its number, its messages by queue, and the parts that those of each queue are read in."""

    #: makes two offsets differ, whatever their messages
    number: int = 0
    partitions: int = 1
    messages: Mapping[str, Sequence[Entry]] = {}

    def json(self) -> dict[str, Any]:
        """Return the offset as Spark writes it into the checkpoint. Raises ValueError for a MsgId that is none."""
        return {
            "number": self.number,
            "partitions": self.partitions,
            "messages": {queue: _packed(queue, entries) for queue, entries in self.messages.items()},
        }

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Offset:
        """Return the offset that `json` wrote. Raises ValueError for a damaged one."""
        return cls(
            json["number"],
            json["partitions"],
            {queue: _entries(packed) for queue, packed in json["messages"].items()},
        )


def _packed(queue: str, entries: Sequence[Entry]) -> str:
    raw = b"".join([msg_id + (b"\1" if expires else b"\0") for msg_id, expires in entries])
    if len(raw) != len(entries) * _ENTRY:
        wrong = next(msg_id for msg_id, _ in entries if len(msg_id) != _MSG_ID)
        raise ValueError(
            f"queue {queue} has a message whose MsgId {wrong.hex()} has {len(wrong)} bytes instead of {_MSG_ID}: by that it"
            " cannot be found again; get it from there, and put it with a MsgId of 24 bytes, or none"
        )
    # Byte by byte of all MsgIds: most are those of the message before, so that little is left of many.
    columns = b"".join([raw[at::_ENTRY] for at in range(_ENTRY)])
    return base64.b64encode(zlib.compress(columns)).decode()


def _entries(packed: str) -> list[Entry]:
    columns = zlib.decompress(base64.b64decode(packed))
    count, rest = divmod(len(columns), _ENTRY)
    if rest:
        raise ValueError(
            f"an offset of the source mq has {len(columns)} bytes, which is no multiple of {_ENTRY}: it is damaged"
        )
    rows = bytearray(len(columns))
    for at in range(_ENTRY):
        rows[at::_ENTRY] = columns[at * count : (at + 1) * count]
    raw = bytes(rows)
    return [(raw[at : at + _MSG_ID], raw[at + _MSG_ID] == 1) for at in range(0, len(raw), _ENTRY)]
