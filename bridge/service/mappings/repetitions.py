"""Recognizes repeated publications of QoS 2 in a session at a broker, by their packet identifiers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Self

from bridge.telemetry.message import Received


class Repetitions:
    """The publications of one session that were put to MQ: those not released, and those released lately.

    A packet identifier that is not released marks a repetition (MQTT 3.1.1 figure 4.3, method B). If it was received on an
    earlier connection, the repetition must also have DUP (MQTT-3.3.1-1). Without DUP, the broker uses the identifier for
    another publication, because it has lost the session unnoticed.

    Mosquitto sends publications again whose release it had already begun when it was stopped. Such a repetition has DUP,
    comes before the first publication without DUP on a connection with Session Present, and equals a publication released on
    the previous connection.
    """

    def __init__(self, identifiers: Iterable[int] = ()) -> None:
        """Begin with packet identifiers on record."""
        #: packet identifier -> connection on which it was received (0: unknown), and digest of the publication
        self._received: dict[int, tuple[int, bytes]] = dict.fromkeys(identifiers, (0, b""))
        #: packet identifier -> digest of the publication released last, on this connection and on the previous one
        self._released: dict[int, bytes] = {}
        self._released_before: dict[int, bytes] = {}

    def copy(self) -> Self:
        """Return a copy, for a unit of work that may be backed out."""
        copy = type(self)()
        copy._received = self._received.copy()
        copy._released = self._released.copy()
        copy._released_before = self._released_before
        return copy

    def reloaded(self, identifiers: Iterable[int], arrived: Mapping[int, int]) -> Self:
        """Return a copy with the packet identifiers on record, after a unit of work whose outcome was unknown.

        `arrived` are the connections of publications that were taken from the link, and are not known to be put.
        """
        copy = self.copy()
        copy._received = {mid: self._received.get(mid, (arrived.get(mid, 0), b"")) for mid in identifiers}
        return copy

    @property
    def identifiers(self) -> list[int]:
        """The packet identifiers received and not released, in ascending order."""
        return sorted(self._received)

    def connected(self) -> None:
        """Begin a connection on which the broker has the session."""
        self._released_before = self._released_before | self._released
        self._released = {}

    def is_repeated(self, received: Received) -> bool:
        """Return whether a publication of QoS 2 was put before. Its packet identifier is not released from now on."""
        mid = received.mid
        known = self._received.get(mid)
        if known is not None and (received.dup or known[0] == received.generation):
            return True
        publication = received.publication
        digest = hashlib.blake2b(b"%s\0%s" % (publication.topic.encode(), publication.payload), digest_size=16).digest()
        self._received[mid] = received.generation, digest
        if not received.dup:
            self._released_before = {}
        return known is None and self._released_before.get(mid) == digest

    def release(self, mid: int) -> None:
        """Take a PUBREL."""
        known = self._received.pop(mid, None)
        if known is not None and known[1]:
            self._released[mid] = known[1]
