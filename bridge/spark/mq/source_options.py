"""Options of the reader of the source `mq`: queues, or the queue of a subscription, and which columns."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bridge.mq.mqi import Connection
from bridge.spark.columns import MQ_ARROW_SCHEMA
from bridge.spark.mq.browsing import managed_queue
from bridge.spark.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.spark.options import Options
from bridge.spark.spool_options import STREAM_OPTIONS, StreamOptions, columns_of, stream_options_of

READ_OPTIONS: Final = (*QUEUE_MANAGER_OPTIONS, "queue", "topic", "subscription", "selector", *STREAM_OPTIONS)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked. Either `queues` or a `subscription`."""

    queue_manager: QueueManagerOptions
    queues: tuple[str, ...] = ()
    topic: str | None = None
    subscription: str | None = None
    #: SQL92, as applications give it to MQOPEN; blank for all messages
    selector: str = ""
    stream: StreamOptions = StreamOptions()
    #: Arrow schema of the columns
    schema: Any = MQ_ARROW_SCHEMA

    def queue_names(self, connection: Connection) -> tuple[str, ...]:
        """Return the queues to read. A subscription is created if it does not exist. Raises MQError."""
        if self.subscription is not None:
            return (managed_queue(connection, self.subscription, self.topic),)
        return self.queues


def source_options_of(options: Options, schema: Any = None) -> SourceOptions:
    """Return the options of a reader, checked. `schema` replaces the option `columns`. Raises OptionError."""
    queues = tuple(options.names("queue"))
    topic, subscription = options.text("topic"), options.text("subscription")
    if queues and (topic or subscription):
        other = "topic" if topic else "subscription"
        raise options.wrong(other, "no value, because queue says what is read")
    if topic and not subscription:
        raise options.wrong(
            "subscription",
            "the name of a durable subscription, under which the queue manager keeps what is published to topic",
        )
    if not queues and not subscription:
        raise options.wrong("queue", "the name of a queue, or of several with commas (or topic and subscription)")
    if len(set(queues)) != len(queues):
        raise options.wrong("queue", "each queue once")
    return SourceOptions(
        queue_manager=queue_manager_options_of(options),
        queues=queues,
        topic=topic,
        subscription=subscription,
        selector=options.text("selector") or "",
        stream=stream_options_of(options),
        schema=columns_of(options, MQ_ARROW_SCHEMA) if schema is None else schema,
    )
