"""The spool of one session: publications on disk, between the broker and the batches of a query.

What is acknowledged to the broker is here first, in files that are only written at their end, and stays until the batch
that has it is committed. Rows have numbers, which are the offsets of the query; they go on for as long as the directory
is there.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import msgspec
import pyarrow.compute as pc

from bridge.files import Locked, durable_file, lock, sync
from bridge.spark.mqtt.frame import (
    Frame,
    SessionState,
    Slice,
    SpoolDamaged,
    batch_of,
    encode_frame,
    read,
    read_bytes,
    scan,
)
from bridge.spark.mqtt.repeated_publications import RepeatedPublications, digests_of

#: Bytes behind which a file is followed by another; whole files are what is deleted.
SEGMENT_BYTES: Final = 16 * 1024 * 1024
#: Seconds to wait for the process that has the spool: one that lost its Spark ends soon.
LOCK_WAIT: Final = 30.0
_LOCK_PAUSE: Final = 0.05
SUFFIX: Final = ".spool"
IDENTITY: Final = "session.json"
LOCK: Final = "lock"
COMMITTED: Final = "committed"
_SESSIONS: Final = "sessions.json"


class SpoolBusy(Exception):
    """Another process has the spool."""


class Session(msgspec.Struct, frozen=True):
    """What stands in the directory of a spool beside its files: whose it is."""

    id: str
    topic_filter: str


class SessionAtBroker(msgspec.Struct, frozen=True):
    """A session that fills a spool, as the broker knows it."""

    #: host:port
    broker: str
    client_id: str


def sessions_in(directory: Path) -> list[SessionAtBroker]:
    """Return the sessions that have filled the spool in a directory, the last one last. Raises OSError."""
    try:
        return msgspec.json.decode((directory / _SESSIONS).read_bytes(), type=list[SessionAtBroker])
    except FileNotFoundError:
        return []


def forget_session(directory: Path, session: SessionAtBroker) -> None:
    """Strike a session that has ended off those that have filled the spool in a directory. Raises OSError."""
    _write_sessions(directory, [one for one in sessions_in(directory) if one != session])


def _write_sessions(directory: Path, sessions: list[SessionAtBroker]) -> None:
    with durable_file(directory / _SESSIONS) as file:
        file.write(msgspec.json.encode(sessions))


class Spool:
    """Opens, or makes, the spool of a topic filter below a directory.

    Raises OSError; SpoolBusy; SpoolDamaged. `append` is for one thread; everything else may be called from any.
    """

    def __init__(self, below: Path, topic_filter: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = below / hashlib.sha256(topic_filter.encode()).hexdigest()[:16]
        if not self.directory.exists():
            # It has payloads in it, and the program that it belongs to may have any umask.
            self.directory.mkdir(mode=0o750, parents=True)
            for parent in (below, below.parent):
                sync(parent)
        self._segment_bytes = segment_bytes
        self._changed = threading.Condition()
        self._lock = self._locked()
        self.id = self._identified(topic_filter)
        self._frames: deque[Frame] = deque()
        self._file: BinaryIO | None = None
        #: of the last file
        self._number = 0
        #: message ids of QoS 2 that are in the spool and not released
        self.received: frozenset[int] = frozenset()
        #: of the rows with QoS 1 and 2; for the thread of `append`, which brings it to disk
        self.repeated_publications = RepeatedPublications()
        #: those of the rows before the last file, as its first frame has them
        self._digests_before: list[bytes] = []
        #: newest first, as far as `repeated_publications` reaches; None: not looked at since the last frame
        self._digests: list[bytes] | None = None
        #: number of the first row that is in no committed batch, and the file that says so to another checkpoint
        self.committed = 0
        self._committed_file = os.open(self.directory / COMMITTED, os.O_RDWR | os.O_CREAT, 0o640)
        #: number of the next row
        self.end = 0
        #: bytes of payload in rows that are not committed, all frames counted whole
        self._size = 0
        self._recover()

    # Whose it is -----------------------------------------------------------------------------------------------------

    def _locked(self) -> IO[str]:
        before = time.monotonic() + LOCK_WAIT
        while True:
            try:
                return lock(self.directory / LOCK)
            except Locked as error:
                if time.monotonic() >= before:
                    raise SpoolBusy(
                        f"spool {self.directory} is in use by process {error.process}: each streaming query needs one of its"
                        " own"
                    ) from error
            time.sleep(_LOCK_PAUSE)

    def _identified(self, topic_filter: str) -> str:
        path = self.directory / IDENTITY
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Session).id
        session = Session(uuid.uuid4().hex[:12], topic_filter)
        with durable_file(path) as file:
            file.write(msgspec.json.encode(session))
        return session.id

    def note_session(self, session: SessionAtBroker) -> None:
        """Write down which session fills the spool from now on: whoever changes it is told what the one before has."""
        known = sessions_in(self.directory)
        if known[-1:] != [session]:
            known = [*(one for one in known if one != session), session]
            _write_sessions(self.directory, known)

    def _recover(self) -> None:
        self.committed = int.from_bytes(os.pread(self._committed_file, 8, 0))
        paths = sorted(self.directory.glob(f"*{SUFFIX}"))
        while paths:
            frames, states, end = scan(paths[-1], whole=True)
            if not states:
                # Cut short at its very first frame: what counts is in the one before.
                paths.pop().unlink()
                continue
            self.received = states[-1].received
            self.repeated_publications.recall(states[-1].run)
            self._digests_before = states[0].run.digests
            self._number = int(paths[-1].stem)
            self._file = paths[-1].open("r+b")
            # What was cut short was never acknowledged.
            self._file.truncate(end)
            self._file.seek(end)
            break
        else:
            return
        for path in paths[:-1]:
            found, _, end = scan(path, whole=False)
            if end != path.stat().st_size:
                raise SpoolDamaged(f"{path}: the file is not as it was written from byte {end} on")
            self._frames += found
        self._frames += frames
        self.end = self._frames[-1].end
        self._size = sum(frame.size for frame in self._frames if frame.end > self.committed)

    # Writing ---------------------------------------------------------------------------------------------------------

    def append(self, batch: Any, size: int, received: frozenset[int]) -> None:
        """Bring rows (or None), the message ids of QoS 2 and the run of message ids to disk.

        After an OSError the spool is useless.
        """
        first = self.end
        file = self._file
        whole = file is None or file.tell() >= self._segment_bytes
        digests = self._newest_digests() if whole else []
        data = encode_frame(first, batch, size, SessionState(received, self.repeated_publications.written(digests)))
        if file is None or whole:
            if file is not None:
                file.close()
            self._number += 1
            file = self._file = (self.directory / f"{self._number:012d}{SUFFIX}").open("xb")
            sync(self.directory)
            self._digests_before = digests
        offset = file.tell()
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
        frame = Frame(file.name, offset, len(data), first, 0 if batch is None else batch.num_rows, size)
        with self._changed:
            self.received = received
            self._frames.append(frame)
            self._digests = None
            self.end = frame.end
            self._size += size
            self._changed.notify_all()

    def digest(self, behind: int) -> bytes | None:
        """Return the digest of the row that so many others with QoS 1 and 2 are behind; None: it is not there.

        For the thread of `append`.
        """
        if self._digests is None:
            self._digests = self._newest_digests()[::-1]
        return self._digests[behind] if behind < len(self._digests) else None

    def _newest_digests(self) -> list[bytes]:
        """Return the newest digests, as far as `repeated_publications` reaches.

        They are of the last file, which is never deleted, and of what its first frame has of those before it.
        """
        with self._changed:
            frames = [frame for frame in self._frames if frame.file == self._frames[-1].file and frame.rows]
        parts: list[list[bytes]] = []
        missing = reach = self.repeated_publications.reach
        while frames and missing > 0:
            frame = frames.pop()
            parts.append(digests_of(batch_of(frame, read_bytes(frame))))
            missing -= len(parts[-1])
        parts.append(self._digests_before)
        digests = [digest for part in reversed(parts) for digest in part]
        return digests[max(len(digests) - reach, 0) :]

    def wait_smaller(self, size: int, wait: float) -> bool:
        """Wait until less than `size` bytes are not committed, for so many seconds at most; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size < size, wait)

    def wait_beyond(self, position: int, wait: float) -> bool:
        """Wait until there are rows behind a position, for so many seconds at most; return whether there are."""
        with self._changed:
            return self._changed.wait_for(lambda: self.end > position, wait)

    # Reading ---------------------------------------------------------------------------------------------------------

    def cut(self, start: int, end: int, rows: int, size: int) -> tuple[int, int]:
        """Return where a batch from row `start` ends, at the latest before `end`, and its bytes of payload.

        It has at most so many rows and bytes of payload, but one row at least, where there is one.
        """
        position, left = start, size
        for frame in self._between(start, min(end, start + rows)):
            stop = min(frame.end, end, start + rows)
            if frame.size <= left and stop == frame.end and position == frame.first:
                position, left = stop, left - frame.size
                continue
            lengths = pc.binary_length(batch_of(frame, read_bytes(frame)).column("payload")).to_pylist()
            for length in lengths[position - frame.first : stop - frame.first]:
                if length > left and position > start:
                    return position, size - left
                position, left = position + 1, left - length
        return position, size - left

    def slices(self, start: int, end: int) -> list[Slice]:
        """Return the frames of rows `start` to `end`. Raises SpoolDamaged when they are not there any more, or never were."""
        found = []
        for frame in self._between(start, end):
            skip = max(start - frame.first, 0)
            found.append(Slice(frame, skip, min(end, frame.end) - frame.first - skip))
        if sum(one.rows for one in found) != end - start:
            raise SpoolDamaged(
                f"spool {self.directory} has not the rows {start} to {end} that the checkpoint names: they were deleted, or"
                " the spool is another one. Give the query its spool back, or begin with a new checkpoint"
            )
        return found

    def received_at(self, position: int) -> datetime:
        """Return when a row was received. Raises SpoolDamaged."""
        (batch,) = read(self.slices(position, position + 1))
        found: datetime = batch.column("received")[0].as_py()
        return found

    def _between(self, start: int, end: int) -> list[Frame]:
        with self._changed:
            return [frame for frame in self._frames if frame.first < end and frame.end > start and frame.rows]

    def commit(self, position: int) -> None:
        """Note that the rows before a position are in a committed batch, and delete the files that have no other."""
        with self._changed:
            if position <= self.committed:
                return
            self.committed = position
            # Not brought to disk: the checkpoint of the query knows it too.
            os.pwrite(self._committed_file, position.to_bytes(8), 0)
            current = self._frames[-1].file if self._frames else ""
            files: list[str] = []
            while self._frames and self._frames[0].end <= position and self._frames[0].file != current:
                file = self._frames.popleft().file
                if file not in files:
                    files.append(file)
            if files and self._frames[0].file == files[-1]:
                files.pop()  # it has more; its frames that are gone are not asked for
            self._size = sum(frame.size for frame in self._frames if frame.end > position)
            self._changed.notify_all()
        for file in files:
            Path(file).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process have the spool."""
        if self._file is not None:
            self._file.close()
        os.close(self._committed_file)
        self._lock.close()


def partitions(slices: list[Slice], count: int) -> list[list[Slice]]:
    """Return slices in at most `count` parts with about as many rows each, none cut."""
    total = sum(one.rows for one in slices)
    waiting = iter(slices)
    parts: list[list[Slice]] = []
    done = 0
    for number in range(1, count + 1):
        part: list[Slice] = []
        while done < total * number // count and (one := next(waiting, None)) is not None:
            part.append(one)
            done += one.rows
        if part:
            parts.append(part)
    return parts
