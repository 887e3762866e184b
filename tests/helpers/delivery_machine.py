"""The state machine of the delivery model: actions of a client, a queue manager and an operator."""

from __future__ import annotations

import sys
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from bridge.mqtt.packets import Connack, Packet, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reason_codes import FAILURE
from bridge.mqtt.writer import encode
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from tests.helpers.delivery_scene import Scene
from tests.helpers.delivery_world import (
    CLIENT,
    LOW_NUMBERS,
    Link,
    Outward,
    low_number,
)


class Delivery(Scene):
    #: the form of the last two bytes of MsgIds (`low_number`)
    form = "drawn"

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
            if self.durable and self.level >= 4:
                assert packet.session_present or not self.had_session, "the bridge has forgotten the session"
            self.had_session = True
            for packet_id, publication in self.outward.items():
                if publication.released:
                    link.to_bridge.append(Pubrel(packet_id))
                else:
                    link.to_bridge.append(self.publish_packet(packet_id, publication, dup=True))
        elif isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.packet_id not in self.received:
                    self.received.add(packet.packet_id)
                    self.delivered.append(packet.payload)
                link.to_bridge.append(Pubrec(packet.packet_id))
            else:
                self.delivered.append(packet.payload)
                if packet.qos:
                    link.to_bridge.append(Puback(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.received.discard(packet.packet_id)
            link.to_bridge.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, Puback | Pubrec) and packet.reason_code >= FAILURE:
            del self.outward[packet.packet_id]
        elif isinstance(packet, Puback):
            self.finish(packet.packet_id, 1)
        elif isinstance(packet, Pubrec):
            publication = self.outward.get(packet.packet_id)  # type: ignore[assignment]
            if publication is not None and publication.qos == 2 and not publication.released:
                publication.released = True
                link.to_bridge.append(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self.finish(packet.packet_id, 2)

    def finish(self, packet_id: int, qos: int) -> None:
        publication = self.outward.get(packet_id)
        if publication is not None and publication.qos == qos:
            self.finished.append(self.outward.pop(packet_id))

    def publish_packet(self, packet_id: int, publication: Outward, *, dup: bool) -> Publish:
        return Publish(publication.topic, publication.payload, publication.qos, False, dup, packet_id)

    @precondition(lambda self: self.online and len(self.outward) < 4)
    @rule(qos=st.integers(1, 2))
    def client_publishes(self, qos: int) -> None:
        assert self.link is not None
        free = [
            packet_id for packet_id in range(1, 9) if packet_id not in self.outward and packet_id not in self.retired
        ]
        if free:
            self.numbers += 1
            self.outward[free[0]] = Outward(b"in %d" % self.numbers, qos, "in")
            self.link.to_bridge.append(self.publish_packet(free[0], self.outward[free[0]], dup=False))

    @precondition(lambda self: self.online and self.level == 3 and self.outward)
    @rule(data=st.data())
    def client_repeats(self, data: st.DataObject) -> None:
        """Clients of MQTT 3.1 repeat messages after a time. Such a message id is not used again on this connection."""
        assert self.link is not None
        packet_id = data.draw(st.sampled_from(sorted(self.outward)))
        publication = self.outward[packet_id]
        self.retired.add(packet_id)
        if publication.released:
            self.link.to_bridge.append(Pubrel(packet_id))
        else:
            self.link.to_bridge.append(self.publish_packet(packet_id, publication, dup=True))

    @precondition(lambda self: self.link is not None and self.link.to_bridge and self.link.transport.reading)
    @rule(count=st.integers(1, 6))
    def bridge_reads(self, count: int) -> None:
        link = self.link
        assert link is not None
        batch, link.to_bridge = link.to_bridge[:count], link.to_bridge[count:]
        for packet in batch:
            # The Receive Maximum of MQTT 5 counts a message until PUBCOMP (section 4.9).
            if isinstance(packet, Puback | (Pubcomp if self.level == 5 else Pubrec)):
                link.unacknowledged.discard(packet.packet_id)
            if isinstance(packet, Puback | Pubrec):
                payload = self.in_use.get(packet.packet_id)
                if payload is not None:
                    self.acknowledged.add(payload)
            if isinstance(packet, Puback | Pubcomp):
                self.in_use.pop(packet.packet_id, None)
        link.connection.data_received(b"".join(encode(packet, "big", self.level) for packet in batch))
        self.settle()

    def ping(self) -> None:
        assert self.link is not None
        self.link.to_bridge.append(Pingreq())

    # MQ ---------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.had_session if self.durable else self.online)
    @rule(
        batch=st.lists(
            st.tuples(st.sampled_from(LOW_NUMBERS), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4
        )
    )
    def application_publishes(self, batch: list[tuple[int, int, int]]) -> None:
        queued = []
        for drawn, qos, priority in batch:
            self.numbers += 1
            payload = b"out %d" % self.numbers
            message = to_mq(Publish("out", payload, qos, False, False, 1 if qos else 0), ClientIdentity("p", b""))
            low = low_number(self.form, self.numbers, drawn)
            if self.level == 3:
                # A message that MQTT 3.1 repeats on one connection may be acknowledged twice, so its id is not reused early.
                low = self.numbers
            queued.append(self.manager.put(self.numbers, low, message, qos, priority))
            self.messages[payload] = queued[-1]
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
        """Power off and on: uncommitted work is lost, and so are the connections."""
        if self.link is not None:
            self.abandon()
        self.abandoned.clear()
        self.manager.restart()
        if not self.durable:
            self.void.update(self.messages)
        self.start_bridge()

    @precondition(lambda self: self.link is None)
    @rule(receive_maximum=st.integers(1, 4))
    def connect(self, receive_maximum: int) -> None:
        self.reconnect(receive_maximum)

    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        """Actions that are less frequent than traffic."""
        troubles: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "inhibit": self.inhibit,
            "crash": self.crash,
            "time passes": self.time_passes,
        }
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
        """A period without faults."""
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
        if not hasattr(self, "service"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.rest()
        finally:
            self.loop.close()

    def rest(self) -> None:
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
        assert not session.outbox.in_flight.deliveries and not session.outbox.backlog
        assert session.outbox.identifiers is None or not session.outbox.identifiers.decided
        assert session.outbox.recording is None and not session.receiver.identifiers
        assert all(message.message.payload in self.void or not message.qos for message in self.manager.queue)
        for publication in self.finished:
            times = self.manager.entered.count(publication.payload)
            assert times == 1 if publication.qos == 2 else times >= 1, f"{publication} entered {times} times"
        for payload in set(self.manager.entered):
            if payload in {publication.payload for publication in self.finished if publication.qos == 2}:
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
            firsts.setdefault(queued.topic, []).append(queued.put)
        for topic, numbers in firsts.items():
            assert numbers == sorted(numbers), f"order of {topic}: {numbers}"


class CleanDelivery(Delivery):
    durable = False


class RenumberedDelivery(Delivery):
    renumbers = True


class LinuxDelivery(RenumberedDelivery):
    form = "linux"


class AixDelivery(RenumberedDelivery):
    form = "aix"
