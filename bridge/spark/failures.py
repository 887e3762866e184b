"""Descriptions of Spark's errors: mistakes in a pipeline with their places in the file, failures of a query with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from pyspark.errors import PySparkException

from bridge.mapping.template import RuleError
from bridge.mq.worker import LOST
from bridge.spark.options import OptionError
from bridge.wire import cmqc

# Mistakes in a pipeline ----------------------------------------------------------------------------------------------

Location = tuple[str | int, ...]


class Mistake(Exception):
    """A mistake in a pipeline: `location` is below its name, and `position` is a character index in the text, if known."""

    def __init__(
        self, location: Location, expected: str, actual: str | None = None, position: int | None = None
    ) -> None:
        super().__init__(f"expected {expected}, found {actual}")
        self.location = location
        self.expected = expected
        self.found = actual
        self.position = position


def column_missing(location: Location, name: str, columns: list[str]) -> Mistake:
    """Return the mistake of a section that names a column which the SELECT does not return."""
    return Mistake(location, f"a column that select makes ({', '.join(columns)})", repr(name))


class DeadLettersRejected(Exception):
    """The dead letters of a batch are beyond the limits, and the pipeline pauses."""


class SettingsChanged(Exception):
    """A pipeline was changed while a batch was written, in a way that prevents finishing the batch as it began."""


@contextmanager
def mistakes_at(location: Location, expected: str, text: str | None = None) -> Iterator[None]:
    """Raise errors of the block as a Mistake at `location`. `text` is the SQL that Spark analyses in it."""
    try:
        yield
    except PySparkException as error:
        sentence = sentence_of(error)
        position = None if text is None else _position_of(error, text)
        actual = None if position is None or text is None else repr(_word(text, position))
        raise Mistake(location, f"{expected} without this mistake: {sentence}", actual, position) from error
    except (OptionError, RuleError) as error:
        raise Mistake(location, f"{expected} without this mistake: {error}") from error


#: The position in an SQL text: line from 1, column from 0.
_POSITION: Final = re.compile(r"line (\d+),? pos (\d+)")


def _position_of(error: PySparkException, text: str) -> int | None:
    """Return the index of the character in an SQL text to which an error refers, or None if unknown."""
    starts = [context.startIndex() for context in error.getQueryContext() if hasattr(context, "startIndex")]
    if starts and 0 <= starts[0] < len(text):
        return int(starts[0])
    match = _POSITION.search(str(error))
    if match is None:
        return None
    lines = text.splitlines(keepends=True)
    before = sum(map(len, lines[: int(match[1]) - 1]))
    return min(before + int(match[2]), len(text))


def _word(text: str, position: int) -> str:
    """Return the word, hint or other character at a position, or "the end"."""
    match = re.compile(r"\w+|/\*\+.*?\*/|\S", re.DOTALL).match(text, position)
    return match[0] if match else "the end"


# Sentences -----------------------------------------------------------------------------------------------------------

_TRACEBACK: Final = "Traceback (most recent call last):"
#: Parts of an error text before and after the sentence of Spark.
_BEFORE: Final = (
    re.compile(r"^\[STREAM_FAILED\] Query .*?\[[^]]*\] terminated with exception: "),
    re.compile(r".*most recent failure: Lost task [^:]*: ", re.DOTALL),
    re.compile(r"\AAn error occurred while calling .*\n: (?:[\w.]+: )?"),
    re.compile(r"^(?:\w+\.)+\w+: "),
    re.compile(r"^\[[A-Z0-9_.]+\] "),
)
_AFTER: Final = re.compile(
    r"\s*(?:\n\tat |\n== SQL|=== Streaming Query ===|Driver stacktrace:|;\n|\n[: ]*[+:]- |SQLSTATE: \w+)"
)


def sentence_of(error: BaseException) -> str:
    """Return the message of an error of Spark in one line, without plans and stacks.

    If the cause is an exception in a Python worker, that message is returned.
    """
    text = str(error).strip()
    _, traceback, behind = text.rpartition(_TRACEBACK)
    if traceback:
        text = next((line for line in behind.splitlines() if line and not line[0].isspace()), text)
    for pattern in _BEFORE:
        text = pattern.sub("", text)
    first = _AFTER.split(text, maxsplit=1)[0] or "Spark does not report the reason (was a process of it killed?)"
    return " ".join(first.split()).rstrip(".")


# Failures of a query -------------------------------------------------------------------------------------------------


class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query ended."""

    what: str
    #: "": unknown, so another attempt may never succeed
    remedy: str = ""
    #: the SELECT cannot be computed for some row
    data: bool = False
    #: another attempt fails, too
    final: bool = False

    def __str__(self) -> str:
        return f"{self.what}; hint: {self.remedy}" if self.remedy else self.what


