"""The data source `mq`, as Spark knows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.mq.remote import get_many
from bridge.spark.columns import MQ_ARROW_SCHEMA, MQ_COLUMNS, check_part
from bridge.spark.mq.envelope import MqMessage, record_batch
from bridge.spark.mq.queue_reader import (
    GET,
    READ_OPTIONS,
    SourceOptions,
    depth,
    queue_readers,
    source_options_of,
)
from bridge.spark.options import MQ_READS, OptionError, Options
from bridge.spark.schema import arrow_schema, spark_schema, table_options, with_table_options
from bridge.spark.spool import SpoolFiller, require_spool
from bridge.spark.spool_reader import SpoolReader
from bridge.wire import cmqc

SOURCE: Final = "the data source mq"
#: Rows, and bytes of message data, of one record batch at most (one message may be longer).
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 16 * 1024 * 1024

_BROWSE: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING


class MqDataSource(DataSource):
    """Messages of queues and subscriptions as rows, and rows as messages.

    Specify the queue manager with `config`, a configuration file of the bridge. Add `listener` to reach its embedded queue
    manager over TCP. Or use these options:

    ======================================== ==========================================================================
    `dataDirectory` or `listener`            of a bridge's embedded queue manager: its Unix socket, or `host(port)` of its
                                             TCP listener, for executors on other machines, with `user` and `passwordFile`
                                             (on each of them) if it requires a password, and `tls`, `tlsCaFile`,
                                             `tlsCertificateFile`, `tlsKeyFile`, `tlsKeyPasswordVariable`,
                                             `tlsCheckHostName` if it uses TLS; `queueManager`: its name
    `queueManager`, `channel`, `connections` of IBM MQ; also `mode`, `ccdtUrl`, `library`, `user`, `passwordFile` or
                                             `passwordVariable` (never the password itself), `keyRepository`,
                                             `cipherSpec`, `certificateLabel`, `peerName`, `applicationName`
    ======================================== ==========================================================================

    Reads: `queue` (one, or several with commas), or `subscription` (a durable one; it is created if it does not exist and
    `topic` is given); `selector` (SQL92, as for MQOPEN: message properties by their names, `site = 'north' AND temp > 20`,
    and fields, `Root.MQMD.CorrelId = "0x…"`); `columns` (`put_time,text,md.MsgId`: only these columns are computed; default:
    all). The column `rfh2` has message properties by folder: `rfh2.usr.site`.

    A batch read browses the messages and does not remove them. Each queue is one partition.

    A streaming read moves messages from the queue to the directory (or URL) `spool`. Protect it like the checkpoint. All
    workers must reach it, unless `embed` is true. Messages are deleted from the spool after their batch is committed.
    `spoolLimit` (1 GiB): if the spool has more, messages wait on the queue. `maxMessagesPerTrigger`, `maxBytesPerTrigger`,
    `partitions` (of each queue). With the trigger `availableNow` the query ends when the queue is empty.

    The queue is open for exclusive input: a second reader is rejected with the name of the first. A small message per spool
    stays on SYSTEM.MQTT.MAPPING.STATE (CorrelId `SPKQ…`). It contains the position of the reader.

    Writes: `queue` or `topic` is the destination. Without these options, each row names its destination in the column `queue`
    (optionally with `queue_manager`) or `topic`. Defaults for rows without a value: `retain` (false) and `persistence`
    (`persistent`, `not-persistent` or `as-queue`). With `context` (`identity` or `all`), puts set these context fields from
    `md`, which requires the authority SETID or SETALL. A batch write with the same `writeId` within 30 days puts no row
    twice. In `foreachBatch`, `writeId` (a name of the query, such as its identifier) and `epoch` (the number of the batch)
    make the write exactly once. Rows from `to_messages` are put as the service puts them. Rows that it rejects go to the
    queue `refused`, after an MQDLH. Without `refused`, the write fails.

    Two small messages for each partition of a streaming query stay on SYSTEM.MQTT.MAPPING.STATE, so that a repeated batch is
    recognized. Those of a batch write with a `writeId` expire after 30 days. After you delete a checkpoint, you can remove
    the messages that contain its query identifier.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return `mq`, for `format`."""
        return "mq"

    def schema(self) -> StructType:
        """Return the envelope of an MQ message. Raises OptionError. `load` calls this for reads only."""
        return with_table_options(spark_schema(self._read_options().schema, MQ_COLUMNS), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read. Raises OptionError."""
        return MqReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        return MqStreamReader(self._read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write: messages are added, whatever the mode. Raises OptionError."""
        # Imported here, because a streaming read starts a process that does not need it.
        from bridge.spark.mq.writer import WRITE_OPTIONS, MqWriter, sink_options_of

        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if overwrite:
            raise OptionError(f"{SOURCE} adds messages, and overwrites none: write with mode append")
        write_id = options.text("writeId")
        if write_id is None and "epoch" in options:
            raise options.wrong("epoch", "no value without writeId, whose batches it numbers")
        epoch = options.number("epoch", 0, 0, 2**31 - 1) if "epoch" in options else None
        return MqWriter(sink_options_of(options, schema), write_id, epoch)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write. Raises OptionError."""
        from bridge.spark.mq.writer import WRITE_OPTIONS, MqStreamWriter, sink_options_of

        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if "writeId" in options:
            raise options.wrong("writeId", "no value, because a streaming query has an identity of its own")
        return MqStreamWriter(sink_options_of(options, schema))

    def _read_options(self, schema: StructType | None = None) -> SourceOptions:
        given = {**table_options(schema), **self.options}
        part = None if schema is None else check_part(SOURCE, arrow_schema(schema), MQ_ARROW_SCHEMA)
        return source_options_of(Options(SOURCE, given, READ_OPTIONS, MQ_READS), part)


# Streaming reads -----------------------------------------------------------------------------------------------------


class MqStreamReader(SpoolReader):
    """Reads queues batch by batch."""

    def __init__(self, options: SourceOptions, on_behalf: str = "") -> None:
        """Make a reader. `on_behalf` tells people for whom the process, which Spark has started, reads the queues."""
        require_spool("the data source mq", options.stream)
        super().__init__(options.stream, options.schema)
        self._options = options
        self._on_behalf = on_behalf

    def _new_fillers(self) -> Mapping[str, SpoolFiller]:
        return queue_readers(self._options, self._on_behalf)


# Batch reads: a browse, which takes nothing away -----------------------------------------------------------------------


class QueueFront(InputPartition):
    """The first `count` messages of a queue."""

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.count = count


class MqReader(DataSourceReader):
    """Reads queues as they are."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each queue."""
        options = self._options
        with options.queue_manager.connected() as connection:
            queues = options.queue_names(connection)
            return [QueueFront(queue, depth(connection, open_for_browse(connection, queue))) for queue in queues]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the envelopes of a partition, as record batches."""
        assert isinstance(partition, QueueFront)
        options = self._options
        with options.queue_manager.connected() as connection:
            handle = open_for_browse(connection, partition.queue, options.selector)
            messages = islice(browse_all(connection, handle), partition.count)
            yield from record_batches(partition.queue, messages, options.schema)


def open_for_browse(connection: Connection, queue: str, selector: str = "") -> int:
    """Return a handle to browse and inquire a queue; with a selector, those of its messages that it selects."""
    return connection.open(MQOD(ObjectName=queue, SelectionString=selector), _BROWSE)


def browse_all(connection: Connection, handle: int) -> Iterator[MqMessage]:
    """Yield all messages of a queue. It does not end while applications keep putting messages."""
    options = GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | GET)
    while True:
        try:
            for got in get_many(connection, handle, options):
                yield got.md, got.data
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return
            raise
        options = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT | GET)


def record_batches(queue: str, messages: Iterable[MqMessage], schema: Any) -> Iterator[Any]:
    """Yield envelopes of messages of one queue, in record batches of a bounded size."""
    part: list[MqMessage] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message[1])
        if len(part) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield record_batch(queue, part, schema)
            part, size = [], 0
    if part:
        yield record_batch(queue, part, schema)
