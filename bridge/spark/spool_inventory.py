"""What is in the spools of a query: messages that are in no finished batch, by queue, subscription or topic filter."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bridge.spark.segment import IDENTITY, RETURNED, SUFFIX, Identity, Segment, SpoolDamaged, is_directory_name


class Positions(msgspec.Struct, frozen=True):
    """The last segment of each spool, by the identifier of the spool, in finished and in planned batches."""

    finished: Mapping[str, int] = {}
    planned: Mapping[str, int] = {}

    @classmethod
    def of(cls, checkpoint: Path | None) -> Positions:
        """Read the positions from a checkpoint of Spark. Without one, no batch was planned. Raises OSError, SpoolDamaged."""
        if checkpoint is None:
            return cls()
        try:
            return cls._read(checkpoint)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise SpoolDamaged(f"the offsets in {checkpoint} cannot be read: {error}") from error

    @classmethod
    def _read(cls, checkpoint: Path) -> Positions:
        offsets, commits = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
        finished = max(set(offsets) & set(commits), default=None)
        planned = max(offsets, default=None)
        return cls(
            {} if finished is None else dict(_spools(checkpoint / "offsets" / str(finished))),
            {} if planned is None else dict(_spools(checkpoint / "offsets" / str(planned))),
        )


def _numbers(directory: Path) -> list[int]:
    try:
        return [int(file.name) for file in directory.iterdir() if file.name.isdecimal()]
    except FileNotFoundError:
        return []


def _spools(file: Path) -> Iterator[tuple[str, int]]:
    """Yield identifiers and positions of the spools in the offsets of a batch. Other sources have other offsets."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            yield from json.loads(line).get("spools", {}).values()


class SpoolContents(msgspec.Struct, frozen=True):
    """The messages in a spool that are in no finished batch."""

    source: str
    directory: str
    messages: int
    #: bytes of message data
    bytes: int
    #: when the first one was put or received, in seconds since 1970. None: there are no messages
    oldest: float | None
    #: those of a batch that was planned and is not finished
    planned: int


def messages_of(spools: Iterable[SpoolContents], read: Collection[str]) -> tuple[int, int]:
    """Return the messages in spools, and those of them whose queue or topic is not among those that are read."""
    counts = [(one.messages, 0 if one.source in read else one.messages) for one in spools]
    return sum(messages for messages, _ in counts), sum(unread for _, unread in counts)


class Files(Protocol):
    """The files of a directory, or of the URL of another file system."""

    path: str

    def names(self) -> list[str]:
        """Return their names. There are none if the directory does not exist."""

    def read(self, name: str) -> Any:
        """Return the content of a file as a buffer."""


class Directory:
    """The files of a directory."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return their names."""
        return os.listdir(self.path) if os.path.isdir(self.path) else []

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return Path(self.path, name).read_bytes()


def inventory(below: str, positions: Positions, files: Callable[[str], Files] = Directory) -> list[SpoolContents]:
    """Return the contents of the spools below a directory, without connecting to the queue manager.

    `files` gives access to them. After a crash, a spool may have one more segment, whose unit of work was backed out. Raises
    OSError, SpoolDamaged.
    """
    spools = [files(f"{below}/{name}") for name in sorted(files(below).names()) if is_directory_name(name)]
    return [_contents_of(spool, names, positions) for spool in spools if IDENTITY in (names := spool.names())]


def _contents_of(spool: Files, names: list[str], positions: Positions) -> SpoolContents:
    identity = Identity.of(spool.path, spool.read(IDENTITY))
    returned = int(bytes(spool.read(RETURNED))) if RETURNED in names else 0
    after = max(positions.finished.get(identity.id, 0), returned)
    found = (Segment.of(name) for name in names if name.endswith(SUFFIX))
    segments = [one for one in found if one is not None and one.number > after and one.rows]
    return SpoolContents(
        identity.source,
        spool.path,
        sum(one.rows for one in segments),
        sum(one.size for one in segments),
        min((one.time / 1000 for one in segments), default=None),
        sum(one.rows for one in segments if one.number <= positions.planned.get(identity.id, 0)),
    )
