"""Release of packet identifiers that a client may consider in use but that its session does not know.

A client that has answered a PUBLISH of QoS 2 with PUBREC regards the next PUBLISH with this packet identifier as a repetition
until it receives PUBREL (MQTT 3.1.1 section 4.3.3). After a restore, the session may lack such exchanges. So the bridge
releases all identifiers once, before the first message of QoS 2. A client answers PUBREL with PUBCOMP even if it does not
know the identifier (MQTT-4.3.3-2).
"""

from __future__ import annotations

from typing import Final

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.flow import MAX_IDENTIFIER

#: Maximum number of packet identifiers that are released at a time.
TOGETHER: Final = 4_096
#: Number of successive connections without an answer after which the bridge gives up.
ATTEMPTS: Final = 10


class IdentifierRelease:
    """The release of all packet identifiers of one session, over one or more connections."""

    __slots__ = ("_attempts", "_awaited", "_first", "_next", "_reliable")

    def __init__(self, *, reliable: bool = False) -> None:
        """Create a release that has not begun. With `reliable`, messages of QoS 1 also wait for it."""
        self._reliable = reliable
        #: the lowest identifier for which PUBREL was not sent
        self._next = 1
        #: a bit for each identifier from `_first` on, 1 if the client must answer PUBREL for it. A set would take 350 KB
        self._awaited = 0
        self._first = 1
        #: connections on which PUBREL was sent since the last PUBCOMP
        self._attempts = 0

    @property
    def begun(self) -> bool:
        """Whether PUBREL was sent."""
        return self._next > 1

    @property
    def in_progress(self) -> bool:
        """Whether the client must answer PUBREL on this connection."""
        return bool(self._awaited)

    @property
    def finished(self) -> bool:
        """Whether all packet identifiers are released."""
        return self._next > MAX_IDENTIFIER and not self._awaited

    @property
    def unanswered(self) -> bool:
        """Whether the client has not answered PUBREL on `ATTEMPTS` connections."""
        return self._attempts >= ATTEMPTS

    def delays(self, qos: int) -> bool:
        """Return whether a message with this QoS must wait."""
        return qos == 2 or (qos == 1 and (self._reliable or self.in_progress))

    def send(self, protocol: ServerProtocol) -> None:
        """Send PUBREL for the next identifiers, unless the client must first answer earlier ones."""
        if self._awaited:
            return
        identifiers = range(self._next, min(self._next + TOGETHER, MAX_IDENTIFIER + 1))
        for identifier in identifiers:
            protocol.release(identifier)
        self._awaited = (1 << len(identifiers)) - 1
        self._first, self._next = identifiers.start, identifiers.stop
        self._attempts += 1

    def completed(self, identifier: int) -> bool:
        """Process a PUBCOMP. Return False if it does not answer a PUBREL of this release."""
        bit = 1 << identifier - self._first if identifier >= self._first else 0
        if not self._awaited & bit:
            return False
        self._awaited ^= bit
        self._attempts = 0
        return True

    def interrupted(self) -> None:
        """Note that the connection has ended."""
        if self._awaited:
            offset = (self._awaited & -self._awaited).bit_length() - 1
            self._next = self._first + offset
            self._awaited = 0
