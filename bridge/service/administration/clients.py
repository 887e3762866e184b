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
    ClientEvent,
    ClientPage,
    ClientRow,
    ClientStatus,
    ClientSubscriptionStatus,
    ClientTrace,
    InFlightMessage,
    age,
    counted,
)
from bridge.administration.protocol import Answer, NotFound, Refused, Unavailable
from bridge.administration.requests import (
    MAX_ROWS,
    ClientColumn,
    ClientSelection,
    DisconnectClients,
    ListClients,
    PurgeClients,
    ShowClient,
    ShowClientHistory,
    TraceClient,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.client_history import HistoryUnavailable
from bridge.telemetry.session import Session
from bridge.telemetry.subscription import subscription_data
from bridge.telemetry.transmission import put_time_of

#: Wildcards of `translate` other than `*`, escaped because client identifiers may contain them.
_OTHER_WILDCARDS = compiled(r"[?\[]")
#: Maximum number of messages shown from a client's backlog.
WAITING_SHOWN = 100
#: Maximum number of events shown from a client's history.
EVENTS_SHOWN = 20
#: Maximum number of clients, and of failures, that an answer lists.
NAMES_SHOWN = 20
#: Number of sessions purged before waiting for their commits. Each is a unit of work and ends subscriptions.
PURGES_AT_A_TURN = 20
#: Seconds to wait for commits before reporting that they are not finished.
COMMIT_TIMEOUT = 10.0


async def list_clients(parts: Parts, request: ListClients) -> ClientPage:
    """Return one page of clients in the order of a column, and the totals of all matching clients."""
    is_match = _matcher([request.pattern])
    rates = parts.activity.keep_counting().rates() if request.rates else lambda _: None
    key, now = _sort_key(parts, request.sort, rates), time.time()
    page = ClientPage(clients=[], found=0, connected=0, waiting=0, in_flight=0, subscriptions=0)
    matching: list[tuple[Any, Session]] = []
    async for session in _sessions(parts, lambda client_id: client_id > request.after and is_match(client_id)):
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
    for _, session in matching[request.skip : request.skip + min(request.rows, MAX_ROWS)]:
        received, sent_rate = rates(session.client_id) or (None, None)
        status = msgspec.structs.asdict(status_of(parts, session))
        page.clients.append(ClientRow(**status, oldest=_oldest(session), received_rate=received, sent_rate=sent_rate))
    return page


def _matcher(patterns: list[str]) -> Callable[[str], bool]:
    """Return a function that returns whether a client identifier matches one of the patterns."""
    matches = compiled("|".join(translate(_OTHER_WILDCARDS.sub(r"[\g<0>]", pattern)) for pattern in patterns)).match
    return lambda client_id: matches(client_id) is not None


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


async def trace_client(parts: Parts, request: TraceClient) -> ClientTrace:
    return parts.service.journal.trace(request.client_id, request.after, request.payloads)


async def show_client_history(parts: Parts, request: ShowClientHistory) -> list[ClientEvent]:
    return await _events(parts, request.client_id, request.rows)


async def _events(parts: Parts, client_id: str, rows: int) -> list[ClientEvent]:
    history = parts.service.journal.history
    if history is None:
        return []
    try:
        return await history.events_of(client_id, rows)
    except HistoryUnavailable as error:
        raise Unavailable(str(error)) from error


async def show_client(parts: Parts, request: ShowClient) -> ClientDetails:
    session = _session(parts, request.client_id)
    client = parts.service.clients.get(request.client_id)
    subscriptions = [_subscription(*entry) for entry in (*sorted(session.filters.items()), *session.shares.values())]
    outbox = session.outbox
    waiting = [
        transmission.topic if transmission.topic is not None else transmission.remote_queue
        for transmission in islice(outbox.backlog, WAITING_SHOWN)
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
                qos=delivery.qos,
                topic=delivery.field[2:].decode("utf-8", "replace"),
                phase=delivery.phase.name.lower().replace("_", " "),
                times_sent=delivery.times_sent,
            )
            for message_id, delivery in islice(outbox.in_flight.deliveries.items(), MAX_ROWS)
        ],
        received=len(session.receiver.identifiers),
        invalid_publications=session.invalid_publications,
        waiting=waiting,
        unremoved=outbox.unremoved,
        removal_limit=parts.service.delivery.applied_removal_limit,
        oldest=_oldest(session),
        received_rate=received_rate,
        sent_rate=sent_rate,
        events=await _events(parts, request.client_id, EVENTS_SHOWN),
    )


def _subscription(topic_filter: str, user_data: str) -> ClientSubscriptionStatus:
    options = subscription_data(user_data)
    return ClientSubscriptionStatus(topic_filter, options.qos, options.options, user_data)


async def disconnect_clients(parts: Parts, request: DisconnectClients) -> Answer:
    """Disconnect clients and publish their wills. Raises Refused."""
    if len(request.ids) == 1 and not request.patterns:
        return Answer(lines=[_disconnect(parts, request.ids[0], request)])
    outcome = _Outcome("client", "disconnected", request.dry_run)
    for client_id in request.ids:
        outcome.attempt(client_id, lambda client_id=client_id: _disconnect(parts, client_id, request))  # type: ignore[misc]
    async for session in _matching(parts, request):
        if session.connected and request.channel in (None, session.channel):
            outcome.attempt(session.client_id, lambda: _disconnect(parts, session.client_id, request))  # noqa: B023
    return outcome.answer()


