"""Publications on their way to the broker, and the answers that they wait for: between a worker and the network thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from bridge.link.client import HIGHEST_MID, Answer
from bridge.link.publication import encode, refusal
from bridge.link.state import Limits, LinkCounters, LinkLost, Refusal
from bridge.mqtt.flow import FAILED_PUBREC, PUBACK, PUBCOMP, PUBREC, SENT, Delivery, Phase, SenderWindow, Step
from bridge.mqtt.packets import PacketType, Pubcomp, Pubrec
from bridge.mqtt.reason_codes import FAILURE
from bridge.mqtt.writer import encode_acknowledgement
from bridge.telemetry.message import Publication

# Enum member access is slow; bind once.
_PUBREL = PacketType.PUBREL
_RELEASING, _COMPLETED = Phase.RELEASING, Phase.COMPLETED

_AT_ONCE = 1000
"""Publications that are encoded before they are handed to the network: it writes while the next ones are encoded."""


def _column(answer: Answer) -> int:
    """Return the column of the table of acknowledgements that an answer stands in."""
    if isinstance(answer, Pubrec):
        return PUBREC if answer.reason_code < FAILURE else FAILED_PUBREC
    return PUBCOMP if isinstance(answer, Pubcomp) else PUBACK


class Outbox:
    """Sends for one call at a time, never more unanswered than the broker and the configuration allow."""

    def __init__(
        self,
        limit: int,
        version_5: bool,
        counters: LinkCounters,
        submit: Callable[[int, bytes], object],
        abandon: Callable[[int, str], None],
        configured: Limits | None = None,
    ) -> None:
        """Prepare for the first connection.

        `submit` writes packets on the connection of a generation; `abandon` breaks it, with the reason. `configured` are
        limits that hold whatever the broker says: one of MQTT 3.1.1 says nothing.
        """
        self._limit = limit
        self._version_5 = version_5
        self._counters = counters
        self._submit = submit
        self._abandon = abandon
        self._calls = threading.Lock()
        self._changed = threading.Condition()
        #: the connection; 0: none
        self._generation = 0
        self._error = "not connected yet"
        self._configured = configured or Limits()
        self.limits = self._configured
        self._window: SenderWindow[Delivery] = SenderWindow()
        #: packet identifier -> index in the call, of the publications that the call waits for. Others in the window are held:
        #: the broker has answered with PUBREC, and PUBREL is sent only by `release`.
        self._positions: dict[int, int] = {}
        #: the call waits for PUBREC alone, or releases
        self._holding = False
        self._refusals: dict[int, Refusal] = {}
        #: positions in the call that the broker had not answered when the connection was lost
        self._unanswered: set[int] = set()
        #: the caller is woken when no more than these wait
        self._enough = 0
        #: message ids of QoS 2 whose flow was cut and that the broker may still know
        self._stale: set[int] = set()
        self._last_mid = 0
        self._submitted = self._written = 0

    @property
    def in_flight_limit(self) -> int:
        """Return the limit that LinkConnection.in_flight_limit tells."""
        return min(self._limit, self.limits.receive_maximum)

    @property
    def waiting(self) -> bool:
        """Return whether a call waits for the broker."""
        return bool(self._positions)

    @property
    def _held(self) -> int:
        """The number of publications that are held."""
        return len(self._window.deliveries) - len(self._positions)

    # On the network thread -------------------------------------------------------------------------------------------

    def begin(self, generation: int, limits: Limits, session_present: bool) -> None:
        """Begin with a connection that is ready."""
        with self._changed:
            self._generation = generation
            self.limits = msgspec.structs.replace(
                limits,
                maximum_qos=min(limits.maximum_qos, self._configured.maximum_qos),
                retain_available=limits.retain_available and self._configured.retain_available,
                maximum_packet_size=min(limits.maximum_packet_size, self._configured.maximum_packet_size),
            )
            self._clear()
            self._window.receive_maximum = self.in_flight_limit
            if not session_present:
                self._stale.clear()
            stale = list(self._stale)
            self._submitted = self._written = 0
            self._changed.notify_all()
        if stale:
            # What the worker does about them, it does with other message ids.
            self._submit(generation, _releases(stale))

    def lost(self, error: str) -> None:
        """End the call that waits for answers: the connection is gone."""
        with self._changed:
            self._generation, self._error = 0, error
            self._unanswered.update(self._positions.values())
            if not self._holding:
                deliveries = self._window.deliveries
                self._stale.update(mid for mid in self._positions if deliveries[mid].phase is not Phase.AWAITING_PUBACK)
            self._clear()
            self._changed.notify_all()

    def _clear(self) -> None:
        self._window.clear()
        self._positions.clear()

    def written(self, everything: Callable[[], bool]) -> None:
        """Ask whether everything that was submitted is with the operating system."""
        if self._written == self._submitted:
            return
        with self._changed:
            # Under the lock, so that nothing is submitted between the question and its answer.
            if everything():
                self._written = self._submitted
                self._changed.notify_all()

    def answered(self, answers: Iterable[Answer]) -> None:
        """Take PUBACKs, PUBRECs and PUBCOMPs that have come. Raises WrongAcknowledgement: the connection is to be closed."""
        releases = []
        with self._changed:
            window = self._window
            for answer in answers:
                mid = answer.message_id
                sent, step = window.answered(_column(answer), mid)
                if sent is None or isinstance(step, Step):
                    if step is Step.PUBREL and (sent is not None or mid in self._stale):
                        # The worker may still send any other message identifier again, and PUBLISH must not follow PUBREL
                        # (MQTT 5.0 section 4.3.3). PUBREL then answers the PUBREC for that PUBLISH.
                        releases.append(mid)
                    elif isinstance(answer, Pubcomp):
                        self._stale.discard(mid)
                elif step is _RELEASING and not self._holding:
                    self._counters.sent += 1
                    window.move(sent, Phase.AWAITING_PUBCOMP)
                    releases.append(mid)
                else:
                    position = self._positions.pop(mid)
                    if step is not _RELEASING:
                        window.free((mid,))
                    # A PUBCOMP answers whatever its reason: Packet Identifier not found means that it was complete before.
                    if step is not _COMPLETED:
                        if answer.reason_code >= FAILURE:
                            self._refusals[position] = refusal(answer)
                        else:
                            self._counters.sent += 1
            generation = self._generation
            if len(self._positions) <= self._enough:
                self._changed.notify_all()
        if releases:
            self._submit(generation, _releases(releases))

    # On the worker's thread ------------------------------------------------------------------------------------------

    def wait_ready(self, wait: float) -> bool:
        """Wait until there is a connection, for so many seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: self._generation != 0, wait)

    def publish(
        self,
        publications: Sequence[Publication],
        mids: Sequence[int] | None,
        dup: bool,
        held: bool,
        timeout: float,
    ) -> dict[int, Refusal]:
        """Send publications as LinkConnection.publish does and, with `held`, as publish_exactly does."""
        if mids is not None:
            _check_mids(mids, len(publications))
        deadline = time.monotonic() + timeout
        with self._calls:
            with self._changed:
                generation = self._begin_call(held)
                limit = self.in_flight_limit - self._held
                # Those that the broker has are not sent again on the same connection (MQTT-4.4.0-1).
                new = sum(mid not in self._window.deliveries for mid in mids) if held and mids is not None else 1
                if limit < new:
                    raise ValueError(
                        f"{new} publications at once: {self.in_flight_limit} may be in flight, and"
                        f" {self._held} are not released"
                    )
            position = 0
            try:
                while position < len(publications):
                    with self._changed:
                        # Half of the window goes at a time, so that neither side idles and few wake-ups are needed.
                        self._await(generation, limit // 2, False, deadline)
                        room = self._window.room
                    position = self._send(generation, publications, position, mids, dup, held, room)
                with self._changed:
                    self._await(generation, 0, True, deadline)
            except LinkLost as error:
                if not held:
                    with self._changed:
                        unsent = range(position, len(publications))
                        error.unanswered = sorted({*self._unanswered, *self._refusals, *unsent})
                raise
            with self._changed:
                refusals, self._refusals = self._refusals, {}
                self._counters.sent += sum(
                    not publication.qos and index not in refusals for index, publication in enumerate(publications)
                )
                self._counters.refused += len(refusals)
                return refusals

    def release(self, mids: Sequence[int], timeout: float) -> None:
        """Send PUBREL as LinkConnection.release does."""
        _check_mids(mids, len(mids))
        deadline = time.monotonic() + timeout
        with self._calls, self._changed:
            generation = self._begin_call(True)
            self._add((mid, Phase.AWAITING_PUBCOMP, index) for index, mid in enumerate(mids))
            self._hand_over(generation, _releases(mids))
            self._await(generation, 0, True, deadline)

    def _begin_call(self, holding: bool) -> int:
        if not self._generation:
            raise LinkLost(self._error)
        self._refusals, self._unanswered = {}, set()
        self._holding = holding
        return self._generation

    def _send(
        self,
        generation: int,
        publications: Sequence[Publication],
        position: int,
        mids: Sequence[int] | None,
        dup: bool,
        held: bool,
        room: int,
    ) -> int:
        """Send publications from a position on; return the position behind them."""
        packets: list[bytes] = []
        sent: list[tuple[int, Phase, int]] = []
        refusals: dict[int, Refusal] = {}
        end = min(len(publications), position + _AT_ONCE)
        while position < end:
            publication = publications[position]
            qos = publication.qos
            if held and mids is not None and mids[position] in self._window.deliveries:
                position += 1
                continue
            if qos:
                if len(sent) == room:
                    break
                mid = self._new_mid() if mids is None else mids[position]
            else:
                mid = 0
            packet = encode(publication, mid, dup, self._version_5, self.limits)
            if isinstance(packet, Refusal):
                refusals[position] = packet
            else:
                packets.append(packet)
                if qos:
                    sent.append((mid, SENT[qos], position))
            position += 1
        with self._changed:
            if self._generation != generation:
                raise LinkLost(self._error)
            self._refusals |= refusals
            self._add(sent)
            self._hand_over(generation, b"".join(packets))
        return position

    def _add(self, deliveries: Iterable[tuple[int, Phase, int]]) -> None:
        """Add packet identifiers with their phases, and with the indices in the call."""
        for mid, phase, position in deliveries:
            # One that is released may be in the window.
            self._window.free((mid,))
            self._window.add(mid, Delivery(phase))
            self._positions[mid] = position

    def _hand_over(self, generation: int, packets: bytes) -> None:
        if packets:
            self._submitted += 1
            self._submit(generation, packets)

    def _await(self, generation: int, enough: int, written: bool, deadline: float) -> None:
        """Wait until no more than `enough` are unanswered, and, if wanted, all is written; the lock is held."""

        def over() -> bool:
            return self._generation != generation or (
                len(self._positions) <= enough and not (written and self._written != self._submitted)
            )

        self._enough = enough
        if not over() and not self._changed.wait_for(over, max(deadline - time.monotonic(), 0)):
            # Their message ids cannot be used again on this connection, so that it is of no use any more.
            error = f"the broker left {len(self._positions) or 'all'} publications unanswered until the time was over"
            self._generation, self._error = 0, error
            self._unanswered.update(self._positions.values())
            self._abandon(generation, error)
            raise LinkLost(error)
        if self._generation != generation:
            raise LinkLost(self._error)

    def _new_mid(self) -> int:
        self._last_mid = self._window.free_identifier(self._last_mid + 1, self._stale, HIGHEST_MID)
        return self._last_mid


def _releases(mids: Iterable[int]) -> bytes:
    return b"".join(encode_acknowledgement(_PUBREL, mid) for mid in mids)


def _check_mids(mids: Sequence[int], number: int) -> None:
    if len(mids) != number or len(set(mids)) != number or not all(0 < mid <= HIGHEST_MID for mid in mids):
        raise ValueError(f"message ids have to be {number} different numbers of 1 to {HIGHEST_MID}: {mids}")
