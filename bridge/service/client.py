"""A client as the service knows it: one connection, and the session that it has taken up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from bridge.config import ChannelConfig
from bridge.mqtt.protocol import Event, ServerProtocol
from bridge.mqtt.session import Session
from bridge.mqtt.transport.interface import UNCOMMITTED, Transport
from bridge.mqtt.transport.peer import Peer
from bridge.wire import cmqc
from bridge.wire.mqtt import Will

log = logging.getLogger(__name__)


class Service(Protocol):
    """What a client hands over to the telemetry service."""

    def received(self, client: Client, events: Sequence[Event]) -> None:
        """Act on what a client has sent."""

    def pump(self, client: Client) -> None:
        """Send what waits as far as the window allows."""

    def sweep(self, client: Client) -> None:
        """Do what is due as time passes."""

    def lost(self, client: Client) -> None:
        """Note that the connection of a client is gone."""


class Client:
    """One connection of an MQTT client. `session` is None until CONNACK, and again when the connection is gone."""

    __slots__ = (
        "_pending",
        "_pending_publications",
        "_service",
        "channel",
        "dead_letters",
        "protocol",
        "session",
        "transport",
        "will",
    )

    def __init__(
        self,
        service: Service,
        transport: Transport,
        protocol: ServerProtocol,
        channel: ChannelConfig,
        pending_publications: int,
    ) -> None:
        self._service = service
        self.transport = transport
        self.protocol = protocol
        self.channel = channel
        self.dead_letters = _reasons(tuple(channel.refused_to_dead_letters))
        self.session: Session | None = None
        self.will: Will | None = None
        #: what the queue manager has been asked for and has not answered; above the limit nothing more is read
        self._pending = 0
        self._pending_publications = pending_publications

    @property
    def peer(self) -> Peer:
        """Return the client identifier and address, for log lines."""
        return self.transport.peer

    def received(self, events: Sequence[Event]) -> None:
        """Act on what the client has sent."""
        self._service.received(self, events)

    def send_more(self) -> None:
        """Go on with sending: a turn's bytes were not enough."""
        if self.session is not None:
            self._service.pump(self)

    def pause_writing(self) -> None:
        """Send no more for now: the client does not read."""
        if self.session is not None:
            self.session.outbox.open = False

    def resume_writing(self) -> None:
        """Go on with a client that was slow and has read what was written."""
        if self.session is not None:
            self._tell_dropped(self.session)
            self.session.outbox.open = True
            self._service.pump(self)

    def sweep(self, now: float) -> None:
        """Do what is due as time passes."""
        self._service.sweep(self)

    def lost(self) -> None:
        """Note that the connection is gone."""
        if self.session is not None:
            self._tell_dropped(self.session)
        self._service.lost(self)

    def _tell_dropped(self, session: Session) -> None:
        dropped, session.outbox.dropped = session.outbox.dropped, 0
        if dropped:
            log.warning(
                "channel %s: client %s read too slowly: %d publications with QoS 0 for it were dropped",
                self.channel.name,
                self.peer,
                dropped,
            )

    def hold(self, count: int) -> None:
        """Count what the queue manager has been asked for and has not answered; above a limit nothing more is read."""
        self._pending += count
        if self._pending > self._pending_publications:
            self.transport.hold(UNCOMMITTED)

    def release(self, count: int) -> None:
        """Count what it has answered."""
        self._pending -= count
        if self._pending * 2 < self._pending_publications:
            self.transport.let_go(UNCOMMITTED)

    def close(self, why: str = "") -> None:
        """Close the connection after what was written; `why` goes to the log (blank where it was logged already)."""
        self.transport.close(why)


@cache
def _reasons(names: tuple[str, ...]) -> frozenset[int]:
    """Return the MQRC numbers for which a refused publication goes to the dead-letter queue."""
    return frozenset(getattr(cmqc, name) for name in names)
