"""The service's view of a client: one connection and its session."""

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

#: Bytes that a request to the queue manager (a publication, a topic filter) counts for in addition to its payload.
REQUEST_WEIGHT: Final = 1024


class Client:
    """One connection of an MQTT client. `session` is None until CONNACK and after the end of the connection."""

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
        #: CONNECT, if it contains an Authentication Method: the client may re-authenticate (MQTT 5 section 4.12)
        self.connect: Connect | None = None
        #: the CONNECT or AUTH sequence, which is cancelled when the connection is lost
        self.sequence: asyncio.Task[None] | None = None
        #: the session is being committed; the sequence then runs to its end because the session outlives the connection
        self.committing = False
        #: Authentication Data of the next AUTH from the client
        self.response: asyncio.Future[bytes | None] | None = None
        #: the authenticated (or merely claimed) user name. The MQ user may differ.
        self.user_name = ""
        #: the authenticated principal
        self.principal = UNAUTHENTICATED
        #: POSIX time at which the credentials expire and the connection is closed; math.inf: never
        self.expires = math.inf
        #: weight of the queue manager requests in progress; above the limit, the bridge stops reading from the client
        self._pending = 0
        self._held = False
        self._pending_bytes = pending_bytes

    @property
    def peer(self) -> Peer:
        """The client identifier and address, for log lines."""
        return self.transport.peer

    def expire(self) -> None:
        """Close the connection if the client's credentials, such as a token, have expired."""
        if self.expires <= time.time():
            self.close("what it has shown of itself has expired", ReasonCode.MAXIMUM_CONNECT_TIME)

    def hold(self, weight: int) -> None:
        """Count a request to the queue manager by weight in bytes. Above the limit, stop reading from the client."""
        self._pending += weight
        if self._pending > self._pending_bytes:
            self._held = True
            self.transport.hold(UNCOMMITTED)

    def release(self, weight: int) -> None:
        """Count the answer to a request. Resume reading if less than half of the limit is in progress."""
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
        """Close the connection after the pending output. `why` is logged unless it is blank.

        `reason_code` is sent to MQTT 5 clients in DISCONNECT.
        """
        self.transport.close(why, reason_code)


def granted_expiry(asked: int, channel: ChannelConfig) -> int:
    """Return the granted session expiry interval in seconds for a requested one."""
    return asked if channel.session_expiry is None else min(asked, math.ceil(channel.session_expiry))


@cache
def _reasons(names: tuple[str, ...]) -> frozenset[int]:
    """Return the MQRC numbers for which rejected publications are dead-lettered."""
    return frozenset(getattr(cmqc, name) for name in names)
