"""Options of other sources, such as Kafka's, are rejected with the option to use instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from bridge.spark.mq.queue_reader import READ_OPTIONS as MQ_OPTIONS
from bridge.spark.mq.source import MqDataSource
from bridge.spark.mqtt.source import MqttDataSource
from bridge.spark.mqtt.subscriber import READ_OPTIONS as MQTT_OPTIONS
from bridge.spark.options import MQ_FOREIGN, MQTT_FOREIGN, OptionError

SOURCES = {
    "mq": (MqDataSource, {"dataDirectory": "d", "queue": "Q"}),
    "mqtt": (MqttDataSource, {"host": "h", "topic": "a/#", "spool": "s"}),
}


@pytest.mark.parametrize(
    "source, name, hint",
    [
        ("mq", "startingOffsets", "a queue has no offsets: .* continues from its checkpoint"),
        ("mq", "startingOffsetsByTimestamp", "a queue has no offsets"),
        ("mq", "endingoffsets", r"a queue has no offsets: .*trigger\(availableNow=True\)"),  # Spark may change the case
        ("mq", "subscribePattern", r"write queue \(one, or several with commas\), or topic"),
        ("mq", "kafka.bootstrap.servers", "write config, listener .*, or channel and connections"),
        ("mq", "maxOffsetsPerTrigger", "write maxMessagesPerTrigger"),
        ("mq", "asyncProgressTrackingEnabled", "its commit log is written later"),
        ("mq", "mq.password", "options are visible in plans and logs: .*passwordFile"),
        ("mqtt", "endingTimestamp", "a broker has no log"),
        ("mqtt", "kafka.group.id", "write host and port, or config and link"),
        ("mqtt", "minPartitions", "write partitions"),
        ("mqtt", "cleanSession", "write session"),
        ("mqtt", "password", "options are visible in plans and logs"),
        ("mqtt", "queue", r"format\('mq'\)"),
    ],
)
def test_an_option_of_another_source_is_rejected(source: str, name: str, hint: str) -> None:
    data_source, options = SOURCES[source]
    with pytest.raises(OptionError, match=rf"^the data source {source} has no option {name}: .*{hint}"):
        data_source({**options, name: "x"}).schema()


def test_a_misspelled_option_is_suggested() -> None:
    with pytest.raises(OptionError, match=r"knows no option spoolLimt \(did you mean spoolLimit\?\)"):
        MqDataSource({**SOURCES["mq"][1], "spoolLimt": "x"}).schema()


@pytest.mark.parametrize("known, foreign", [(MQ_OPTIONS, MQ_FOREIGN), (MQTT_OPTIONS, MQTT_FOREIGN)])
def test_a_rejected_option_is_not_an_option(known: tuple[str, ...], foreign: Mapping[str, str]) -> None:
    patterns = [re.compile(re.escape(name).replace(r"\*", ".*"), re.IGNORECASE) for name in foreign]
    assert not [name for name in known if any(pattern.fullmatch(name) for pattern in patterns)]
