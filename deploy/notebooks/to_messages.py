"""Convert rows to MQ messages with a mapping of the bridge, in the same way as the bridge converts publications."""

# %%
import os

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% Publications from the source mqtt, from the bridge's archive, or, as here, from SQL.
publications = spark.sql("""
    SELECT 'plant/line1/temp' AS topic, '{"value": 21.5}' AS payload, 1 AS qos
    UNION ALL SELECT 'plant/line1/temp', 'no JSON', 1
""")

# %% Rows that the mapping rejects are in the result, with the reason.
messages = mqbridge.to_messages(publications, "telemetry", config=CONFIG)
messages.select("queue", "body", "refusal").show(truncate=60)

# %% Put the messages. Rejected rows go to the dead-letter queue.
writer = messages.write.format("mq").option("config", CONFIG).option("refused", "SYSTEM.DEAD.LETTER.QUEUE")
writer.mode("append").save()
