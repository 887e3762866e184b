"""Publications of one channel and version of MQTT, counted where they pass, for metrics."""

from __future__ import annotations


class PublicationCounts:
    """Publications by QoS, and the bytes of their payloads; sessions of one channel and version share them."""

    __slots__ = ("received", "received_size", "sent", "sent_size")

    def __init__(self) -> None:
        self.received = [0, 0, 0]
        self.received_size = [0, 0, 0]
        self.sent = [0, 0, 0]
        self.sent_size = [0, 0, 0]
