"""A queue to a topic, exactly once, with foreachBatch: the third example of docs/how-to/pipelines.md without YAML."""

# %%
import os
from pathlib import Path

import mqbridge
from pyspark.sql import DataFrame, SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
OUT = Path("out").absolute()
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %%
messages = spark.readStream.format("mq").option("config", CONFIG).option("queue", "PLANT.ALARMS")
messages = messages.option("spool", f"{OUT}/alarms.spool").load()
alarms = messages.selectExpr("body", "format", "concat('plant/alarms/', coalesce(rfh2.usr.site, 'unknown')) AS topic")


# %% writeId and epoch make a write of foreachBatch exactly once, as txnAppId and txnVersion do for Delta.
def write(batch: DataFrame, epoch: int) -> None:
    """Publish a batch."""
    writer = batch.write.format("mq").option("config", CONFIG)
    writer.option("writeId", "alarms").option("epoch", epoch).mode("append").save()


query = (
    alarms.writeStream.foreachBatch(write)
    .option("checkpointLocation", f"{OUT}/alarms.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
