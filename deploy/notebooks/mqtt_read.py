"""Topics of an MQTT broker to Parquet: a streaming read of the source `mqtt`."""

# %%
import os
from pathlib import Path

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
OUT = Path("out").absolute()
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% The first run creates the session at the broker, which from then on keeps publications between runs.
# Here the broker is the bridge itself. For another broker, use a link of the configuration file, or .option("host", ...).
readings = spark.readStream.format("mqtt").option("config", CONFIG).option("link", "local")
readings = readings.option("topic", "plant/#").option("spool", f"{OUT}/readings.checkpoint/spool").load()
values = readings.selectExpr("received", "topic", "try_cast(cast(payload AS STRING) AS DOUBLE) AS value")

# %%
query = (
    values.writeStream.format("parquet")
    .option("path", f"{OUT}/readings")
    .option("checkpointLocation", f"{OUT}/readings.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.read.schema(values.schema).parquet(f"{OUT}/readings").orderBy("topic").show()
