"""Large batches of a pipeline that are repeated after kills and errors, each time with other settings.

The variables of test_kills.py apply. MQBRIDGE_TEST_BATCH is the number of rows of a batch.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.patience import until_at_last
from tests.spark.flow.test_kills import CLUSTER, KILLS, Run, Site, put, take

BATCH = int(os.environ.get("MQBRIDGE_TEST_BATCH", "12000"))
ROWS = 3 * BATCH
CONFIGURATION = """
queue_manager: {data_directory: $data}
channels: [{name: C, port: 0}]
spark:
  conf: {spark.driver.memory: 1g, spark.driver.extraJavaOptions: $java, $conf}
  shared: [$shared]
pipelines:
  changing:
    from: {mq: {queue: IN}, options: {partitions: 2}}
    select: SELECT text AS body FROM input
    to: {mq: {queue: OUT}}
    trigger: 0
    batch: $rows
    checkpoint: $shared/changing
"""
#: Expressions for the body of a message, which begins with its number. The last one fails in the middle of a partition.
BODIES = (
    "text",
    "concat(text, ' ', uuid())",
    "concat(text, ' ', current_timestamp())",
    "concat(text, ' ', rand())",
    "IF(int(text) % {batch} = {bad}, raise_error('no row'), text)",
)
FAILS = BODIES[-1]


def changed(text: str, body: str) -> str:
    """Return a configuration with other partitions, another order of rows, and another SELECT."""
    conf = f"spark.sql.shuffle.partitions: {random.choice([1, 2, 7])}, "
    hint = random.choice(["", "/*+ REPARTITION */ ", "/*+ REPARTITION(3) */ ", "/*+ COALESCE(1) */ "])
    body = body.format(batch=BATCH, bad=BATCH * 7 // 8)
    text = text.replace("conf: {", f"conf: {{{conf}").replace("partitions: 2}", f"partitions: {random.randint(1, 5)}}}")
    return text.replace("SELECT text AS body", f"SELECT {hint}{body} AS body")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack, CONFIGURATION.replace("$rows", str(BATCH)))


@pytest.mark.slow
@pytest.mark.timeout(600 + 300 * KILLS + ROWS // 10)
def test_a_repeated_batch_is_put_once_whatever_has_changed(site: Site) -> None:
    connection = site.connect()
    for name in ("IN", "OUT"):
        assert connection.command(f"DEFINE QLOCAL('{name}') MAXDEPTH(1000000) DEFPSIST(YES)")[0].ok
    put(connection, "IN", [b"%d" % number for number in range(ROWS)])
    connection.disconnect()
    text = site.file.read_text()
    words = ["--master", site.master] if site.master else []
    moments: Counter[str] = Counter()
    for number in range(KILLS):
        body = FAILS if number % 3 == 0 else random.choice(BODIES[:-1])
        site.file.write_text(changed(text, body))
        run = Run(site.file, site.directory / f"lines-{number}", *words)
        try:
            if body == FAILS:
                until_at_last(lambda: run.process.poll() is not None, run.cpu_time)  # noqa: B023
                moments["error in a row"] += 1
                continue
            # The first row of a unit of work is put after the manifest. The end of the batch deletes it.
            staged = random.choice(["manifest", "*.arrow"])
            until_at_last(lambda: run.process.poll() is not None or bool(staged_files(site, staged)), run.cpu_time)  # noqa: B023
            time.sleep(random.uniform(0, 0.3))
            moments[f"after {staged}"] += 1
            while run.process.poll() is None and not site.kill_one(run):
                time.sleep(random.uniform(0, 2))
        finally:
            run.end()
    site.file.write_text(text)
    last = Run(site.file, site.directory / "lines", *words, "--once")
    try:
        until_at_last(lambda: last.process.poll() is not None, last.cpu_time)
        assert last.process.returncode == 0, last.lines.read_text()
    finally:
        last.end()
    numbers = Counter(int(body.partition(b" ")[0]) for body in take(site.connect(), "OUT"))
    expected = Counter(range(ROWS))
    assert numbers == expected, ((expected - numbers).total(), (numbers - expected).total())
    assert not any(staged_files(site, "*"))
    print(f"\n{ROWS} rows in batches of {BATCH}, {dict(moments)}, kills {dict(site.killed)}, cluster: {CLUSTER}")


def staged_files(site: Site, pattern: str) -> list[Path]:
    """Return the staged files of the pipeline whose names match."""
    try:
        return [path for path in (site.shared / "changing" / "stage").rglob(pattern) if path.is_file()]
    except FileNotFoundError:  # a directory was deleted meanwhile
        return []
