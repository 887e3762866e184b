"""Sessions created by a program, in an environment that is not activated."""

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
import mqbridge
from pyspark.sql import SparkSession

directory, queue = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
mqbridge.register(spark)
options = f"dataDirectory '{directory}', queue '{queue}', columns 'body,md.Priority'"
spark.sql(f"CREATE TEMPORARY VIEW orders USING mq OPTIONS ({options})")
print(spark.sql("SELECT count(*), sum(md.Priority) FROM orders").first())
"""


@pytest.mark.slow
def test_a_program_with_its_own_session(spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    """Only `register` registers the sources, and it prints no warning."""
    queue = queues.queue()
    queues.put(queue, b"1", b"2", Priority=4)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mqbridge.py").symlink_to(Path(ROOT, "bridge", "spark", "mqbridge.py"))
    java = {name: value for name, value in os.environ.items() if "JAVA" in name}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{tmp_path}", "SPARK_LOCAL_IP": "127.0.0.1", **java}
    run = subprocess.run(
        [sys.executable, "program.py", str(queues.directory), queue],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Row(count(1)=2, sum(md.Priority)=8)" in run.stdout, run.stderr[-3000:]
    assert "registered data source" not in run.stderr


def test_a_table_keeps_its_options(spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    """The query does not repeat them. Its own options take precedence."""
    queue, other = queues.queue(), queues.queue()
    queues.put(queue, b"1", b"2")
    options = {**queues.options, "queue": queue, "columns": "body,put_time,md.MsgId"}
    option_list = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TABLE orders_of_a_queue USING mq OPTIONS ({option_list})")
    try:
        rows = spark.sql("SELECT body FROM orders_of_a_queue WHERE put_time IS NOT NULL").collect()
        assert [row.body for row in rows] == [b"1", b"2"]
        assert spark.table("orders_of_a_queue").columns == ["body", "put_time", "md"]
        assert spark.sql(f"SELECT * FROM orders_of_a_queue WITH ('queue' = '{other}')").count() == 0
        stream = spark.readStream.option("spool", str(tmp_path / "spool")).table("orders_of_a_queue")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination(PATIENCE)
        assert spark.read.parquet(str(tmp_path / "rows")).count() == 2
    finally:
        spark.sql("DROP TABLE orders_of_a_queue")
