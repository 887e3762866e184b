"""Options of the writer of the source `mqtt`: the broker, and what counts where the rows say nothing."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import StructType

from bridge.mapping.template import Template, TemplateError
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.mqtt.rows import Defaults, check_columns
from bridge.spark.options import Options

WRITE_OPTIONS: Final = (
    *(name for name in BROKER_OPTIONS if name != "session"),
    "topic",
    "qos",
    "retain",
    "identity",
    "deadLetter",
    "writeId",
    # Spark hands the sink these of its own.
    "checkpointLocation",
    "queryName",
    "path",
)


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked: where rows are published, and how."""

    broker: Broker
    defaults: Defaults
    #: whether publications say which row they are
    identity: bool = True
    #: directory of Parquet files, of rows that are refused; None: they end the query
    dead_letter: str | None = None


def sink_options_of(options: Options, schema: StructType) -> SinkOptions:
    """Return the options of a writer, checked, also against the columns of its rows. Raises OptionError."""
    broker = broker_of(options)
    if not broker.has_own_identifiers:
        raise options.wrong(
            "clientId", "a client identifier with {mapping} in it, because each task of Spark connects by itself"
        )
    template: Template | None = None
    if (text := options.text("topic")) is not None:
        try:
            template = Template(text)
        except TemplateError as error:
            raise options.wrong("topic", f"a topic, or a template with {{names of columns}}: {error}") from error
    check_columns(options.source, schema, template)
    dead_letter = options.path("deadLetter")
    return SinkOptions(
        broker=broker,
        defaults=Defaults(template, options.number("qos", 1, 0, 2), options.truth("retain", False)),
        identity=options.truth("identity", True),
        dead_letter=None if dead_letter is None else str(dead_letter),
    )
