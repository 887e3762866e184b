"""Put rows to a queue: a batch write of the source `mq`."""

# %%
import os

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% A row is a message: its body as text, message properties in rfh2, fields of the MQMD in md.
events = spark.sql("""
    SELECT concat('{"event": "stop", "number": ', id, '}') AS body,
           'MQSTR' AS format,
           map('usr', map('site', IF(id % 2 = 0, 'north', 'south'))) AS rfh2,
           named_struct('Priority', 4, 'CorrelId', cast(lpad(id, 24, '0') AS BINARY)) AS md
    FROM range(10)
""")

# %% With a writeId, a repeated write (a restarted job) puts no message twice.
writer = events.write.format("mq").option("config", CONFIG).option("queue", "PLANT.EVENTS")
writer.option("writeId", "notebook").mode("append").save()