def _disconnect(parts: Parts, client_id: str, request: DisconnectClients) -> str:
    """Disconnect a client, and return a line for display. Raises Refused."""
    client = parts.service.clients.get(client_id)
    if client is None:
        _session(parts, client_id)
        raise Refused(f"client {client_id!r} is not connected")
    if request.channel not in (None, client.channel.name):
        raise Refused(f"client {client_id!r} belongs to channel {client.channel.name}, not {request.channel}")
    if request.dry_run:
        return f"client {client_id!r} would be disconnected"
    client.close("disconnected by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
    return f"client {client_id!r} disconnected"


async def purge_clients(parts: Parts, request: PurgeClients) -> Answer:
    """End sessions, including subscriptions, backlogs and wills. Connected clients are disconnected. Raises Refused."""
    now = time.time()
    if len(request.ids) == 1 and not request.patterns:
        line = _purge(parts, request.ids[0], request, now)
        return Answer(lines=[line, *([] if request.dry_run else await _committed(parts))])
    outcome, waiting = _Outcome("session", "ended", request.dry_run), 0
    not_yet: list[str] = []
    for client_id in request.ids:
        session = parts.service.sessions.get(client_id)
        backlog = 0 if session is None else len(session.outbox.backlog)
        if outcome.attempt(client_id, lambda client_id=client_id: _purge(parts, client_id, request, now)):  # type: ignore[misc]
            waiting += backlog
    async for session in _matching(parts, request):
        if _spared(parts, session, request, now):
            continue
        backlog = len(session.outbox.backlog)
        outcome.attempt(session.client_id, lambda: _purge(parts, session.client_id, request, now))  # noqa: B023
        waiting += backlog
        if not request.dry_run and not outcome.succeeded % PURGES_AT_A_TURN and not not_yet:
            not_yet = await _committed(parts)
    if not request.dry_run:
        not_yet = not_yet or await _committed(parts)
    answer = outcome.answer(f", with a backlog of {counted(waiting, 'message')}")
    answer.lines += not_yet
    return answer


def _purge(parts: Parts, client_id: str, request: PurgeClients, now: float) -> str:
    """End a session, and return a line for display. Raises Refused."""
    session = _session(parts, client_id)
    if why := _spared(parts, session, request, now):
        raise Refused(f"client {client_id!r} {why}; its session was not ended")
    backlog = f"its backlog of {counted(len(session.outbox.backlog), 'message')}"
    if request.dry_run:
        return f"session of client {client_id!r} would end, and {backlog} would be deleted"
    purge(parts, session)
    return f"session of client {client_id!r} ended; deleted {backlog}"


class _Outcome:
    """The outcome of a request for several clients."""

    def __init__(self, noun: str, verb: str, dry_run: bool) -> None:
        self._noun = noun
        self._verb = verb
        self._dry_run = dry_run
        self._clients: list[str] = []
        self._failures: list[str] = []
        self.succeeded = 0

    def attempt(self, client_id: str, change: Callable[[], str]) -> bool:
        """Call `change` for a client, and return whether it succeeded."""
        try:
            change()
        except Refused as error:
            self._failures.append(str(error))
            return False
        self.succeeded += 1
        if len(self._clients) < NAMES_SHOWN:
            self._clients.append(client_id)
        return True

    def answer(self, more: str = "") -> Answer:
        """Return the answer: the number of clients, for a dry run the first of them, then the first failures."""
        verb = self._verb
        if self._dry_run:
            verb = {"ended": "would end", "disconnected": "would be disconnected"}[verb]
        lines = [f"{counted(self.succeeded, self._noun)} {verb}{more}"]
        if self._dry_run and self._clients:
            rest = f" and {self.succeeded - len(self._clients):,} more" if self.succeeded > len(self._clients) else ""
            lines.append(f"clients: {', '.join(map(repr, self._clients))}{rest}")
        lines += self._failures[:NAMES_SHOWN]
        if (hidden := len(self._failures) - NAMES_SHOWN) > 0:
            lines.append(f"and {hidden:,} more failures")
        return Answer(ok=not self._failures, lines=lines)


async def _matching(parts: Parts, request: ClientSelection[None]) -> AsyncIterator[Session]:
    """Yield the sessions that a request selects without naming them. Raises Refused if it has no criteria."""
    restricted = request.channel is not None or getattr(request, "away_for", None) is not None
    if not request.ids and not request.patterns and not restricted:
        raise Refused(
            "no clients were selected; hint: specify clients, a pattern, a channel, or how long they have been away"
        )
    if request.patterns or not request.ids:
        identifiers = frozenset(request.ids)
        matches = _matcher(request.patterns or ["*"])
        async for session in _sessions(parts, lambda client_id: client_id not in identifiers and matches(client_id)):
            yield session


def _spared(parts: Parts, session: Session, request: PurgeClients, now: float) -> str:
    """Return why a session is not affected by a purge, or ""."""
    if request.channel not in (None, session.channel):
        return f"belongs to channel {session.channel}, not {request.channel}"
    if request.away_for is None or (away := _away_for(parts, session, now)) >= request.away_for:
        return ""
    return "is connected" if away < 0 else f"has been away for only {age(away)}"


async def _committed(parts: Parts) -> list[str]:
    """Wait for all submitted units of work. Return lines for display if they have not ended in time."""
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await parts.service.settled()
            await parts.service.backend.flush()
    except TimeoutError:
        return ["the queue manager has not committed all changes yet"]
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


async def _sessions(parts: Parts, is_wanted: Callable[[str], bool]) -> AsyncIterator[Session]:
    """Yield matching sessions by client identifier, yielding to the event loop regularly."""
    sessions = parts.service.sessions
    for number, client_id in enumerate(sorted(filter(is_wanted, list(sessions))), 1):
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
