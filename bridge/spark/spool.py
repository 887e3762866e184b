"""The spool: an on-disk buffer between a queue or broker and the batches of a streaming query.

A spool is a directory of segments. A segment is an Arrow IPC file with the rows of one unit of work (or of one round of
acknowledgements). Segments are numbered. A reader appends them, a query reads them, and deletes them after its commit.

A segment is visible to queries only after its reader has published it. The reader of a queue does so after it has committed
the unit of work that also puts the segment's number on the state queue. File names contain a word that identifies the
reader, so an abandoned process that still writes cannot replace a segment of its successor.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
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
from bridge.spark.segment import (
    IDENTITY,
    READ_SUFFIX,
    RETURNED,
    RETURNING,
    SUFFIX,
    WITNESS,
    Segment,
    SpoolDamaged,
    SpoolIdentity,
    SpoolKind,
    directory_name,
    is_directory_name,
)
from bridge.witness import Witness, WitnessDamaged, WitnessPosition, create
from bridge.witness import read as read_position

if TYPE_CHECKING:
    from pyarrow import fs

log = logging.getLogger(__name__)

LOCK: Final = "lock"
#: Seconds to wait for another process to release the spool. A process that lost its Spark ends within this time.
LOCK_WAIT: Final = 30.0
_PAUSE: Final = 0.05
#: The key of a reader's state in the metadata of a segment.
_STATE: Final = b"mqbridge.state"


class DataLoss(Exception):
    """Messages would be lost, and the option `failOnDataLoss` is true."""


class SpoolBusy(Exception):
    """Another process uses the spool."""


class SpoolPlace:
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

    def write(self, name: str, content: Any) -> None:
        """Write a file durably. It appears with all of its content."""
        with self.creating(name) as file:
            file.write(content)

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

        return [info.base_name for info in self.remote.get_file_info(fs.FileSelector(self._base, allow_not_found=True))]

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
        filesystem, path = fsspec.core.url_to_fs(url)
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


class Spool:
    """The spool of one queue or topic filter, below the directory or URL of a query.

    `append`, `publish` and `discard` are for one thread. Everything else may be called from any thread. Raises OSError,
    SpoolBusy, SpoolDamaged.
    """

    def __init__(self, below: str, source: str, kind: SpoolKind = "", *, returning: bool = False) -> None:
        """Open the spool of a source.

        `kind` "": the kind in its identity. `returning`: its messages will be put back, possibly after an interrupted
        attempt.
        """
        self.place = SpoolPlace(f"{below}/{directory_name(source)}")
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
            if Segment.of(name) is None and not name.startswith(".") and name.endswith((SUFFIX, READ_SUFFIX, ".spool")):
                # Ignoring it would lose its messages, which are no longer on their queue.
                raise SpoolDamaged(
                    f"spool {self.place.path} has a file of another version of mqbridge ({name}), which this version cannot"
                    " read; hint: let that version finish the query (trigger availableNow), then delete the directory"
                )
        if RETURNING in names and not returning:
            raise SpoolDamaged(
                f"`mqbridge pipeline spool return` was cut off while it put back messages of spool {self.place.path};"
                f" hint: run `mqbridge pipeline spool return {source}` again to finish it"
            )
        #: number of the last segment whose messages were put back
        self.returned = int(bytes(self.place.read(RETURNED))) if RETURNED in names else 0
        self.run = uuid.uuid4().hex[:12]
        #: whether this process has created the spool
        self.new = IDENTITY not in names
        if self.new and WITNESS in names and self._witnessed().number:
            raise SpoolDamaged(f"{self.place.path}/{IDENTITY} is missing; hint: start with a new spool and checkpoint")
        if self.new:
            self._identify(uuid.uuid4().hex[:12], source, kind)
        identity = identity_of(self.place)
        #: the identifier of the spool, which no other spool has
        self.id = identity.id
        self.source = identity.source
        if kind and identity.kind not in ("", kind):
            raise SpoolDamaged(
                f"{self.place.path} is a spool of the source {identity.kind}, not {kind}; hint: start with a new spool and"
                " checkpoint"
            )
        self.kind: SpoolKind = identity.kind or kind
        try:
            self._identity = int(self.id, 16)
        except ValueError as error:
            raise SpoolDamaged(f"{self.place.path}/{IDENTITY} is damaged: {error}") from error
        if self.place.remote is None and not identity.witness:
            self._identify(self.id, source, self.kind)  # a spool of an older release
        elif identity.kind != self.kind:
            self.place.write(IDENTITY, msgspec.json.encode(msgspec.structs.replace(identity, kind=kind)))
        self._witness: Witness | None = None
        if self.place.remote is None:
            if self._witnessed().identity != self._identity:
                raise SpoolDamaged(f"{self.place.path}/{WITNESS} belongs to another spool")
            self._witness = Witness(Path(self.place.path, WITNESS), self._identity)
        self._changed = threading.Condition()
        #: published, by number
        self._segments: dict[int, Segment] = {}
        #: the last segment, whose rows are committed
        self._read: Segment | None = None
        #: number of the last published segment, which may be deleted
        self.last = 0
        self._size = 0

    def _identify(self, identifier: str, source: str, kind: SpoolKind) -> None:
        """Write the identity of the spool. First, create its witness."""
        local = self.place.remote is None
        if local:
            create(Path(self.place.path, WITNESS), WitnessPosition(int(identifier, 16), 0, 0, time.time()))
        self.place.write(IDENTITY, msgspec.json.encode(SpoolIdentity(identifier, source, local, kind)))

    @property
    def is_unused(self) -> bool:
        """Whether it has no segment, published or not. Raises OSError."""
        return not any(map(Segment.of, self.place.names()))

    # Recovery --------------------------------------------------------------------------------------------------------

    def recover(self, last: int | None = None, runs: Sequence[tuple[int, str]] = ()) -> list[tuple[int, str]]:
        """Find the published segments after a restart, and delete all others. Return `runs`.

        `last` is the number of the last published segment. `runs` contains the number of the first segment and the word of
        each reader. `last` None: a file is published as soon as it exists. Raises SpoolDamaged if the last segments are
        missing. Those of a queue are deleted when they are processed, so `between` notices missing ones.

        If the witness contains a larger number than `last`, the queue manager was restored. All segments up to that number
        are kept. Then `runs` includes their readers.
        """
        segments: dict[int, Segment] = {}
        last_read: Segment | None = None
        names = self.place.names()
        runs = list(runs)
        published = self.returned
        if last is None and self.kind == "mq":
            published = max(published, self._witnessed().number if self._witness is not None else 0)
        elif last is None:
            self._check_end(max((segment.number for segment in map(Segment.of, names) if segment), default=published))
        elif self._witness is not None and last < (published := self._witnessed().number):
            log.warning(
                "MQB8010W spool %s has segments up to %d, and the queue manager, which was restored, records %d:"
                " messages may be processed twice",
                self.place.path,
                published,
                last,
            )
            runs += self._runs_after(names, last, published, runs)
            last = published
        for name in names:
            segment = Segment.of(name)
            if segment is None:
                if name.startswith(".") and f"{SUFFIX}." in name:
                    self.place.delete(name)  # an incomplete file
                continue
            if last is not None and (segment.number > last or segment.run != _run_of(segment.number, runs)):
                self.place.delete(name)
            elif name.endswith(READ_SUFFIX):
                last_read = segment if last_read is None else max(last_read, segment)
            else:
                segments[segment.number] = segment
        with self._changed:
            self._segments = dict(sorted(segments.items()))
            self._read = last_read
            newest = max((*segments, 0 if last_read is None else last_read.number))
            self.last = max(newest, published) if last is None else last
            self._size = sum(segment.size for segment in segments.values())
            self._changed.notify_all()
        if last_read is not None and segments:
            self._forget_read()
        return runs

    def _runs_after(
        self, names: Sequence[str], last: int, published: int, runs: Sequence[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """Return the readers of the segments after `last`, up to `published`, by their files. Raises SpoolDamaged."""
        new_runs: list[tuple[int, str]] = []
        segments = sorted(
            candidate for name in names if (candidate := Segment.of(name)) and last < candidate.number <= published
        )
        for before, segment in itertools.pairwise([None, *segments]):
            assert segment is not None
            if before is not None and before.number == segment.number and before.run != segment.run:
                raise SpoolDamaged(
                    f"spool {self.place.path} has two segments {segment.number}, and the queue manager was restored from a "
                    "backup without their record; hint: delete the one with fewer rows"
                )
            if segment.run != _run_of(segment.number, [*runs, *new_runs]):
                new_runs.append((segment.number, segment.run))
        return new_runs

    def _witnessed(self) -> WitnessPosition:
        """Return the content of the witness. Raises SpoolDamaged."""
        path = Path(self.place.path, WITNESS)
        try:
            position = read_position(path)
        except WitnessDamaged as error:
            raise SpoolDamaged(str(error)) from error
        if position is None:
            raise SpoolDamaged(f"{path} is missing; hint: start with a new spool and checkpoint")
        return position

    def _check_end(self, last: int) -> None:
        """Compare the number of the last segment with the witness. Raises SpoolDamaged."""
        if self._witness is None or last >= (number := self._witnessed().number):
            return
        raise SpoolDamaged(
            f"spool {self.place.path} ends with segment {last}, but segment {number} was published: a file was deleted;"
            " hint: restore the file from a copy, or start with a new spool and checkpoint"
        )

    @property
    def first(self) -> int:
        """The number of the first existing segment, or of the next one."""
        with self._changed:
            return next(iter(self._segments), self.last + 1)

    def state(self) -> bytes | None:
        """Return the state in the metadata of the last segment, or None without segments. Raises SpoolDamaged."""
        if self.last in self._segments:
            name = self._segments[self.last].name
        elif self._read is not None:
            name = _read_name(self._read)
        else:
            return None
        state: bytes | None = (pa.ipc.open_file(content_of(self.place, name)).schema.metadata or {}).get(_STATE)
        return state

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
        if self._witness is not None:
            self._witness.record(segment.number)
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

    def between(self, start: int, end: int, *, complete: bool = True) -> list[Segment]:
        """Return the segments after `start`, up to `end`, except those whose messages were put back.

        Raises DataLoss if one of them is missing. With `complete` False, this is logged instead.
        """
        start = max(start, self.returned)
        with self._changed:
            segments = {number: self._segments.get(number) for number in range(start + 1, end + 1)}
        missing = [number for number, segment in segments.items() if segment is None]
        if missing and complete:
            raise DataLoss(
                f"spool {self.place.path} has {len(segments) - len(missing)} of the segments {start + 1} to {end}, which the"
                f" checkpoint needs, so messages of {self.source} are lost; hint: restore the files of the spool, or set the"
                " option failOnDataLoss to false to continue without them"
            )
        if missing:
            log.error(
                "MQB8006E %d segments of spool %s are missing: their messages of %s are lost",
                len(missing),
                self.place.path,
                self.source,
            )
        return [segment for segment in segments.values() if segment is not None]

    def delete_through(self, number: int, *, keep_state: bool = False) -> None:
        """Delete the segments up to a number. `keep_state`: keep the newest segment for its metadata. Raises OSError."""
        with self._changed:
            segments = [segment for segment in self._segments.values() if segment.number <= number]
            for segment in segments:
                del self._segments[segment.number]
            self._size -= sum(segment.size for segment in segments)
            self._changed.notify_all()
        for segment in segments:
            if keep_state and segment.number == self.last:
                os.rename(f"{self.place.path}/{segment.name}", f"{self.place.path}/{_read_name(segment)}")
                self._read = segment
            else:
                self.place.delete(segment.name)

    def _forget_read(self) -> None:
        if self._read is not None:
            self.place.delete(_read_name(self._read))
            self._read = None

    def close(self) -> None:
        """Allow another process to use the spool."""
        if self._witness is not None:
            self._witness.close()
        if self._lock is not None:
            self._lock.close()


def identity_of(place: SpoolPlace) -> SpoolIdentity:
    """Return the identity of a spool. Raises OSError, SpoolDamaged."""
    return SpoolIdentity.of(place.path, place.read(IDENTITY))


def open_former(below: str, sources: Iterable[str]) -> dict[str, Spool]:
    """Return the spools below a directory or URL except those of `sources`, which are read. `recover` is up to the caller.

    A spool that another process uses is omitted, because that process reads it. Raises OSError, SpoolDamaged.
    """
    former: dict[str, Spool] = {}
    places = [SpoolPlace(f"{below}/{name}") for name in SpoolPlace(below).names() if is_directory_name(name)]
    sources_of_spools = {identity_of(place).source for place in places if IDENTITY in place.names()}
    for source in sources_of_spools.difference(sources):
        with contextlib.suppress(SpoolBusy):
            former[source] = Spool(below, source)
    return former


def check_abandoned(spool: Spool, position: int, options: StreamOptions) -> int:
    """Return the number of messages after segment `position` in a spool whose source is no longer read.

    Raises DataLoss if there are messages, or logs it, as the options specify.
    """
    fails = options.fail_on_data_loss
    rows = sum(segment.rows for segment in spool.between(position, spool.last, complete=fails))
    below = spool.place.path.rpartition("/")[0]
    if rows and fails:
        raise DataLoss(
            f"spool {below} has {rows} messages of {spool.source}, which is no longer read; hint: `mqbridge pipeline spool"
            f" list` lists such messages, and `mqbridge pipeline spool return {spool.source}` puts them back (with --spool"
            f" {below} if no pipeline of the configuration file has this spool). Or read {spool.source} again until all of"
            " its messages are processed. With the option failOnDataLoss set to false they stay in the spool, unread"
        )
    if rows:
        log.warning("MQB8007W spool %s has %d messages of %s, which is no longer read", below, rows, spool.source)
    return rows


def _read_name(segment: Segment) -> str:
    return segment.name.removesuffix(SUFFIX) + READ_SUFFIX


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


def content_of(place: SpoolPlace, name: str) -> Any:
    """Return the content of a segment's file, memory-mapped if possible, as an Arrow buffer. Raises SpoolDamaged."""
    try:
        content = place.read(name)
    except OSError as error:
        raise SpoolDamaged(
            f"segment {place.path}/{name} of the spool cannot be read: {error}; hint: every worker must reach the directory"
            " or URL of the option spool under this name; otherwise set the option embed to true"
        ) from error
    segment = Segment.of(name)
    if segment is None:
        raise SpoolDamaged(f"{place.path}/{name} is not a segment of a spool")
    if zlib.crc32(content) != segment.checksum:
        raise SpoolDamaged(
            f"segment {place.path}/{name} of the spool is damaged: its checksum is wrong. It has"
            f" {segment.messages(_source_of(place))}; hint: they exist nowhere else, so restore the file from a copy."
            " Without one, delete the file, and set the option failOnDataLoss to false to continue without them"
        )
    return content


