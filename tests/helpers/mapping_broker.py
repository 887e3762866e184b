"""A broker in memory and the link to it: sessions, message ids and QoS 2 of a broker, and faults at any call.

It uses the lowest free message id, so that each is reused as soon as possible. Errors of a mapping, such as a new publication
with an unreleased message id, fail the test.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bridge.link.state import Limits, LinkLost, LinkPhase, LinkState, PublicationRefusal
from bridge.telemetry.message import Publication, Received
from tests.helpers.publications import publication_of_fields


class Killed(SystemExit):
    """The bridge's process ends here. In a thread, this is silent."""


class LinkFault:
    """Break the connection, or kill the bridge, at the n-th call: before, during or after it."""

    def __init__(self, number: int = 0, moment: str = "before", *, kills: bool = False) -> None:
        self.number, self.moment, self.kills = number, moment, kills
        self.calls = 0
        self.struck = ""

    def strikes(self, call: str) -> str:
        """Return the moment if this is the call, otherwise ""."""
        self.calls += 1
        if self.calls != self.number:
            return ""
        self.struck = call
        return self.moment


class Broker:
    """The state of a broker for one session, and its connection."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        #: callbacks of links for new data
        self.arrivals: list[Callable[[], None]] = []
        self.in_flight = 4
        self.limits = Limits()
        #: calls of each link about the session: filters to unsubscribe, whether it is subscribed
        self.resumed: list[tuple[list[str], bool]] = []
        #: whether it loses the session with each connection
        self.forgetful = False
        #: reason for which it closes the connection
        self.closing: Callable[[Publication], bool] = lambda publication: False
        #: reason code of rejections
        self.reason = 0x87
        self.fault = LinkFault()
        #: actions of the other threads of the bridge when it is killed
        self.kill: Callable[[], None] = lambda: None
        self.failures: list[str] = []
        #: events in order
        self.trace: list[str] = []
        #: number of times in turn that a mapping has found nothing to do
        self.idle = 0
        self.session = False
        # To the bridge
        self.outgoing: deque[Publication] = deque()
        self.unacknowledged: dict[int, Publication] = {}
        self.unreleased: set[int] = set()
        #: publications of packet identifiers that are or were in `unreleased`
        self.released: dict[int, Publication] = {}
        #: whether it sends publications again instead of PUBREL, and counts identifiers upwards, as mosquitto does
        self.repeats_released = False
        #: whether it forwards publications to its subscriber
        self.echoes = False
        # From the bridge
        self.refusing: Callable[[Publication], bool] = lambda publication: False
        #: received payloads, a repeated PUBLISH counted once
        self.arrived: list[bytes] = []
        #: payloads by unreleased message id
        self.pending: dict[int, bytes] = {}
        #: released payloads of QoS 2: those that a subscriber of mosquitto sees
        self.released_payloads: list[bytes] = []

    def send(self, *payloads: bytes, topic: str = "t/a", qos: int = 2, **fields: Any) -> None:
        """Publications for the bridge."""
        with self.changed:
            self.outgoing.extend(
                publication_of_fields(topic=topic, payload=payload, qos=qos, **fields) for payload in payloads
            )
            self.announce()

    def announce(self) -> None:
        """Notify waiters of a change protected by `changed`."""
        self.changed.notify_all()
        for arrived in self.arrivals:
            arrived()

    @property
    def quiet(self) -> bool:
        """Return whether everything was sent, acknowledged, and released, in both directions."""
        return not (self.outgoing or self.unacknowledged or self.unreleased or self.pending)


class FakeLink:
    """Replacement for `bridge.link.LinkConnection` to such a broker."""

    name = "L"
    client_id = "mqbridge"
    since = 0.0
    last_error = ("", 0.0)

    def __init__(
        self,
        broker: Broker,
        *,
        qos: int = 0,
        clean: bool | None = None,
        on_state: Callable[[LinkState], None] | None = None,
        on_session: Callable[[bool], None] | None = None,
        on_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._on_arrival = on_arrival
        broker.arrivals.append(on_arrival)
        self._qos = qos
        self._clean = bool(clean)
        self._on_state, self._on_session = on_state, on_session
        self.generation = 0
        self.state = LinkState(LinkPhase.STOPPED)
        self._inbox: deque[Received] = deque()
        self._released: list[int] = []
        self._completing: set[int] = set()
        #: message ids answered with PUBREC on this connection
        self._held: set[int] = set()
        self._interrupted = False
        #: whether there is no connection, and number of checks
        self.away, self.polls = False, 0
        #: whether the broker had the session at the last connection
        self._present: bool | None = None
        self.address = "broker.invalid:1883"
        self.back_off_resets = 0

    def identify(self, client_id: str) -> None:
        self.client_id = client_id

    unsuitable = ""

    @property
    def up(self) -> bool:
        return self.state.phase is LinkPhase.CONNECTED

    def connect_now(self) -> None:
        """Do nothing, because the link makes no pauses."""

    def bind(self, address: str) -> None:
        """Do nothing, because the link has only one address."""

    @property
    def session_present(self) -> bool | None:
        return self._present

    @property
    def connected_address(self) -> str:
        return self.address

    # What happens to the connection ----------------------------------------------------------------------------------

    def start(self) -> None:
        self.reconnect()

    def stop(self, timeout: float) -> bool:
        self.state = LinkState(LinkPhase.STOPPED)
        return True

    def reconnect(self, *, lose_session: bool = False) -> None:
        """Break the connection, if any. The next one is available at once."""
        broker = self._broker
        with broker.changed:
            if self._clean or lose_session or not broker.session:
                broker.session = False
                broker.unacknowledged.clear()
                broker.unreleased.clear()
                broker.pending.clear()
            if broker.repeats_released:
                broker.unacknowledged = {
                    packet_id: broker.released[packet_id] for packet_id in sorted(broker.unreleased)
                } | (broker.unacknowledged)
                broker.unreleased.clear()
            present, broker.session = broker.session, True
            self._present = present
            self.generation += 1
            # Unprocessed QoS 1 and 2 publications are repeated. With a lost session, nothing is repeated, and nothing is
            # pending.
            self._inbox = deque(
                Received(received.publication, 0, 0, received.dup, received.generation) if received.qos else received
                for received in self._inbox
                if not (received.qos and present)
            )
            self._inbox.extend(
                Received(publication, publication.qos, packet_id, True, self.generation)
                for packet_id, publication in broker.unacknowledged.items()
            )
            self._released = sorted(broker.unreleased)
            self._completing = set(broker.unreleased)
            self._held = set()
            self._interrupted = True
            if self._on_session is not None:
                self._on_session(present)
            self.away = False
            self._change(LinkState(LinkPhase.CONNECTED))
            broker.announce()

    def leave(self) -> None:
        """The connection is lost."""
        self.away = True
        self._change(LinkState(LinkPhase.WAITING, "unreachable"))

    def _change(self, state: LinkState) -> None:
        self.state = state
        if self._on_state is not None:
            self._on_state(state)

    def _break(self) -> None:
        if self._broker.fault.kills:
            self._broker.kill()
            raise Killed
        self.reconnect(lose_session=self._broker.forgetful)

    def _checked(self, right: bool, failure: str) -> None:
        if not right:
            self._broker.failures.append(failure)

    def reset_back_off(self) -> None:
        self.back_off_resets += 1

    # Receiving -------------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Return the publications that the broker may send."""
        broker = self._broker
        while broker.outgoing and len(broker.unacknowledged) + len(broker.unreleased) < broker.in_flight:
            publication = broker.outgoing.popleft()
            qos = publication.qos = min(publication.qos, self._qos)
            packet_id = 0
            if qos:
                first = max(broker.released, default=0) + 1 if broker.repeats_released else 1
                packet_ids = range(first, first + 99)
                packet_id = next(n for n in packet_ids if n not in broker.unacknowledged and n not in broker.unreleased)
                broker.unacknowledged[packet_id] = publication
            self._inbox.append(Received(publication, qos, packet_id, False, self.generation))

    def take(self, messages: int, size: int, wait: float) -> list[Received]:
        struck = self._broker.fault.strikes("take")
        if struck:
            self._break()
        with self._broker.changed:

            def ready() -> bool:
                self._receive()
                return bool(self._inbox or self._released or self._interrupted)

            self._broker.changed.wait_for(ready, wait)
            self._interrupted = False
            self._broker.idle = 0 if self._inbox or self._released else self._broker.idle + 1
            return [self._inbox.popleft() for _ in range(min(messages, len(self._inbox)))]

    def interrupt(self) -> None:
        with self._broker.changed:
            self._interrupted = True
            self._broker.announce()

    def released(self) -> list[int]:
        with self._broker.changed:
            released, self._released = self._released, []
            return released

    def acknowledge(self, received: Sequence[Received]) -> None:
        broker = self._broker
        struck = broker.fault.strikes("acknowledge")
        if struck == "before":
            self._break()
        for message in received[: len(received) // 2] if struck == "within" else received:
            with broker.changed:
                if (
                    not message.qos
                    or message.generation != self.generation
                    or message.packet_id not in broker.unacknowledged
                ):
                    continue
                publication = broker.unacknowledged.pop(message.packet_id)
                broker.trace.append("PUBACK" if message.qos == 1 else "PUBREC")
                if message.qos == 2:
                    broker.unreleased.add(message.packet_id)
                    broker.released[message.packet_id] = publication
                    self._released.append(message.packet_id)
                    self._completing.add(message.packet_id)
        if struck and struck != "before":
            self._break()

    def complete(self, packet_ids: Sequence[int]) -> None:
        broker = self._broker
        struck = broker.fault.strikes("complete")
        if struck == "before":
            self._break()
        with broker.changed:
            for packet_id in packet_ids:
                if packet_id in self._completing:
                    self._completing.discard(packet_id)
                    broker.unreleased.discard(packet_id)
                    broker.trace.append("PUBCOMP")
        if struck and struck != "before":
            self._break()

    # Sending ---------------------------------------------------------------------------------------------------------

    def wait_connected(self, wait: float, *, once: bool = False) -> bool:
        self.polls += 1
        return not self.away

    def resume(self, former: Sequence[str], *, subscribed: bool) -> None:
        self._broker.resumed.append((list(former), subscribed))

    @property
    def subscribed(self) -> bool:
        return self.generation > 0

    @property
    def limits(self) -> Limits:
        return self._broker.limits

    @property
    def in_flight_limit(self) -> int:
        return self._broker.in_flight

    def _call(
        self, call: str, items: Sequence[object], step: Callable[[int], None], begin: Callable[[], None] = lambda: None
    ) -> None:
        struck = self._broker.fault.strikes(call)
        if struck == "before":
            self._break()
            raise LinkLost("before it was sent")
        begin()
        for index in range(len(items) // 2 if struck == "within" else len(items)):
            step(index)
        if struck:
            self._break()
            lost = LinkLost("before it was answered")
            if struck == "within" and call == "publish":
                lost.unanswered = range(len(items) // 2, len(items))
            raise lost

    def publish(self, publications: Sequence[Publication]) -> dict[int, PublicationRefusal]:
        broker, refusals = self._broker, {}

        def publish_next(index: int) -> None:
            if broker.closing(publications[index]):
                self.reconnect()
                lost = LinkLost("the broker closed the connection")
                lost.unanswered = range(index, len(publications))
                raise lost
            if broker.refusing(publications[index]):
                refusals[index] = PublicationRefusal(broker.reason, "refused")
            else:
                broker.arrived.append(publications[index].payload)
                broker.trace.append("PUBLISH")
                if broker.echoes:
                    with broker.changed:
                        broker.outgoing.append(msgspec.structs.replace(publications[index]))
                        broker.announce()

        self._call("publish", publications, publish_next)
        return refusals

    def publish_exactly(
        self, publications: Sequence[Publication], packet_ids: Sequence[int], dup: bool
    ) -> dict[int, PublicationRefusal]:
        broker, refusals = self._broker, {}

        def begin() -> None:
            new = [packet_id for packet_id in packet_ids if packet_id not in self._held]
            if len(new) + len(self._held) > broker.in_flight:
                raise ValueError(f"{len(new)} more in flight than {broker.in_flight}, beside {len(self._held)}")

        def begin_next(index: int) -> None:
            publication, packet_id = publications[index], packet_ids[index]
            self._checked(publication.qos == 2, "not QoS 2")
            if broker.closing(publication):
                self.reconnect()
                raise LinkLost("the broker closed the connection")
            if packet_id in self._held:
                return
            if packet_id not in broker.pending:
                if broker.refusing(publication):
                    refusals[index] = PublicationRefusal(broker.reason, "refused")
                    return
                broker.pending[packet_id] = publication.payload
                broker.arrived.append(publication.payload)
                broker.trace.append("PUBLISH")
            else:
                self._checked(dup, f"message id {packet_id} is used again before it is released")
            self._held.add(packet_id)

        self._call("publish_exactly", publications, begin_next, begin)
        return refusals

    def release(self, packet_ids: Sequence[int]) -> None:
        broker = self._broker

        def release_next(index: int) -> None:
            packet_id = packet_ids[index]
            self._held.discard(packet_id)
            broker.trace.append("PUBREL")
            if packet_id in broker.pending:
                broker.released_payloads.append(broker.pending.pop(packet_id))

        self._call("release", packet_ids, release_next)
