"""Options of the reader of the source `mq`: queues, or the queue of a subscription, and how much at a time."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mq.mqi import Connection
from bridge.pipeline.mq.browsing import managed_queue
from bridge.pipeline.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.pipeline.options import Options

READ_OPTIONS: Final = (
    *QUEUE_MANAGER_OPTIONS,
    "queue",
    "topic",
    "subscription",
    "partitions",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
)
#: Messages, and bytes of message data, of a micro-batch at most: what a batch costs however many messages it has is then
#: little beside what they cost.
MOST_MESSAGES: Final = 100_000
MOST_BYTES: Final = 256 * 1024 * 1024


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked. Either `queues` or a `subscription`."""

    queue_manager: QueueManagerOptions
    queues: tuple[str, ...] = ()
    topic: str | None = None
    subscription: str | None = None
    #: parts that the messages of each queue are read in
    partitions: int = 1
    max_messages: int = MOST_MESSAGES
    max_bytes: int = MOST_BYTES
    #: a message that somebody else got between planning and reading is left out instead of ending the query
    lenient: bool = False

    def queue_names(self, connection: Connection) -> tuple[str, ...]:
        """Return the queues to read.

        The queue of a subscription is asked for, and the subscription made where it is not there.
        """
        if self.subscription is not None:
            return (managed_queue(connection, self.subscription, self.topic),)
        return self.queues


def source_options_of(options: Options) -> SourceOptions:
    """Return the options of a reader, checked. Raises OptionError."""
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
        partitions=options.number("partitions", 1, 1, 1000),
        max_messages=options.number("maxMessagesPerTrigger", MOST_MESSAGES),
        max_bytes=options.size("maxBytesPerTrigger", MOST_BYTES),
        lenient=not options.truth("failOnDataLoss", True),
    )
