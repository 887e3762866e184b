"""The spool: an on-disk buffer between a queue or broker and the batches of a streaming query.

A spool is a directory of segments. A segment is an Arrow IPC file with the rows of one unit of work (or of one round of
acknowledgements). Segments are numbered. A reader appends them, a query reads them, and deletes them after its commit.

A segment is visible to queries only after its reader has published it. The reader of a queue does so after it has committed
the unit of work that also puts the segment's number on the state queue. File names contain a word that identifies the
reader, so an abandoned process that still writes cannot replace a segment of its successor.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from bridge.config import values
from bridge.files import Locked, durable_file, lock, sync
from bridge.spark.columns import project, subset
from bridge.spark.options import OptionError, Options

if TYPE_CHECKING:
    from pyarrow import fs

SUFFIX: Final = ".arrow"
#: The suffix of the last segment after its rows were committed: the file stays because its metadata has the session's state.
_READ: Final = ".read"
#: The file with the identifier of the spool, and the queue, subscription or topic filter.
IDENTITY: Final = "spool.json"
LOCK: Final = "lock"
#: Seconds to wait for another process to release the spool. A process that lost its Spark ends within this time.
LOCK_WAIT: Final = 30.0
_PAUSE: Final = 0.05
#: The key of a reader's state in the metadata of a segment.
_STATE: Final = b"mqbridge.state"


class SpoolDamaged(Exception):
    """A file of a spool is missing, unreadable, or has an unknown format."""


class SpoolBusy(Exception):
    """Another process uses the spool."""


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
        if (found := _NAME.fullmatch(name)) is None:
            return None
        number, rows, size, milliseconds, checksum = map(int, found.groups()[:5])
        return cls(number, rows, size, milliseconds, checksum, found[6])


_NAME: Final = re.compile(rf"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\w+)(?:{SUFFIX}|{_READ})".replace(".", r"\."))


class Place:
    """A directory on a local or mounted file system, or a URL of an object store or another remote file system.

    All methods raise OSError.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: None: a directory
        self.remote: fs.FileSystem | None = None
        self._base = path
        if "://" in path:
            self.remote, self._base = _remote(path)

    def write(self, name: str, data: Any) -> None:
        """Write a file durably. It appears with all of its content."""
        with self.creating(name) as file:
            file.write(data)

    @contextlib.contextmanager
    def creating(self, name: str) -> Iterator[IO[bytes]]:
        """Write a file durably in the block. It appears with all of its content."""
        if self.remote is None:
            with durable_file(Path(self._base, name)) as file:
                yield file
            return
        self.remote.create_dir(self._base)
        with self.remote.open_output_stream(f"{self._base}/{name}") as stream:
            yield stream

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        if self.remote is None:
            return os.path.exists(f"{self._base}/{name}")
        return bool(self.remote.get_file_info(f"{self._base}/{name}").is_file)

    def names(self) -> list[str]:
        """Return the names of its files."""
        if self.remote is None:
            return os.listdir(self._base) if os.path.isdir(self._base) else []
        from pyarrow import fs

        return [one.base_name for one in self.remote.get_file_info(fs.FileSelector(self._base, allow_not_found=True))]

    def read(self, name: str) -> Any:
        """Return the content of a file, memory-mapped if possible, as an Arrow buffer."""
        place = f"{self._base}/{name}"
        with pa.memory_map(place) if self.remote is None else self.remote.open_input_file(place) as file:
            return file.read_buffer()

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            if self.remote is None:
                os.unlink(f"{self._base}/{name}")
            else:
                self.remote.delete_file(f"{self._base}/{name}")

    def delete_all(self) -> None:
        """Delete the directory with everything in it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            if self.remote is None:
                shutil.rmtree(self._base)
            else:
                self.remote.delete_dir(self._base)


def _remote(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it. Raises OSError."""
    from pyarrow import fs

    try:
        return fs.FileSystem.from_uri(url)  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        try:
            import fsspec
        except ImportError:
            raise OSError(f"{url}: {error}; hint: install fsspec and its package for this kind of URL") from error
        found, path = fsspec.core.url_to_fs(url)
        return fs.PyFileSystem(fs.FSSpecHandler(found)), path


