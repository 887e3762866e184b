"""Options of other sources (Kafka's of Spark, the MQ connector of Kafka Connect, MQTT of Bahir) that have no place here.

A table says of each why, and what to write instead. Names are as those sources have them; one that ends with `*` is the
beginning of many, and `starting` and `ending` stand for what Kafka's source has of such names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SECRET: Final = "options are seen in plans and logs: write it into a file, and name that as passwordFile"
_ALL_COLUMNS: Final = "a row has all columns in any case: select those you want"
_TRIGGER: Final = "a batch begins when its trigger says so: writeStream.trigger(processingTime=...)"

#: Of reads and writes, of both sources.
COMMON: Final[Mapping[str, str]] = {
    "password": _SECRET,
    "mq.password": _SECRET,
    "kafka.*": "there is no Kafka client here",
}

#: Of any read.
_READS: Final[Mapping[str, str]] = {
    **COMMON,
    "maxOffsetsPerTrigger": "offsets are no numbers of messages here: write maxMessagesPerTrigger",
    "minOffsetsPerTrigger": _TRIGGER,
    "maxTriggerDelay": _TRIGGER,
    "minPartitions": "the number of parts of a batch is fixed: write partitions",
    "maxRecordsPerPartition": "the number of parts of a batch is fixed: write partitions",
    "kafkaConsumer.*": "there is no Kafka client here",
    "fetchOffset.*": "there is no Kafka client here",
}

#: Of a read of the source `mq`.
MQ_READS: Final[Mapping[str, str]] = {
    **_READS,
    "starting": (
        "a queue has no offsets to start from: a stream takes all that lies on the queue, and goes on where its checkpoint"
        " is; select by put_time or md.MsgId what you want of it"
    ),
    "ending": (
        "a queue has no offsets to end at: a batch read ends with what lies on the queue when it begins, as does a stream"
        " with trigger(availableNow=True); select by put_time what you want of it"
    ),
    "subscribe": "write queue (one, or several with commas), or topic and subscription for what is published",
    "subscribePattern": (
        "queues are read by their names: write queue with commas, or topic with MQ's wildcards (a/+/b, a/#) and subscription"
    ),
    "assign": "a queue has no partitions of its own: write queue, and partitions for the parts that a batch is read in",
    "kafka.bootstrap.servers": "write config, listener (of a bridge), or channel and connections (of IBM MQ)",
    "kafka.group.id": "a queue is read by one query, and its checkpoint is what knows how far it is",
    "groupIdPrefix": "a queue is read by one query, and its checkpoint is what knows how far it is",
    "includeHeaders": f"{_ALL_COLUMNS}, such as md, rfh2 and headers",
    "mq.queue.manager": "write queueManager",
    "mq.connection.name.list": "write connections",
    "mq.channel.name": "write channel",
    "mq.ccdt.url": "write ccdtUrl",
    "mq.queue": "write queue",
    "mq.user.name": "write user",
    "mq.batch.size": "write maxMessagesPerTrigger",
    "mq.message.body.jms": "headers and body are columns of their own in any case",
    "mq.record.builder": "rows have the columns of a message: make others by select",
    "clientId": "an application of MQ has a name and no client identifier: write applicationName",
    "qos": "messages of a queue are read exactly once",
    "browse": "a streaming read takes messages, and a batch read browses; read a subscription for a copy of messages",
    "failOnDataLoss": "nobody else can take messages from the spool, so a loss always ends the query",
    "writeId": "it names a write",
}

#: Of a read of the source `mqtt`.
MQTT_READS: Final[Mapping[str, str]] = {
    **_READS,
    "starting": (
        "a broker keeps no log to start from: a session has what is published from its beginning, and the stream goes on"
        " where its checkpoint is; what was retained comes at the beginning"
    ),
    "ending": "a broker keeps no log to end at: a stream with trigger(availableNow=True) ends when nothing comes any more",
    "subscribe": "write topic (a topic filter, or several with commas)",
    "subscribePattern": "write topic, with MQTT's wildcards (a/+/b, a/#)",
    "assign": "a topic has no partitions of its own: write topic, and partitions for the parts that a batch is read in",
    "kafka.bootstrap.servers": "write host and port, or config and link",
    "kafka.group.id": "a session at the broker is read by one query: write clientId to name it",
    "groupIdPrefix": "a session at the broker is read by one query: write clientId to name it",
    "includeHeaders": f"{_ALL_COLUMNS}, such as properties",
    "failOnDataLoss": "what is lost of the spool ends the query in any case: nobody else can take messages away from it",
    "queue": "queues are read with format('mq')",
    "brokerUrl": "write host and port, and tls",
    "username": "write user",
    "cleanSession": "write session (durable or clean)",
    "mqttVersion": "write version (5 or 3.1.1)",
    "maxInflight": "write inFlight",
    "localStorage": "write spool",
    "persistence": "what has come is in files of the spool in any case",
    "writeId": "it names a write",
}

_POSITIONS: Final = {
    start: [f"{start}{name}" for name in ("Offsets", "Timestamp", "OffsetsByTimestamp", "OffsetsByTimestampStrategy")]
    for start in ("starting", "ending")
}


def reason_against(key: str, table: Mapping[str, str]) -> tuple[str, str] | None:
    """Return an option of a table as its source writes it, and why it has no place here; None: it is not there."""
    plain = key.replace("_", "").lower()
    for name, reason in table.items():
        for one in _POSITIONS.get(name, [name]):
            if one.lower() == plain:
                return one, reason
    for name, reason in table.items():
        if name.endswith("*") and plain.startswith(name[:-1].lower()):
            return key, reason
    return None
