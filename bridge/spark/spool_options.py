"""Options of reads through a spool, which both sources have."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bridge.spark.columns import subset
from bridge.spark.options import OptionError, Options

#: Options of every streaming read.
STREAM_OPTIONS: Final = (
    "spool",
    "spoolLimit",
    "embed",
    "columns",
    "partitions",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessages",
    "maxDelay",
)
#: Messages, and bytes of message data, of a micro-batch: the fixed cost of a batch is then small.
MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 256 * 1024 * 1024
#: Bytes of message data in a spool from which on its reader takes nothing more.
SPOOL_LIMIT: Final = 1024**3
#: Seconds that a batch waits for `minMessages`, like `maxTriggerDelay` of Kafka's source.
MAX_DELAY: Final = 900.0


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a streaming read, checked."""

    #: directory or URL
    spool: str = ""
    spool_limit: int = SPOOL_LIMIT
    #: whether segments travel with the plan of a batch, for workers that do not reach the spool
    embed: bool = False
    #: parts in which the segments of each spool are read
    partitions: int = 1
    max_messages: int = MAX_MESSAGES
    max_bytes: int = MAX_BYTES
    #: a batch of fewer messages waits for more, up to `max_delay` seconds
    min_messages: int = 1
    max_delay: float = MAX_DELAY


def stream_options_of(options: Options) -> StreamOptions:
    """Return the options of a streaming read. `spool` is empty if it is not given. Raises OptionError."""
    max_messages = options.number("maxMessagesPerTrigger", MAX_MESSAGES)
    return StreamOptions(
        spool=options.place("spool") or "",
        spool_limit=options.size("spoolLimit", SPOOL_LIMIT),
        embed=options.truth("embed", False),
        partitions=options.number("partitions", 1, 1, 1000),
        max_messages=max_messages,
        max_bytes=options.size("maxBytesPerTrigger", MAX_BYTES),
        min_messages=options.number("minMessages", 1, 1, max_messages),
        max_delay=options.duration("maxDelay", MAX_DELAY),
    )


def columns_of(options: Options, schema: Any) -> Any:
    """Return the part of an envelope's Arrow schema that the option `columns` names. Raises OptionError."""
    names = options.names("columns")
    return subset(schema, names) if names else schema


def require_spool(source: str, options: StreamOptions) -> None:
    """Raise OptionError if a streaming read has no spool."""
    if not options.spool:
        raise OptionError(
            f"{source}: option spool: required for streaming reads; hint: a directory (or URL) where messages wait until"
            " their batch is committed, and that is kept as the checkpoint is"
        )
