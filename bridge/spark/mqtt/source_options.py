"""Options of the reader of the source `mqtt`: topic filters at a broker, through a spool, and how much at a time."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Final

import msgspec
from pydantic import TypeAdapter, ValidationError

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.mapping.rules.template import PatternError
from bridge.mapping.rules.topic_pattern import overlaps, shared_prefix
from bridge.mqtt.topics import topic_filter_error
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.options import Options

READ_OPTIONS: Final = (
    *BROKER_OPTIONS,
    "topic",
    "qos",
    "spool",
    "spoolLimit",
    "embed",
    "partitions",
    "quietPeriod",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
)
#: Messages, and bytes of payload, of a micro-batch at most.
MOST_MESSAGES: Final = 100_000
MOST_BYTES: Final = 256 * 1024 * 1024
#: Bytes of payload that wait in the spool at most, about.
SPOOL_LIMIT: Final = 1024**3
#: Seconds without a message after which an availableNow run takes it that all is there.
QUIET_PERIOD: Final = 1.0

_period: Final = TypeAdapter(Annotated[float, values.duration(0.01, 3600)])


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked."""

    broker: Broker
    #: each with a session of its own
    topic_filters: tuple[str, ...]
    qos: int = 2
    #: directory
    spool: str
    spool_limit: int = SPOOL_LIMIT
    #: whether messages always travel with the plan of a batch, and not as the names of files
    embed: bool = False
    #: parts that the messages of each filter are read in
    partitions: int = 1
    #: seconds
    quiet_period: float = QUIET_PERIOD
    max_messages: int = MOST_MESSAGES
    max_bytes: int = MOST_BYTES


def source_options_of(options: Options) -> SourceOptions:
    """Return the options of a reader, checked. Raises OptionError."""
    broker = broker_of(options)
    filters = tuple(options.names("topic"))
    if not filters:
        raise options.wrong("topic", "a topic filter, or several with commas")
    own = {one: _own_filter(options, one) for one in filters}
    for one, other in combinations(filters, 2):
        if overlaps(own[one].split("/"), own[other].split("/")):
            raise options.wrong("topic", f"filters that do not overlap, as {one} and {other} do, which would double messages")
    if len(filters) > 1 and not broker.has_own_identifiers:
        raise options.wrong(
            "clientId", "a client identifier with {mapping} in it, because each topic filter has a session of its own"
        )
    spool = options.path("spool")
    if spool is None:
        raise options.wrong(
            "spool",
            "a directory on the driver's machine that is kept as the checkpoint is (spool in the checkpoint's directory will"
            " do), where messages wait until their batch is committed",
        )
    return SourceOptions(
        broker=broker,
        topic_filters=filters,
        qos=options.number("qos", 2, 0, 2),
        spool=str(spool),
        spool_limit=options.size("spoolLimit", SPOOL_LIMIT),
        embed=options.truth("embed", False),
        partitions=options.number("partitions", 1, 1, 1000),
        quiet_period=_quiet_period(options),
        max_messages=options.number("maxMessagesPerTrigger", MOST_MESSAGES),
        max_bytes=options.size("maxBytesPerTrigger", MOST_BYTES),
    )


def _own_filter(options: Options, topic_filter: str) -> str:
    """Return a topic filter without what a broker shares it by, checked. Raises OptionError."""
    try:
        own = topic_filter.removeprefix(shared_prefix(topic_filter))
    except PatternError as wrong:
        raise options.wrong("topic", f"a topic filter, and in {topic_filter!r} {wrong}") from wrong
    if own != topic_filter and options.text("link") == LOCAL:
        raise options.wrong("topic", "no shared subscription at the bridge itself, which has them with QoS 1 at most")
    if (error := topic_filter_error(own)) is not None:
        raise options.wrong("topic", f"a topic filter, and in {topic_filter!r} {error}")
    return own


def _quiet_period(options: Options) -> float:
    written = options.text("quietPeriod")
    if written is None:
        return QUIET_PERIOD
    try:
        return _period.validate_python(written)
    except ValidationError as error:
        expected = error.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("expected", "a duration")
        raise options.wrong("quietPeriod", str(expected)) from error
