"""The files of a spool by name, and its state message. This module needs no Arrow."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

SUFFIX: Final = ".arrow"
#: The suffix of the last segment after its rows were committed. The file stays, because it contains the session's state.
READ_SUFFIX: Final = ".read"
#: The file with the identifier of the spool, and the queue, subscription or topic filter.
IDENTITY: Final = "spool.json"
#: The file with the number of the last published segment (`bridge.witness`). An object store has no such file.
WITNESS: Final = "witness"
#: The file with the number of the last segment whose messages were put back on their queue, and one that exists until that is
#: complete.
RETURNED: Final = "returned"
RETURNING: Final = "returning"
#: The first bytes of the CorrelId of a state message.
STATE_MARK: Final = b"SPKQ"
_DIRECTORY: Final = re.compile("[0-9a-f]{16}")


class SpoolDamaged(Exception):
    """A file of a spool is missing, unreadable, or has an unknown format."""


#: The format of the source whose rows a spool has, or "" if it is not known.
SpoolKind = Literal["mq", "mqtt", ""]


class SpoolIdentity(msgspec.Struct, frozen=True):
    """The identity of a spool."""

    #: no other spool has it
    id: str
    #: queue, subscription or topic filter
    source: str
    #: whether the spool has a file with the number of its last segment
    witness: bool = False
    #: the format of the source, or "" if an older release has created the spool
    kind: SpoolKind = ""

    @classmethod
    def of(cls, path: str, content: Any) -> SpoolIdentity:
        """Decode the file IDENTITY of the spool at a path. Raises SpoolDamaged."""
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SpoolDamaged(f"{path}/{IDENTITY} is damaged: {error}") from error


class SpoolState(msgspec.Struct, array_like=True, frozen=True):
    """The state message of the spool of a queue, on the state queue of mappings."""

    queue: str
    #: process of the reader, for display
    owner: str
    spool: str
    #: number of the last segment
    last: int
    #: readers of the segments: the number of the first segment, and the word of each
    runs: list[tuple[int, str]]


def state_mark(spool: str) -> bytes:
    """Return the CorrelId of the state message of a spool."""
    return STATE_MARK + hashlib.sha256(spool.encode()).digest()[:20]


def directory_name(source: str) -> str:
    """Return the name of the directory of a source's spool."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def is_directory_name(name: str) -> bool:
    """Return whether a name is that of the directory of a spool."""
    return _DIRECTORY.fullmatch(name) is not None


class Segment(msgspec.Struct, frozen=True, order=True):
    """A segment. All fields are in the name of its file."""

    number: int
    rows: int
    #: bytes of message data
    size: int
    #: when its first message was put or received, in milliseconds since the epoch
    time: int
    #: CRC-32 of the file
    checksum: int
    #: the word for the reader that wrote it
    run: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.number:012d}-{self.rows}-{self.size}-{self.time}-{self.checksum}-{self.run}{SUFFIX}"

    @classmethod
    def of(cls, name: str) -> Segment | None:
        """Return the segment with a file name. None: the file is not a segment."""
        if (match := _NAME.fullmatch(name)) is None:
            return None
        number, rows, size, milliseconds, checksum = map(int, match.groups()[:5])
        return cls(number, rows, size, milliseconds, checksum, match[6])

    def messages(self, source: str) -> str:
        """Describe its messages, which came from `source`, for display."""
        first = datetime.fromtimestamp(self.time / 1000, UTC).isoformat(" ", "seconds")
        return f"{self.rows} messages of {source} ({self.size} bytes, the first of {first})"


_NAME: Final = re.compile(rf"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\w+)(?:{SUFFIX}|{READ_SUFFIX})".replace(".", r"\."))
