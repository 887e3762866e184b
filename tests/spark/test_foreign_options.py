"""Options of other sources, such as Kafka's, are rejected with the reason and the option to use instead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bridge.spark.mq.queue_reader import READ_OPTIONS as MQ_OPTIONS
from bridge.spark.mq.source import MqDataSource
from bridge.spark.mqtt.source import MqttDataSource
from bridge.spark.mqtt.subscriber import READ_OPTIONS as MQTT_OPTIONS
from bridge.spark.options import COMMON, MQ_READS, MQTT_READS, OptionError

MQ = {"dataDirectory": "d", "queue": "Q"}
MQTT = {"host": "h", "topic": "a/#", "spool": "s"}


@pytest.mark.parametrize(
    "name, said",
    [
        ("startingOffsets", "a queue has no offsets: .* continues from its checkpoint"),
        ("startingOffsetsByTimestamp", "a queue has no offsets"),
        ("endingOffsets", r"a queue has no offsets: .*trigger\(availableNow=True\)"),
        ("subscribe", r"write queue \(one, or several with commas\), or topic"),
        ("subscribePattern", "topic .with MQ's wildcards. and subscription"),
        ("assign", "write partitions"),
        ("kafka.bootstrap.servers", "write config, listener .*, or channel and connections"),
        ("kafka.security.protocol", "there is no Kafka client here"),
        ("kafka.group.id", "one query reads a queue"),
        ("maxOffsetsPerTrigger", "write maxMessagesPerTrigger"),
        ("minOffsetsPerTrigger", r"writeStream.trigger\("),
        ("includeHeaders", "the columns rfh2, headers"),
        ("mq.queue.manager", "write queueManager"),
        ("mq.password", "options are visible in plans and logs: .*passwordFile"),
        ("browse", "a streaming read takes messages"),
    ],
)
def test_of_a_queue(name: str, said: str) -> None:
    for written in (name, name.lower()):  # Spark may pass names in lower case
        with pytest.raises(OptionError, match=rf"^the data source mq has no option (?i:{name}): .*{said}"):
            MqDataSource({**MQ, written: "x"}).schema()


@pytest.mark.parametrize(
    "name, said",
    [
        ("startingOffsets", "a broker has no log: .*retained"),
        ("endingTimestamp", "a broker has no log"),
        ("subscribe", r"write topic \(a topic filter"),
        ("kafka.bootstrap.servers", "write host and port, or config and link"),
        ("minPartitions", "write partitions"),
        ("failOnDataLoss", "a loss in the spool always ends the query"),
        ("brokerUrl", "write host and port"),
        ("cleanSession", "write session"),
        ("password", "options are visible in plans and logs"),
        ("queue", r"format\('mq'\)"),
    ],
)
def test_of_a_broker(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"^the data source mqtt has no option {name}: .*{said}"):
        MqttDataSource({**MQTT, name: "x"}).schema()


def test_a_misspelled_option_is_suggested() -> None:
    with pytest.raises(OptionError, match=r"knows no option spoolLimt \(did you mean spoolLimit\?\)"):
        MqDataSource({**MQ, "spoolLimt": "x"}).schema()


@pytest.mark.parametrize("known, refused", [(MQ_OPTIONS, MQ_READS), (MQTT_OPTIONS, MQTT_READS), ((), COMMON)])
def test_a_rejected_option_is_not_an_option(known: tuple[str, ...], refused: Mapping[str, str]) -> None:
    assert not {name.lower() for name in known} & {name.lower() for name in refused}
    assert not [name for name in known for start in refused if start[-1] == "*" and name.startswith(start[:-1])]
