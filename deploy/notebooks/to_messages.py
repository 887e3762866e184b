"""Rows to MQ messages by a mapping of the bridge: what the service would put of the same publications."""

# %%
import os

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% Publications: of the source mqtt, of the bridge's archive, or made here.
publications = spark.sql("""
    SELECT 'plant/line1/temp' AS topic, '{"value": 21.5}' AS payload, 1 AS qos
    UNION ALL SELECT 'plant/line1/temp', 'no JSON', 1
""")

# %% What the mapping refuses is in the result with the reason.
messages = mqbridge.to_messages(publications, "telemetry", config=CONFIG)
messages.select("queue", "body", "refusal").show(truncate=60)

# %% They are put as the service puts them, what is refused to the dead-letter queue.
writer = messages.write.format("mq").option("config", CONFIG).option("refused", "SYSTEM.DEAD.LETTER.QUEUE")
writer.mode("append").save()