#: The reason of an MQError in any process.
_REASON: Final = re.compile(r"\bMQRC_[A-Z0-9_]+ \((\d+)\)")
#: Spark's sentence and SQLSTATE of an error in the data: class 22 is "data exception", P0001 that of raise_error.
_DATA: Final = re.compile(
    r"\[([A-Z][A-Z0-9_.]*)\] ((?:(?!SQLSTATE: ).)*)SQLSTATE: (?:22\w{3}|P0001)"
    r"(?:\s+== SQL \(line (\d+), position (\d+)\) ==)?",
    re.DOTALL,
)
_DATA_REMEDY: Final = (
    "declare the field in schema, so that such messages go to the dead letters, or use a function that returns NULL"
    " (try_cast, try_divide, try_variant_get, try_to_timestamp)"
)
_LETTERS_REMEDY: Final = "retry or delete some of them (mqbridge dlq list), or set dead_letters_full: discard"
_DISK_REMEDY: Final = "free disk space on the queue manager"
_PLACE_REMEDY: Final = "check the disk, the permissions or the network that the error names"
_SERVER_REMEDY: Final = "wait until the server is available; the pipeline retries"
_MQ_REMEDIES: Final = {
    cmqc.MQRC_Q_FULL: "get messages from the queue, or raise its MAXDEPTH",
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: _DISK_REMEDY,
    cmqc.MQRC_RESOURCE_PROBLEM: _DISK_REMEDY,
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: "get waiting messages, or give the queue manager more memory",
    cmqc.MQRC_PUT_INHIBITED: "ALTER the queue or topic to PUT(ENABLED)",
    cmqc.MQRC_GET_INHIBITED: "ALTER the queue to GET(ENABLED)",
    cmqc.MQRC_PUBSUB_INHIBITED: "ALTER the topic to PUB(ENABLED)",
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: "define the queue",
    cmqc.MQRC_NOT_AUTHORIZED: "give the user of the pipeline the authority (SET AUTHREC)",
    cmqc.MQRC_OBJECT_IN_USE: "end the other application that has the queue open",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: "raise MAXMSGL of the queue, or leave out long messages (WHERE length(...) < ...)",
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: "raise MAXMSGL of the queue manager, or leave out long messages",
}
#: Exceptions after which another attempt fails, too, until a user follows the hint.
_FINAL: Final = re.compile(r"^(?:\w+\.)*(?:DataLoss|StageDamaged|BatchUnfinished)\b", re.MULTILINE)
#: Parts of an error text, such as the name of the exception that a Python traceback ends with, and remedies.
_REMEDIES: Final = {
    re.compile(pattern, re.MULTILINE): remedy
    for pattern, remedy in {
        r"^(?:\w+\.)*(?:BrokerAway|LinkLost)\b": "wait until the broker is available; the pipeline retries",
        r"^(?:\w+\.)*NotConnected\b": "check that the broker runs and accepts the session",
        r"^(?:\w+\.)*SpoolBusy\b": "end the other process that runs this pipeline",
        r"^(?:\w+\.)*(?:Attempt|Reader)Superseded\b": "none: another attempt continues",
        r"^(?:\w+\.)*(?:PermissionError|StageUnusable|OSError)\b": _PLACE_REMEDY,
        r"\bjava\.net\.\w+Exception\b|\bjava\.sql\.SQL(?:Transient|Recoverable)\w*Exception\b": _SERVER_REMEDY,
        r"\bNo suitable driver\b": "name the class of its driver (options: {driver: ...}) and the jar (--jars)",
    }.items()
}


def query_failure_of(error: BaseException) -> QueryFailure:
    """Return the failure for an error of Spark, a source or a destination."""
    text, description = str(error), sentence_of(error)
    if (match := _DATA.search(text)) is not None:
        sentence, line, column = " ".join(match[2].split()).rstrip("."), match[3], match[4]
        place = f" (line {line}, column {column} of select)" if line else ""
        return QueryFailure(f"{match[1]}: {sentence}{place}", _DATA_REMEDY, data=True, final=True)
    if isinstance(error, DeadLettersRejected):
        return QueryFailure(description, _LETTERS_REMEDY)
    if (match := _REASON.search(text)) is not None:
        reason = int(match[1])
        default = "wait until the queue manager is available" if reason in LOST else "see the reason code"
        return QueryFailure(description, _MQ_REMEDIES.get(reason, default))
    if _FINAL.search(text) or isinstance(error, SettingsChanged):
        return QueryFailure(description, final=True)
    raised = f"OSError: {text}" if isinstance(error, OSError) else text.rpartition(_TRACEBACK)[2]
    return QueryFailure(
        description, next((remedy for pattern, remedy in _REMEDIES.items() if pattern.search(raised)), "")
    )
