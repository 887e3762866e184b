"""Bytes of payloads of a batch: what is done for each message, and so is compiled."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.transmission import Transmission

#: In place of a size: not all publications have the same QoS.
MIXED = -1


def received_size(publications: Sequence[tuple[PublicationMessage, bool]], qos: int) -> int:
    """Return the bytes of publications that all have a QoS; MIXED where one has another."""
    size = 0
    for message, _ in publications:
        if message.qos != qos:
            return MIXED
        size += len(message.payload)
    return size


def sent_size(sent: Sequence[Transmission]) -> int:
    """Return the bytes of messages for clients; of one that no client has published, all behind its MQMD."""
    size = 0
    for transmission in sent:
        message = transmission.message
        if type(message) is PublicationMessage:
            size += len(message.payload)
        else:
            size += message.length
    return size


def acknowledged_size(acknowledged: Sequence[tuple[int, Transmission]]) -> int:
    """Return the bytes of messages for clients, as `sent_size` does; beside each is its message id."""
    size = 0
    for _, transmission in acknowledged:
        message = transmission.message
        if type(message) is PublicationMessage:
            size += len(message.payload)
        else:
            size += message.length
    return size
