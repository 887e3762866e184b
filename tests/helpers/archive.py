"""Archives for tests: rows in a short notation, written like those of the service."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from bridge.archive.completeness import FileNumbers
from bridge.archive.parquet import ArchiveFile, record_batch
from bridge.archive.schema import Direction, Row, archive_files, partition, payload_hash, row
from bridge.telemetry.outcome import Outcome

#: Second 0 of all times in rows: 12:00 UTC on a day.
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND = 1_000_000


def at(seconds: float) -> int:
    """Return a time in a row."""
    return int((NOON.timestamp() + seconds) * SECOND)


class Story:
    """Events in order. Each method adds a row. Times are seconds after NOON."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._numbers = itertools.count(1)

    def add(self, **values: Any) -> Story:
        self.rows.append(row(sequence=next(self._numbers), **values))
        return self

    def archive(self, outcome: Outcome, time: float, *, since: float | None = None, rows: int = 0) -> Story:
        received = at(time if since is None else since)
        return self.add(direction=Direction.ARCHIVE, outcome=outcome, received=received, settled=at(time), size=rows)

    def session(
        self, outcome: Outcome, client_id: str, time: float, topic: str = "", qos: int = 0, *, durable: bool = True
    ) -> Story:
        return self.add(
            direction=Direction.SUBSCRIPTION,
            outcome=outcome,
            client_id=client_id,
            topic=topic,
            qos=qos,
            received=at(time),
            settled=at(time + 0.01),
            durable=durable,
        )

    def subscribed(self, client_id: str, time: float, topic: str, qos: int, *, durable: bool = True) -> Story:
        """Connect and subscribe at once."""
        self.session(Outcome.CONNECTED, client_id, time, durable=durable)
        return self.session(Outcome.SUBSCRIBED, client_id, time, topic, qos, durable=durable)

    def put(
        self,
        time: float,
        topic: str,
        payload: bytes,
        qos: int = 1,
        *,
        publisher: str = "p",
        packet_id: int = 0,
        outcome: Outcome = Outcome.PUT,
        **values: Any,
    ) -> Story:
        return self.add(
            direction=Direction.IN,
            outcome=outcome,
            client_id=publisher,
            topic=topic,
            qos=qos,
            payload=payload,
            message_id=packet_id,
            size=len(payload),
            payload_hash=payload_hash(payload),
            publisher=publisher,
            publisher_message_id=packet_id,
            received=at(time),
            settled=at(time + 0.001),
            **values,
        )

    def out(
        self,
        time: float,
        client_id: str,
        topic: str,
        payload: bytes,
        qos: int = 1,
        *,
        publisher: str = "p",
        packet_id: int = 0,
        since: float | None = None,
        outcome: Outcome | None = None,
        **values: Any,
    ) -> Story:
        """A delivery at `time` of a message put at `since` (default: a tenth of a second before)."""
        outcome = outcome or (Outcome.ACKNOWLEDGED if qos else Outcome.DELIVERED)
        put = time - 0.1 if since is None else since
        return self.add(
            direction=Direction.OUT,
            outcome=outcome,
            client_id=client_id,
            topic=topic,
            qos=qos,
            payload=payload,
            size=len(payload),
            payload_hash=payload_hash(payload),
            publisher=publisher,
            times_sent=1,
            publisher_message_id=packet_id,
            received=at(put),
            sent=at(time - 0.01),
            settled=at(time),
            **values,
        )

    def mapped(
        self,
        time: float,
        mapping: str,
        topic: str,
        payload: bytes,
        *,
        outcome: Outcome = Outcome.PUT,
        publisher: str = "p",
        packet_id: int = 0,
        since: float | None = None,
        **values: Any,
    ) -> Story:
        """A mapping has received a message, which arrived at `since` (default: a tenth of a second before)."""
        return self.add(
            **{
                "direction": Direction.MAPPED,
                "outcome": outcome,
                "client_id": mapping,
                "topic": topic,
                "qos": 1,
                "payload": payload,
                "size": len(payload),
                "payload_hash": payload_hash(payload),
                "publisher": publisher,
                "publisher_message_id": packet_id,
                "times_sent": 1,
                "settled": at(time),
                "received": at(time - 0.1 if since is None else since),
                **values,
            }
        )

    def write(self, directory: Path) -> Path:
        """Write it as one file. Return `directory`."""
        return write(directory, self.rows)

    def write_old(self, directory: Path) -> Path:
        """Write the same as a version without mappings."""
        place = partition(directory, NOON)
        place.mkdir(parents=True)
        table = pa.Table.from_batches([record_batch(self.rows)]).drop_columns(["destination", "msg_id"])
        pa.parquet.write_table(table, place / "1.parquet")
        return directory


def write(directory: Path, rows: Iterable[Row], *, moment: datetime = NOON) -> Path:
    """Write rows as one file of the hour of `moment`. Return `directory`."""
    listed = list(rows)
    file = ArchiveFile(partition(directory, moment), listed[0][0])
    file.write([record_batch(listed)])
    numbers = FileNumbers(directory)
    file.finish(numbers)
    numbers.record()
    numbers.close()
    return directory


def read(directory: Path) -> list[dict[str, Any]]:
    """Return all rows of an archive in order."""
    tables = [pa.parquet.read_table(file, partitioning=None) for file in archive_files(directory)]
    return pa.concat_tables(tables).sort_by("sequence").to_pylist() if tables else []
