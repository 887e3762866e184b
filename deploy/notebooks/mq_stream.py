"""A queue to Parquet, exactly once: a streaming read of the source `mq`."""

# %%
import json
import os
from pathlib import Path

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
OUT = Path("out").absolute()
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% A reader moves messages from the queue to the spool. They stay there until their batch is committed.
messages = spark.readStream.format("mq").option("config", CONFIG).option("queue", "PLANT.EVENTS")
messages = messages.option("spool", f"{OUT}/events.spool").option("maxMessagesPerTrigger", 4).load()
events = messages.selectExpr("put_time", "rfh2.usr.site", "from_json(text, 'event STRING, number INT') AS payload")
events = events.select("put_time", "site", "payload.*")

# %% Process the messages that are on the queue now. trigger(processingTime="1 second") runs until it is stopped.
query = (
    events.writeStream.format("parquet")
    .option("path", f"{OUT}/events")
    .option("checkpointLocation", f"{OUT}/events.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% The backlog after each batch.
for progress in query.recentProgress:
    if progress.numInputRows:
        print(progress.batchId, json.loads(progress.sources[0].latestOffset))
spark.read.parquet(f"{OUT}/events").orderBy("number").show()
