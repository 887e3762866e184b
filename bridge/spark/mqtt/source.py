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

    Where the broker is: `config` (a bridge.yaml) and `link` (one of its links, or `local`, the bridge itself); or `host`,
    `port`, `version`, `user`, `passwordFile`, `passwordVariable`, `keepAlive`, `inFlight`, `tls`, `tlsCaFile`,
    `tlsCertificateFile`, `tlsKeyFile`, `tlsKeyPasswordVariable`, `tlsCheckHostName`; all as a link of the YAML has them. With
    both: `clientId` (`{mapping}` in it is another word for each session), and for reads `session`.

    Reads: `topic` (a filter, or several with commas that do not overlap, each with a session of its own), `qos` (2: as it
    was published), `columns` (only these are computed; default: all), `spool` (a directory of the driver that is kept as the
    checkpoint is, and that all workers reach, or `embed` is true), `spoolLimit` (1 GiB: more waits at the broker),
    `maxMessagesPerTrigger`, `maxBytesPerTrigger`, `partitions` (of each filter), `quietPeriod`
    (1 s: an availableNow run ends when nothing came for so long, or after a minute). While the broker has the session, every
    publication of QoS 1 or 2 is a row, whatever is killed. With QoS 2 it is one row. With QoS 1 it may be several, if the
    connection was lost before the broker had the acknowledgement.

    `inFlight` (20,000 for reads) is the number of publications that the broker may send ahead of acknowledgements, thus for
    each write to disk. mosquitto's own limit, `max_inflight_messages`, is 20, which makes a stream slow.

    A shared subscription, `$share/NAME/filter` as `topic`, is spread by the broker over the queries that have it, each with a
    spool and a checkpoint of its own; what it gives to one that is away waits for that one. What was retained does not come.

    Writes: `topic` (a template of columns, such as `line/{name}`, where a row's topic is null), `qos` (1) and `retain`
    (false) where the row's are, `identity` (true: user properties say which row it is), `deadLetter` (a directory of
    Parquet files for rows that are refused, which else end the query), `writeId` (names a batch write).
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
