"""`mqbridge lake`: the messages of a queue or topic as Parquet files or a Delta table."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, argument, duration, flag, option, settings, takes
from bridge.cli.output import say
from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, data_directory
from bridge.extras import install

if TYPE_CHECKING:
    from bridge.spark.columns import EnvelopeColumn
    from bridge.spark.record_columns import RecordRows
    from bridge.spark.spool import Spool, SpoolFiller, StreamOptions


class TargetFormat(StrEnum):
    """Formats of a target."""

    PARQUET = "parquet"
    DELTA = "delta"


@takes(BRIDGE)
def lake(
    target: Annotated[str, argument("TARGET", "Directory of the files, or place of the Delta table.")],
    queue: Annotated[str | None, option("QUEUE", "Take the messages of a queue.")] = None,
    topic: Annotated[str | None, option("FILTER", "Take the publications of a topic filter.")] = None,
    format: Annotated[
        TargetFormat, option("FORMAT", "Format of the target: parquet or delta.", "--format", show_default=True)
    ] = TargetFormat.PARQUET,
    columns: Annotated[
        str | None,
        option("NAME,…", "Columns, such as put_time,text,md.MsgId. Default: all, or those of an existing Delta table."),
    ] = None,
    merge_schema: Annotated[
        bool, flag("Add columns that an existing Delta table does not have.", "--merge-schema")
    ] = False,
    spool: Annotated[
        Path | None,
        option("DIR", "Directory for messages that are not in the target yet. Default: .spool in TARGET."),
    ] = None,
    rows: Annotated[int, option("N", "Maximum number of rows per file.", show_default=True, min=1)] = 100_000,
    interval: Annotated[
        float,
        option("TIME", "Maximum time before rows are written.", show_default="10s", parser=duration),
    ] = 10.0,
    once: Annotated[bool, flag("End when the queue is empty.", "--once")] = False,
    copybook: Annotated[
        Path | None,
        option(
            "FILE",
            "Copybook of the messages, which are COBOL records. The columns record (typed, null for other messages) and"
            " record_error are added.",
        ),
    ] = None,
    record_option: Annotated[
        list[str] | None,
        option(
            "NAME=VALUE",
            "An option of `payload` in mappings for the records, such as ccsid=1140, names=camel or record=NAME. Can be"
            " repeated.",
            "--record-option",
        ),
    ] = None,
    link: Annotated[str, option("LINK", "Link of the topic. The bridge itself is local.", show_default=True)] = "local",
    option: Annotated[
        list[str] | None,
        option(
            "NAME=VALUE",
            "An option of the Spark source mq or mqtt, such as selector or listener. Can be repeated.",
            "--option",
        ),
    ] = None,
) -> None:
    """Write the messages of a queue or topic to Parquet files or a Delta table, exactly once.

    The command moves messages from the queue to the spool, and from the spool to the target. If it is killed, no message
    is lost or duplicated. Spark is not required.
    """
    if (queue is None) == (topic is None):
        raise Failure("expected --queue or --topic", WRONG_USAGE)
    if merge_schema and format is not TargetFormat.DELTA:
        raise Failure(
            "--merge-schema: belongs to --format delta; Parquet files may have different columns", WRONG_USAGE
        )
    if spool is None and "://" in target:
        raise Failure("--spool: required for a target that is not a directory", WRONG_USAGE)
    if record_option and copybook is None:
        raise Failure("--record-option: requires --copybook", WRONG_USAGE)
    for package in ("pyarrow", *(["deltalake"] if format is TargetFormat.DELTA else [])):
        if importlib.util.find_spec(package) is None:
            raise Failure(f"{package} is not installed: `{install('lake')}` installs it", WRONG_USAGE)
    options = dict(assignment.partition("=")[::2] for assignment in option or ())
    options |= {"spool": str(spool or Path(target, ".spool"))} | ({"columns": columns} if columns else {})
    data_dir, configuration_path = settings.data_dir, os.environ.get(CONFIGURATION_VARIABLE)
    file = settings.config or (Path(configuration_path) if configuration_path and not data_dir else None)
    if file is not None:
        options["config"] = str(file)
    elif queue is not None and "listener" not in options:
        options["dataDirectory"] = str(data_directory(data_dir, None))
    if queue is not None:
        options["queue"] = queue
    else:
        if file is None and "host" not in options:
            hint = "add --config FILE, the configuration file of the bridge, or --option host=ADDRESS for a broker"
            raise Failure("--topic: requires a configuration file or a broker", WRONG_USAGE, hint=hint)
        options |= {"topic": str(topic)} | ({} if file is None else {"link": link})
    from bridge.lake import TARGETS, DeltaTable, LakeWriter, TargetFailed
    from bridge.spark.columns import MQ_COLUMNS, MQTT_COLUMNS
    from bridge.spark.options import OptionError
    from bridge.spark.segment import SpoolDamaged
    from bridge.spark.spool import DataLoss, SpoolBusy

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        if format is TargetFormat.DELTA and columns is None and not merge_schema:
            options |= _columns_of(DeltaTable.columns(target), MQ_COLUMNS if queue is not None else MQTT_COLUMNS)
        body = "body" if queue is not None else "payload"
        rows_of_records = None
        if copybook is not None:
            needed = [body, *(("ccsid", "encoding") if queue is not None else ())]
            names = options["columns"].split(",") if "columns" in options else None
            without = [] if names is None else [name for name in needed if name not in names]
            if names is not None:
                options["columns"] = ",".join([*names, *without])
            rows_of_records = _record_rows(copybook, record_option, body, without)
        sources = _sources(options)
        table = TARGETS[format](target, sources.schema, keeps_state=topic is not None, records=rows_of_records)
        if isinstance(table, DeltaTable):
            table.merges_schema = merge_schema
        writer = LakeWriter(sources.fillers, table, rows, interval, sources.stream, sources.former)
        writer.run(stop, once=once)
    except OptionError as error:
        raise Failure(str(error), WRONG_USAGE) from error
    except (DataLoss, SpoolBusy, SpoolDamaged, TargetFailed, RuntimeError) as error:
        raise Failure(str(error), FAILED) from error
    say(f"{writer.written} rows written to {target}")


def _record_rows(copybook: Path, options: list[str] | None, body: str, without: list[str]) -> RecordRows:
    """Return the columns of records. Raises Failure, OptionError."""
    from bridge.cli.record import record_options
    from bridge.mapping.template import RecordLayoutError
    from bridge.spark.record_columns import RecordColumns, RecordRows

    try:
        columns = RecordColumns(record_options(copybook, options, name="--record-option"))
    except RecordLayoutError as error:
        raise Failure(error.sentence if error.location == ("copybook",) else str(error), WRONG_USAGE) from error
    return RecordRows(columns, body, without)


def _columns_of(names: list[str] | None, columns: Sequence[EnvelopeColumn]) -> dict[str, str]:
    """Return the option `columns` for a table that has some of an envelope's columns, such as one of an earlier version."""
    column_names = [column.name for column in columns if names is None or column.name in names]
    return {"columns": ",".join(column_names)} if 0 < len(column_names) < len(columns) else {}


class _Sources(NamedTuple):
    """Readers, the spools of queues or topic filters that are no longer read, options, and the schema of the columns."""

    fillers: Mapping[str, SpoolFiller]
    former: Callable[[], Mapping[str, Spool]]
    stream: StreamOptions
    schema: Any


def _sources(options: Mapping[str, str]) -> _Sources:
    """Return what options specify. Raises OptionError, MQError, SpoolBusy, SpoolDamaged."""
    from bridge.spark.mq import queue_reader
    from bridge.spark.mqtt import subscriber
    from bridge.spark.options import MQ_FOREIGN, MQTT_FOREIGN, Options

    if "queue" in options:
        queue = queue_reader.source_options_of(Options("mqbridge lake", options, queue_reader.READ_OPTIONS, MQ_FOREIGN))
        fillers = queue_reader.queue_readers(queue)
        return _Sources(fillers, partial(queue_reader.former_spools, queue), queue.stream, queue.schema)
    topic = subscriber.source_options_of(Options("mqbridge lake", options, subscriber.READ_OPTIONS, MQTT_FOREIGN))
    return _Sources(subscriber.subscribers(topic), partial(subscriber.former_spools, topic), topic.stream, topic.schema)
