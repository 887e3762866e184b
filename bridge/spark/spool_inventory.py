"""The contents of a query's spools: messages in no finished batch, by queue, subscription or topic filter."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bridge.files import checksum_of
from bridge.spark.segment import (
    IDENTITY,
    READ_SUFFIX,
    RETURNED,
    STATE_MARK,
    SUFFIX,
    WITNESS,
    Segment,
    SpoolDamaged,
    SpoolIdentity,
    SpoolState,
    is_directory_name,
)
from bridge.telemetry.message import Message
from bridge.witness import WitnessDamaged, read


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
    #: when the first message was put or received, in seconds since 1970. None without messages
    oldest: float | None
    #: number of messages in a batch that was planned, but is not finished
    planned: int


def messages_of(spools: Iterable[SpoolContents], sources: Collection[str]) -> tuple[int, int]:
    """Return the number of messages in spools, and of those whose queue or topic is not in `sources`."""
    counts = [(spool.messages, 0 if spool.source in sources else spool.messages) for spool in spools]
    return sum(messages for messages, _ in counts), sum(unread for _, unread in counts)


class Files(Protocol):
    """The files of a directory, or of the URL of another file system."""

    path: str

    def names(self) -> list[str]:
        """Return their names. The list is empty if the directory does not exist."""

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

    `files` gives access to their files. After a crash, a spool may contain an additional segment whose unit of work was
    backed out. Raises OSError, SpoolDamaged.
    """
    spools = [files(f"{below}/{name}") for name in sorted(files(below).names()) if is_directory_name(name)]
    return [_contents_of(spool, names, positions) for spool in spools if IDENTITY in (names := spool.names())]


def _contents_of(spool: Files, names: list[str], positions: Positions) -> SpoolContents:
    identity = SpoolIdentity.of(spool.path, spool.read(IDENTITY))
    returned = int(bytes(spool.read(RETURNED))) if RETURNED in names else 0
    after = max(positions.finished.get(identity.id, 0), returned)
    named_segments = (Segment.of(name) for name in names if name.endswith(SUFFIX))
    segments = [
        segment for segment in named_segments if segment is not None and segment.number > after and segment.rows
    ]
    return SpoolContents(
        identity.source,
        spool.path,
        sum(segment.rows for segment in segments),
        sum(segment.size for segment in segments),
        min((segment.time / 1000 for segment in segments), default=None),
        sum(segment.rows for segment in segments if segment.number <= positions.planned.get(identity.id, 0)),
    )


def absent_spools(messages: Iterable[Message], directories: Iterable[Path]) -> list[SpoolState]:
    """Return the spools that have had segments, according to their state messages, and are not in the directories.

    `messages` are those on the state queue of mappings. Raises OSError.
    """
    present: set[str] = set()
    for file in (file for directory in directories for file in directory.glob(f"*/{IDENTITY}")):
        with contextlib.suppress(SpoolDamaged):  # a pipeline does not start with a damaged spool, either
            present.add(SpoolIdentity.of(str(file.parent), file.read_bytes()).id)
    states: list[SpoolState] = []
    for message in messages:
        if message.md.CorrelId.startswith(STATE_MARK):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                states.append(msgspec.msgpack.decode(message.data, type=SpoolState))
    return [state for state in states if state.last and state.spool not in present]


def is_spool(directory: Path) -> bool:
    """Return whether a directory contains spools."""
    return any(is_directory_name(path.parent.name) for path in directory.glob(f"*/{IDENTITY}"))


def damage_of(below: Path, checkpoint: Path | None) -> Iterator[str]:
    """Yield a sentence for each missing or damaged file of the spools below a directory, which may be in use.

    `checkpoint` is that of the query. None: any number of segments at the beginning may be in finished batches. Raises
    OSError.
    """
    for directory in sorted(below.iterdir()):
        if is_directory_name(directory.name):
            try:
                yield from _damage_in(directory, checkpoint)
            except (SpoolDamaged, WitnessDamaged) as error:
                yield str(error)


def _damage_in(directory: Path, checkpoint: Path | None) -> Iterator[str]:
    position = read(directory / WITNESS)
    names = os.listdir(directory)
    if IDENTITY not in names:
        if position is not None and position.number:
            yield f"{directory / IDENTITY} is missing"
        return
    identity = SpoolIdentity.of(str(directory), (directory / IDENTITY).read_bytes())
    if identity.witness and (position is None or f"{position.identity:012x}" != identity.id):
        yield f"{directory / WITNESS} is missing, or belongs to another spool"
    segments = sorted(
        named_segment for name in names if (named_segment := Segment.of(name)) is not None and name.endswith(SUFFIX)
    )
    returned = int((directory / RETURNED).read_bytes()) if RETURNED in names else 0

    def finished() -> int:
        if checkpoint is None:
            return max(segments[0].number - 1 if segments else 0, returned)
        return max(Positions.of(checkpoint).finished.get(identity.id, 0), returned)

    published = position.number if position is not None else max((segment.number for segment in segments), default=0)
    needed = set(range(finished() + 1, published + 1)) if segments or checkpoint is not None else set()
    if missing := sorted(needed.difference(segment.number for segment in segments)):
        numbers = ", ".join(map(str, missing[:_SHOWN]))
        yield f"spool {directory} of {identity.source} lacks {len(missing)} segments: {numbers}"
    for name in sorted(names):
        segment = Segment.of(name)
        if segment is None or (segment.number not in needed and not name.endswith(READ_SUFFIX)):
            continue
        try:
            damaged = checksum_of(directory / name) != segment.checksum
        except FileNotFoundError:
            damaged = segment.number > finished()  # otherwise, a query has deleted it in the meantime
        if damaged:
            yield f"segment {directory / name} is damaged: it has {segment.messages(identity.source)}"


#: Maximum number of missing segments that are listed.
_SHOWN = 10
