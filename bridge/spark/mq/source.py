"""The data source `mq`, as Spark knows it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from bridge.config import values
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.mq.remote import get_many
from bridge.spark.columns import MQ_COLUMNS
from bridge.spark.mq.envelope import MqMessage, record_batch
from bridge.spark.mq.queue_reader import (
    GET,
    READ_OPTIONS,
    MqSourceOptions,
    depth,
    former_spools,
    queue_readers,
    source_options_of,
)
from bridge.spark.options import MQ_FOREIGN
from bridge.spark.spool import require_spool
from bridge.spark.spool_reader import MessageSource, SpoolReader
from bridge.wire import cmqc

_BROWSE: Final = cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING


class MqDataSource(MessageSource):
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

    Reads have these options:

    - `queue`: one queue, or several with commas.
    - `subscription`, instead of `queue`: a durable subscription. It is created if it does not exist and `topic` is given.
    - `selector`: SQL92, as for MQOPEN. It compares message properties by their names (`site = 'north' AND temp > 20`) and
      fields of the MQMD (`Root.MQMD.CorrelId = "0x…"`).
    - `columns`: the columns to compute, such as `put_time,text,md.MsgId` (default: all). The column `rfh2` contains message
      properties by folder: `rfh2.usr.site`.

    A batch read browses the messages and does not remove them. Each queue is one partition.

    A streaming read moves messages from the queue to the directory (or URL) `spool`. Protect it like the checkpoint. All
    workers must reach it, unless `embed` is true. Messages are deleted from the spool after their batch is committed.
    `spoolLimit` (1 GiB): if the spool is larger, messages wait on the queue. `maxMessagesPerTrigger`, `maxBytesPerTrigger`
    (sizes such as `64m` or `64 MiB`). `partitions`: the number of parts, with an equal number of rows, of each batch
    (default: one for each queue). With the trigger `availableNow` the query ends when the queue is empty.

    `failOnDataLoss` (default true): the stream fails if files of the spool are missing, or if the spool has messages of a
    queue that it no longer reads. `mqbridge pipeline spool list --spool DIR` lists them, and `mqbridge pipeline spool return
    QUEUE --spool DIR --checkpoint DIR` puts them back. With false, this is logged.

    The queue is open for exclusive input: a second reader is rejected with the name of the first. A small message per spool
    stays on SYSTEM.MQTT.MAPPING.STATE (CorrelId `SPKQ…`). It contains the position of the reader.

    Writes: `queue` or `topic` is the destination. Without these options, each row names its destination in the column `queue`
    (optionally with `queue_manager`) or `topic`. Defaults for rows without a value: `retain` (false) and `persistence`
    (`persistent`, `not-persistent` or `as-queue`). With `context` (`identity` or `all`), puts set these context fields from
    `md`, which requires the authority SETID or SETALL. A batch write with the same `writeId` within 30 days puts no row
    twice. In `foreachBatch`, `writeId` (a name of the query, such as its identifier) and `epoch` (the number of the batch)
    make the write exactly once. Rows from `to_messages` are put as the service puts them. Rows that it rejects go to the
    queue `refused`, after an MQDLH. Without `refused`, the write fails.

    The driver puts the rows of a batch after all tasks have succeeded. Until then, more than 1 MiB of rows of a task is in
    the directory (or URL) `stage`, which all workers must reach. A batch of more than 5,000 rows or 64 MiB stays there until
    all of it is put. Default: `stage` in the checkpoint, or a temporary directory for a batch write without `writeId`.

    Two small messages for each streaming query stay on SYSTEM.MQTT.MAPPING.STATE, so that a repeated batch is recognized.
    Those of a batch write with a `writeId` expire after 30 days. After you delete a checkpoint, you can remove the messages
    that contain its query identifier.
    """

    NAME = "mq"
    READS = READ_OPTIONS
    FOREIGN = MQ_FOREIGN
    CHECKED = staticmethod(source_options_of)
    COLUMNS = MQ_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read. Raises OptionError."""
        return MqReader(self.read_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        return stream_reader(self.read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write, which adds messages whatever the mode. Raises OptionError."""
        # Imported here, because a streaming read starts a process that does not need it.
        from bridge.spark.mq.writer import WRITE_OPTIONS, MqWriter, sink_options_of
        from bridge.spark.staging import make_stage, temporary_stage

        options = self.write_options(WRITE_OPTIONS, overwrite=overwrite)
        write_id = options.text("writeId")
        if write_id is None:
            options.allow((), ("epoch",), "without writeId, whose batches it numbers")
        epoch = options.value("epoch", values.integer(0, 2**31 - 1), None)
        sink = sink_options_of(options, schema)
        stage = make_stage(sink.stage) or ("" if write_id is not None else temporary_stage())
        return MqWriter(msgspec.structs.replace(sink, stage=stage), write_id, epoch)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write. Raises OptionError."""
        from bridge.spark.mq.writer import WRITE_OPTIONS, MqStreamWriter, sink_options_of
        from bridge.spark.staging import make_stage

        sink = sink_options_of(self.write_options(WRITE_OPTIONS, stream=True), schema)
        make_stage(sink.stage)
        return MqStreamWriter(sink)


def stream_reader(options: MqSourceOptions) -> SpoolReader:
    """Return a streaming reader. Raises OptionError without a spool."""
    require_spool(MqDataSource.source(), options.stream)
    return SpoolReader(options.stream, options.schema, partial(queue_readers, options), partial(former_spools, options))


# Batch reads: a browse, which removes nothing --------------------------------------------------------------------------


class QueueFront(InputPartition):
    """The first `count` messages of a queue."""

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.count = count


class MqReader(DataSourceReader):
    """Reads queues as they are."""

    def __init__(self, options: MqSourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each queue."""
        options = self._options
        with options.queue_manager.connected() as connection:
            queues = options.queue_names(connection)
            return [QueueFront(queue, depth(connection, open_for_browse(connection, queue))) for queue in queues]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the envelopes of a partition, as record batches."""
        assert isinstance(partition, QueueFront)
        options = self._options
        with options.queue_manager.connected() as connection:
            handle = open_for_browse(connection, partition.queue, options.selector)
            remaining = partition.count
            for messages in browse_all(connection, handle):
                yield record_batch(partition.queue, messages[:remaining], options.schema)
                remaining -= len(messages)
                if remaining <= 0:
                    return


def open_for_browse(connection: Connection, queue: str, selector: str = "") -> int:
    """Return a handle to inquire a queue and browse its messages, or those that match a selector."""
    return connection.open(MQOD(ObjectName=queue, SelectionString=selector), _BROWSE)


def browse_all(connection: Connection, handle: int) -> Iterator[list[MqMessage]]:
    """Yield all messages of a queue in parts. It does not end while applications keep putting messages."""
    options = GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST | GET)
    while True:
        try:
            yield [(message.md, message.data) for message in get_many(connection, handle, options)]
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                return
            raise
        options = GetOptions(Options=cmqc.MQGMO_BROWSE_NEXT | GET)
