"""Batchwise reading of the rows of an archive, in order. Requires pyarrow, but not Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from bridge.archive.schema import Direction, Outcome, archive_files, arrow_schema
from bridge.mqtt.topics import matches


class Selection:
    """The publications of an archive, selected by time, topic filter and client.

    With `mapping`, the messages that this mapping took and successfully put or published. Their topic is then the topic or
    queue of the source, and their client is the publisher.
    """

    def __init__(
        self,
        directory: Path,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        topic_filter: str = "#",
        clients: Sequence[str] = (),
        mapping: str = "",
    ) -> None:
        # Rows of messages received before `end` may have been committed, and so written, later.
        last = None if end is None else end + timedelta(hours=1)
        self._files = archive_files(directory, start, last)
        self._schema = arrow_schema()
        self._start = start
        self._end = end
        self._filter = topic_filter
        self._clients = list(clients)
        self._mapping = mapping
        self._matches: dict[str, bool] = {}

    def count(self, after: int = 0) -> int:
        """Return the number of selected rows with a number greater than `after`."""
        columns = ["topic"]
        return sum(len(self._chosen(file, after, columns)) for file in self._files)

    def batches(self, after: int, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield the selected rows with a number greater than `after`, in the order of `sequence`."""
        for file in self._files:
            table = self._chosen(file, after, ["sequence", "topic", *columns])
            for batch in table.sort_by("sequence").to_batches(max_chunksize=1_000):
                yield batch.to_pylist()

    def _chosen(self, file: Path, after: int, columns: list[str]) -> Any:
        direction, outcomes = Direction.IN, [Outcome.PUT]
        if self._mapping:
            direction, outcomes = Direction.MAPPED, [Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED]
        expression = (
            (pa.compute.field("direction") == str(direction))
            & pa.compute.field("outcome").isin(list(map(str, outcomes)))
            & (pa.compute.field("sequence") > after)
        )
        if self._mapping:
            expression &= pa.compute.field("client_id") == self._mapping
        if self._start is not None:
            expression &= pa.compute.field("received") >= pa.scalar(self._start)
        if self._end is not None:
            expression &= pa.compute.field("received") < pa.scalar(self._end)
        if self._clients:
            expression &= pa.compute.field("publisher").isin(self._clients)
        # The partition columns are in the path and are not needed. With the schema, columns that are missing in files of
        # earlier versions are null.
        table = pa.parquet.read_table(
            file, columns=list(dict.fromkeys(columns)), filters=expression, partitioning=None, schema=self._schema
        )
        if self._filter == "#":
            # A leading wildcard does not match topics that start with $ (MQTT-4.7.2-1).
            return table.filter(pa.compute.invert(pa.compute.starts_with(table["topic"], "$")))
        return table.filter(pa.array([self._named(topic) for topic in table["topic"].to_pylist()], pa.bool_()))

    def _named(self, topic: str) -> bool:
        found = self._matches.get(topic)
        if found is None:
            found = self._matches[topic] = matches(self._filter, topic)
        return found
