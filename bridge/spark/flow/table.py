"""Parquet files that a query writes exactly once: those of a batch that is run again have the same names.

    DIR/date=YYYY-MM-DD/hour=HH/QUERY-BATCH-PARTITION.parquet

A file is there when it is whole: it is written beside its place under a name that readers pass by, and renamed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.files import durable_file
from bridge.spark.task import Identity

#: Columns that the path of a file says, text.
DATE: Final = "date"
HOUR: Final = "hour"


def write_all(directory: str, identity: Identity, batches: Iterable[Any]) -> int:
    """Write the rows of a partition, by their columns `date` and `hour`; return how many there were. Raises OSError."""
    found = list(batches)
    if not found or not (table := pa.Table.from_batches(found)).num_rows:
        return 0
    hours = table.group_by([DATE, HOUR]).aggregate([]).to_pylist()
    for hour in hours:
        chosen = table.filter(pc.and_(pc.equal(table[DATE], hour[DATE]), pc.equal(table[HOUR], hour[HOUR])))
        place = Path(directory, f"{DATE}={hour[DATE]}", f"{HOUR}={hour[HOUR]}")
        name = f"{identity.query}-{identity.batch:08d}-{identity.partition:04d}.parquet"
        write(place / name, chosen.drop_columns([DATE, HOUR]))
    return int(table.num_rows)


def write(path: Path, table: Any) -> None:
    """Write a file that is there when it is whole, and durable then. Raises OSError."""
    with durable_file(path) as file:
        pq.write_table(table, file)
