"""Recognizes repeated publications of QoS 2 in a session at a broker, by their packet identifiers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from bridge.telemetry.message import Received

#: The number of remembered released publications. A broker that reuses an identifier sooner does not count upwards.
LIMIT: Final = 10_000


class _Known(NamedTuple):
    """A publication that was put."""

    digest: bytes
    #: the connection on which it was received (0: unknown)
    connection: int = 0
    #: the unit of work that put it, or the one of its release
    unit: int = 0


class Repetitions:
    """The publications of one session that were put to MQ: those not released, and those released recently.

    A packet identifier that is not released marks a repetition (MQTT 3.1.1 figure 4.3, method B). If it was received on an
    earlier connection, the repetition must also have DUP (MQTT-3.3.1-1). Without DUP, the broker uses the identifier for
    another publication, because it lost the session, and the bridge did not notice.

    Mosquitto sends publications again whose release it had already begun when it was stopped, or when two connections ended
    in a row. Such a repetition has DUP, comes before the first publication without DUP on a connection with Session
    Present, and equals a publication released on an earlier connection. The bridge may have been stopped or killed in
    between, so the record contains digests.

    A broker that assigns the lowest free identifier might send an equal publication under the same identifier, and send it
    again with DUP because the first attempt was lost. Such a broker is recognized when it uses an identifier again early.
    Its publications with a released identifier are always new. Mosquitto counts upwards to 65535.
    """

    def __init__(
        self,
        identifiers: Iterable[int] = (),
        digests: Mapping[int, bytes] = MappingProxyType({}),
        *,
        reuses: bool = False,
    ) -> None:
        """Begin with the packet identifiers, `digests` and `reuses` on record."""
        #: the broker uses identifiers again early
        self.reuses = reuses
        #: by packet identifier: not released; released on this connection; released on the previous one
        self._received = {packet_id: _Known(digests.get(packet_id, b"")) for packet_id in identifiers}
        self._released = {
            packet_id: _Known(digest) for packet_id, digest in digests.items() if packet_id not in self._received
        }
        self._released_before: dict[int, _Known] = {}
        #: number of the unit of work
        self._unit = 0
        #: the broker has processed PUBCOMP of the publications that earlier units of work released
        self._completed = 0

    def copy(self) -> Self:
        """Return a copy for the next unit of work, which may be backed out."""
        copy = type(self)(reuses=self.reuses)
        copy._received = self._received.copy()
        copy._released = self._released.copy()
        copy._released_before = self._released_before
        copy._unit, copy._completed = self._unit + 1, self._completed
        return copy

    def reloaded(
        self, identifiers: Iterable[int], digests: Mapping[int, bytes], arrived: Mapping[int, int], *, reuses: bool
    ) -> Self:
        """Return a copy with the entries on record, after a unit of work whose outcome was unknown.

        `arrived` are the connections of publications that were taken from the link, and are not known to be put.
        """
        on_record = type(self)(identifiers, digests)
        copy = self.copy()
        copy._received = {
            packet_id: self._received.get(packet_id, arrival._replace(connection=arrived.get(packet_id, 0)))
            for packet_id, arrival in on_record._received.items()
        }
        released = {packet_id: release._replace(unit=copy._unit) for packet_id, release in on_record._released.items()}
        copy._released = released | copy._released
        copy.reuses = self.reuses or reuses
        return copy

    @property
    def identifiers(self) -> list[int]:
        """The packet identifiers received and not released, in ascending order."""
        return sorted(self._received)

    @property
    def digests(self) -> dict[int, bytes]:
        """The digests to record: of publications whose exchange the broker may not have completed."""
        if self.reuses:
            return {}
        released = {
            packet_id: release for packet_id, release in self._released.items() if release.unit >= self._completed
        }
        arrivals = self._released_before | released | self._received
        return {packet_id: arrival.digest for packet_id, arrival in arrivals.items() if arrival.digest}

    def connected(self) -> None:
        """Begin a connection on which the broker has the session."""
        self._released_before = self._released_before | self._released
        self._released = {}

    def is_repeated(self, received: Received) -> bool:
        """Return whether a publication of QoS 2 was put before. Mark its packet identifier as not released."""
        packet_id = received.packet_id
        arrival = self._received.get(packet_id)
        if arrival is not None and (received.dup or arrival.connection == received.generation):
            return True
        publication = received.publication
        digest = hashlib.blake2b(b"%s\0%s" % (publication.topic.encode(), publication.payload), digest_size=8).digest()
        self._received[packet_id] = _Known(digest, received.generation, self._unit)
        if not received.dup:
            self._released_before = {}
            self.reuses = self.reuses or packet_id in self._released
        before = self._released_before.get(packet_id)
        return arrival is None and not self.reuses and before is not None and before.digest == digest

    def release(self, packet_id: int) -> None:
        """Process a PUBREL."""
        arrival = self._received.pop(packet_id, None)
        if arrival is not None and arrival.digest:
            self._released.pop(packet_id, None)
            self._released[packet_id] = arrival._replace(unit=self._unit)
            if len(self._released) > LIMIT:
                del self._released[next(iter(self._released))]
            # The PUBREC was sent after the PUBCOMPs of earlier units of work, and the broker has answered it.
            self._completed = max(self._completed, arrival.unit)
