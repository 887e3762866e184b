"""What the writer of the source `mq` puts to: one queue or topic, or the one that each row names."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import StructType

from bridge.mq.interface import MQOD
from bridge.pipeline.mq.place import PLACE_OPTIONS, Place, place_of
from bridge.pipeline.mq.rows import Row, check_columns
from bridge.pipeline.options import Options
from bridge.wire import cmqc

WRITE_OPTIONS: Final = (
    *PLACE_OPTIONS,
    "queue",
    "topic",
    "retain",
    "context",
    "writeId",
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


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages are put, and how."""

    place: Place
    queue: str | None = None
    topic: str | None = None
    #: publications become the retained ones of their topics
    retain: bool = False
    #: who says the context fields of the MQMD: the queue manager, or the rows its identity part, or all of it
    context: str = "default"

    def descriptor(self, row: Row) -> tuple[int, str]:
        """MQOT_ and name of what a row goes to. Raises ValueError for a row that does not say it."""
        if self.queue is not None:
            return cmqc.MQOT_Q, self.queue
        if self.topic is not None:
            return cmqc.MQOT_TOPIC, self.topic
        if row.queue is not None:
            return cmqc.MQOT_Q, row.queue
        if row.topic is not None:
            return cmqc.MQOT_TOPIC, row.topic
        raise ValueError("a row names no destination: its queue or topic is null, and no option says where to put it")

    @property
    def open_options(self) -> int:
        """MQOO_"""
        return cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING | _CONTEXTS[self.context][0]

    def put_options(self, kind: int) -> int:
        """MQPMO_, of a put to an MQOT_."""
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING | _CONTEXTS[self.context][1]
        if self.place.asynchronous_puts:
            options |= cmqc.MQPMO_ASYNC_RESPONSE
        return options | (cmqc.MQPMO_RETAIN if self.retain and kind == cmqc.MQOT_TOPIC else 0)


def target_of(options: Options, schema: StructType) -> Target:
    """Where options and columns say that rows go. Raises OptionError."""
    check_columns(options.source, schema)
    queue, topic = options.text("queue"), options.text("topic")
    if queue and topic:
        raise options.wrong("topic", "no value, because queue says where messages go")
    named = [name for name in ("queue", "topic") if name in schema.names]
    if not queue and not topic and len(named) != 1:
        why = "and both columns, queue and topic, are there" if named else "and there is no column queue or topic"
        raise options.wrong("queue", f"the name of a queue (or topic), because no option says where to put, {why}")
    context = options.text("context") or "default"
    if context not in _CONTEXTS:
        raise options.wrong("context", "default, identity or all")
    return Target(
        place=place_of(options),
        queue=queue,
        topic=topic,
        retain=options.truth("retain", False),
        context=context,
    )


def opened(kind: int, name: str) -> MQOD:
    """The object descriptor of a queue or a topic string."""
    return MQOD(ObjectName=name) if kind == cmqc.MQOT_Q else MQOD(ObjectType=kind, ObjectString=name)
