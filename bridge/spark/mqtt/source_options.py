"""Options of the reader of the source `mqtt`: topic filters at a broker, through a spool, and how much at a time."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any, Final

import msgspec
from pydantic import TypeAdapter, ValidationError

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.mapping.template import PatternError
from bridge.mapping.topic_pattern import overlaps, shared_prefix
from bridge.mqtt.topics import topic_filter_error
from bridge.spark.columns import MQTT_ARROW_SCHEMA
from bridge.spark.mqtt.broker import BROKER_OPTIONS, Broker, broker_of
from bridge.spark.options import Options
from bridge.spark.spool_options import STREAM_OPTIONS, StreamOptions, columns_of, require_spool, stream_options_of

READ_OPTIONS: Final = (*BROKER_OPTIONS, "topic", "qos", "quietPeriod", *STREAM_OPTIONS)
#: Seconds without a message after which an availableNow run takes it that all is there.
QUIET_PERIOD: Final = 1.0

_period: Final = TypeAdapter(Annotated[float, values.duration(0.01, 3600)])


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, checked."""

    broker: Broker
    #: each with a session of its own
    topic_filters: tuple[str, ...]
    qos: int = 2
    #: seconds
    quiet_period: float = QUIET_PERIOD
    stream: StreamOptions = StreamOptions()
    #: Arrow schema of the columns
    schema: Any = MQTT_ARROW_SCHEMA


def source_options_of(options: Options, schema: Any = None) -> SourceOptions:
    """Return the options of a reader, checked. `schema` replaces the option `columns`. Raises OptionError."""
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
    # The lock of a directory is what keeps two processes from one session.
    options.path("spool")
    stream = stream_options_of(options)
    require_spool(options.source, stream)
    return SourceOptions(
        broker=broker,
        topic_filters=filters,
        qos=options.number("qos", 2, 0, 2),
        quiet_period=_quiet_period(options),
        stream=stream,
        schema=columns_of(options, MQTT_ARROW_SCHEMA) if schema is None else schema,
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
