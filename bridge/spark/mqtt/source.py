"""The data source `mqtt`, as Spark knows it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from bridge.spark.columns import MQTT_ARROW_SCHEMA, MQTT_COLUMNS, check_part
from bridge.spark.mqtt.subscriber import READ_OPTIONS, SourceOptions, source_options_of, subscribers
from bridge.spark.mqtt.writer import WRITE_OPTIONS, MqttStreamWriter, MqttWriter, sink_options_of
from bridge.spark.options import MQTT_READS, OptionError, Options
from bridge.spark.schema import arrow_schema, spark_schema, table_options, with_table_options
from bridge.spark.spool import SpoolFiller
from bridge.spark.spool_reader import SpoolReader

SOURCE: Final = "the data source mqtt"


class MqttDataSource(DataSource):
    """Publications of topic filters as rows, and rows as publications.

    Specify the broker with `config` (a configuration file of the bridge) and `link` (the name of a link, or `local` for the
    bridge itself). Or use these options, which have the same meaning as those of a link: `host`, `port`, `version`, `user`,
    `passwordFile`, `passwordVariable`, `keepAlive`, `inFlight`, `tls`, `tlsCaFile`, `tlsCertificateFile`, `tlsKeyFile`,
    `tlsKeyPasswordVariable`, `tlsCheckHostName`. Both forms accept `clientId`, in which `{mapping}` is replaced by a name for
    each session, and for reads `session`.

    Reads: `topic` (one topic filter, or several that do not overlap, separated by commas; each has its own session), `qos`
    (default 2, which keeps the QoS of the publication), `columns` (default: all), `spool` (a directory on the driver; protect
    it like the checkpoint; all workers must reach it, unless `embed` is true), `spoolLimit` (default 1 GiB; beyond it,
    messages wait at the broker), `maxMessagesPerTrigger`, `maxBytesPerTrigger`, `partitions` (per filter), and `quietPeriod`
    (default 1 s; an availableNow run ends when no message arrives for this time, or after a minute). As long as the broker
    keeps the session, no publication with QoS 1 or 2 is lost. A QoS 2 publication is exactly one row. A QoS 1 publication may
    be several rows, if the connection was lost before the broker received the acknowledgement.

    `inFlight` (20,000 for reads) is the number of publications that the broker may send before it gets acknowledgements, and
    so the number per write to disk. mosquitto's default limit, `max_inflight_messages 20`, makes a stream slow.

    The broker distributes the messages of a shared subscription (`topic` is `$share/NAME/filter`) among the queries that use
    it. Each query has its own spool and checkpoint. Messages that the broker has assigned to a stopped query wait for that
    query. Retained messages are not sent.

    Writes: `topic` (a template of columns, such as `line/{name}`), `qos` (default 1) and `retain` (default false) apply to
    rows in which the column is null or missing. `identity` (default true) adds user properties that identify the row.
    `deadLetter` is a directory of Parquet files for rejected rows; without it, a rejected row ends the query. `writeId` names
    a batch write.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return `mqtt`, for `format`."""
        return "mqtt"

    def schema(self) -> StructType:
        """Return the envelope of an MQTT publication. Raises OptionError. `load` calls this for reads only."""
        return with_table_options(spark_schema(self._read_options().schema, MQTT_COLUMNS), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise OptionError, because there are streaming reads only."""
        raise OptionError(
            f"{SOURCE} is read in streams: use spark.readStream, with trigger(availableNow=True) to end when all is read"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        return MqttStreamReader(self._read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write: rows are published, whatever the mode. Raises OptionError."""
        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if overwrite:
            raise OptionError(f"{SOURCE} publishes messages, and overwrites none: write with mode append")
        return MqttWriter(sink_options_of(options, schema), options.text("writeId"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write. Raises OptionError."""
        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if "writeId" in options:
            raise options.wrong("writeId", "no value, because a streaming query has an identity of its own")
        return MqttStreamWriter(sink_options_of(options, schema))

    def _read_options(self, schema: StructType | None = None) -> SourceOptions:
        given = {**table_options(schema), **self.options}
        part = None if schema is None else check_part(SOURCE, arrow_schema(schema), MQTT_ARROW_SCHEMA)
        return source_options_of(Options(SOURCE, given, READ_OPTIONS, MQTT_READS), part)


class MqttStreamReader(SpoolReader):
    """Reads topic filters batch by batch."""

    KEEPS_STATE = True

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options.stream, options.schema)
        self._options = options

    def _new_fillers(self) -> Mapping[str, SpoolFiller]:
        return subscribers(self._options)
