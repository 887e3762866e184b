"""A message on the transmission queue, for tests of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.telemetry.transmission import AnyMessage


@dataclass(eq=False)
class Waiting:
    """A message on the transmission queue."""

    msg_number: int
    message: AnyMessage
    topic: str | None = "t"
    user_data: str | None = "2"
    retained: bool = False
    persistent: bool = True
    remote_queue: str = "SYSTEM.MQTT.PUBLICATION.QUEUE"
    put_time: float = 0.0
    raw: bytes | None = None
    client_id: str = "c"
    expired: bool = False
    seconds_left: float | None = None

    @property
    def key(self) -> int:
        return self.msg_number

    @property
    def put_at(self) -> bytes:
        return b""
