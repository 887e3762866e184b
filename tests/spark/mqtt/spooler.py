"""A process with the spool of a topic filter, which tests kill: the part of a driver that the broker sees."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.config.link import LinkConfig
from bridge.spark.mqtt.broker import Broker
from bridge.spark.mqtt.spool import Spool
from bridge.spark.mqtt.subscriber import Subscriber
from tests.helpers.patience import PATIENCE

#: Publications that the broker has unacknowledged at once: after so many it is seen how it numbers them.
IN_FLIGHT: Final = 20


def subscribed(port: int, directory: Path, topic_filter: str) -> tuple[Spool, Subscriber]:
    """A spool that is being filled, not yet connected. Files are small, so that a crash meets a new one too."""
    spool = Spool(directory, topic_filter, segment_bytes=4096)
    broker = Broker(link=LinkConfig(host="127.0.0.1", port=port, in_flight=IN_FLIGHT))
    subscriber = Subscriber(broker, spool, topic_filter, 2, 1 << 30)
    subscriber.start()
    return spool, subscriber


@contextmanager
def spooling(port: int, directory: Path, topic_filter: str) -> Iterator[Spool]:
    """A spool that is being filled, connected."""
    spool, subscriber = subscribed(port, directory, topic_filter)
    assert subscriber.wait_connected(PATIENCE)
    yield spool
    subscriber.stop()
    spool.close()


def session_made(port: int, directory: Path, *topic_filters: str) -> None:
    """From now on the broker keeps what is published."""
    for topic_filter in topic_filters:
        with spooling(port, directory, topic_filter):
            pass


if __name__ == "__main__":
    subscribed(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    threading.Event().wait()
