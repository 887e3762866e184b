"""Administration of clients and sessions: listing, showing, disconnecting and purging them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from fnmatch import translate
from itertools import islice
from operator import attrgetter, itemgetter
from re import compile as compiled
from typing import Any

import msgspec

from bridge.administration.answers import (
    ClientDetails,
    ClientPage,
    ClientRow,
    ClientStatus,
    ClientSubscriptionStatus,
    ClientTraffic,
    InFlightMessage,
    age,
    counted,
)
from bridge.administration.protocol import Answer, NotFound, Refused
from bridge.administration.requests import (
    MOST_ROWS,
    ClientColumn,
    DisconnectClient,
    ListClients,
    PurgeClients,
    ShowClient,
    WatchClient,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import put_time_of

#: Wildcards of `translate` other than `*`, escaped because client identifiers may contain them.
_OTHER_WILDCARDS = compiled(r"[?\[]")
#: Maximum number of messages shown from a client's backlog.
WAITING_SHOWN = 100
#: Number of sessions purged before waiting for their commits. Each is a unit of work and ends subscriptions.
PURGES_AT_A_TURN = 20
#: Seconds to wait for commits before reporting that they are not finished.
COMMIT_TIMEOUT = 10.0


async def list_clients(parts: Parts, request: ListClients) -> ClientPage:
    """Return one page of clients in the order of a column, and the totals of all matching clients."""
    wanted = compiled(translate(_OTHER_WILDCARDS.sub(r"[\g<0>]", request.pattern))).match
    rates = parts.activity.keep_counting().rates() if request.rates else lambda _: None
    key, now = _sort_key(parts, request.sort, rates), time.time()
    page = ClientPage(clients=[], found=0, connected=0, waiting=0, in_flight=0, subscriptions=0)
    matching: list[tuple[Any, Session]] = []
    async for session in _sessions(
        parts, lambda client_id: client_id > request.after and wanted(client_id) is not None
    ):
        if request.channel not in (None, session.channel) or request.connected not in (None, session.connected):
            continue
        if request.away_for is not None and _away_for(parts, session, now) < request.away_for:
            continue
        page.found += 1
        page.connected += session.connected
        page.waiting += len(session.outbox.backlog)
        page.in_flight += len(session.outbox.in_flight.deliveries)
        page.subscriptions += len(session.filters) + len(session.shares)
        matching.append((key(session), session))
    # Sessions arrive by client identifier, and sorting is stable.
    if request.sort != "client_id" or request.descending:
        matching.sort(key=itemgetter(0), reverse=request.descending)
    for _, session in matching[request.skip : request.skip + min(request.rows, MOST_ROWS)]:
        received, sent = rates(session.client_id) or (None, None)
        status = msgspec.structs.asdict(status_of(parts, session))
        page.clients.append(ClientRow(**status, oldest=_oldest(session), received_rate=received, sent_rate=sent))
    return page


def _sort_key(
    parts: Parts, column: ClientColumn, rates: Callable[[str], tuple[float, float] | None]
) -> Callable[[Session], Any]:
    """Return a function that returns the sort key of a session, without building the whole row."""
    match column:
        case "waiting":
            return lambda session: len(session.outbox.backlog)
        case "in_flight":
            return lambda session: len(session.outbox.in_flight.deliveries)
        case "subscriptions":
            return lambda session: len(session.filters) + len(session.shares)
        case "oldest":
            return lambda session: _oldest(session) or float("inf")
        case "received_rate":
            return lambda session: (rates(session.client_id) or (0.0, 0.0))[0]
        case "sent_rate":
            return lambda session: (rates(session.client_id) or (0.0, 0.0))[1]
        case "client_id" | "connected" | "channel" | "durable" | "since":
            return attrgetter(column)
        case _:
            return lambda session: getattr(status_of(parts, session), column)


def _oldest(session: Session) -> float:
    """Return the put time of the oldest message that a client has not acknowledged, or 0.0 for none."""
    outbox, times = session.outbox, []
    if len(outbox.backlog):
        times.append(put_time_of(next(iter(outbox.backlog))))
    for outgoing in islice(outbox.in_flight.deliveries.values(), 1):
        if outgoing.transmission is not None:
            times.append(put_time_of(outgoing.transmission))
    return min(filter(None, times), default=0.0)


async def watch_client(parts: Parts, request: WatchClient) -> ClientTraffic:
    if not parts.service.journal.keeps:
        raise Refused("messages of clients are recorded only if the bridge has an admin port (admin.port)")
    _session(parts, request.client_id)
    return parts.service.journal.watch(request.client_id, request.after, request.payloads)


async def show_client(parts: Parts, request: ShowClient) -> ClientDetails:
    session = _session(parts, request.client_id)
    client = parts.service.clients.get(request.client_id)
    subscriptions = [ClientSubscriptionStatus(*one) for one in sorted(session.filters.items())]
    subscriptions += [ClientSubscriptionStatus(*one) for one in session.shares.values()]
    outbox = session.outbox
    waiting = [
        one.topic if one.topic is not None else one.remote_queue for one in islice(outbox.backlog, WAITING_SHOWN)
    ]
    rates = parts.activity.keep_counting().rates()(request.client_id) if request.rates else None
    received_rate, sent_rate = rates or (None, None)
    return ClientDetails(
        status=status_of(parts, session),
        owner="" if session.principal is None else str(session.principal),
        keep_alive=0 if client is None else client.protocol.keep_alive,
        expiry_interval=session.expiry_interval,
        will_topic=None if client is None or client.will is None else client.will.topic,
        subscriptions=subscriptions,
        in_flight=[
            InFlightMessage(
                message_id=message_id,
                qos=one.qos,
                topic=one.field[2:].decode("utf-8", "replace"),
                phase=one.phase.name.lower().replace("_", " "),
                times_sent=one.times_sent,
            )
            for message_id, one in islice(outbox.in_flight.deliveries.items(), MOST_ROWS)
        ],
        received=len(session.receiver.identifiers),
        invalid_publications=session.invalid_publications,
        waiting=waiting,
        unremoved=outbox.unremoved,
        removal_limit=parts.service.delivery.applied_removal_limit,
        oldest=_oldest(session),
        received_rate=received_rate,
        sent_rate=sent_rate,
        events=parts.service.journal.events_of(request.client_id),
    )


async def disconnect_client(parts: Parts, request: DisconnectClient) -> Answer:
    """Disconnect a client and publish its will. Raises Refused."""
    client = parts.service.clients.get(request.client_id)
    if client is None:
        _session(parts, request.client_id)
        raise Refused(f"client {request.client_id!r} is not connected")
    client.close("disconnected by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
    return Answer(lines=[f"client {request.client_id!r} disconnected"])


async def purge_clients(parts: Parts, request: PurgeClients) -> Answer:
    """End sessions, including subscriptions, backlogs and wills. Connected clients are disconnected. Raises Refused."""
    if request.client_id is not None:
        session = _session(parts, request.client_id)
        if why := _spared(parts, session, request, time.time()):
            raise Refused(f"client {request.client_id!r} {why}; its session goes on")
        backlog = f"its backlog of {counted(len(session.outbox.backlog), 'message')}"
        if request.dry_run:
            return Answer(lines=[f"session of client {request.client_id!r} would end, and {backlog} would be deleted"])
        purge(parts, session)
        return Answer(
            lines=[f"session of client {request.client_id!r} ended; deleted {backlog}", *await _committed(parts)]
        )
    if request.channel is None and request.away_for is None:
        raise Refused("which sessions? Name a client identifier, a channel, or for how long clients have been away")
    now, ended, waiting = time.time(), 0, 0
    not_yet: list[str] = []
    async for session in _sessions(parts, lambda _: True):
        if _spared(parts, session, request, now):
            continue
        ended += 1
        waiting += len(session.outbox.backlog)
        if request.dry_run:
            continue
        purge(parts, session)
        if not ended % PURGES_AT_A_TURN and not not_yet:
            not_yet = await _committed(parts)
    outcome = "would end" if request.dry_run else "ended"
    told = f"{counted(ended, 'session')} {outcome}, with a backlog of {counted(waiting, 'message')}"
    if not request.dry_run:
        not_yet = not_yet or await _committed(parts)
    return Answer(lines=[told, *not_yet])


def _spared(parts: Parts, session: Session, request: PurgeClients, now: float) -> str:
    """Return why a session is not affected by a purge, or ""."""
    if request.channel not in (None, session.channel):
        return f"is not of channel {request.channel}, but of {session.channel}"
    if request.away_for is None or (away := _away_for(parts, session, now)) >= request.away_for:
        return ""
    return "is connected" if away < 0 else f"has been away for {age(away)} only"


async def _committed(parts: Parts) -> list[str]:
    """Wait for all submitted units of work. Return a line for display if they have not ended in time."""
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await parts.service.settled()
            await parts.service.backend.flush()
    except TimeoutError:
        return ["the queue manager has not committed all of it yet"]
    return []


def purge(parts: Parts, session: Session) -> None:
    """End a session, its client's connection and its will."""
    client = parts.service.clients.get(session.client_id)
    if client is not None:
        client.will = None  # as with PURGE CHANNEL
        client.close("purged by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
        parts.service.lost(client)
    parts.service.wills.withdraw(session.client_id)
    if not session.ended:
        parts.service.purge(session)


async def _sessions(parts: Parts, wanted: Callable[[str], bool]) -> AsyncIterator[Session]:
    """Yield matching sessions by client identifier, yielding to the event loop regularly."""
    sessions = parts.service.sessions
    for number, client_id in enumerate(sorted(filter(wanted, list(sessions))), 1):
        session = sessions.get(client_id)
        if session is not None:
            yield session
        if not number % ROWS_AT_A_TURN:
            await asyncio.sleep(0)


def _session(parts: Parts, client_id: str) -> Session:
    session = parts.service.sessions.get(client_id)
    if session is None:
        raise NotFound(f"there is no session of client {client_id!r}")
    return session


def _away_for(parts: Parts, session: Session, now: float) -> float:
    """Return the seconds since a client disconnected, or -1.0 if it is connected.

    Sessions recorded by older versions of the bridge count as disconnected since the start of the bridge.
    """
    return -1.0 if session.connected else now - (session.since or parts.started_at)


def status_of(parts: Parts, session: Session) -> ClientStatus:
    """Return the status of a client and its session."""
    client = parts.service.clients.get(session.client_id)
    return ClientStatus(
        client_id=session.client_id,
        connected=session.connected,
        channel=session.channel,
        address="" if client is None else client.peer.address,
        user=session.identity.user.decode("utf-8", "replace"),
        protocol_level=0 if client is None else client.protocol.level,
        durable=session.durable,
        subscriptions=len(session.filters) + len(session.shares),
        waiting=len(session.outbox.backlog),
        in_flight=len(session.outbox.in_flight.deliveries),
        since=session.since,
        expires_at=session.expires_at,
    )
