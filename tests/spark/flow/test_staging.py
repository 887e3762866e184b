"""Batches that would come out otherwise when they are run again: what was made first is what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from bridge.spark.flow.staging import Staging
from tests.spark.flow.conftest import Bench


def test_a_batch_that_was_written_in_part_is_gone_on_with(bench: Bench) -> None:
    """Its rows have other identifiers, and the table is another, when the second destination takes it; windows go on."""
    source, target = bench.queues.queue(), bench.queues.queue()
    archive, table = bench.directory / "rows", bench.directory / "units.csv"
    bench.write(
        """
        pipelines:
          named:
            from: {mq: {queue: $source}, options: {partitions: 2}}
            tables: {units: $table}
            select: SELECT uuid() AS id, payload:n::int AS n, unit, put_time AS received
                    FROM input JOIN units ON payload:n::int = row
            to: {mq: {queue: $target}, archive: $archive}
        """,
        source=source,
        target=target,
        archive=archive,
        table=table,
    )
    table.write_text("row,unit\n" + "".join(f"{n},old\n" for n in range(40)))
    archive.write_text("no directory")
    bench.queues.put(source, *(b'{"n": %d}' % n for n in range(40)))
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if "tried again" in line and archive.is_file():
            table.write_text("row,unit\n" + "".join(f"{n},new\n" for n in range(0, 40, 2)))
            archive.unlink()

    assert bench.runner(tell=tell, attempts=3).run() == []
    assert any("tried again" in line for line in lines)
    messages = [json.loads(body) for body in bench.queues.bodies(target)]
    rows: list[dict[str, Any]] = ds.dataset(archive, partitioning=None).to_table(["id", "n", "unit"]).to_pylist()
    made = [{name: one[name] for name in ("id", "n", "unit")} for one in messages]
    assert sorted(made, key=lambda one: one["n"]) == sorted(rows, key=lambda one: one["n"])
    assert [one["n"] for one in sorted(rows, key=lambda one: one["n"])] == list(range(40))
    assert {one["unit"] for one in rows} == {"old"}
    # The next batch is made anew, and the one before has gone.
    bench.queues.put(source, b'{"n": 2}', b'{"n": 3}')
    bench.run()
    (again,) = (json.loads(body) for body in bench.queues.bodies(target)[-1:])
    assert (again["n"], again["unit"]) == (2, "new")
    staging = bench.plan("named").staging
    assert staging is not None and [one.name[-7:] for one in staging.glob("*.json")] == ["-1.json"]
    assert len(list(staging.iterdir())) == 2


def test_a_manifest_that_is_damaged_is_named(tmp_path: Path) -> None:
    """It is not taken for a batch that nothing was written of."""
    (tmp_path / "query-7.json").write_bytes(b'{"schema": "')
    with pytest.raises(OSError, match=r"query-7\.json is damaged: .*may come twice"):
        Staging(tmp_path)._manifest("query-7")
