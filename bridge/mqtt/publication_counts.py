"""Publications of one channel and version of MQTT, counted where they pass, for metrics."""

from __future__ import annotations


class PublicationCounts:
    """Publications by QoS, and the bytes of their payloads; sessions of one channel and version share them.

    A number for each, and no list: to add to it is then nearly nothing, where this is compiled.
    """

    __slots__ = (
        "received_0",
        "received_1",
        "received_2",
        "received_size_0",
        "received_size_1",
        "received_size_2",
        "sent_0",
        "sent_1",
        "sent_2",
        "sent_size_0",
        "sent_size_1",
        "sent_size_2",
    )

    def __init__(self) -> None:
        self.received_0 = self.received_1 = self.received_2 = 0
        self.received_size_0 = self.received_size_1 = self.received_size_2 = 0
        self.sent_0 = self.sent_1 = self.sent_2 = 0
        self.sent_size_0 = self.sent_size_1 = self.sent_size_2 = 0

    def received(self) -> list[tuple[int, int]]:
        """Return how many publications came, and their bytes, for each QoS."""
        return [
            (self.received_0, self.received_size_0),
            (self.received_1, self.received_size_1),
            (self.received_2, self.received_size_2),
        ]

    def sent(self) -> list[tuple[int, int]]:
        """Return how many publications were sent, and their bytes, for each QoS."""
        return [
            (self.sent_0, self.sent_size_0),
            (self.sent_1, self.sent_size_1),
            (self.sent_2, self.sent_size_2),
        ]
