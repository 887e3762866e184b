"""Which clients publish to a topic: counts per client, while an administrator requests them."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from bridge.administration.answers import TopicPublisher
from bridge.mqtt.topics import matches
from bridge.service.events import EventBus, Published

#: Maximum number of topic filters, and of clients for each.
MAX_FILTERS: Final = 8
MAX_CLIENTS: Final = 500
#: Seconds after the last request until a filter is no longer counted.
IDLE_TIMEOUT: Final = 30.0
#: Minimum length of a measurement window in seconds.
WINDOW: Final = 5.0


class _Publisher:
    """The counts of one client."""

    __slots__ = ("before", "count", "last", "rate", "topic")

    def __init__(self) -> None:
        self.topic = ""
        self.last = 0
        self.count = 0
        #: the count at the beginning of the window, and the rate of the last complete window
        self.before = 0
        self.rate: float | None = None


class CountedFilter:
    """The publishers of one topic filter."""

    def __init__(self, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.since = time.time()
        self.clients: dict[str, _Publisher] = {}
        #: further clients were not counted
        self.more = False
        self.asked_at = self._begun = time.monotonic()

    def note(self, event: Published) -> None:
        """Count the publications of a unit of work."""
        for message, _ in event.publications:
            if not matches(self.topic_filter, message.topic):
                continue
            publisher = self.clients.get(event.session.client_id)
            if publisher is None:
                if len(self.clients) >= MAX_CLIENTS:
                    self.more = True
                    return
                publisher = self.clients[event.session.client_id] = _Publisher()
            publisher.count += 1
            publisher.topic, publisher.last = message.topic, event.received_at

    def publishers(self) -> list[TopicPublisher]:
        """Return the clients and their rates, and begin a new window if the current one is complete."""
        now = time.monotonic()
        self.asked_at = now
        if (length := now - self._begun) >= WINDOW:
            self._begun = now
            for publisher in self.clients.values():
                publisher.rate = (publisher.count - publisher.before) / length
                publisher.before = publisher.count
        return [
            TopicPublisher(
                client_id=name,
                topic=publisher.topic,
                last=publisher.last / 1e6,
                count=publisher.count,
                rate=publisher.rate,
            )
            for name, publisher in self.clients.items()
        ]


class TopicPublishers:
    """Counts the publishers of the topic filters of recent requests. Methods are called on the event loop."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._filters: dict[str, CountedFilter] = {}
        self._timer: asyncio.TimerHandle | None = None

    def of(self, topic_filter: str) -> CountedFilter:
        """Return the publishers of a filter since the first request, and keep counting.

        Beyond the maximum number of filters, the least recently requested one is forgotten.
        """
        self._forget_silent()
        counted = self._filters.get(topic_filter)
        if counted is None:
            if len(self._filters) >= MAX_FILTERS:
                del self._filters[min(self._filters, key=lambda name: self._filters[name].asked_at)]
            if not self._filters:
                self._events.attach(self)
            counted = self._filters[topic_filter] = CountedFilter(topic_filter)
        counted.asked_at = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._review)
        return counted

    def end(self) -> None:
        """Stop counting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._filters.clear()
        self._events.unsubscribe(self)

    def _published(self, event: Published) -> None:
        for counted in self._filters.values():
            counted.note(event)

    def _review(self) -> None:
        self._timer = None
        self._forget_silent()
        if self._filters:
            self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._review)

    def _forget_silent(self) -> None:
        oldest = time.monotonic() - IDLE_TIMEOUT
        for name in [name for name, counted in self._filters.items() if counted.asked_at < oldest]:
            del self._filters[name]
        if not self._filters:
            self._events.unsubscribe(self)
