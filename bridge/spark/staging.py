"""Staging: the rows of a batch are stored until the driver writes all of them.

Spark may repeat tasks, and may repeat a failed batch with other partitions, in another order, or with other values. Only the
driver knows that all tasks of a batch have succeeded. So a task stages its rows, and only the driver writes them:

    STAGE/QUERY/BATCH/ATTEMPT/PARTITION-TASK.arrow   the rows of a task, synced
    STAGE/QUERY/BATCH/manifest                       the files that the driver has begun to write

A few rows travel in the commit message of the task instead. Once a manifest exists, it determines the content of the batch.
The tasks of a repeated batch then stage nothing.

`BatchFiles` does the same for the formats of Spark that write files.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import hashlib
import shutil
import socket
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bridge.files import durable_file, sync
from bridge.spark import task
from bridge.spark.options import Options
from bridge.spark.spool import SpoolPlace
from bridge.spark.task import BatchIdentity

#: Maximum bytes of rows of a task that are sent in its commit message instead of a file.
MESSAGE_BYTES: Final = 1024 * 1024
#: The same without a staging directory.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
#: The staging directory in the checkpoint of a query without the option `stage`.
_IN_CHECKPOINT: Final = "stage"
_MANIFEST: Final = "manifest"
#: Prefix of the name of a directory for one write.
_TEMPORARY: Final = "mqbridge-stage-"
#: Prefix of the names of writes that cannot be repeated.
_UNNAMED: Final = "unnamed-"
#: Seconds after which staged files of such a write are deleted.
_ABANDONED: Final = 30 * 24 * 3600
#: Maximum bytes of a file name. Longer names of queries are replaced by their digests.
_NAME_LENGTH: Final = 200
_HINT: Final = (
    "set the option stage to a directory (or URL) that the driver and all workers reach, or lower maxRowsPerTrigger"
    " (maxMessagesPerTrigger, or batch of a pipeline)"
)


class StageMissing(Exception):
    """A batch needs a staging directory that the driver and the worker reach, but there is none."""


class StageUnusable(OSError):
    """A staging directory cannot be written: its disk is full, or it cannot be reached at present."""


class StageDamaged(Exception):
    """A staged file is missing or damaged."""


class StagedFile(msgspec.Struct, array_like=True, frozen=True):
    """The rows of a task in a file, or in its commit message."""

    partition: int
    #: directory or URL, and name in it. "": the rows are in the commit message
    place: str
    name: str
    rows: int
    #: bytes of the rows
    size: int
    #: CRC-32 of the file
    checksum: int

    @property
    def path(self) -> str:
        """The complete path of the file."""
        return f"{self.place}/{self.name}"


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """The files of a batch, in the order in which they are written."""

    identity: BatchIdentity
    #: the directory of the batch
    place: str
    files: list[StagedFile]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)


class Staged(WriterCommitMessage):
    """The rows that a task has staged, as its commit message."""

    def __init__(self, identity: BatchIdentity, file: StagedFile, content: bytes = b"") -> None:
        self.identity = identity
        self.file = file
        #: the rows as an Arrow stream, if they are in no file
        self.content = content


def stage_of(options: Options) -> str:
    """Return the staging directory that options specify, or "". Raises OptionError.

    Without the option `stage`, a streaming query uses a directory in its checkpoint, if the checkpoint is a path.
    """
    if (stage := options.place("stage")) is not None:
        return stage
    checkpoint = options.place("checkpointLocation")
    return f"{checkpoint}/{_IN_CHECKPOINT}" if checkpoint is not None and checkpoint.startswith("/") else ""


def temporary_stage() -> str:
    """Return the name of a new directory, for a write that cannot be repeated."""
    delete_abandoned(Path(tempfile.gettempdir()), _TEMPORARY)
    return f"{tempfile.gettempdir()}/{_TEMPORARY}{uuid.uuid4().hex}"


def make_stage(stage: str) -> str:
    """Create a staging directory on the driver and return it. A task that does not find it runs elsewhere. Raises OSError."""
    if stage and "://" not in stage:
        with _disk(stage):
            make_directory(Path(stage))
        delete_abandoned(Path(stage), quote(_UNNAMED))
    return stage


def delete_abandoned(parent: Path, prefix: str) -> None:
    """Delete the directories of killed writes that cannot be repeated: those with a prefix, unchanged for 30 days."""
    for directory in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another write is deleting it, or it belongs to another user
            latest = max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
            if latest < time.time() - _ABANDONED:
                shutil.rmtree(directory)


# Tasks ---------------------------------------------------------------------------------------------------------------


def stage_rows(stage: str, identity: BatchIdentity, attempt: str, batches: Iterable[Any]) -> Staged:
    """Stage the rows of this task, unless the driver has begun to write the batch. Raises StageMissing, OSError."""
    partition = task.partition()
    batches_read: list[Any] = []
    size = 0
    if not stage or not is_recorded(stage, identity):
        limit = MESSAGE_BYTES if stage else MAX_MESSAGE_BYTES
        batches = iter(batches)
        for batch in batches:
            batches_read.append(batch)
            size += batch.nbytes
            if size > limit:
                if not stage:
                    raise StageMissing(
                        f"partition {partition} of {identity} has more than {limit >> 20} MiB of rows, and there is no"
                        f" staging directory for them; hint: {_HINT}"
                    )
                return _staged_file(stage, identity, attempt, partition, chain(batches_read, batches))
    rows = sum(batch.num_rows for batch in batches_read)
    content = _stream_of(batches_read) if rows else b""
    return Staged(identity, StagedFile(partition, "", "", rows, size, zlib.crc32(content)), content)


class StagedStreamWriter(DataSourceStreamArrowWriter, abc.ABC):
    """A writer of a streaming query, whose tasks stage their rows. `put` writes a batch."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._attempt = uuid.uuid4().hex

    @abc.abstractmethod
    def put(self, batch: StagedBatch) -> None:
        """Write the rows of a batch, on the driver."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage a partition of a batch."""
        return stage_rows(self._stage, task.streaming_batch(), self._attempt, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Write a batch. Spark calls this on the driver, after all tasks have succeeded."""
        self.put(StagedBatch(self._stage, messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged rows of a failed batch."""
        discard(self._stage, messages)


class StagedWriter(DataSourceArrowWriter, abc.ABC):
    """A writer of a batch write, whose tasks stage their rows. `put` writes them."""

    def __init__(self, stage: str, name: str | None, batch: int = 0) -> None:
        """Create a writer. `name`: the write may be repeated under this name."""
        self._stage = stage
        self._attempt = uuid.uuid4().hex
        self._identity = BatchIdentity(f"{_UNNAMED}{self._attempt}" if name is None else name, batch)

    @abc.abstractmethod
    def put(self, batch: StagedBatch) -> None:
        """Write the rows, on the driver."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage a partition."""
        return stage_rows(self._stage, self._identity, self._attempt, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write the rows. Spark calls this on the driver, after all tasks have succeeded."""
        self.put(StagedBatch(self._stage, messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged rows of a failed write."""
        discard(self._stage, messages)


def _staged_file(stage: str, identity: BatchIdentity, attempt: str, partition: int, batches: Iterator[Any]) -> Staged:
    directory = f"{batch_directory(stage, identity)}/{attempt}"
    place, name = SpoolPlace(directory), f"{partition:05d}-{task.attempt()}.arrow"
    if place.remote is None:
        if not Path(stage).is_dir() and not is_temporary(stage):
            raise StageMissing(f"staging directory {stage} does not exist on {socket.gethostname()}; hint: {_HINT}")
        with _disk(stage):
            make_directory(Path(directory))
    rows = size = 0
    with _disk(stage), place.creating(name) as file:
        summed = _Summed(file)
        first = next(batches)
        with pa.ipc.new_stream(pa.PythonFile(summed, mode="w"), first.schema) as writer:
            for batch in chain((first,), batches):
                writer.write_batch(batch)
                rows += batch.num_rows
                size += batch.nbytes
    return Staged(identity, StagedFile(partition, directory, name, rows, size, summed.checksum))


def _stream_of(batches: Sequence[Any]) -> bytes:
    """Return record batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


class _Summed:
    """A file to write to, with the CRC-32 of its content."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.checksum = 0

    def write(self, content: Any) -> int:
        """Write bytes."""
        self.checksum = zlib.crc32(content, self.checksum)
        self._file.write(content)
        return len(content)

    def flush(self) -> None:
        """Do nothing: the file is synced when it is complete."""

    def close(self) -> None:
        """Do nothing: the file is closed elsewhere."""


@contextlib.contextmanager
def _disk(stage: str) -> Iterator[None]:
    """Raise an OSError of the block as StageUnusable, which names the staging directory."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; hint: free disk space, or lower maxRowsPerTrigger" if full else error.strerror or error
        raise StageUnusable(f"staging directory {stage} on {socket.gethostname()} cannot be written: {why}") from error


def make_directory(directory: Path) -> None:
    """Create a directory and its parents durably. Other users cannot read it: payloads are confidential. Raises OSError."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(mode=0o750, exist_ok=True)
        sync(directory.parent)


# The driver ----------------------------------------------------------------------------------------------------------


def query_directory(stage: str, query: str) -> str:
    """Return the directory of a query."""
    name = quote(query, safe="")
    return f"{stage}/{name if len(name) <= _NAME_LENGTH else hashlib.sha256(query.encode()).hexdigest()}"


def batch_directory(stage: str, identity: BatchIdentity) -> str:
    """Return the directory of a batch."""
    return f"{query_directory(stage, identity.query)}/{identity.batch}"


class StagedBatch:
    """The rows of a batch that all of its tasks have staged."""

    def __init__(self, stage: str, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Take the commit messages of all tasks."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            raise RuntimeError("Spark reports a batch without tasks")
        staged.sort(key=lambda staged_file: staged_file.file.partition)
        self._stage = stage
        self.identity = staged[0].identity
        self._staged = [staged_file for staged_file in staged if staged_file.file.rows]
        self.rows = sum(staged_file.file.rows for staged_file in self._staged)
        #: bytes of the rows
        self.size = sum(staged_file.file.size for staged_file in self._staged)

    @property
    def partitions(self) -> set[int]:
        """The numbers of the partitions that have rows."""
        return {staged_file.file.partition for staged_file in self._staged}

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Yield the rows as record batches, each with the number of its partition. Raises StageDamaged."""
        for staged_file in self._staged:
            if staged_file.file.name:
                check_file(self.identity, staged_file.file)
            for batch in pa.ipc.open_stream(
                read_file(self.identity, staged_file.file) if staged_file.file.name else staged_file.content
            ):
                yield staged_file.file.partition, batch

    def recorded(self) -> Manifest | None:
        """Return the manifest that an attempt has written, if any. Raises StageDamaged."""
        if not self._stage or not is_recorded(self._stage, self.identity):
            return None
        place = SpoolPlace(batch_directory(self._stage, self.identity))
        return msgspec.msgpack.decode(place.read(_MANIFEST), type=Manifest)

    def record(self) -> Manifest:
        """Write the rows that are not in a file, and then the manifest. Raises StageMissing, OSError."""
        if not self._stage:
            raise StageMissing(
                f"{self.identity} has {self.rows} rows ({self.size} bytes), which is more than one unit of work, and there"
                f" is no staging directory for them; hint: {_HINT}"
            )
        directory = batch_directory(self._stage, self.identity)
        place = SpoolPlace(directory)
        with _disk(self._stage):
            if place.remote is None:
                make_directory(Path(directory))
            files = []
            for staged_file in self._staged:
                file = staged_file.file
                if not file.name:
                    file = msgspec.structs.replace(file, place=directory, name=f"{file.partition:05d}.arrow")
                    place.write(file.name, staged_file.content)
                files.append(file)
            manifest = Manifest(self.identity, directory, files)
            place.write(_MANIFEST, msgspec.msgpack.encode(manifest))
        return manifest

    def delete(self) -> None:
        """Delete all staged files of the query after its batch was written. Raises OSError."""
        if self._stage:
            temporary = is_temporary(self._stage)
            SpoolPlace(self._stage if temporary else query_directory(self._stage, self.identity.query)).delete_all()


def is_recorded(stage: str, identity: BatchIdentity) -> bool:
    """Return whether a batch has a manifest. Raises OSError."""
    return SpoolPlace(batch_directory(stage, identity)).exists(_MANIFEST)


def is_temporary(stage: str) -> bool:
    """Return whether a staging directory is that of one write."""
    return Path(stage).name.startswith(_TEMPORARY)


def discard(stage: str, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Delete the staged files of a failed attempt, unless a manifest lists them. Raises OSError."""
    if is_temporary(stage):
        SpoolPlace(stage).delete_all()
        return
    files = [
        (staged_message.identity, staged_message.file)
        for staged_message in messages
        if isinstance(staged_message, Staged) and staged_message.file.name
    ]
    if files and not is_recorded(stage, files[0][0]):
        for _, file in files:
            SpoolPlace(file.place).delete(file.name)


def read_file(identity: BatchIdentity, file: StagedFile) -> Any:
    """Return the content of a staged file, as an Arrow buffer. Raises StageDamaged."""
    try:
        return SpoolPlace(file.place).read(file.name)
    except OSError as error:
        raise StageDamaged(
            f"staged file {file.path} of {identity} cannot be read on {socket.gethostname()}: {error.strerror or error};"
            f" hint: the driver and all workers must reach the staging directory under this name; otherwise {_HINT}"
        ) from error


def check_file(identity: BatchIdentity, file: StagedFile) -> None:
    """Check that a staged file is complete. Raises StageDamaged."""
    if zlib.crc32(read_file(identity, file)) != file.checksum:
        raise StageDamaged(f"staged file {file.path} of {identity} is damaged: its checksum is wrong")


def check_manifest(manifest: Manifest, start: int) -> None:
    """Check the files of a manifest. `start` rows have already been written. Raises StageDamaged."""
    for file, _ in _after(manifest, start):
        try:
            check_file(manifest.identity, file)
        except StageDamaged as error:
            raise StageDamaged(
                f"{error}. Of the {manifest.rows} rows of the batch, {start} were written before. Restore the file, or start"
                " with a new checkpoint, which writes the rows of the batch again"
            ) from error


def manifest_batches(manifest: Manifest, start: int) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a manifest after the first `start`, as record batches with their partitions. Raises StageDamaged."""
    for file, skip in _after(manifest, start):
        for batch in pa.ipc.open_stream(read_file(manifest.identity, file)):
            if skip < batch.num_rows:
                yield file.partition, batch.slice(skip)
            skip = max(skip - batch.num_rows, 0)


def _after(manifest: Manifest, start: int) -> Iterator[tuple[StagedFile, int]]:
    """Yield the files with rows after the first `start` of a manifest, and the number of rows of each that precede them."""
    for file in manifest.files:
        if start < file.rows:
            yield file, start
        start = max(start - file.rows, 0)


# Files ----------------------------------------------------------------------------------------------------------------

#: Spark creates this file when all files of a write are complete.
_SUCCESS: Final = "_SUCCESS"
#: This file contains the number of the last batch whose files are all in place.
_LAST: Final = "last"


class BatchFiles:
    """Files that a query writes exactly once: each batch is moved into place when it is complete.

        DIRECTORY/.mqbridge/WRITER/staging   the batch that is being written
        DIRECTORY/.mqbridge/WRITER/last      number of the last batch whose files are all in place

    Spark writes a batch to the staging directory. The driver then syncs each file and renames it to its place in DIRECTORY.
    A batch that runs again continues the renames if staging is complete, and starts again if not. A batch up to `last` is
    skipped. Names that begin with a dot are invisible to readers, so a reader never sees part of a file, nor a row twice.
    """

    def __init__(self, directory: Path, writer: str) -> None:
        """Create the files of a writer: a query and a role. The role is a number if a pipeline has several destinations."""
        self._directory = directory
        self._own = directory / ".mqbridge" / writer
        query, _, role = writer.rpartition("-")
        if role.isdecimal() and not self._own.exists():
            # The number changes if another destination was added or removed.
            self._own = next((directory / ".mqbridge").glob(f"{query}-[0-9]"), self._own)
        self._staging = self._own / "staging"

    def write(self, batch: int, write: Callable[[str], None]) -> None:
        """Write a batch: `write` writes files below a directory, and `_SUCCESS` when they are complete. Raises OSError."""
        if not self.has_begun(batch):
            self.stage(batch, write)
        self.publish(batch)

    def has_begun(self, batch: int) -> bool:
        """Return whether the files of a batch are complete, in place or in staging."""
        return self._is_published(batch) or self._is_staged(batch)

    def stage(self, batch: int, write: Callable[[str], None]) -> None:
        """Write the files of a batch to staging, replacing those of an earlier attempt. Raises OSError."""
        self.discard()
        self._staging.mkdir(parents=True)
        staged = self._staging / str(batch)
        write(str(staged))
        if not self._is_staged(batch):
            raise OSError(f"{staged} has no {_SUCCESS}: expected mapreduce.fileoutputcommitter.marksuccessfuljobs=true")

    def publish(self, batch: int) -> None:
        """Move the files of a batch in staging to their places. Raises OSError."""
        if self._is_staged(batch) and not self._is_published(batch):
            self._move(self._staging / str(batch), batch)
            with durable_file(self._own / _LAST) as file:
                file.write(str(batch).encode())
            self.discard()

    def discard(self) -> None:
        """Delete the files in staging."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def _is_published(self, batch: int) -> bool:
        last = self._own / _LAST
        return last.exists() and batch <= int(last.read_text(encoding="ascii"))

    def _is_staged(self, batch: int) -> bool:
        return (self._staging / str(batch) / _SUCCESS).exists()

    def _move(self, staged: Path, batch: int) -> None:
        """Move those files of a complete batch to their places that are still in staging."""
        changed: set[Path] = set()
        for source in sorted(staged.rglob("*")):
            if source.is_dir() or source.name.startswith(("_", ".")):
                continue
            place = self._directory / source.relative_to(staged).parent / f"{batch:08d}-{source.name}"
            sync(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            changed |= {place.parent, place.parent.parent}
        for directory in changed:
            sync(directory)
