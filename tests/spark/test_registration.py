"""Sessions that a program makes itself, in an environment that is not activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.helpers.patience import PATIENCE
from tests.spark.conftest import ROOT, Queues

PROGRAM = """
import sys
from pyspark.sql import SparkSession

directory, queue, how = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
if how == "found":
    builder = builder.config("spark.pyspark.python", sys.executable)
spark = builder.getOrCreate()
if how == "registered":
    from bridge.spark import register

    register(spark)
options = f"dataDirectory '{directory}', queue '{queue}', columns 'body,md.Priority'"
spark.sql(f"CREATE TEMPORARY VIEW orders USING mq OPTIONS ({options})")
print(spark.sql("SELECT count(*), sum(md.Priority) FROM orders").first())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["registered", "found"])
def test_a_program_of_its_own(how: str, spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    """By `register`, and by the modules that Spark finds where they are installed."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2", Priority=4)
    (tmp_path / "program.py").write_text(PROGRAM)
    for name in ("pyspark_mq.py", "pyspark_mqtt.py") if how == "found" else ():
        (tmp_path / name).symlink_to(Path(ROOT, "bridge", "spark", name))
    java = {name: value for name, value in os.environ.items() if "JAVA" in name}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{tmp_path}", "SPARK_LOCAL_IP": "127.0.0.1", **java}
    run = subprocess.run(
        [sys.executable, "program.py", str(queues.directory), queue, how],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Row(count(1)=2, sum(md.Priority)=8)" in run.stdout, run.stderr[-3000:]


def test_a_table_without_its_options(spark: SparkSession, queues: Queues) -> None:
    """Spark does not pass the options of a table to the reader: the query has them, or is told."""
    queue = queues.queue()
    queues.put(queue, b"1")
    options = {**queues.options, "queue": queue}
    given = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TABLE orders_of_a_queue USING mq OPTIONS ({given})")
    try:
        again = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        assert spark.sql(f"SELECT * FROM orders_of_a_queue WITH ({again})").count() == 1
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW … USING mq"):
            spark.sql("SELECT * FROM orders_of_a_queue").count()
    finally:
        spark.sql("DROP TABLE orders_of_a_queue")
