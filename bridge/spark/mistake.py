"""What Spark says of a pipeline before it runs, as mistakes with their places in the configuration file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from bridge.mapping.template import RuleError
from bridge.spark.destination_columns import ColumnMissing
from bridge.spark.errors import OptionError

#: As Spark's errors say where they are in an SQL text: line from 1, column from 0.
_POSITION: Final = re.compile(r"line (\d+),? pos (\d+)")
_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)

_TRACEBACK: Final = "Traceback (most recent call last):"
#: What py4j hands on: which call it was, and then what Java says.
_JAVA: Final = re.compile(r"\AAn error occurred while calling .*\n: (?:[\w.]+: )?(.*)")
#: How Python names its errors in front of what they say.
_PYTHON: Final = re.compile(r"^(?:\w+\.)+\w+: ")
#: How Spark says that a query ended, in front of why.
_ENDED: Final = re.compile(r"^\[STREAM_FAILED\] Query .*?\[[^]]*\] terminated with exception: ")

#: What it says of a task in front of Java's error, whose stack begins on the next line.
_TASK: Final = re.compile(r".*most recent failure: Lost task [^:]*: ", re.DOTALL)
_STACK: Final = "\n\tat "
#: What Spark puts behind a sentence: the SQL, the state and plan of the query, the plan of what it could not analyse.
_BEHIND: Final = re.compile(r"\s*(?:\n== SQL|=== Streaming Query ===|Driver stacktrace:|;\n|\n[: ]*[+:]- )")

Location = tuple[str | int, ...]


class Mistake(Exception):
    """A mistake in a pipeline: `location` below its name, and the character of the text there, where it is known."""

    def __init__(self, location: Location, expected: str, found: str | None = None, position: int | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.location = location
        self.expected = expected
        self.found = found
        self.position = position


@contextmanager
def mistakes_at(location: Location, expected: str, text: str | None = None) -> Iterator[None]:
    """Raise what goes wrong in the block as a Mistake at `location`; `text` is the SQL that Spark looks at."""
    try:
        yield
    except PySparkException as error:
        sentence = sentence_of(error)
        position = None if text is None else position_of(error, text)
        found = None if position is None or text is None else repr(word(text, position))
        raise Mistake(location, f"{expected} without this mistake: {sentence}", found, position) from error
    except ColumnMissing as error:
        names = ", ".join(error.columns)
        raise Mistake(error.location, f"a column that select makes ({names})", repr(error.name)) from error
    except (OptionError, RuleError) as error:
        raise Mistake(location, f"{expected} without this mistake: {error}") from error


def sentence_of(error: BaseException) -> str:
    """Return what Spark says, in one line, without its plan and stacks.

    Where the cause is what Python said in a worker, that is returned.
    """
    text = str(error).strip()
    _, traceback, behind = text.rpartition(_TRACEBACK)
    if traceback:
        text = next((line for line in behind.splitlines() if line and not line[0].isspace()), text)
        text = _PYTHON.sub("", text)
    elif said := _JAVA.search(text):
        text = said[1]
    else:
        text = _TASK.sub("", text.partition(_STACK)[0])
    text = _BEHIND.split(_ENDED.sub("", text), maxsplit=1)[0]
    first = _STATE.sub("", _CLASS.sub("", text)) or "Spark does not say why (a process of it was killed?)"
    return " ".join(first.split()).rstrip(".")


def position_of(error: PySparkException, text: str) -> int | None:
    """Return the character of an SQL text that an error is about; None where it does not say."""
    starts = [context.startIndex() for context in error.getQueryContext() if hasattr(context, "startIndex")]
    if starts and 0 <= starts[0] < len(text):
        return int(starts[0])
    found = _POSITION.search(str(error))
    if found is None:
        return None
    lines = text.splitlines(keepends=True)
    before = sum(map(len, lines[: int(found[1]) - 1]))
    return min(before + int(found[2]), len(text))


def word(text: str, position: int) -> str:
    """Return what stands at a character: a word, a hint, or the end."""
    found = re.compile(r"\w+|/\*\+.*?\*/|\S", re.DOTALL).match(text, position)
    return found[0] if found else "the end"