class Spool:
    """The spool of one queue or topic filter, below the directory or URL of a query.

    `append`, `publish` and `discard` are for one thread; everything else may be called from any. Raises OSError, SpoolBusy,
    SpoolDamaged.
    """

    def __init__(self, below: str, source: str) -> None:
        self.place = Place(f"{below}/{hashlib.sha256(source.encode()).hexdigest()[:16]}")
        self._lock: IO[str] | None = None
        if self.place.remote is None:
            directory = Path(self.place.path)
            if not directory.exists():
                # Payloads are confidential, and the program may have any umask.
                directory.mkdir(mode=0o750, parents=True)
                for parent in (directory.parent, directory.parent.parent):
                    sync(parent)
            self._lock = _locked(directory)
        names = self.place.names()
        for name in names:
            if Segment.of(name) is None and not name.startswith(".") and name.endswith((SUFFIX, _READ, ".spool")):
                # Ignoring it would lose its messages, which are no longer on their queue.
                raise SpoolDamaged(
                    f"spool {self.place.path} has a file of another version of mqbridge ({name}), which this version cannot"
                    " read; hint: let that version finish the query (trigger availableNow), then delete the directory"
                )
        self.run = uuid.uuid4().hex[:12]
        #: whether this process has made the spool
        self.new = IDENTITY not in names
        if self.new:
            self.place.write(IDENTITY, msgspec.json.encode({"id": uuid.uuid4().hex[:12], "source": source}))
        try:
            #: the identifier of the spool, which no other spool has
            self.id = str(msgspec.json.decode(self.place.read(IDENTITY))["id"])
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise SpoolDamaged(f"{self.place.path}/{IDENTITY} is damaged: {error}") from error
        self._changed = threading.Condition()
        #: published, by number
        self._segments: dict[int, Segment] = {}
        #: the last segment, whose rows are committed
        self._read: Segment | None = None
        #: number of the last published segment, which may be deleted
        self.last = 0
        self._size = 0

    @property
    def is_unused(self) -> bool:
        """Whether it has no segment, published or not. Raises OSError."""
        return not any(map(Segment.of, self.place.names()))

    # Recovery --------------------------------------------------------------------------------------------------------

    def recover(self, last: int | None = None, runs: Sequence[tuple[int, str]] = ()) -> None:
        """Find the published segments after a restart, and delete all others.

        `last` is the number of the last published segment, and `runs` the readers of all: the number of the first segment and
        the word of each. None: a file is published as soon as it exists.
        """
        found: dict[int, Segment] = {}
        read: Segment | None = None
        for name in self.place.names():
            segment = Segment.of(name)
            if segment is None:
                if name.startswith(".") and f"{SUFFIX}." in name:
                    self.place.delete(name)  # an incomplete file
                continue
            if last is not None and (segment.number > last or segment.run != _run_of(segment.number, runs)):
                self.place.delete(name)
            elif name.endswith(_READ):
                read = segment if read is None else max(read, segment)
            else:
                found[segment.number] = segment
        with self._changed:
            self._segments = dict(sorted(found.items()))
            self._read = read
            newest = max((*found, 0 if read is None else read.number))
            self.last = newest if last is None else last
            self._size = sum(one.size for one in found.values())
            self._changed.notify_all()
        if read is not None and found:
            self._forget_read()

    @property
    def first(self) -> int:
        """The number of the first segment that is not deleted, or of the next one."""
        with self._changed:
            return next(iter(self._segments), self.last + 1)

    def state(self) -> bytes | None:
        """Return the state in the metadata of the last segment. None: there is no segment. Raises SpoolDamaged."""
        if self.last in self._segments:
            name = self._segments[self.last].name
        elif self._read is not None:
            name = _read_name(self._read)
        else:
            return None
        found: bytes | None = (pa.ipc.open_file(content_of(self.place, name)).schema.metadata or {}).get(_STATE)
        return found

    # Writing ---------------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Any], size: int, milliseconds: int, state: bytes | None = None) -> Segment:
        """Write record batches as the next segment, durably. It is invisible until `publish`. Raises OSError."""
        schema = batches[0].schema if state is None else batches[0].schema.with_metadata({_STATE: state})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                if batch.num_rows:
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        content = sink.getvalue()
        rows = sum(batch.num_rows for batch in batches)
        segment = Segment(self.last + 1, rows, size, milliseconds, zlib.crc32(content), self.run)
        try:
            self.place.write(segment.name, content)
        except OSError as error:
            raise OSError(
                error.errno, f"spool {self.place.path} cannot be written: {error.strerror or error}"
            ) from error
        return segment

    def publish(self, segment: Segment) -> None:
        """Make an appended segment visible."""
        with self._changed:
            self._segments[segment.number] = segment
            self.last = segment.number
            self._size += segment.size
            self._changed.notify_all()
        if self._read is not None:
            self._forget_read()

    def discard(self, segment: Segment) -> None:
        """Delete an appended segment whose unit of work was backed out. Raises OSError."""
        self.place.delete(segment.name)

    def wait_below(self, size: int, wait: float) -> bool:
        """Wait until the segments have less than `size` bytes of data, up to `wait` seconds. Return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size < size, wait)

    # Reading ---------------------------------------------------------------------------------------------------------

    def between(self, start: int, end: int) -> list[Segment]:
        """Return the segments after `start`, up to `end`. Raises SpoolDamaged if one of them does not exist."""
        with self._changed:
            found = [self._segments.get(number) for number in range(start + 1, end + 1)]
        segments = [one for one in found if one is not None]
        if len(segments) != end - start:
            raise SpoolDamaged(
                f"spool {self.place.path} has {len(segments)} of the segments {start + 1} to {end}, which the checkpoint"
                f" needs; hint: restore the spool of this query, or start with a new checkpoint"
            )
        return segments

    def delete_through(self, number: int, *, keep_state: bool = False) -> None:
        """Delete the segments up to a number. `keep_state`: keep the newest segment for its metadata. Raises OSError."""
        with self._changed:
            gone = [one for one in self._segments.values() if one.number <= number]
            for one in gone:
                del self._segments[one.number]
            self._size -= sum(one.size for one in gone)
            self._changed.notify_all()
        for one in gone:
            if keep_state and one.number == self.last:
                os.rename(f"{self.place.path}/{one.name}", f"{self.place.path}/{_read_name(one)}")
                self._read = one
            else:
                self.place.delete(one.name)

    def _forget_read(self) -> None:
        if self._read is not None:
            self.place.delete(_read_name(self._read))
            self._read = None

    def close(self) -> None:
        """Allow another process to use the spool."""
        if self._lock is not None:
            self._lock.close()


def _read_name(segment: Segment) -> str:
    return segment.name.removesuffix(SUFFIX) + _READ


def _run_of(number: int, runs: Sequence[tuple[int, str]]) -> str | None:
    """Return the word of the reader that published a segment."""
    return next((run for first, run in reversed(runs) if first <= number), None)


def _locked(directory: Path) -> IO[str]:
    before = time.monotonic() + LOCK_WAIT
    while True:
        try:
            return lock(directory / LOCK)
        except Locked as error:
            if time.monotonic() >= before:
                raise SpoolBusy(
                    f"spool {directory} is in use by process {error.process}; hint: give each streaming query its own spool"
                ) from error
        time.sleep(_PAUSE)


def content_of(place: Place, name: str) -> Any:
    """Return the content of a segment's file, memory-mapped if possible, as an Arrow buffer. Raises SpoolDamaged."""
    try:
        content = place.read(name)
    except OSError as error:
        raise SpoolDamaged(
            f"segment {place.path}/{name} of the spool cannot be read: {error}; hint: every worker must reach the directory"
            " or URL of the option spool under this name; otherwise set the option embed to true"
        ) from error
    segment = Segment.of(name)
    if segment is None or zlib.crc32(content) != segment.checksum:
        raise SpoolDamaged(
            f"segment {place.path}/{name} of the spool is damaged: its checksum is wrong; hint: its messages exist nowhere"
            " else, so restore the file from a copy if there is one. Without it, start with a new spool and checkpoint"
        )
    return content


