"""A client as the service knows it: one connection, and the session that it has taken up."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from functools import cache
from typing import Final

from bridge.config import ChannelConfig
from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import Connect, Will
from bridge.mqtt.reason_codes import ReasonCode
from bridge.telemetry.identity import UNAUTHENTICATED
from bridge.telemetry.session import Session
from bridge.transport.peer import Peer
from bridge.transport.stream import UNCOMMITTED, StreamConnection
from bridge.wire import cmqc

log = logging.getLogger(__name__)

#: Bytes that a request to the queue manager, such as a publication or a topic filter, counts for in addition to its payload.
REQUEST_WEIGHT: Final = 1024


class Client:
    """One connection of an MQTT client. `session` is None until CONNACK, and again when the connection is gone."""

    __slots__ = (
        "_held",
        "_pending",
        "_pending_bytes",
        "channel",
        "committing",
        "connect",
        "dead_letters",
        "expires",
        "principal",
        "protocol",
        "response",
        "sequence",
        "session",
        "transport",
        "user_name",
        "will",
    )

    def __init__(
        self, transport: StreamConnection, protocol: ServerProtocol, channel: ChannelConfig, pending_bytes: int
    ) -> None:
        self.transport = transport
        self.protocol = protocol
        self.channel = channel
        self.dead_letters = _reasons(tuple(channel.refused_to_dead_letters))
        self.session: Session | None = None
        self.will: Will | None = None
        #: its CONNECT, if that names an Authentication Method: the client may authenticate again (MQTT 5 section 4.12)
        self.connect: Connect | None = None
        #: its CONNECT or AUTH sequence, which is cancelled when the connection is gone
        self.sequence: asyncio.Task[None] | None = None
        #: its session is being committed. The sequence then runs to its end, for the session outlives the connection.
        self.committing = False
        #: the Authentication Data of the AUTH that the client has to send
        self.response: asyncio.Future[bytes | None] | None = None
        #: the authenticated (or merely claimed) user name. The MQ user may differ.
        self.user_name = ""
        #: who the channel authenticated it as
        self.principal = UNAUTHENTICATED
        #: POSIX time when its credentials expire, and its connection with them; math.inf: never
        self.expires = math.inf
        #: the weight of requests to the queue manager that it has not answered. Above the limit, nothing more is read.
        self._pending = 0
        self._held = False
        self._pending_bytes = pending_bytes

    @property
    def peer(self) -> Peer:
        """Return the client identifier and address, for log lines."""
        return self.transport.peer

    def expire(self) -> None:
        """Close the connection if the client's credentials, such as a token, have expired."""
        if self.expires <= time.time():
            self.close("what it has shown of itself has expired", ReasonCode.MAXIMUM_CONNECT_TIME)

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

    def report_dropped(self, session: Session) -> None:
        """Log the publications that were dropped because the client read too slowly."""
        dropped = session.outbox.take_dropped()
        if dropped:
            log.warning(
                "MQB2003W channel %s: client %s read too slowly: %d publications with QoS 0 for it were dropped",
                self.channel.name,
                self.peer,
                dropped,
            )

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close the connection after what was written; `why` goes to the log (blank where it was logged already).

        The reason code is what a client of MQTT 5 is told by DISCONNECT.
        """
        self.transport.close(why, reason_code)


def granted_expiry(asked: int, channel: ChannelConfig) -> int:
    """Return how long a session may outlive its connection, in seconds, if its client asks for `asked`."""
    return asked if channel.session_expiry is None else min(asked, math.ceil(channel.session_expiry))


@cache
def _reasons(names: tuple[str, ...]) -> frozenset[int]:
    """Return the MQRC numbers for which a refused publication goes to the dead-letter queue."""
    return frozenset(getattr(cmqc, name) for name in names)
