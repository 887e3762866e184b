"""Model check of the assurances of QoS 1 and 2, both ways, over everything that can go wrong at any moment.

The real sessions, connections and telemetry service run between a client that keeps to MQTT 3.1 or 3.1.1 and a queue
manager that ends units of work late, in order, or not at all. Clients acknowledge when they like, go away, come back before
the bridge has noticed, lose bytes in both directions, do not read; the queue manager refuses publications and fails to
commit; the bridge is killed and starts again from what is committed. What must hold is checked with every byte that the
bridge sends and every unit that is committed, and at the end everything is brought to rest and counted.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.config import ChannelConfig, LimitsConfig
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.session_record import ReceivedRecord, SessionRecord, Side, StateKey
from bridge.mapping.telemetry.to_mq import to_mq
from bridge.mq.backend import Completion, Recovered, UnitOfWork
from bridge.mqtt.in_flight import UNACKNOWLEDGED
from bridge.mqtt.transport.tcp import TcpConnection
from bridge.service.telemetry import TelemetryService
from bridge.wire.mqtt import (
    Connack,
    Connect,
    Decoder,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    encode,
)

CLIENT = "c"
#: last two bytes of the MsgIds: few, so that message ids meet
LOW_NUMBERS = (1, 2, 3, 0xFFFF)
MQRC_PUT_INHIBITED = 2051
MQRC_RESOURCE_PROBLEM = 2102


@dataclass(eq=False)
class Queued:
    """A message on the transmission queue."""

    msg_number: int
    message: PublicationMessage
    qos: int
    topic: str
    user_data: str | None = "2"
    retained: bool = False
    persistent: bool = True
    remote_queue: str = "Q"
    put_time: float = 0.0
    raw: bytes | None = None
    client_id: str = CLIENT
    expired: bool = False


class QueueManager:
    """The backend: units of work lie here until the machine commits the first of them, fails it, or the power goes."""

    hands_over_at_once = True
    transmission_queue = "SYSTEM.MQTT.TRANSMIT.QUEUE"

    def __init__(self) -> None:
        self.units: deque[tuple[UnitOfWork, dict[int, int]]] = deque()
        #: committed: the transmission queue, the records, and the payloads of publications that have entered
        self.queue: list[Queued] = []
        self.states: dict[StateKey, SessionRecord] = {}
        self.on_completed: Callable[[Sequence[Completion]], None] = lambda completions: None
        self.entered: list[bytes] = []
        self.inhibited = False
        self.on_removal: Callable[[Queued], None] = lambda queued: None

    async def open(self) -> Recovered:
        return Recovered(list(self.states.values()), [])

    def start(self, consumer: Callable[[Sequence[Queued]], None]) -> None:
        if self.queue:
            consumer(list(self.queue))

    def admit(self, client_id: str, user: str, done: Callable[[int], None]) -> None:
        done(0)

    def submit(self, unit: UnitOfWork) -> dict[int, int]:
        refusals = dict.fromkeys(range(len(unit.publications)), MQRC_PUT_INHIBITED) if self.inhibited else {}
        self.units.append((unit, refusals))
        return refusals

    def subscribe(self, client_id: str, filters: object, durable: bool, done: object) -> None:
        raise AssertionError("nobody subscribes here")

    def unsubscribe(self, client_id: str, filters: object, done: object) -> None:
        raise AssertionError("nobody unsubscribes here")

    def dead_letter(self, transmission: Queued, reason: int) -> None:
        raise AssertionError(f"message {transmission.msg_number} is dead-lettered, {reason}")

    def commit(self) -> None:
        unit, refusals = self.units.popleft()
        for index, (message, _) in enumerate(unit.publications):
            if index not in refusals:
                self.entered.append(message.payload)
        for removed in unit.removals:
            if removed in self.queue:
                self.on_removal(removed)  # type: ignore[arg-type]
                self.queue.remove(removed)  # type: ignore[arg-type]
        for key, record in unit.records_without(refusals).items():
            if record is None:
                self.states.pop(key, None)
            else:
                self.states[key] = record
        self.on_completed([Completion(unit.number, 0, refusals)])

    def fail(self) -> None:
        """No unit that waits can be committed: later ones rest on what earlier ones would have changed."""
        for _ in range(len(self.units)):
            unit, refusals = self.units.popleft()
            self.on_completed([Completion(unit.number, MQRC_RESOURCE_PROBLEM, refusals)])

    def received_ids(self) -> list[int]:
        record = self.states.get(StateKey(Side.RECEIVED, CLIENT))
        return record.received if isinstance(record, ReceivedRecord) else []


class Transport:
    """What asyncio would give a Connection: writes reach the machine at once, closing takes effect when it says so."""

    def __init__(self, written: Callable[[Transport, bytes], None]) -> None:
        self.written = written
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written(self, data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Loop:
    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        pass


class FakeChannel:
    """What a TcpConnection asks of its channel, without an event loop."""

    def __init__(self, gateway: TelemetryService, loop: Loop) -> None:
        self.config = ChannelConfig()
        self.gateway = gateway
        self.loop = loop
        self.pending_bytes = 1000
        self.connections: set[TcpConnection] = set()

    def admit(self, connection: TcpConnection) -> str:
        self.connections.add(connection)
        return ""

    def discard(self, connection: TcpConnection) -> None:
        self.connections.discard(connection)


@dataclass
class Link:
    """A network connection, with the bytes that are on their way."""

    connection: TcpConnection
    transport: Transport
    decoder: Decoder
    to_client: deque[Packet] = field(default_factory=deque)
    to_bridge: list[Packet] = field(default_factory=list)
    accepted: bool = False
    #: message ids that the bridge sent with QoS 1 or 2 over this link and that were not acknowledged to it
    unacknowledged: set[int] = field(default_factory=set)
    slow: bool = False


@dataclass
class Outward:
    """A publication of the client that is not through."""

    payload: bytes
    qos: int
    topic: str
    released: bool = False


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


class Delivery(RuleBasedStateMachine):
    durable = True

    @initialize(window=st.integers(1, 4), level=st.sampled_from([3, 4]))
    def begin(self, window: int, level: int) -> None:
        self.level = level
        self.window = window
        self.loop = Loop()
        self.manager = QueueManager()
        self.manager.on_removal = self.on_removal
        self.link: Link | None = None
        self.abandoned: list[Link] = []
        # The client's own session state and its application.
        self.outward: dict[int, Outward] = {}
        self.retired: set[int] = set()
        self.received: set[int] = set()
        self.delivered: list[bytes] = []
        self.finished: list[Outward] = []
        self.had_session = False
        # The machine's knowledge.
        self.numbers = 0
        self.messages: dict[bytes, Queued] = {}
        self.void: set[bytes] = set()
        self.in_use: dict[int, bytes] = {}
        self.acknowledged: set[bytes] = set()
        self.start_bridge()

    def start_bridge(self) -> None:
        limits = LimitsConfig(in_flight=self.window)
        self.service = TelemetryService(self.manager, limits, self.loop.time, queue_manager_name="QM")  # type: ignore[arg-type]
        run(self.service.start())
        self.channel = FakeChannel(self.service, self.loop)

    # What the bridge does is checked here -----------------------------------------------------------------------------

    def on_removal(self, queued: Queued) -> None:
        payload = queued.message.payload
        if queued.qos:
            assert payload in self.acknowledged or payload in self.void, (
                f"message {payload!r} is removed from the queue before the client has acknowledged it"
            )

    def on_bytes(self, transport: Transport, data: bytes) -> None:
        link = next((one for one in [self.link, *self.abandoned] if one and one.transport is transport), self.opening)
        assert link is not None
        assert not transport.closed, "written after close"
        packets = link.decoder.feed(data)
        assert link.decoder.error is None
        for packet in packets:
            self.on_packet(link, packet)
        link.to_client.extend(packets)

    def on_packet(self, link: Link, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.qos:
            self.on_publish(link, packet)
        elif isinstance(packet, Puback | Pubrec):
            publication = self.outward.get(packet.message_id)
            assert publication is None or publication.payload in self.manager.entered, (
                f"{packet} is sent, the publication is not committed"
            )
        elif isinstance(packet, Pubcomp):
            assert packet.message_id not in self.manager.received_ids(), f"{packet} is sent, the record has its id yet"
        elif isinstance(packet, Pubrel):
            payload = self.in_use.get(packet.message_id)
            assert payload is None or all(one.message.payload != payload for one in self.manager.queue), (
                f"{packet} is sent, the message is not committed as removed"
            )

    def on_publish(self, link: Link, packet: Publish) -> None:
        message_id = packet.message_id
        other = self.in_use.setdefault(message_id, packet.payload)
        assert other == packet.payload, f"message id {message_id} of {packet.payload!r} is in use for {other!r}"
        elsewhere = [one for one, payload in self.in_use.items() if payload == packet.payload and one != message_id]
        assert not elsewhere, f"{packet.payload!r} goes out as {message_id}, and went out as {elsewhere}"
        link.unacknowledged.add(message_id)
        assert len(link.unacknowledged) <= self.window, "more unacknowledged messages than the window allows"

    @invariant()
    def the_window_is_counted_right(self) -> None:
        if not hasattr(self, "service"):
            return
        for session in self.service.sessions.values():
            box = session.outbox
            counted = box.in_flight.unacknowledged
            assert counted == sum(one.phase in UNACKNOWLEDGED for one in box.in_flight.values())
            assert 0 <= counted <= self.window

    # The network ------------------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        return self.link is not None and self.link.accepted

    def reconnect(self) -> None:
        """A new connection; the bridge need not have noticed the end of the one before."""
        if self.link is not None:
            self.abandon()
        if not self.durable:
            self.forget()
        connection = TcpConnection(self.channel)  # type: ignore[arg-type]
        transport = Transport(self.on_bytes)
        self.link = self.opening = Link(connection, transport, Decoder(server=False, protocol_level=self.level))
        connection.connection_made(transport)  # type: ignore[arg-type]
        name = "MQIsdp" if self.level == 3 else "MQTT"
        connection.data_received(encode(Connect(CLIENT, name, self.level, not self.durable)))
        self.settle()

    opening: Link | None = None

    def forget(self) -> None:
        """A clean session begins: neither side knows anything of the one before."""
        self.outward.clear()
        self.received.clear()
        self.in_use.clear()
        self.void.update(self.messages)

    def abandon(self) -> None:
        """The client is no longer there; whatever was on its way is lost."""
        assert self.link is not None
        self.abandoned.append(self.link)
        self.link = None
        self.retired.clear()
        if not self.durable:
            self.void.update(self.messages)

    def settle(self) -> None:
        """Connections that the bridge has closed end, as they do on the next turn of the event loop."""
        for link in [self.link, *self.abandoned]:
            if link is not None and link.transport.closed:
                if link is self.link:
                    self.abandon()
                self.abandoned.remove(link)
                link.connection.connection_lost(None)

    def break_link(self) -> None:
        """The client goes; the bridge will notice later."""
        self.abandon()

    def notice(self) -> None:
        link = self.abandoned.pop(0)
        if not self.durable and self.link is None:
            self.void.update(self.messages)
        link.connection.connection_lost(None)

    def slow(self) -> None:
        assert self.link is not None
        if self.link.slow:
            self.link.connection.resume_writing()
        else:
            self.link.connection.pause_writing()
        self.link.slow = not self.link.slow
        self.settle()

    def time_passes(self) -> None:
        """Long enough that clients of MQTT 3.1 get unacknowledged messages again."""
        self.loop.now += 25.0
        for connection in list(self.channel.connections):
            connection.sweep(self.loop.now)
        self.settle()

    # The client -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.link is not None and self.link.to_client)
    @rule(count=st.integers(1, 6))
    def client_reads(self, count: int) -> None:
        link = self.link
        assert link is not None
        for _ in range(min(count, len(link.to_client))):
            self.client_takes(link, link.to_client.popleft())

    def client_takes(self, link: Link, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if packet.return_code:
                return
            link.accepted = True
            if self.durable and self.level == 4:
                assert packet.session_present or not self.had_session, "the bridge has forgotten the session"
            self.had_session = True
            for message_id, publication in self.outward.items():
                if publication.released:
                    link.to_bridge.append(Pubrel(message_id))
                else:
                    link.to_bridge.append(self.publish_packet(message_id, publication, dup=True))
        elif isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.message_id not in self.received:
                    self.received.add(packet.message_id)
                    self.delivered.append(packet.payload)
                link.to_bridge.append(Pubrec(packet.message_id))
            else:
                self.delivered.append(packet.payload)
                if packet.qos:
                    link.to_bridge.append(Puback(packet.message_id))
        elif isinstance(packet, Pubrel):
            self.received.discard(packet.message_id)
            link.to_bridge.append(Pubcomp(packet.message_id))
        elif isinstance(packet, Puback):
            self.finish(packet.message_id, 1)
        elif isinstance(packet, Pubrec):
            publication = self.outward.get(packet.message_id)
            if publication is not None and publication.qos == 2 and not publication.released:
                publication.released = True
                link.to_bridge.append(Pubrel(packet.message_id))
        elif isinstance(packet, Pubcomp):
            self.finish(packet.message_id, 2)

    def finish(self, message_id: int, qos: int) -> None:
        publication = self.outward.get(message_id)
        if publication is not None and publication.qos == qos:
            self.finished.append(self.outward.pop(message_id))

    def publish_packet(self, message_id: int, publication: Outward, *, dup: bool) -> Publish:
        return Publish(publication.topic, publication.payload, publication.qos, False, dup, message_id)

    @precondition(lambda self: self.online and len(self.outward) < 4)
    @rule(qos=st.integers(1, 2))
    def client_publishes(self, qos: int) -> None:
        assert self.link is not None
        free = [one for one in range(1, 9) if one not in self.outward and one not in self.retired]
        if free:
            self.numbers += 1
            self.outward[free[0]] = Outward(b"in %d" % self.numbers, qos, "in")
            self.link.to_bridge.append(self.publish_packet(free[0], self.outward[free[0]], dup=False))

    @precondition(lambda self: self.online and self.level == 3 and self.outward)
    @rule(data=st.data())
    def client_repeats(self, data: st.DataObject) -> None:
        """Clients of MQTT 3.1 send again after a time; such a message id is not used again on this connection."""
        assert self.link is not None
        message_id = data.draw(st.sampled_from(sorted(self.outward)))
        publication = self.outward[message_id]
        self.retired.add(message_id)
        if publication.released:
            self.link.to_bridge.append(Pubrel(message_id))
        else:
            self.link.to_bridge.append(self.publish_packet(message_id, publication, dup=True))

    @precondition(lambda self: self.link is not None and self.link.to_bridge and self.link.transport.reading)
    @rule(count=st.integers(1, 6))
    def bridge_reads(self, count: int) -> None:
        link = self.link
        assert link is not None
        batch, link.to_bridge = link.to_bridge[:count], link.to_bridge[count:]
        for packet in batch:
            if isinstance(packet, Puback | Pubrec):
                link.unacknowledged.discard(packet.message_id)
                payload = self.in_use.get(packet.message_id)
                if payload is not None:
                    self.acknowledged.add(payload)
            if isinstance(packet, Puback | Pubcomp):
                self.in_use.pop(packet.message_id, None)
        link.connection.data_received(b"".join(map(encode, batch)))
        self.settle()

    def ping(self) -> None:
        assert self.link is not None
        self.link.to_bridge.append(Pingreq())

    # MQ ---------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.had_session if self.durable else self.online)
    @rule(batch=st.lists(st.tuples(st.sampled_from(LOW_NUMBERS), st.integers(0, 2)), min_size=1, max_size=4))
    def application_publishes(self, batch: list[tuple[int, int]]) -> None:
        queued = []
        for low, qos in batch:
            self.numbers += 1
            payload = b"out %d" % self.numbers
            message = to_mq(Publish("out", payload, qos, False, False, 1 if qos else 0), ClientIdentity("p", b""))
            if self.level == 3:
                # What MQTT 3.1 sends again on one connection may be acknowledged twice: no early second use of an id.
                low = self.numbers
            queued.append(Queued(self.numbers << 16 | low, message, qos, f"out/{qos}"))
            self.messages[payload] = queued[-1]
        self.manager.queue += queued
        self.service.delivery.deliver(queued)
        self.settle()

    @precondition(lambda self: self.manager.units)
    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        for _ in range(min(count, len(self.manager.units))):
            self.manager.commit()
        self.settle()

    def commit_fails(self) -> None:
        self.manager.fail()
        self.settle()

    def inhibit(self) -> None:
        self.manager.inhibited = not self.manager.inhibited

    def crash(self) -> None:
        """Power off, power on: what is not committed is gone, and so are the connections."""
        if self.link is not None:
            self.abandon()
        self.abandoned.clear()
        self.manager.units.clear()
        self.manager.queue = [one for one in self.manager.queue if one.qos]  # what had QoS 0 is not persistent
        if not self.durable:
            self.void.update(self.messages)
        self.start_bridge()

    @precondition(lambda self: self.link is None)
    @rule()
    def connect(self) -> None:
        self.reconnect()

    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        """What is rarer than traffic."""
        troubles: dict[str, Callable[[], None]] = {
            "nothing": lambda: None, "inhibit": self.inhibit, "crash": self.crash, "time passes": self.time_passes,
        }  # fmt: skip
        if self.link is not None:
            troubles |= {"reconnect unnoticed": self.reconnect, "break": self.break_link}
        if self.online:
            troubles |= {"slow": self.slow, "ping": self.ping}
        if self.abandoned:
            troubles["notice"] = self.notice
        if self.manager.units:
            troubles["commit fails"] = self.commit_fails
        troubles[data.draw(st.sampled_from(sorted(troubles)))]()

    @precondition(lambda self: self.link is not None)
    @rule(rounds=st.integers(1, 3))
    def exchange(self, rounds: int) -> None:
        """A while without trouble."""
        for _ in range(rounds):
            if self.link is not None and self.link.to_bridge and self.link.transport.reading:
                self.bridge_reads(100)
            while self.manager.units:
                self.manager.commit()
            self.settle()
            if self.link is not None and self.link.to_client:
                self.client_reads(100)

    # Rest -------------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "service") or sys.exc_info()[0] is not None:
            return
        self.manager.inhibited = False
        for _ in range(5000):
            if self.link is None:
                self.reconnect()
            if self.link is not None and self.link.slow:
                self.slow()
            while self.manager.units:
                self.commit(1)
            if self.link is not None and self.link.to_client:
                self.client_reads(100)
            elif self.link is not None and self.link.to_bridge:
                self.bridge_reads(100)
            elif self.online and not self.manager.units:
                break
        else:
            raise AssertionError("the bridge does not come to rest")
        self.count()

    def count(self) -> None:
        session = self.service.sessions[CLIENT]
        assert not self.outward, "publications of the client are never answered"
        assert not session.outbox.in_flight and not session.outbox.backlog and not session.outbox.assigned
        assert session.outbox.recording is None and not session.received
        assert all(one.message.payload in self.void or not one.qos for one in self.manager.queue)
        for publication in self.finished:
            times = self.manager.entered.count(publication.payload)
            assert times == 1 if publication.qos == 2 else times >= 1, f"{publication} entered {times} times"
        for payload in set(self.manager.entered):
            if payload in {one.payload for one in self.finished if one.qos == 2}:
                assert self.manager.entered.count(payload) == 1
        firsts: dict[str, list[int]] = {}
        for payload, queued in self.messages.items():
            times = self.delivered.count(payload)
            if queued.qos == 2:
                assert times == 1 or (times == 0 and payload in self.void), f"{payload!r} came {times} times"
            if queued.qos == 1:
                assert times >= 1 or payload in self.void, f"{payload!r} never came"
        for payload in dict.fromkeys(self.delivered):
            queued = self.messages[payload]
            firsts.setdefault(queued.topic, []).append(queued.msg_number)
        for topic, numbers in firsts.items():
            assert numbers == sorted(numbers), f"order of {topic}: {numbers}"


class CleanDelivery(Delivery):
    durable = False


how = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def walk(machine: Delivery, random: Random, steps: int, log: list[str]) -> None:
    """A long way through the same machine: Hypothesis' own runs are short, which suits shrinking better than finding."""
    machine.begin(window=random.randint(1, 4), level=random.choice([3, 4, 4]))
    for _ in range(steps):
        link = machine.link
        traffic: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        rare: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = [
            (1, machine.time_passes, ()),
            (1, machine.crash, ()),
            (3 if machine.manager.inhibited else 1, machine.inhibit, ()),
        ]
        if machine.manager.units:
            traffic.append((4, machine.commit, (random.randint(1, 4),)))
            rare.append((1, machine.commit_fails, ()))
        if machine.abandoned:
            traffic.append((1, machine.notice, ()))
        if link is None:
            traffic.append((3, machine.reconnect, ()))
        else:
            rare += [(1, machine.reconnect, ()), (2, machine.break_link, ())]
            if link.to_client:
                traffic.append((4, machine.client_reads, (random.randint(1, 6),)))
            if link.to_bridge and link.transport.reading:
                traffic.append((4, machine.bridge_reads, (random.randint(1, 6),)))
        if machine.online:
            rare.append((3 if link is not None and link.slow else 1, machine.slow, ()))
            if len(machine.outward) < 4:
                traffic.append((2, machine.client_publishes, (random.randint(1, 2),)))
        if machine.had_session if machine.durable else machine.online:
            batch = [(random.choice(LOW_NUMBERS), random.randint(0, 2)) for _ in range(random.randint(1, 4))]
            traffic.append((2, machine.application_publishes, (batch,)))
        choices = traffic if traffic and random.random() > 0.12 else rare
        _, action, arguments = random.choices(choices, [weight for weight, _, _ in choices])[0]
        log.append(f"{action.__name__}{arguments}")
        action(*arguments)
        machine.the_window_is_counted_right()
    machine.teardown()


