"""What a test's own clients know, as an archive: the judge's evidence, which no kill of the bridge can touch."""

from __future__ import annotations

import itertools
from pathlib import Path

from bridge.archive.schema import Row
from bridge.mqtt.packets import Publish
from tests.helpers.archive import Story, write
from tests.helpers.exactly_once import DurableSubscriber, Publisher


class PlainPublisher(Publisher):
    """A publisher whose messages are the same each time they are sent: the audit tells them by their payload."""

    def _packet(self, message_id: int, number: int, attempt: int) -> Publish:
        packet = super()._packet(message_id, number, attempt)
        return Publish(packet.topic, b"%d" % number, packet.qos, False, packet.dup, message_id)


class ClientRecords:
    """Rows of what the clients saw, written to a directory at the end. A stretch of time is a minute long in them."""

    def __init__(self) -> None:
        self._story = Story()
        self._minutes = itertools.count()

    def subscribed(self, subscriber: DurableSubscriber) -> None:
        """SUBACK came, and the client went away."""
        self._story.subscribed(subscriber.client_id, next(self._minutes) * 60, subscriber.topic_filter, subscriber.qos)

    def acknowledged(self, publisher: Publisher) -> None:
        """All that was acknowledged to the publisher, in the order in which it was published."""
        minute = next(self._minutes) * 60
        for number in sorted(publisher.acknowledged):
            topic = publisher.topics[number % len(publisher.topics)]
            self._story.put(minute, topic, b"%d" % number, publisher.qos, publisher=publisher.client_id)

    def received(self, subscriber: DurableSubscriber, publisher: Publisher) -> None:
        """All that the subscriber's application got, in the order in which it got it."""
        minute = next(self._minutes) * 60
        for topic, number in subscriber.received:
            self._story.out(
                minute, subscriber.client_id, topic, b"%d" % number, subscriber.qos, publisher=publisher.client_id
            )

    @property
    def rows(self) -> list[Row]:
        """The rows so far."""
        return self._story.rows

    def write(self, directory: Path) -> Path:
        """Write them as an archive."""
        return write(directory, self.rows)
