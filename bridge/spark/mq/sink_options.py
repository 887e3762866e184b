"""Options of the writer of the source `mq`: one queue or topic, or the one that each row names."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import StructType

from bridge.mapping.rule import PERSISTENCE
from bridge.mq.mqi import MQOD
from bridge.spark.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.spark.mq.rows import MAPPED_COLUMNS, Row, check_columns
from bridge.spark.options import Options
from bridge.telemetry.message import Destination
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

WRITE_OPTIONS: Final = (
    *QUEUE_MANAGER_OPTIONS,
    "queue",
    "topic",
    "retain",
    "persistence",
    "refused",
    "context",
    "writeId",
    "epoch",
    # Spark hands the sink these of its own.
    "checkpointLocation",
    "queryName",
    "path",
)
_CONTEXTS: Final = {
    "default": (0, 0),
    "identity": (cmqc.MQOO_SET_IDENTITY_CONTEXT, cmqc.MQPMO_SET_IDENTITY_CONTEXT),
    "all": (cmqc.MQOO_SET_ALL_CONTEXT, cmqc.MQPMO_SET_ALL_CONTEXT),
}


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked: where messages are put, and how."""

    queue_manager: QueueManagerOptions
    queue: str | None = None
    topic: str | None = None
    #: publications become the retained ones of their topics
    retain: bool = False
    #: MQMD.Persistence of rows that do not say it
    persistence: int = cmqc.MQPER_PERSISTENT
    #: queue for the rows that a mapping has refused; None: they end the write
    refused: str | None = None
    #: who says the context fields of the MQMD: the queue manager, or the rows its identity part, or all of it
    context: str = "default"
    #: the rows are of a mapping: the identity part, where they say a UserIdentifier
    mapped: bool = False

    def destination(self, row: Row) -> Destination:
        """Return where a row goes. Raises ValueError for a row that does not say it."""
        if self.queue is not None:
            return Destination(self.queue)
        if self.topic is not None:
            return Destination(self.topic, True)
        if row.queue is not None:
            return Destination(row.queue, False, row.queue_manager or "")
        if row.topic is not None:
            return Destination(row.topic, True)
        raise ValueError("a row names no destination: its queue or topic is null, and no option says where to put it")

    def context_of(self, md: MQMD) -> str:
        """Return which context fields of an MQMD count: "default" (none of them), "identity" or "all"."""
        return "identity" if self.mapped and md.UserIdentifier else self.context

    def open_options(self, context: str) -> int:
        """Return the options MQOO_ to open a destination with."""
        return cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING | _CONTEXTS[context][0]

    def put_options(self, context: str, retain: bool) -> int:
        """Return the options MQPMO_ to put a message with."""
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | _CONTEXTS[context][1]
        if self.queue_manager.asynchronous_puts:
            options |= cmqc.MQPMO_ASYNC_RESPONSE
        return options | (cmqc.MQPMO_RETAIN if retain else 0)


def sink_options_of(options: Options, schema: StructType) -> SinkOptions:
    """Return the options of a writer, checked, also against the columns of its rows. Raises OptionError."""
    check_columns(options.source, schema)
    queue, topic = options.text("queue"), options.text("topic")
    if queue and topic:
        raise options.wrong("topic", "no value, because queue says where messages go")
    named = [name for name in ("queue", "topic") if name in schema.names]
    if not queue and not topic and len(named) != 1:
        why = "and both columns, queue and topic, are there" if named else "and there is no column queue or topic"
        raise options.wrong("queue", f"the name of a queue (or topic), because no option says where to put, {why}")
    persistence = options.text("persistence") or "persistent"
    if persistence not in PERSISTENCE:
        raise options.wrong("persistence", f"one of {', '.join(PERSISTENCE)}")
    context = options.text("context") or "default"
    if context not in _CONTEXTS:
        raise options.wrong("context", "default, identity or all")
    mapped = sorted(MAPPED_COLUMNS.intersection(schema.names))
    if mapped and "context" in options:
        raise options.wrong(
            "context",
            f"no value, because the rows are of a mapping (column {mapped[0]}), which says the UserIdentifier that counts",
        )
    return SinkOptions(
        queue_manager=queue_manager_options_of(options),
        queue=queue,
        topic=topic,
        retain=options.truth("retain", False),
        persistence=PERSISTENCE[persistence],
        refused=options.text("refused"),
        context=context,
        mapped=bool(mapped),
    )


def opened(destination: Destination) -> MQOD:
    """Return the object descriptor of a queue or a topic string."""
    if destination.is_topic:
        return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=destination.name)
    return MQOD(ObjectName=destination.name, ObjectQMgrName=destination.queue_manager)
