"""A connected client, and the units of work in progress for clients, with their completion callbacks."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final

from bridge.config.channel import ChannelConfig
from bridge.mq.backend import NONE_REFUSED, Backend, Completion, UnitOfWork, resolve
from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import Connect, Will
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.tracing import PublicationTraces
from bridge.telemetry.identity import UNAUTHENTICATED
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import PublicationMessage
from bridge.transport.layers import Peer
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
        "last_topic",
        "principal",
        "protocol",
        "published_at",
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
        #: the topic of the last publication, and when it arrived, in microseconds since the epoch; 0: none
        self.last_topic = ""
        self.published_at = 0
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
            self.close("its credentials have expired", ReasonCode.MAXIMUM_CONNECT_TIME)

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
                "MQB2003W channel %s: client %s read too slowly: dropped %d publications with QoS 0",
                self.channel.name,
                self.peer,
                dropped,
            )

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close the connection after the pending output. `why` is logged unless it is blank.

        `reason_code` is sent to MQTT 5 clients in DISCONNECT.
        """
        self.transport.close(why, reason_code)


def granted_expiry(requested: int, channel: ChannelConfig) -> int:
    """Return the granted session expiry interval in seconds for a requested one."""
    return requested if channel.session_expiry is None else min(requested, math.ceil(channel.session_expiry))


@cache
def _reasons(names: tuple[str, ...]) -> frozenset[int]:
    """Return the MQRC numbers for which rejected publications are dead-lettered."""
    return frozenset(getattr(cmqc, name) for name in names)


Ended = Callable[[Completion], None]


class Units:
    """Submits units of work and calls their completion callbacks."""

    def __init__(self, backend: Backend) -> None:
        #: None if tracing is disabled
        self.traces: PublicationTraces | None = None
        self._backend = backend
        self._number = 0
        #: number of a unit of work -> completion callback
        self._under_way: dict[int, Ended] = {}

    def submit(self, unit: UnitOfWork, ended: Ended | None = None) -> Mapping[int, int]:
        """Submit a unit to the backend and return publications known to be rejected, as index -> reason."""
        self._number = unit.number = self._number + 1
        if ended is not None:
            self._under_way[unit.number] = ended
        return self._backend.submit(unit)

    def committed(self, unit: UnitOfWork) -> asyncio.Future[Completion]:
        """Submit a unit to the backend and return a future of its completion."""
        completion: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.submit(unit, partial(resolve, completion))
        return completion

    @property
    def under_way(self) -> int:
        """The number of unfinished units of work that have a callback."""
        return len(self._under_way)

    def completed(self, completions: Sequence[Completion]) -> None:
        """Run the completion callbacks of finished units."""
        for completion in completions:
            ended = self._under_way.pop(completion.number, None)
            if ended is None:
                continue
            try:
                ended(completion)
            except Exception:
                # An error of one client must not affect others.
                log.exception("MQB2303E the completion of a unit of work failed")


def forbidden_of(session: Session, publications: Sequence[tuple[PublicationMessage, bool]]) -> Mapping[int, int]:
    """Return the reason code, by index, of publications to topics that the session's channel does not allow."""
    topics = session.topics
    if topics is None:
        return NONE_REFUSED
    return {
        index: cmqc.MQRC_NOT_AUTHORIZED
        for index, (message, _) in enumerate(publications)
        if not topics.may_publish(message.topic)
    }