@pytest.mark.parametrize("kind", [Delivery, CleanDelivery])
@pytest.mark.parametrize("part", range(4))
def test_long_ways(kind: type[Delivery], part: int) -> None:
    for seed in range(part * 150, part * 150 + 150):
        log: list[str] = []
        try:
            walk(object.__new__(kind), Random(seed), 120, log)
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(log))
            raise


def test_a_connect_that_is_not_committed_leaves_its_record_to_the_next() -> None:
    """A message id is forgotten on disk before PUBCOMP, also where the unit of work of a CONNECT was to do it and failed."""
    machine: Delivery = object.__new__(Delivery)
    machine.begin(window=1, level=4)
    machine.reconnect()
    machine.commit(1)
    machine.client_reads(1)
    machine.client_publishes(2)
    machine.bridge_reads(1)
    machine.commit(1)
    machine.client_reads(1)
    machine.bridge_reads(1)
    machine.commit_fails()  # what PUBREL asks for
    machine.commit_fails()  # what is put on record because that failed
    machine.reconnect()
    machine.commit_fails()
    assert machine.manager.received_ids() == [1]
    machine.teardown()


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


TestDurableSession = Delivery.TestCase
TestDurableSession.settings = how
TestCleanSession = CleanDelivery.TestCase
TestCleanSession.settings = how
