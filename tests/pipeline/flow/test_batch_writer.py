"""What ends a batch: Spark is told the beginning, and who watches all of it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.pipeline.flow.sink import BatchFailed, BatchWriter, Route

INTERRUPTED = "An error occurred while calling o1.collectToPython.\n: java.lang.InterruptedException"


class Refused(Route, frozen=True):
    def write_batch(self, frame: Any, batch: int) -> Any:
        raise ValueError(INTERRUPTED + "\n\tat some.java.Method" * 10_000)


def test_spark_is_told_the_beginning_of_an_error() -> None:
    """Its expression for queries that were stopped overflows Java's stack on more."""
    writer = BatchWriter([Refused("mq", None, None)])
    with pytest.raises(BatchFailed) as told:
        writer(None, 0)  # type: ignore[arg-type]
    assert str(told.value).startswith(f"builtins.ValueError: {INTERRUPTED}") and len(str(told.value)) < 500
    assert told.value.__suppress_context__
    assert isinstance(writer.error, ValueError) and len(str(writer.error)) > 10_000