def read_segments(path: str, names: Iterable[str], schema: Any) -> Iterator[Any]:
    """Yield the rows of segments as record batches of a schema. Raises SpoolDamaged."""
    place = Place(path)
    for name in names:
        yield from read_content(content_of(place, name), schema, name)


def read_content(
    content: Any, schema: Any, name: str = "of the spool", start: int = 0, count: int | None = None
) -> Iterator[Any]:
    """Yield rows of a segment, given as the content of its file, as record batches. Raises SpoolDamaged.

    They are `count` rows after the first `start`. None: all that follow.
    """
    reader = pa.ipc.open_file(pa.py_buffer(content))
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        part = batch.slice(start, count)
        start = max(start - batch.num_rows, 0)
        if count is not None:
            count -= part.num_rows
        if part.num_rows:
            yield _projected(part, schema, name)


def slice_of(place: Place, segment: Segment, start: int, count: int) -> bytes:
    """Return `count` rows of a segment after the first `start` as the content of an Arrow file. Raises SpoolDamaged."""
    content = content_of(place, segment.name)
    if count == segment.rows:
        return bytes(content)
    schema = pa.ipc.open_file(content).schema.remove_metadata()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in read_content(content, schema, segment.name, start, count):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _projected(batch: Any, schema: Any, name: str) -> Any:
    try:
        return project(batch.replace_schema_metadata(None), schema)
    except KeyError as error:
        raise SpoolDamaged(
            f"segment {name} was written without the column {error.args[0]}: the query had other columns then; hint: let the"
            " query finish with its former columns (trigger availableNow), then change them"
        ) from error


