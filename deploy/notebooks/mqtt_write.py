"""Publish rows to an MQTT broker: a batch write of the source `mqtt`."""

# %%
import os

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% The topic is a column, or a template of columns as the option `topic`.
readings = spark.sql("SELECT concat('plant/line1/t', id) AS topic, cast(20 + id AS STRING) AS payload FROM range(3)")

# %% At least once: a repeated task publishes again.
readings.write.format("mqtt").option("config", CONFIG).option("link", "local").option("qos", 1).mode("append").save()
