"""Offsets of streaming reads: the very messages of a batch, by what the queue manager says of each.

Spark keeps the offset of a batch in its checkpoint before the batch runs, and gives it back after a crash: so the batch
that is run again has the same messages, whatever has come to the queue, or been put in front, meanwhile.

Version 1, which is read still, had neither a reader nor fingerprints. Such a batch is of a reader of its own, which its
messages name: that of a blank name is none.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

_MSG_ID: Final = 24
_FINGERPRINT: Final = 8
#: Bytes of an entry by version: a MsgId, a fingerprint, and a byte that is 1 for a message with an Expiry.
_WIDTH: Final = {1: _MSG_ID + 1, 2: _MSG_ID + _FINGERPRINT + 1}
_VERSION: Final = 2
#: In place of a version: of a browse, which takes nothing away. A release that has no browse refuses it.
_BROWSE: Final = "browse 1"


class Entry(NamedTuple):
    """A message of a batch."""

    msg_id: bytes
    #: see `bridge.mq.batch.Seen`; blank in version 1
    fingerprint: bytes
    #: it may expire
    expires: bool
    #: how many messages before it in the batch have the same MsgId and fingerprint
    occurrence: int = 0


class Offset(msgspec.Struct, frozen=True):
    """A batch: its number, its messages by queue, and the parts that those of each queue are read in."""

    #: makes two offsets differ, whatever their messages
    number: int = 0
    partitions: int = 1
    messages: Mapping[str, Sequence[Entry]] = {}
    #: of the checkpoint, whatever process goes on with it; in version 1 of the batch; blank before the first
    reader: str = ""

    def json(self) -> dict[str, Any]:
        """Return the offset as Spark writes it into the checkpoint. Raises ValueError for a MsgId that is none."""
        return {
            "version": _VERSION,
            "reader": self.reader,
            "number": self.number,
            "partitions": self.partitions,
            "messages": {queue: _packed(queue, entries) for queue, entries in self.messages.items()},
        }

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Offset:
        """Return the offset that `json` wrote. Raises ValueError for a damaged one, and one of a newer version."""
        version = json.get("version", 1)
        if version == _BROWSE:
            raise ValueError(
                "the checkpoint is of a query that browses, and this one would take the messages away: set the option browse"
                " to true, or begin with a new checkpoint (of a pipeline: mqbridge pipeline reset)"
            )
        if version not in _WIDTH:
            raise ValueError(
                f"the checkpoint has an offset of the source mq of version {version}, and this release reads {_VERSION} at"
                " most: a newer one has written it"
            )
        return cls(
            json["number"],
            json["partitions"],
            {queue: _entries(packed, version) for queue, packed in json["messages"].items()},
            json["reader"] if version > 1 else _reader_of(json["messages"]),
        )


class BrowseOffset(msgspec.Struct, frozen=True):
    """A batch of a browse: its number, and the parts that the messages of each queue are read in."""

    number: int = 0
    partitions: int = 1
    #: messages by queue that have been in a batch and were there still when this one was planned, its own last
    seen: Mapping[str, Sequence[Entry]] = {}
    #: how many of them are of this batch
    new: Mapping[str, int] = {}

    @property
    def messages(self) -> Mapping[str, Sequence[Entry]]:
        """Return the messages of the batch by queue."""
        return {queue: self.seen[queue][-count:] for queue, count in self.new.items()}

    def json(self) -> dict[str, Any]:
        """Return the offset as Spark writes it into the checkpoint. Raises ValueError for a MsgId that is none."""
        return {
            "version": _BROWSE,
            "number": self.number,
            "partitions": self.partitions,
            "seen": {queue: _packed(queue, entries) for queue, entries in self.seen.items()},
            "new": dict(self.new),
        }

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> BrowseOffset:
        """Return the offset that `json` wrote. Raises ValueError for a damaged one, and one that is not of a browse."""
        if json.get("version") != _BROWSE:
            raise ValueError(
                "the checkpoint is of a query that takes its messages away, or of a newer release: leave the option browse"
                " out, or begin with a new checkpoint (of a pipeline: mqbridge pipeline reset)"
            )
        seen = {queue: _entries(packed, _VERSION) for queue, packed in json["seen"].items()}
        return cls(json["number"], json["partitions"], seen, json["new"])


def offset_of(json: Mapping[str, Any]) -> Offset | BrowseOffset:
    """Return an offset of either kind. Raises ValueError as both do."""
    return BrowseOffset.of(json) if json.get("version") == _BROWSE else Offset.of(json)


def counted(named: Iterable[tuple[bytes, bytes, bool]]) -> list[Entry]:
    """Return the entries of messages in their order, those that are equal in all counted."""
    entries, before = [], Counter[tuple[bytes, bytes]]()
    for msg_id, fingerprint, expires in named:
        key = msg_id, fingerprint
        occurrence = before[key]
        before[key] = occurrence + 1
        entries.append(Entry(msg_id, fingerprint, expires, occurrence))
    return entries


def _reader_of(messages: Mapping[str, str]) -> str:
    if not messages:
        return ""
    return hashlib.blake2b(repr(sorted(messages.items())).encode(), digest_size=8).hexdigest()


def _packed(queue: str, entries: Sequence[Entry]) -> str:
    width = _WIDTH[_VERSION]
    raw = b"".join([one.msg_id + one.fingerprint + (b"\1" if one.expires else b"\0") for one in entries])
    if len(raw) != len(entries) * width:
        wrong = next(one.msg_id for one in entries if len(one.msg_id) != _MSG_ID)
        raise ValueError(
            f"queue {queue} has a message whose MsgId {wrong.hex()} has {len(wrong)} bytes instead of {_MSG_ID}: by that it"
            " cannot be found again; get it from there, and put it with a MsgId of 24 bytes, or none"
        )
    # Byte by byte of all entries: most are those of the message before, so that little is left of many.
    columns = b"".join([raw[at::width] for at in range(width)])
    return base64.b64encode(zlib.compress(columns)).decode()


@lru_cache(maxsize=4)
def _entries(packed: str, version: int) -> Sequence[Entry]:
    """Return what `_packed` has packed. Spark asks for the partitions of a batch, and then gives it back as committed."""
    width = _WIDTH[version]
    columns = zlib.decompress(base64.b64decode(packed))
    count, rest = divmod(len(columns), width)
    if rest:
        raise ValueError(
            f"an offset of the source mq has {len(columns)} bytes, which is no multiple of {width}: it is damaged"
        )
    rows = bytearray(len(columns))
    for at in range(width):
        rows[at::width] = columns[at * count : (at + 1) * count]
    raw = bytes(rows)
    return counted(
        (raw[at : at + _MSG_ID], raw[at + _MSG_ID : at + width - 1], raw[at + width - 1] == 1)
        for at in range(0, len(raw), width)
    )
