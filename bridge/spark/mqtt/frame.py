"""Frames of a spool: what came at once, as it stands in a file, and as tasks read it.

A frame is a header (CRC-32 of all behind it; lengths; number of its first row; rows; bytes of payload), a SessionState in
MessagePack, and a record batch of MQTT_ARROW_SCHEMA in Arrow's IPC format. A frame whose writing was cut short does not
have its CRC.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa

from bridge.spark.columns import MQTT_ARROW_SCHEMA
from bridge.spark.mqtt.repeated_publications import Run

_HEADER: Final = struct.Struct(">IIIQQI")
_BEHIND_CRC: Final = 4
#: Rows, and bytes of frames, of one record batch that a task gets, about.
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 16 * 1024 * 1024


class SpoolDamaged(Exception):
    """A file of a spool is not as it was written, or not there."""


class SessionState(msgspec.Struct, array_like=True, frozen=True):
    """What is known of the session at the broker when a frame is written."""

    #: message ids of QoS 2 whose publications are in the spool, and whose PUBREL has not come
    received: frozenset[int]
    run: Run


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Where a frame is, and what it has."""

    file: str
    #: of its header, in bytes from the start of the file
    offset: int
    #: bytes of the whole frame
    length: int
    first: int
    rows: int
    #: bytes of payload
    size: int

    @property
    def end(self) -> int:
        """Return the number of the row behind the frame."""
        return self.first + self.rows


class Slice(msgspec.Struct, frozen=True, gc=False):
    """Rows of a frame that belong to a partition."""

    frame: Frame
    skip: int
    rows: int
    #: the frame itself, where it travels with the partition
    embedded: bytes | None = None


def encode_frame(first: int, batch: Any, size: int, state: SessionState) -> bytes:
    """Return a frame of the rows from number `first` on; `batch` is None for one with a state alone."""
    written = msgspec.msgpack.encode(state)
    rows, data = (0, b"") if batch is None else (batch.num_rows, batch.serialize().to_pybytes())
    header = _HEADER.pack(0, len(written), len(data), first, size, rows)[_BEHIND_CRC:]
    crc = zlib.crc32(data, zlib.crc32(written, zlib.crc32(header)))
    return b"".join((crc.to_bytes(_BEHIND_CRC), header, written, data))


def scan(path: Path, *, whole: bool) -> tuple[list[Frame], list[SessionState], int]:
    """Return the frames of a file, the state in each of them, and the offset behind the last frame that is complete.

    With `whole` everything is read and its CRC compared, else the headers alone, and no states. Raises SpoolDamaged.
    """
    frames: list[Frame] = []
    states: list[SessionState] = []
    offset = 0
    size = path.stat().st_size
    with path.open("rb") as file:
        while size - offset >= _HEADER.size:
            file.seek(offset)
            header = file.read(_HEADER.size)
            crc, state_length, length, first, payload, rows = _HEADER.unpack(header)
            end = offset + _HEADER.size + state_length + length
            if end > size:
                break
            if whole:
                behind = file.read(state_length + length)
                if zlib.crc32(behind, zlib.crc32(header[_BEHIND_CRC:])) != crc:
                    break
                states.append(_state(path, behind[:state_length]))
            frames.append(Frame(str(path), offset, end - offset, first, rows, payload))
            offset = end
    return frames, states, offset


def _state(path: Path, written: bytes) -> SessionState:
    try:
        return msgspec.msgpack.decode(written, type=SessionState)
    except msgspec.DecodeError as error:
        raise SpoolDamaged(
            f"{path}: the file was written by another version of mqbridge, in a format that this one cannot read ({error})."
            " Let that version take the query to its end, then delete the directory and begin with a new checkpoint"
        ) from error


def read_bytes(frame: Frame) -> bytes:
    """Return a frame as it stands in its file. Raises SpoolDamaged."""
    try:
        with Path(frame.file).open("rb") as file:
            return _read_from(file, frame)
    except OSError as error:
        raise SpoolDamaged(
            f"{frame.file} of a spool cannot be read: {error}. Executors on other machines need the directory of the"
            " option spool at the same path, or the option embed set to true"
        ) from error


def _read_from(file: BinaryIO, frame: Frame) -> bytes:
    file.seek(frame.offset)
    return file.read(frame.length)


def batch_of(frame: Frame, raw: bytes) -> Any:
    """Return the record batch of a frame that has rows. Raises SpoolDamaged."""
    if len(raw) != frame.length or zlib.crc32(raw[_BEHIND_CRC:]) != int.from_bytes(raw[:_BEHIND_CRC]):
        raise SpoolDamaged(f"{frame.file}: the frame at byte {frame.offset} is not as it was written")
    state_length = _HEADER.unpack_from(raw)[1]
    data = pa.py_buffer(raw).slice(_HEADER.size + state_length)
    # A copy: Arrow wants its buffers at multiples of eight bytes.
    return pa.ipc.read_record_batch(pa.py_buffer(data.to_pybytes()), MQTT_ARROW_SCHEMA)


def read(slices: Iterable[Slice]) -> Iterator[Any]:
    """Yield the rows of a partition, as record batches of a bounded size."""
    waiting: list[Any] = []
    rows = size = 0
    for part in slices:
        raw = read_bytes(part.frame) if part.embedded is None else part.embedded
        waiting.append(batch_of(part.frame, raw).slice(part.skip, part.rows))
        rows += part.rows
        size += len(raw)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def _joined(batches: list[Any]) -> list[Any]:
    if len(batches) < 2:
        return batches
    joined: list[Any] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
