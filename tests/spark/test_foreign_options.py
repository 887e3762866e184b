"""Options that users of other sources bring along: each is refused with the reason, and with what to write instead."""

from __future__ import annotations

import pytest

from bridge.spark.errors import OptionError
from bridge.spark.foreign_options import COMMON, MQ_READS, MQTT_READS
from bridge.spark.mq.source import MqDataSource
from bridge.spark.mq.source_options import READ_OPTIONS as MQ_OPTIONS
from bridge.spark.mqtt.source import MqttDataSource
from bridge.spark.mqtt.source_options import READ_OPTIONS as MQTT_OPTIONS

MQ = {"dataDirectory": "d", "queue": "Q"}
MQTT = {"host": "h", "topic": "a/#", "spool": "s"}


@pytest.mark.parametrize(
    "name, said",
    [
        ("startingOffsets", "a queue has no offsets to start from: .*checkpoint"),
        ("startingTimestamp", "a queue has no offsets to start from: .*put_time"),
        ("startingOffsetsByTimestamp", "a queue has no offsets to start from"),
        ("endingOffsets", r"a queue has no offsets to end at: .*trigger\(availableNow=True\)"),
        ("subscribe", r"write queue \(one, or several with commas\), or topic and subscription"),
        ("subscribePattern", "queues are read by their names: .*MQ's wildcards"),
        ("assign", "a queue has no partitions of its own: .*partitions"),
        ("kafka.bootstrap.servers", "write config, listener .*, or channel and connections"),
        ("kafka.security.protocol", "there is no Kafka client here"),
        ("kafka.group.id", "a queue is read by one query"),
        ("groupIdPrefix", "a queue is read by one query"),
        ("minPartitions", "write partitions"),
        ("maxOffsetsPerTrigger", "write maxMessagesPerTrigger"),
        ("minOffsetsPerTrigger", r"writeStream.trigger\("),
        ("includeHeaders", "a row has all columns .* md, rfh2 and headers"),
        ("mq.queue.manager", "write queueManager"),
        ("mq.connection.name.list", "write connections"),
        ("mq.password", "options are seen in plans and logs: .*passwordFile"),
        ("clientId", "write applicationName"),
        ("browse", "a streaming read takes messages"),
    ],
)
def test_of_a_queue(name: str, said: str) -> None:
    for written in (name, name.lower()):  # Spark may hand names on in small letters
        with pytest.raises(OptionError, match=rf"^the data source mq has no option (?i:{name}): .*{said}"):
            MqDataSource({**MQ, written: "x"}).schema()


@pytest.mark.parametrize(
    "name, said",
    [
        ("startingOffsets", "a broker keeps no log to start from: .*retained"),
        ("endingTimestamp", "a broker keeps no log to end at"),
        ("subscribe", r"write topic \(a topic filter"),
        ("subscribePattern", "write topic, with MQTT's wildcards"),
        ("assign", "a topic has no partitions of its own"),
        ("kafka.bootstrap.servers", "write host and port, or config and link"),
        ("groupIdPrefix", "write clientId to name it"),
        ("minPartitions", "write partitions"),
        ("includeHeaders", "a row has all columns .* properties"),
        ("failOnDataLoss", "what is lost of the spool ends the query"),
        ("brokerUrl", "write host and port"),
        ("cleanSession", "write session"),
        ("mqttVersion", "write version"),
        ("password", "options are seen in plans and logs"),
        ("queue", r"format\('mq'\)"),
    ],
)
def test_of_a_broker(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"^the data source mqtt has no option {name}: .*{said}"):
        MqttDataSource({**MQTT, name: "x"}).schema()


def test_a_slip_of_the_pen_is_still_told_as_one() -> None:
    with pytest.raises(OptionError, match=r"knows no option spoolLimt \(did you mean spoolLimit\?\)"):
        MqDataSource({**MQ, "spoolLimt": "x"}).schema()


@pytest.mark.parametrize("known, refused", [(MQ_OPTIONS, MQ_READS), (MQTT_OPTIONS, MQTT_READS), ((), COMMON)])
def test_what_is_refused_is_no_option(known: tuple[str, ...], refused: dict[str, str]) -> None:
    assert not {name.lower() for name in known} & {name.lower() for name in refused}
    assert not [name for name in known for start in refused if start[-1] == "*" and name.startswith(start[:-1])]
