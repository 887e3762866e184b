"""Generated archives of any size, with publishers, subscribers and all three QoS. Nothing is lost unless requested."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bridge.archive.schema import COLUMNS, SUFFIX, Direction, arrow_schema, partition, row
from bridge.archive.writer import GROUP_BYTES, GROUP_ROWS, ROW_BYTES
from bridge.telemetry.outcome import Outcome

#: 12:00 UTC on a day. There is a publication every MESSAGE_INTERVAL microseconds: 5,000,000 of them take 50 minutes.
START = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1_000_000)
MESSAGE_INTERVAL = 600
#: Publications per file.
CHUNK = 500_000


def _texts(form: str, numbers: np.ndarray, *divisor: int) -> pa.Array:
    """Return `form` with each number, or with its remainder and quotient by a divisor. Each distinct text is created
    once.
    """
    values, places = np.unique(numbers, return_inverse=True)
    texts = [form.format(*([value % divisor[0], value // divisor[0]] if divisor else [value])) for value in values]
    return pa.array(texts).take(pa.array(places))


def generate(
    directory: Path,
    rows: int,
    *,
    publishers: int = 200,
    topics: int = 2_000,
    subscribers: int = 50,
    payload: int = 0,
    lost: int = 0,
) -> None:
    """Write `rows` rows: half are publications, half are deliveries of each topic to one of the subscribers.

    `payload` is the number of payload bytes in the archive, 0 for none. The first `lost` deliveries with QoS 1 or 2 are
    omitted.
    """
    _write(directory, START, _standing(subscribers))
    publications = rows // 2
    generator = np.random.default_rng(1)
    for first in range(0, publications, CHUNK):
        number = np.arange(first, min(first + CHUNK, publications), dtype=np.int64)
        arrivals = _messages(number, generator, publishers, topics, subscribers, payload)
        out = _deliveries(arrivals, number, subscribers, topics)
        if lost:
            qos = out.column("qos").to_numpy()
            left_out = np.flatnonzero(qos > 0)[:lost]
            out = out.take(pa.array(np.delete(np.arange(len(qos)), left_out)))
            lost -= len(left_out)
        both = pa.concat_tables([arrivals, out]).sort_by("sequence")
        _write(directory, int(START + first * MESSAGE_INTERVAL), both)


def _standing(subscribers: int) -> pa.Table:
    """Return the rows of durable sessions, each subscribed to a subtree."""
    rows = [row(sequence=1, direction=Direction.ARCHIVE, outcome=Outcome.STARTED, received=START, settled=START)]
    for number in range(subscribers):
        values = {"direction": Direction.SUBSCRIPTION, "client_id": f"subscriber-{number}", "received": START - 1000}
        rows += [
            row(sequence=2 * number + 2, outcome=Outcome.CONNECTED, settled=START - 1000, durable=True, **values),
            row(
                sequence=2 * number + 3,
                outcome=Outcome.SUBSCRIBED,
                settled=START - 1000,
                durable=True,
                topic=f"plant/{number}/#",
                qos=2,
                **values,
            ),
        ]
    columns = zip(*rows, strict=True)
    schema = arrow_schema()
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _messages(
    number: np.ndarray, generator: np.random.Generator, publishers: int, topics: int, subscribers: int, payload: int
) -> pa.Table:
    count = len(number)
    topic = number % topics
    qos = (number // topics) % 3
    received = START + number * MESSAGE_INTERVAL
    packet_id = np.where(qos > 0, number // publishers % 65_535 + 1, 0)
    client_id = _texts("publisher-{}", topic % publishers)
    content = pa.nulls(count, pa.binary())
    if payload:
        data = generator.integers(0, 256, (count, payload), dtype=np.uint8)
        content = pa.array([payload.tobytes() for payload in data], pa.binary())
    return _table(
        count,
        sequence=START + number * 2,
        direction=Direction.IN,
        outcome=Outcome.PUT,
        client_id=client_id,
        topic=_texts("plant/{}/{}", topic, subscribers),
        qos=qos,
        message_id=packet_id,
        payload=content,
        size=np.full(count, payload or 100),
        payload_hash=generator.integers(-(2**63), 2**63 - 1, count),
        publisher=client_id,
        publisher_message_id=packet_id,
        received=received,
        settled=received + 2_000,
    )


def _deliveries(publications: pa.Table, number: np.ndarray, subscribers: int, topics: int) -> pa.Table:
    """Return the rows of the deliveries, each a little later than its publication."""
    topic = number % topics
    qos = publications.column("qos").to_numpy()
    settled = START + number * MESSAGE_INTERVAL + 5_000 + (number * 7919) % 20_000
    changes = {
        "sequence": START + number * 2 + 1,
        "direction": pa.array([str(Direction.OUT)]).take(pa.array(np.zeros(len(number), np.int64))),
        "outcome": pa.array([str(Outcome.DELIVERED), str(Outcome.ACKNOWLEDGED)]).take(
            pa.array((qos > 0).astype(np.int64))
        ),
        "client_id": _texts("subscriber-{}", topic % subscribers),
        "times_sent": np.ones(len(number), np.int32),
        "received": START + number * MESSAGE_INTERVAL + 1_000,
        "sent": settled - 1_000,
        "settled": settled,
    }
    schema = publications.schema
    arrays = [
        pa.array(changes[name]).cast(schema.field(name).type) if name in changes else publications.column(name)
        for name in schema.names
    ]
    return pa.table(arrays, schema=schema)


def _table(count: int, **values: object) -> pa.Table:
    schema = arrow_schema()
    empty = dict(zip((column.name for column in COLUMNS), row(), strict=True))
    arrays = []
    for field in schema:
        value = values.get(field.name, empty[field.name])
        if isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray):
            arrays.append(pa.array(value).cast(field.type))
        else:
            arrays.append(
                pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)
            )
    return pa.table(arrays, schema=schema)


def _write(directory: Path, microseconds: int, table: pa.Table) -> None:
    place = partition(directory, datetime.fromtimestamp(microseconds / 1_000_000, UTC))
    place.mkdir(parents=True, exist_ok=True)
    name = table.column("sequence")[0].as_py()
    # The same row groups as those of the service.
    most = max(1, GROUP_BYTES // (ROW_BYTES + table.get_total_buffer_size() // table.num_rows))
    path = place / f"{name}{SUFFIX}"
    pa.parquet.write_table(table, path, compression="zstd", compression_level=1, row_group_size=min(most, GROUP_ROWS))
