"""The scene of the delivery model: a bridge between client and queue manager, with each byte and unit checked."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from bridge.config.models import LimitsConfig
from bridge.mqtt.flow import Phase
from bridge.mqtt.packets import Connect, ConnectProperties, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import FAILURE
from bridge.mqtt.writer import encode
from bridge.service.client_handler import handlers_of
from bridge.service.telemetry import TelemetryService
from bridge.transport.stream import StreamConnection
from tests.helpers.delivery_world import (
    CLIENT,
    AtOnce,
    FakeChannel,
    Link,
    Loop,
    Outward,
    Queued,
    QueueManager,
    Transport,
)

UNACKNOWLEDGED = (Phase.AWAITING_PUBACK, Phase.AWAITING_PUBREC)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


class Scene(RuleBasedStateMachine):
    durable = True
    #: the queue manager is IBM MQ: after a restart, the bridge numbers the messages again, ordered by priority
    renumbers = False

    @initialize(window=st.integers(1, 4), level=st.sampled_from([3, 4, 5]))
    def begin(self, window: int, level: int) -> None:
        self.level = level
        self.window = window
        self.loop = Loop()  # type: ignore[abstract]
        self.manager = QueueManager(renumbers=self.renumbers)
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
        # State of the machine.
        self.numbers = 0
        self.messages: dict[bytes, Queued] = {}
        self.void: set[bytes] = set()
        self.in_use: dict[int, bytes] = {}
        self.acknowledged: set[bytes] = set()
        self.start_bridge()

    def start_bridge(self) -> None:
        limits = LimitsConfig(in_flight=self.window)
        self.service = TelemetryService(
            self.manager,
            limits,
            self.loop.time,
            queue_manager_name="QM",
            turns=AtOnce(),
        )
        run(self.service.start())
        self.channel = FakeChannel(handlers_of(self.service), self.loop)

    # What the bridge does is checked here -----------------------------------------------------------------------------

    def on_removal(self, queued: Queued) -> None:
        payload = queued.message.payload
        if queued.qos:
            assert payload in self.acknowledged or payload in self.void, (
                f"message {payload!r} is removed from the queue before the client has acknowledged it"
            )

    def on_bytes(self, transport: Transport, data: bytes) -> None:
        link = next(
            (candidate for candidate in [self.link, *self.abandoned] if candidate and candidate.transport is transport),
            self.opening,
        )
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
            publication = self.outward.get(packet.packet_id)
            assert (
                packet.reason_code >= FAILURE or publication is None or publication.payload in self.manager.entered
            ), f"{packet} is sent, the publication is not committed"
        elif isinstance(packet, Pubcomp):
            assert packet.packet_id not in self.manager.received_ids(), f"{packet} is sent, the record has its id yet"
        elif isinstance(packet, Pubrel):
            payload = self.in_use.get(packet.packet_id)
            assert payload is None or all(message.message.payload != payload for message in self.manager.queue), (
                f"{packet} is sent, the message is not committed as removed"
            )

    def on_publish(self, link: Link, packet: Publish) -> None:
        packet_id = packet.packet_id
        other = self.in_use.setdefault(packet_id, packet.payload)
        assert other == packet.payload, f"message id {packet_id} of {packet.payload!r} is in use for {other!r}"
        elsewhere = [
            other_id for other_id, payload in self.in_use.items() if payload == packet.payload and other_id != packet_id
        ]
        assert not elsewhere, f"{packet.payload!r} goes out as {packet_id}, and went out as {elsewhere}"
        link.unacknowledged.add(packet_id)
        assert len(link.unacknowledged) <= link.receive_maximum, "more unacknowledged messages than the window allows"

    @invariant()
    def the_window_is_counted_right(self) -> None:
        if not hasattr(self, "service"):
            return
        for session in self.service.sessions.values():
            box = session.outbox
            counted = box.in_flight.unacknowledged
            assert counted == sum(delivery.phase in UNACKNOWLEDGED for delivery in box.in_flight.deliveries.values())
            assert 0 <= counted <= self.window
            finished = (Phase.ACKNOWLEDGED, Phase.COMPLETED)
            assert box.in_flight.unfinished == sum(
                delivery.phase not in finished for delivery in box.in_flight.deliveries.values()
            )

    # The network ------------------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        return self.link is not None and self.link.accepted

    def reconnect(self, receive_maximum: int | None = None) -> None:
        """Make a new connection. The bridge may not have noticed the end of the previous one.

        A client of MQTT 5 may choose a smaller Receive Maximum.
        """
        receive_maximum = min(receive_maximum or self.window, self.window) if self.level == 5 else self.window
        if self.link is not None:
            self.abandon()
        if not self.durable:
            self.forget()
        connection = StreamConnection(self.channel)
        transport = Transport(self.on_bytes)
        decoder = Decoder(server=False, protocol_level=self.level)
        self.link = self.opening = Link(connection, transport, decoder, receive_maximum)
        connection.connection_made(transport)
        name = "MQIsdp" if self.level == 3 else "MQTT"
        properties = None
        if self.level == 5:
            expiry = 0xFFFFFFFF if self.durable else 0
            properties = ConnectProperties(session_expiry_interval=expiry, receive_maximum=receive_maximum)
        connect = Connect(CLIENT, name, self.level, not self.durable, properties=properties)
        connection.data_received(encode(connect, "big", self.level))
        self.settle()

    opening: Link | None = None

    def forget(self) -> None:
        """Start a clean session: neither side knows the previous one."""
        self.outward.clear()
        self.received.clear()
        self.in_use.clear()
        self.void.update(self.messages)

    def abandon(self) -> None:
        """Remove the client. Data in transit is lost."""
        assert self.link is not None
        self.abandoned.append(self.link)
        self.link = None
        self.retired.clear()
        if not self.durable:
            self.void.update(self.messages)

    def settle(self) -> None:
        """Run the event loop, and end connections that the bridge has closed."""
        self.loop.turn()
        for link in [self.link, *self.abandoned]:
            if link is not None and link.transport.closed:
                if link is self.link:
                    self.abandon()
                self.abandoned.remove(link)
                link.connection.connection_lost(None)

    def break_link(self) -> None:
        """Disconnect the client. The bridge will notice later."""
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
        """Wait until clients of MQTT 3.1 get unacknowledged messages again."""
        self.loop.now += 25.0
        for connection in list(self.channel.connections):
            connection.sweep(self.loop.now)
        self.settle()
