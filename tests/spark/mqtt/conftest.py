"""A mosquitto, and clients of it, for the tests of the source `mqtt`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery  # type: ignore[attr-defined]

from bridge.config.link import LinkConfig
from bridge.link.connection import LinkConnection
from bridge.telemetry.message import Publication
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """The broker of these tests. Each test uses separate topics."""
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"), "allow_anonymous true", "max_packet_size 2000000")
    yield broker.start()
    broker.stop()


class Client(LinkConnection):
    """A client that publishes, and receives messages of its subscriptions."""

    def publish_all(self, *publications: Publication) -> None:
        assert self.publish(publications) == {}

    def take_all(self, number: int) -> list[Publication]:
        """Publish this number of messages in order. All are acknowledged."""
        publications: list[Publication] = []
        while len(publications) < number:
            some = self.take(number - len(publications), 1 << 30, PATIENCE)
            self.acknowledge(some)
            self.complete(self.released())
            publications += [delivery.publication for delivery in some]
        return publications


Clients = Callable[..., Client]


@pytest.fixture
def clients(mosquitto: Mosquitto) -> Iterator[Clients]:
    """`clients("name", topic_filter=..., qos=...)` returns a connected client with a clean session."""
    started: list[Client] = []

    def connect(name: str, version: str = "5", **options: Any) -> Client:
        config = LinkConfig(host="127.0.0.1", port=mosquitto.port, version=version)
        started.append(Client("test", config, name, clean=True, **options))
        started[-1].start()
        assert started[-1].wait_connected(PATIENCE)
        return started[-1]

    yield connect
    for client in started:
        client.stop(PATIENCE)


def stream(spark: SparkSession, port: int, spool: Path, topic: str, **options: Any) -> DataFrame:
    """A streaming read from a broker of this machine."""
    reader = spark.readStream.format("mqtt").options(host="127.0.0.1", port=port, spool=str(spool), topic=topic)
    return reader.options(**{"quietPeriod": "500 ms", **options}).load()


def run(frame: DataFrame, sink: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Run a query until all available messages are processed."""
    writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    return query
