"""The number of publications of clients, for metrics."""

from __future__ import annotations


class PublicationCounts:
    """Number and payload bytes of publications by QoS, shared by the sessions of one channel and version.

    Separate attributes instead of a list make additions cheap in compiled code.
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
        """Return the number of received publications, and their bytes, for each QoS."""
        return [
            (self.received_0, self.received_size_0),
            (self.received_1, self.received_size_1),
            (self.received_2, self.received_size_2),
        ]

    def sent(self) -> list[tuple[int, int]]:
        """Return the number of sent publications, and their bytes, for each QoS."""
        return [(self.sent_0, self.sent_size_0), (self.sent_1, self.sent_size_1), (self.sent_2, self.sent_size_2)]
