"""Options of the reader of the source `mq`: queues, or the queue of a subscription, and how much at a time."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mq.mqi import Connection
from bridge.spark.mq.browsing import managed_queue
from bridge.spark.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.spark.options import Options

READ_OPTIONS: Final = (
    *QUEUE_MANAGER_OPTIONS,
    "queue",
    "topic",
    "subscription",
    "selector",
    "partitions",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessages",
    "maxDelay",
    "failOnDataLoss",
    "browse",
)
#: Messages, and bytes of message data, of a micro-batch at most: what a batch costs however many messages it has is then
#: little beside what they cost.
MOST_MESSAGES: Final = 100_000
MOST_BYTES: Final = 256 * 1024 * 1024
#: Seconds that a batch waits for `minMessages`, as Kafka's source has it in `maxTriggerDelay`.
MOST_DELAY: Final = 900.0


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked. Either `queues` or a `subscription`."""

    queue_manager: QueueManagerOptions
    queues: tuple[str, ...] = ()
    topic: str | None = None
    subscription: str | None = None
    #: SQL92, as applications give it to MQOPEN; blank for all messages
    selector: str = ""
    #: parts that the messages of each queue are read in
    partitions: int = 1
    max_messages: int = MOST_MESSAGES
    max_bytes: int = MOST_BYTES
    #: a batch of fewer waits for more, so many seconds at most
    min_messages: int = 1
    max_delay: float = MOST_DELAY
    #: a message that somebody else got between planning and reading is left out instead of ending the query
    lenient: bool = False
    #: a stream leaves the messages on their queues
    browse: bool = False

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
    if (browse := options.truth("browse", False)) and subscription:
        raise options.wrong("browse", "no value, because nobody would take away what comes to the subscription")
    if browse and "failOnDataLoss" in options:
        raise options.wrong("failOnDataLoss", "no value, because what is browsed is for others to get")
    most = options.number("maxMessagesPerTrigger", MOST_MESSAGES)
    return SourceOptions(
        queue_manager=queue_manager_options_of(options),
        queues=queues,
        topic=topic,
        subscription=subscription,
        partitions=options.number("partitions", 1, 1, 1000),
        max_messages=most,
        max_bytes=options.size("maxBytesPerTrigger", MOST_BYTES),
        selector=options.text("selector") or "",
        min_messages=options.number("minMessages", 1, 1, most),
        max_delay=options.duration("maxDelay", MOST_DELAY),
        lenient=browse or not options.truth("failOnDataLoss", True),
        browse=browse,
    )