def columns_in(place: SpoolPlace, name: str) -> Any:
    """Return the Arrow schema of a segment, without metadata. Raises SpoolDamaged."""
    return pa.ipc.open_file(content_of(place, name)).schema.remove_metadata()


def _source_of(place: SpoolPlace) -> str:
    try:
        return identity_of(place).source
    except (OSError, SpoolDamaged):
        return "an unknown source"


def read_segments(path: str, names: Iterable[str], schema: Any) -> Iterator[Any]:
    """Yield the rows of segments as record batches of a schema. Raises SpoolDamaged."""
    place = SpoolPlace(path)
    for name in names:
        yield from read_content(content_of(place, name), schema, name)


def read_content(
    content: Any, schema: Any, name: str = "of the spool", start: int = 0, count: int | None = None
) -> Iterator[Any]:
    """Yield rows of a segment as record batches. `content` is the content of its file. Raises SpoolDamaged.

    Skip the first `start` rows, then yield `count` rows, or all others if `count` is None.
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


def slice_of(place: SpoolPlace, segment: Segment, start: int, count: int) -> bytes:
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
    """A producer of segments on a separate thread: the reader of a queue, or the subscriber of a topic filter."""

    #: number of messages waiting at the source, as far as known
    depth = 0

    def __init__(self, source: str, spool: Spool, options: StreamOptions) -> None:
        """Create a producer. It adds nothing to a spool that contains more data than `options.spool_limit`."""
        self.source = source
        self.spool = spool
        self._limit = options.spool_limit
        self._error: Exception | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"spool-{source}", daemon=True)

    @abstractmethod
    def start(self) -> None:
        """Connect, and start filling the spool."""

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
    "failOnDataLoss",
    "columns",
    "partitions",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
)
#: Maximum number of messages, and bytes of message data, in a micro-batch: large, because each batch has a fixed cost.
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
    #: False: messages that are missing, or of a queue or topic that is no longer read, are logged
    fail_on_data_loss: bool = True
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
        fail_on_data_loss=options.truth("failOnDataLoss", True),
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
