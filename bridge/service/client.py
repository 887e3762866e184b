"""A client as the service knows it: one connection, and the session that it has taken up."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence, Sized
from functools import cache, partial
from typing import Final, Protocol

from bridge.config import ChannelConfig
from bridge.mqtt.connection import ServerProtocol, State
from bridge.mqtt.events import Disconnected, Event, MessagePacket, Messages
from bridge.mqtt.packets import Auth, Connect, Disconnect, Subscribe, Unsubscribe, Will
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security.failed_connects import Attempt
from bridge.telemetry.identity import UNAUTHENTICATED
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.transport.interface import UNCOMMITTED, Peer, Transport
from bridge.transport.stream import Rate
from bridge.wire import cmqc

log = logging.getLogger(__name__)


_DISCONNECTING: Final = State.DISCONNECTING
#: Bytes that a request to the queue manager, such as a publication or a topic filter, counts for in addition to its payload.
REQUEST_WEIGHT: Final = 1024
#: Bytes that each delivery of a publication counts for.
DELIVERY_WEIGHT: Final = 256


class Units(Protocol):
    """What a client has its messages committed by: `bridge.service.units.Units`."""

    def commit(self, session: Session, client: Client, effects: ReceiveEffects) -> None:
        """Send what the window now allows, and commit the effects of packets."""


class Service(Protocol):
    """What a client hands over to the telemetry service."""

    @property
    def units(self) -> Units:
        """Return what messages are committed by."""

    @property
    def subscriptions(self) -> Sized:
        """The subscriptions of the queue manager, as many as a publication can have deliveries in this process."""

    def control(self, client: Client, event: Connect | Auth | Subscribe | Unsubscribe) -> None:
        """Act on a packet that is not about messages."""

    def portion(self, packets: Sequence[MessagePacket]) -> tuple[int, int]:
        """Return how many packets of a client belong in one turn, and how many deliveries they cause."""

    def pump(self, client: Client) -> None:
        """Send what waits as far as the window allows."""

    def sweep(self, client: Client) -> None:
        """Do what is due as time passes."""

    def paused(self, session: Session) -> None:
        """Note that a client does not read."""

    def gone(self, client: Client) -> None:
        """Note that the connection of a client is gone."""


class Authentication(Protocol):
    """The enhanced authentication of a client: `bridge.service.authentication.Authentication`."""

    #: the CONNECT whose client it is
    connect: Connect
    #: what the client is told at the end
    data: bytes | None

    def take(self, data: bytes | None) -> None:
        """Give the method what the client says."""

    def stop(self) -> None:
        """End it: the client is gone."""


class Client:
    """One connection of an MQTT client. `session` is None until CONNACK, and again when the connection is gone."""

    __slots__ = (
        "_deliveries",
        "_held",
        "_pending",
        "_pending_bytes",
        "_rate",
        "_service",
        "_units",
        "attempt",
        "authentication",
        "channel",
        "dead_letters",
        "expires",
        "identification",
        "principal",
        "protocol",
        "session",
        "transport",
        "user_name",
        "will",
    )

    def __init__(
        self,
        service: Service,
        transport: Transport,
        protocol: ServerProtocol,
        channel: ChannelConfig,
        pending_bytes: int,
    ) -> None:
        self._service = service
        self._units = service.units
        self.transport = transport
        self.protocol = protocol
        self.channel = channel
        self.dead_letters = _reasons(tuple(channel.refused_to_dead_letters))
        self.session: Session | None = None
        self.will: Will | None = None
        #: by which it showed, or is to show, who it is; None where it named no method (MQTT 5 section 4.12)
        self.authentication: Authentication | None = None
        #: its attempt to show who it is, where it is asked; failed unless it is said to have succeeded
        self.attempt: Attempt | None = None
        #: the user that it has shown to be, or that is believed it; the user that it acts as may be another
        self.user_name = ""
        #: who the channel authenticated it as
        self.principal = UNAUTHENTICATED
        #: finds out who it is
        self.identification: asyncio.Task[None] | None = None
        #: POSIX time when what it has shown ends to be true, and its connection with that; math.inf: never
        self.expires = math.inf
        #: the weight of requests to the queue manager that it has not answered. Above the limit, nothing more is read.
        self._pending = 0
        self._held = False
        self._pending_bytes = pending_bytes
        #: deliveries, about, that the publications of this turn cause; 0 if they are few
        self._deliveries = 0
        protocol.recipients, protocol.portion = service.subscriptions, self._portion
        #: publications that it may send in a second; None: any
        self._rate = None if channel.publish_rate is None else Rate(channel.publish_rate, time.monotonic())

    @property
    def peer(self) -> Peer:
        """Return the client identifier and address, for log lines."""
        return self.transport.peer

    def received(self, events: Sequence[Event]) -> None:
        """Act on what the client has sent, in the order it came."""
        for event in events:
            if isinstance(event, Messages):
                session = self.session
                assert session is not None
                effects = session.receive(event.packets)
                if self._deliveries:
                    effects.weight += DELIVERY_WEIGHT * self._deliveries
                    self._deliveries = 0
                if self._rate is not None and effects.publications:
                    self.transport.slow_down(self._rate.spend(len(effects.publications), time.monotonic()))
                self._units.commit(session, self, effects)
                if effects.violation:
                    self.close(effects.violation, effects.violation_code)
            elif isinstance(event, Disconnected):
                if event.packet is None:
                    self.close(event.why, event.reason_code)
                else:
                    self._disconnected(event.packet)
            else:
                self._service.control(self, event)
            if self.protocol.state >= _DISCONNECTING:
                return

    def _portion(self, packets: Sequence[MessagePacket]) -> int:
        """Return how many packets the service works on in one turn."""
        count, self._deliveries = self._service.portion(packets)
        return count

    def _disconnected(self, packet: Disconnect) -> None:
        """Act on DISCONNECT, in which a client of MQTT 5 may ask for its will, and for another Session Expiry Interval."""
        log.info("MQB2002I client %s disconnected", self.peer)
        expiry_interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        if expiry_interval is not None and self.session is not None:
            if expiry_interval and not self.session.expiry_interval:
                why = "MQTT 5 section 3.14.2.2.2: a session that CONNECT had end with its connection is to outlive it"
                self.close(why, ReasonCode.PROTOCOL_ERROR)
                return
            self.session.expiry_interval = granted_expiry(expiry_interval, self.channel)
        if packet.reason_code == ReasonCode.SUCCESS:
            self.will = None  # MQTT-3.14.4-3; any other reason publishes it (MQTT-3.1.2-8)
        self.close()

    def send_more(self) -> None:
        """Go on with sending: a turn's bytes were not enough."""
        if self.session is not None:
            self._service.pump(self)

    def pause_writing(self) -> None:
        """Send no more for now: the client does not read."""
        if self.session is not None:
            self.session.outbox.pause()
            self._service.paused(self.session)

    def resume_writing(self) -> None:
        """Go on with a client that was slow and has read what was written."""
        if self.session is not None:
            self._tell_dropped(self.session)
            self.session.outbox.resume()
            self._service.pump(self)

    def expire(self) -> None:
        """Close the connection where what the client has shown of itself, such as a token, is true no more."""
        if self.expires <= time.time():
            self.close("what it has shown of itself has expired", ReasonCode.MAXIMUM_CONNECT_TIME)

    def sweep(self, now: float) -> None:
        """Do what is due as time passes."""
        self._service.sweep(self)

    def lost(self) -> None:
        """Note that the connection is gone."""
        if self.authentication is not None:
            self.authentication.stop()
        if self.identification is not None:
            self.identification.cancel()
        if self.attempt is not None:
            if self.identification is None:
                self.attempt.end(False)
            else:
                # After the task, which knows whether the credentials were checked before the client left.
                self.identification.add_done_callback(partial(_attempt_failed, self.attempt))
        if self.session is not None:
            self.session.outbox.pause()
            self._tell_dropped(self.session)
        self._service.gone(self)

    def _tell_dropped(self, session: Session) -> None:
        dropped = session.outbox.take_dropped()
        if dropped:
            log.warning(
                "MQB2003W channel %s: client %s read too slowly: %d publications with QoS 0 for it were dropped",
                self.channel.name,
                self.peer,
                dropped,
            )

    def hold(self, weight: int) -> None:
        """Count a request to the queue manager, in bytes. Above the limit, nothing more is read from the client."""
        self._pending += weight
        if self._pending > self._pending_bytes:
            self._held = True
            self.transport.hold(UNCOMMITTED)

    def release(self, weight: int) -> None:
        """Count the answer to a request."""
        self._pending -= weight
        if self._held and self._pending * 2 <= self._pending_bytes:
            self._held = False
            self.transport.let_go(UNCOMMITTED)

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close the connection after what was written; `why` goes to the log (blank where it was logged already).

        The reason code is what a client of MQTT 5 is told by DISCONNECT.
        """
        self.transport.close(why, reason_code)


def granted_expiry(asked: int, channel: ChannelConfig) -> int:
    """Return how long a session may outlive its connection, in seconds, if its client asks for `asked`."""
    return asked if channel.session_expiry is None else min(asked, math.ceil(channel.session_expiry))


def _attempt_failed(attempt: Attempt, identification: asyncio.Task[None]) -> None:
    attempt.end(False)


@cache
def _reasons(names: tuple[str, ...]) -> frozenset[int]:
    """Return the MQRC numbers for which a refused publication goes to the dead-letter queue."""
    return frozenset(getattr(cmqc, name) for name in names)
