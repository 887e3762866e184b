"""Options of the source under `from` of a pipeline: checked as the source checks them, and at work."""

from __future__ import annotations

import pytest
from paho.mqtt import publish

from bridge.config import load
from bridge.spark.flow.mistake import Mistake
from tests.helpers.mosquitto import Mosquitto
from tests.spark.flow.conftest import Bench


@pytest.mark.parametrize(
    "source, options, location, said",
    [
        ("mq: {queue: Q}", "{partitions: 0}", ("from", "options"), "option partitions: expected an integer from 1"),
        ("mq: {queue: Q}", "{partition: 1}", ("from", "options"), r"knows no option partition \(did you mean partitions\?\)"),
        ("mq: {queue: Q}", "{startingOffsets: x}", ("from", "options"), "has no option startingOffsets: a queue"),
        ("mqtt: a/#", "{qos: 3}", ("from", "options"), "option qos: expected an integer from 0 to 2"),
        ("mqtt: a/#/b", "{qos: 1}", ("from", "mqtt"), "# must be at the end"),
    ],
)
def test_refused(bench: Bench, source: str, options: str, location: tuple[str, ...], said: str) -> None:
    text = f"{{from: {{{source}, options: {options}}}, select: SELECT body FROM input, to: {{mq: {{queue: R}}}}}}"
    bench.write(f"pipelines: {{a: {text}}}")
    with pytest.raises(Mistake, match=said) as raised:
        bench.plan("a")
    assert raised.value.location == location


def test_the_source_has_them(bench: Bench) -> None:
    text = "from: {mq: {queue: Q}, options: {partitions: 4, maxBytesPerTrigger: 1 MiB, failOnDataLoss: no}}"
    bench.write(f"pipelines: {{a: {{{text}, select: SELECT body FROM input, to: {{mq: {{queue: R}}}}, batch: 7}}}}")
    config = load(bench.file).pipelines["a"]
    made = bench.plan("a").environment.source_options("a", config)
    expected = {"partitions": "4", "maxBytesPerTrigger": "1 MiB", "failOnDataLoss": "false", "maxMessagesPerTrigger": "7"}
    assert expected.items() <= made.items()


def test_a_session_that_the_user_names_outlives_the_name_of_the_pipeline(bench: Bench, broker: Mosquitto) -> None:
    target = bench.queues.queue()
    text = """
        links: {plant: {host: 127.0.0.1, port: $port}}
        pipelines:
          $name:
            from: {mqtt: session/#, link: plant, options: {clientId: plant-averages}}
            payload: bytes
            select: SELECT concat(client_id, ' ', cast(body AS STRING)) AS body FROM input
            to: {mq: {queue: $target}}
        """
    bench.write(text, name="before", port=broker.port, target=target)
    bench.run()  # the session begins
    publish.single("session/1", b"between", qos=1, port=broker.port)
    bench.write(text, name="after", port=broker.port, target=target)
    bench.run()
    assert bench.queues.bodies(target) == [b"plant-averages between"]
