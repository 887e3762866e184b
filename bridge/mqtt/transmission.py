"""What a session needs to know of a message that waits for its client; the queue manager's side provides it."""

from __future__ import annotations

from typing import Protocol

from bridge.mapping.telemetry.message import AnyMessage


class Transmission(Protocol):
    """A message on the transmission queue for one client. Fields as in `bridge.mq.backend.Transmission`."""

    remote_queue: str
    message: AnyMessage
    topic: str | None
    user_data: str | None
    retained: bool
    persistent: bool
    msg_number: int

    @property
    def expired(self) -> bool:
        """Return whether the MQMD.Expiry of the message has run down."""
