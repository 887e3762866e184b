"""The data source `mqtt`, as Spark knows it."""

from __future__ import annotations

from functools import partial

import msgspec
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from bridge.spark.columns import MQTT_COLUMNS
from bridge.spark.mqtt.subscriber import READ_OPTIONS, MqttSourceOptions, former_spools, source_options_of, subscribers
from bridge.spark.mqtt.writer import WRITE_OPTIONS, MqttStreamWriter, MqttWriter, sink_options_of
from bridge.spark.options import MQTT_FOREIGN, OptionError
from bridge.spark.spool_reader import MessageSource, SpoolReader
from bridge.spark.staging import make_stage, temporary_stage


class MqttDataSource(MessageSource):
    """Publications of topic filters as rows, and rows as publications.

    Specify the broker with `config` (a configuration file of the bridge) and `link` (the name of a link, or `local` for the
    bridge itself). Or use these options, which have the same meaning as those of a link: `host`, `port`, `version`, `user`,
    `passwordFile`, `passwordVariable`, `keepAlive`, `inFlight`, `tls`, `tlsCaFile`, `tlsCertificateFile`, `tlsKeyFile`,
    `tlsKeyPasswordVariable`, `tlsCheckHostName`. Both forms accept `clientId`, in which `{mapping}` is replaced by a name for
    each session, and for reads `session`.

    Reads have these options:

    - `topic`: one topic filter, or several that do not overlap, separated by commas. Each has its own session.
    - `qos` (default 2, which keeps the QoS of the publication).
    - `columns` (default: all).
    - `spool`: a directory on the driver. Protect it like the checkpoint. All workers must reach it, unless `embed` is true.
    - `spoolLimit` (default 1 GiB): if the spool is larger, messages wait at the broker.
    - `maxMessagesPerTrigger`, `maxBytesPerTrigger`: the maximum size of a batch. Sizes are written as `64m` or `64 MiB`.
    - `partitions`: the number of parts, with an equal number of rows, of each batch (default: one for each filter).
    - `quietPeriod` (default 1 s): an availableNow run ends when no message arrives for this time, or after a minute.

    As long as the broker keeps the session, no publication with QoS 1 or 2 is lost. A QoS 2 publication is exactly one row. A
    QoS 1 publication may be several rows, if the connection was lost before the broker received the acknowledgement.

    `failOnDataLoss` (default true): the stream fails if files of the spool are missing, or if the spool has publications of a
    filter that it no longer reads. `mqbridge pipeline spool return FILTER --to QUEUE --spool DIR --checkpoint DIR` puts them
    on a queue. With false, this is logged.

    `inFlight` (20,000 for reads) is the number of publications that the broker may send before it receives acknowledgements,
    and therefore the number per write to disk. mosquitto's default limit, `max_inflight_messages 20`, makes a stream slow.

    The broker distributes the messages of a shared subscription (`topic` is `$share/NAME/filter`) among the queries that use
    it. Each query has its own spool and checkpoint. Messages that the broker has assigned to a stopped query wait for that
    query. Retained messages are not sent.

    Writes: `topic` (a template of columns, such as `line/{name}`), `qos` (default 1) and `retain` (default false) apply to
    rows in which the column is null or missing. `identity` (default true) adds user properties that identify the row.
    `deadLetter` is a directory (on the driver) of Parquet files for rejected rows. Without it, a rejected row ends the query.
    `writeId` names a batch write. The driver publishes the rows of a batch after all tasks have succeeded. Until then, more
    than 1 MiB of rows of a task is in the directory (or URL) `stage`, which all workers must reach. Default: `stage` in the
    checkpoint.
    """

    NAME = "mqtt"
    READS = READ_OPTIONS
    FOREIGN = MQTT_FOREIGN
    CHECKED = staticmethod(source_options_of)
    COLUMNS = MQTT_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise OptionError, because only streaming reads are supported."""
        raise OptionError(
            f"{self.source()} is read in streams: use spark.readStream, with trigger(availableNow=True) to end when all is"
            " read"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        return stream_reader(self.read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write, which publishes rows whatever the mode. Raises OptionError."""
        options = self.write_options(WRITE_OPTIONS, overwrite=overwrite)
        sink = sink_options_of(options, schema)
        sink = msgspec.structs.replace(sink, stage=make_stage(sink.stage) or temporary_stage())
        return MqttWriter(sink, options.text("writeId"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write. Raises OptionError."""
        sink = sink_options_of(self.write_options(WRITE_OPTIONS, stream=True), schema)
        make_stage(sink.stage)
        return MqttStreamWriter(sink)


def stream_reader(options: MqttSourceOptions) -> SpoolReader:
    """Return a streaming reader."""
    return SpoolReader(
        options.stream, options.schema, partial(subscribers, options), partial(former_spools, options), keeps_state=True
    )