class SpoolFiller(ABC):
    """A producer of segments, on a thread of its own: the reader of a queue, or the subscriber of a topic filter."""

    #: number of messages waiting at the source, as far as known
    depth = 0

    def __init__(self, source: str, spool: Spool, options: StreamOptions) -> None:
        """Make a producer. It adds nothing to a spool that has more data than `options.spool_limit`."""
        self.source = source
        self.spool = spool
        self._limit = options.spool_limit
        self._error: Exception | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"spool-{source}", daemon=True)

    @abstractmethod
    def start(self) -> None:
        """Connect, and start to fill the spool."""

    def stop(self) -> None:
        """Stop, and disconnect."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise RuntimeError if an error has stopped the producer."""
        if self._error is not None:
            raise RuntimeError(f"the reader of {self.source} has ended: {self._error}") from self._error

    @abstractmethod
    def finish(self) -> None:
        """Stop after the messages that are available now."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether all messages that were available at `finish` are in the spool."""

    @abstractmethod
    def _run(self) -> None:
        """Fill the spool until `_stopping`. Sets `_error`."""


# Options of reads through a spool ------------------------------------------------------------------------------------

#: Options of every streaming read.
STREAM_OPTIONS: Final = (
    "spool",
    "spoolLimit",
    "embed",
    "columns",
    "partitions",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
)
#: Messages, and bytes of message data, of a micro-batch: the fixed cost of a batch is then small.
MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 256 * 1024 * 1024
#: Bytes of message data in a spool above which its reader pauses.
SPOOL_LIMIT: Final = 1024**3


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a streaming read, checked."""

    #: directory or URL
    spool: str = ""
    spool_limit: int = SPOOL_LIMIT
    #: whether segments travel with the plan of a batch, for workers that do not reach the spool
    embed: bool = False
    #: parts of equal size of a batch. None: one for each queue or topic filter
    partitions: int | None = None
    max_messages: int = MAX_MESSAGES
    max_bytes: int = MAX_BYTES


def stream_options_of(options: Options) -> StreamOptions:
    """Return the options of a streaming read. `spool` is empty if it is not given. Raises OptionError."""
    return StreamOptions(
        spool=options.place("spool") or "",
        spool_limit=options.size("spoolLimit", SPOOL_LIMIT),
        embed=options.truth("embed", False),
        partitions=options.value("partitions", values.integer(1, 1000), None),
        max_messages=options.value("maxMessagesPerTrigger", values.integer(1, 2**31 - 1), MAX_MESSAGES),
        max_bytes=options.size("maxBytesPerTrigger", MAX_BYTES),
    )


def columns_of(options: Options, schema: Any) -> Any:
    """Return the part of an envelope's Arrow schema that the option `columns` names. Raises OptionError."""
    names = options.names("columns")
    return subset(schema, names) if names else schema


def require_spool(source: str, options: StreamOptions) -> None:
    """Raise OptionError if a streaming read has no spool."""
    if not options.spool:
        raise OptionError(
            f"{source}: option spool: required for streaming reads; hint: set it to a directory (or URL) for messages whose"
            " batch is not committed yet, and protect this directory like the checkpoint"
        )
