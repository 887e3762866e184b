"""Messages that wait for one client, of which so many bytes may wait and no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from bridge.mapping.telemetry.transmission import Transmission

#: Bytes, about, that a message takes beside its data.
_MESSAGE_BYTES = 512


class Waiting(deque[Transmission]):
    """Messages in their order; `bytes` is what they take."""

    def __init__(self, most: int, when_full: str) -> None:
        """Begin; `when_full` is `refuse`, `drop-oldest` or `dead-letter`, as `limits.waiting_full` has it."""
        super().__init__()
        self.most = most
        self.when_full = when_full
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Return whether there are more than there is room for."""
        return self.bytes > self.most

    def append(self, transmission: Transmission) -> None:
        self.bytes += _size(transmission)
        super().append(transmission)

    def extendleft(self, transmissions: Iterable[Transmission]) -> None:
        for transmission in transmissions:
            self.bytes += _size(transmission)
            super().appendleft(transmission)

    def popleft(self) -> Transmission:
        transmission = super().popleft()
        self.bytes -= _size(transmission)
        return transmission

    def pop(self) -> Transmission:  # type: ignore[override]
        transmission = super().pop()
        self.bytes -= _size(transmission)
        return transmission

    def take(self, unwanted: Iterable[Transmission]) -> None:
        """Take some out, wherever they are."""
        gone = {id(one) for one in unwanted}
        left = [one for one in self if id(one) not in gone]
        self.clear()
        self.bytes = 0
        for one in left:
            self.append(one)


def _size(transmission: Transmission) -> int:
    return transmission.message.length + _MESSAGE_BYTES
