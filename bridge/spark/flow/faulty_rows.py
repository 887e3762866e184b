"""The search for rows of a batch that its SELECT cannot be made of, so that Spark ends the query: a division by zero, say.

Spark does not say which row it was. So the batch is read again, as the query that is run again will read it, and the SELECT
is tried over halves of it, and halves of those, until the rows are found that it fails with alone.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

#: Seconds of one search: what it has not found by then, the next one looks for.
PATIENCE: Final = 60.0
#: Spark's error class, sentence and SQLSTATE: class 22 is "data exception"; P0001 is that of raise_error.
_DATA: Final = re.compile(
    r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\] ((?:(?!SQLSTATE: |\[[A-Z][A-Z0-9_.]+\] ).)*)SQLSTATE: (?:22\w{3}|P0001)"
    r"(?:\s+== SQL \(line (\d+), position (\d+)\) ==)?",
    re.DOTALL,
)

#: What of a row cannot be done, as `data_error` says it; None where it can.
Trial = Callable[[Any], str | None]


def data_error(error: BaseException) -> str | None:
    """Return Spark's class and sentence of an error that the data of some row is the cause of; None for any other.

    Where Spark says it: the line and column of the SELECT, too.
    """
    found = _DATA.search(str(error))
    if found is None:
        return None
    what, line, column = " ".join(found[2].split()).rstrip("."), found[3], found[4]
    return f"{found[1]}: {what}" + (f" (line {line}, column {column} of select)" if line else "")


def find_faulty_rows(
    table: Any, trial: Trial, patience: float = PATIENCE, interrupted: Callable[[], bool] = lambda: False
) -> dict[int, str]:
    """Return the rows (number: why) of a table that fail by themselves, where all of them together do.

    There are none where it takes several to fail, as with a sum that is too large. When `patience` (seconds) is at its
    end, or the search is `interrupted`, return the rows that are found by then.
    """
    found: dict[int, str] = {}
    before = time.monotonic() + patience
    failing = [(0, table.num_rows)]
    while failing and time.monotonic() < before and not interrupted():
        start, length = failing.pop()
        if length < 2:
            if length and (why := trial(table.slice(start, 1))) is not None:
                found[start] = why
            continue
        half = length // 2
        left, right = (start, half), (start + half, length - half)
        if trial(table.slice(*left)) is None:
            failing.append(right)  # it has to be in there
        else:
            if trial(table.slice(*right)) is not None:
                failing.append(right)
            failing.append(left)
    return found


def try_rows(frame: Any) -> str | None:
    """Make all rows of a frame, for nobody; return the data error that ends it, or None. Raises any other error of Spark."""
    try:
        frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError) as error:
        if (why := data_error(error)) is None:
            raise
        return why
    return None


class Replay(NamedTuple):
    """The batch that a query was at when it ended."""

    number: int
    #: its rows as the source gives them; a pyarrow Table
    rows: Any


def last_batch(checkpoint: Path, reader: Any, schema: Any) -> Replay | None:
    """Return the batch that a checkpoint has begun and not ended.

    It is read by a reader of the stream (pyspark's DataSourceStreamReader), which is stopped. Return None where there is
    none, or the query has several sources. Raises OSError, and what the reader raises.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(reader.stop)
        numbers = [int(one.name) for one in (checkpoint / "offsets").iterdir() if one.name.isdigit()]
        if not numbers or (checkpoint / "commits" / str(number := max(numbers))).exists():
            return None
        ends = _offsets(checkpoint, number)
        starts = _offsets(checkpoint, number - 1) if number else [reader.initialOffset()]
        if len(starts) != 1 or len(ends) != 1:
            return None
        batches = [one for part in reader.partitions(starts[0], ends[0]) for one in reader.read(part)]
        return Replay(number, pa.Table.from_batches(batches, schema=schema))


def _offsets(checkpoint: Path, number: int) -> list[dict[str, Any]]:
    """Return the offset of each source: behind a version and what Spark notes, a line for each."""
    _, _, *offsets = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(one) for one in offsets]
