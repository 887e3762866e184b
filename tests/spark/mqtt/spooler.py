"""A process with the spool of a topic filter, which tests kill: the part of a driver that is connected to the broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.config.link import LinkConfig
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.subscriber import MqttSourceOptions, SpoolSubscriber
from bridge.spark.spool import Spool, StreamOptions, read_segments

#: Maximum number of unacknowledged publications of the broker.
IN_FLIGHT: Final = 20


def subscriber_of(port: int, directory: Path, topic_filter: str, **stream: int) -> SpoolSubscriber:
    """Return a subscriber that is not started."""
    return SpoolSubscriber(
        MqttSourceOptions(
            broker=Broker(link=LinkConfig(host="127.0.0.1", port=port, in_flight=IN_FLIGHT)),
            topic_filters=(topic_filter,),
            stream=StreamOptions(spool=str(directory), **stream),
        ),
        topic_filter,
    )


@contextmanager
def spooling(port: int, directory: Path, topic_filter: str) -> Iterator[Spool]:
    """Return a connected spool."""
    subscriber = subscriber_of(port, directory, topic_filter)
    subscriber.start()
    yield subscriber.spool
    subscriber.stop()
    subscriber.spool.close()


def session_made(port: int, directory: Path, *topic_filters: str) -> None:
    """Create the session, so that the broker keeps publications."""
    for topic_filter in topic_filters:
        with spooling(port, directory, topic_filter):
            pass


def payloads(subscriber: SpoolSubscriber) -> list[bytes]:
    """Return the payloads in a spool."""
    spool = subscriber.spool
    names = [segment.name for segment in spool.between(spool.first - 1, spool.last)]
    batches = read_segments(spool.place.path, names, subscriber._schema)
    return [bytes(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


if __name__ == "__main__":
    subscriber_of(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).start()
    threading.Event().wait()
