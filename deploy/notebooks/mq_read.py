"""Read a queue: a batch read of the source `mq` browses all messages, and removes none."""

# %%
import os

import mqbridge
from pyspark.sql import SparkSession

CONFIG = os.environ.get("MQBRIDGE_CONFIG", "bridge.yaml")
spark = SparkSession.builder.getOrCreate()
mqbridge.register(spark)

# %% One row per message. help(mqbridge.MqDataSource) describes the options, DESCRIBE lists the columns.
messages = spark.read.format("mq").option("config", CONFIG).option("queue", "PLANT.EVENTS").load()
messages.createOrReplaceTempView("messages")
spark.sql("DESCRIBE messages").show(truncate=80)

# %% Message properties by folder, and JSON in the text.
sites = spark.sql("""
    SELECT rfh2.usr.site AS site, count(*) AS messages, max(from_json(text, 'number INT').number) AS last
    FROM messages GROUP BY 1 ORDER BY 1
""")
sites.show()

# %% The queue manager evaluates the selector, and sends only matching messages.
north = spark.read.format("mq").option("config", CONFIG).option("queue", "PLANT.EVENTS")
north = north.option("selector", "site = 'north' AND Root.MQMD.Priority > 3").load()
print(north.count(), "messages of the north")
