"""Windowed SQL from a queue to a queue, exactly once: the second example of docs/how-to/pipelines.md without YAML."""

# %%
import os
from pathlib import Path

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
OUT = Path("out").absolute()
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% Payloads that are not JSON become rows of nulls (PERMISSIVE). The filter removes them.
messages = spark.readStream.format("mq").option("config", CONFIG).option("queue", "PLANT.TELEMETRY")
messages = messages.option("spool", f"{OUT}/averages.spool").load()
readings = messages.selectExpr("from_json(text, 'line STRING, temp DOUBLE, ts TIMESTAMP') AS payload")
readings = readings.where("payload.ts IS NOT NULL").selectExpr("payload.*")
readings.withWatermark("ts", "10 seconds").createOrReplaceTempView("readings")

# %% A window is written when the watermark has passed its end.
averages = spark.sql("""
    SELECT to_json(struct(line, window(ts, '1 minute').start AS minute, avg(temp) AS temp)) AS body
    FROM readings GROUP BY line, window(ts, '1 minute')
""")
query = (
    averages.writeStream.format("mq")
    .option("config", CONFIG)
    .option("queue", "PLANT.AVERAGES")
    .option("checkpointLocation", f"{OUT}/averages.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
late = sum(
    operator.numRowsDroppedByWatermark for progress in query.recentProgress for operator in progress.stateOperators
)
print(f"{late} late rows or groups")
