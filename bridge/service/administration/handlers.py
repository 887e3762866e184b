"""Handlers of administration requests, and the table that maps requests to handlers.

The docstring of a request describes what its handler does. A handler returns the answer's `result`, or a complete answer. It
raises Refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec

import bridge
from bridge.administration.answers import (
    AuditEntries,
    BridgeState,
    BridgeStatus,
    ChannelStatus,
    History,
    LinkConnectionStatus,
    LinkStatus,
    LogLine,
    Problem,
    counted,
)
from bridge.administration.counters import Counters
from bridge.administration.mapping_status import MappingStatus
from bridge.administration.protocol import Answer, Invalid, NotFound, Refused, Request, Unavailable
from bridge.administration.requests import (
    MAX_ROWS,
    ConnectLink,
    GiveUpMapping,
    ListChannels,
    ListLinks,
    ListMappings,
    ListProblems,
    PauseMapping,
    Reload,
    ResumeMapping,
    SetLogLevel,
    ShowAuditLog,
    ShowCounters,
    ShowHistory,
    ShowLog,
    ShowStatus,
    StartChannel,
    StopChannel,
    TestLink,
    YieldToStandby,
)
from bridge.config.link import LinkConfig
from bridge.config.models import Configuration
from bridge.config.values import endpoint
from bridge.mq.host import Host
from bridge.mq.mqi import MQOD, Connection, inquire
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.service.administration import (
    access,
    clients,
    configuration,
    dead_letters,
    health,
    objects,
    queues,
    search,
    topics,
    users,
)
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.channels import place_of
from bridge.service.log import LogTail, set_level
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection

log = logging.getLogger(__name__)


async def list_channels(parts: Parts, request: ListChannels) -> list[ChannelStatus]:
    """Return the status of all channels in the order of the configuration, then those defined by commands."""
    return statuses_of(parts)


def statuses_of(parts: Parts) -> list[ChannelStatus]:
    """Return the status of all channels. May be called on any thread."""
    clients: dict[str, int] = {}
    for client in list(parts.service.clients.values()):
        clients[client.channel.name] = clients.get(client.channel.name, 0) + 1
    statuses = []
    # Use the register: a command may inquire about a channel that it has just defined.
    for config in parts.host.telemetry_channels.channels:
        channel = parts.channels.get(config.name)
        bound = None if channel is None else channel.endpoint
        statuses.append(
            ChannelStatus(
                name=config.name,
                state="stopped" if channel is None else "running",
                endpoint=place_of(config) if bound is None else endpoint(*bound),
                tls=config.tls is not None,
                websocket=config.websocket is not None,
                protocols=list(config.protocols),
                connections=0 if channel is None else len(channel.connections),
                clients=clients.get(config.name, 0),
                max_clients=config.max_clients,
                defined_by="file" if parts.host.telemetry_channels.is_of_file(config.name) else "command",
                problem=parts.channels.problems.get(config.name, ""),
            )
        )
    return statuses


async def start_channel(parts: Parts, request: StartChannel) -> Answer:
    return Answer(lines=[await parts.channels.start(request.name)])


async def stop_channel(parts: Parts, request: StopChannel) -> Answer:
    if request.client_id is None:
        return Answer(lines=[await parts.channels.stop(request.name)])
    client = parts.service.clients.get(request.client_id)
    if client is None or client.channel.name != request.name:
        raise Refused(f"client {request.client_id!r} is not connected to channel {request.name}")
    client.close("disconnected by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
    return Answer(lines=[f"client {request.client_id!r} disconnected"])


#: Maximum number of clients in one reading.
MAX_CLIENTS = 1_000
#: Seconds to wait for the depth of the transmission queue.
DEPTH_TIMEOUT: Final = 2.0


async def show_counters(parts: Parts, request: ShowCounters) -> Counters:
    activity = parts.activity.keep_counting()
    clients = Counter(client.channel.name for client in parts.service.clients.values())
    in_flight = 0
    for number, session in enumerate(list(parts.service.sessions.values()), 1):
        in_flight += len(session.outbox.in_flight.deliveries)
        if not number % ROWS_AT_A_TURN:
            await asyncio.sleep(0)
    names = dict.fromkeys([*(config.name for config in parts.channels.configs), *activity.channels])
    return Counters(
        time=time.time(),
        since=activity.since,
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        in_flight=in_flight,
        units_of_work=parts.service.units.under_way,
        transmission_queue_depth=await _backlog(parts),
        channels=[activity.of(name, clients[name]) for name in names],
        busiest_clients=activity.busiest(min(max(request.clients, 0), MAX_CLIENTS)),
        mappings=parts.mappings.statuses(),
    )


async def _backlog(parts: Parts) -> int | None:
    """Return the depth of the transmission queue, or None if the queue manager does not answer in time."""

    def depth(connection: Connection) -> int:
        od = MQOD(ObjectName=parts.configuration.transmission_queue)
        return inquire(connection, od, (cmqc.MQIA_CURRENT_Q_DEPTH,))[0][0]

    with contextlib.suppress(Refused, TimeoutError):
        async with asyncio.timeout(DEPTH_TIMEOUT):
            return await parts.queue_manager_connection.run(depth)
    return None


#: Total timeout of a link test, in seconds.
TRIAL_TIMEOUT = 45.0


async def list_links(parts: Parts, request: ListLinks) -> list[LinkStatus]:
    """Return the links in the order of the configuration, with their connections."""
    connections: dict[str, list[LinkConnectionStatus]] = {}
    for mapping, connection in parts.mappings.links():
        connections.setdefault(connection.name, []).append(_status(mapping, connection))
    return [
        LinkStatus(
            name=name,
            broker=", ".join(endpoint(*address) for address in link.addresses),
            tls=link.tls is not None,
            version=link.version,
            connections=connections.get(name, []),
        )
        for name, link in parts.configuration.links.items()
    ]


def _status(mapping: str, connection: LinkConnection) -> LinkConnectionStatus:
    error, at = connection.last_error
    return LinkConnectionStatus(
        mapping=mapping,
        connected=connection.up,
        client_id=connection.client_id,
        address=connection.address,
        since=connection.since,
        last_error=error,
        last_error_at=at,
    )


async def test_link(parts: Parts, request: TestLink) -> Answer:
    """Test a new connection to a link's broker and return the steps. Only one test runs at a time. Raises Refused."""
    config = parts.configuration.links.get(request.name)
    if config is None:
        raise NotFound(f"there is no link {request.name}")
    if parts.trying_link:
        raise Refused("another link is being tested; try again after that")
    parts.trying_link = True
    steps: list[str] = []
    # After a timeout, the thread keeps running. The next test must wait until it has ended.
    trial = asyncio.get_running_loop().run_in_executor(None, _try, request.name, config, steps)
    trial.add_done_callback(lambda _: setattr(parts, "trying_link", False))
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT):
            failure = await asyncio.shield(trial)
    except TimeoutError:
        failure = f"timed out after {TRIAL_TIMEOUT:g} s"
    lines = [f"link {request.name}: {step}" for step in (*steps, *([] if failure is None else [f"FAILED: {failure}"]))]
    return Answer(ok=failure is None, lines=lines)


def _try(name: str, config: LinkConfig, steps: list[str]) -> str | None:
    """Append the steps of a test to a list, on a separate thread. Return the error, or None."""
    # Imported on demand: many bridges do not need the broker client.
    from bridge.link.connection import password_of
    from bridge.link.trial import TrialFailed, try_link

    try:
        for step in try_link(name, config, lambda: password_of(name, config)):
            steps.append(step)
    except TrialFailed as error:
        return str(error)
    return None


async def connect_link(parts: Parts, request: ConnectLink) -> Answer:
    if request.name not in parts.configuration.links:
        raise NotFound(f"no link {request.name}")
    waiting, using = parts.mappings.connect_link(request.name)
    return Answer(lines=[f"link {request.name}: {waiting} of {counted(using, 'mapping')} connect now"])


async def set_log_level(parts: Parts, request: SetLogLevel) -> Answer:
    set_level(request.level)
    parts.service.journal.trace_to_log(request.level, parts.configuration.log.trace_clients)
    return Answer(lines=[f"the log now contains messages of level {request.level} and above"])


async def list_mappings(parts: Parts, request: ListMappings) -> list[MappingStatus]:
    """Return the status of each mapping in the order of the configuration."""
    return parts.mappings.statuses()


async def pause_mapping(parts: Parts, request: PauseMapping) -> Answer:
    return Answer(lines=[await parts.mappings.pause(request.name)])


async def resume_mapping(parts: Parts, request: ResumeMapping) -> Answer:
    return Answer(lines=[await parts.mappings.resume(request.name)])


async def give_up_mapping(parts: Parts, request: GiveUpMapping) -> Answer:
    return Answer(lines=[await parts.mappings.give_up(request.name)])


async def yield_to_standby(parts: Parts, request: YieldToStandby) -> Answer:
    if parts.configuration.queue_manager.type == "embedded":
        return Answer(ok=False, lines=["an embedded queue manager has one bridge, and no standby"])
    parts.hand_over()
    return Answer(lines=["finishing work in progress, then standing by"])


async def reload(parts: Parts, request: Reload) -> Answer:
    ok, lines = await parts.reload()
    # Channels with problems keep their previous configuration, or do not listen.
    ok = ok and not parts.channels.problems
    return Answer(ok=ok, lines=lines)


async def show_status(parts: Parts, request: ShowStatus) -> BridgeStatus:
    settings = parts.configuration.queue_manager
    embedded = settings.type == "embedded"
    unavailable = "accepts no persistent messages: its disk is full" if embedded else "does not answer"
    return BridgeStatus(
        state=parts.state,
        version=bridge.__version__,
        started_at=parts.started_at,
        process_id=os.getpid(),
        queue_manager=parts.host.name,
        queue_manager_type=settings.type,
        queue_manager_available=parts.service.backend.available,
        queue_manager_state="answers" if parts.service.backend.available else unavailable,
        shard=_shard(parts.configuration),
        channels=len(parts.channels.configs),
        channels_running=len(parts.channels),
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        units_of_work=parts.service.units.under_way,
        mappings=len(parts.mappings.statuses()),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
        problems=await parts.problems(),
    )


async def list_problems(parts: Parts, request: ListProblems) -> list[Problem]:
    return await parts.problems()


class Wait(NamedTuple):
    """The condition that a starting or standby bridge waits for."""

    what: str
    #: seconds since the epoch
    since: float


def _shard(configuration: Configuration) -> str:
    """Return the shard of a bridge in words, or "" if it serves all clients."""
    return "" if configuration.shard is None else f"{configuration.shard.number} of {configuration.shard.of}"


def waiting_status(
    configuration: Configuration, state: BridgeState, started_at: float, wait: Wait, host: Host | None
) -> BridgeStatus:
    """Return the status of a bridge that starts or stands by, without its problems. `host` may not exist yet."""
    settings = configuration.queue_manager
    silence = None if host is None else host.silence
    if silence is not None:
        condition = f"does not answer: {silence.why}"
    else:
        condition = "answers" if state is BridgeState.STANDING_BY else "is not ready yet"
    return BridgeStatus(
        state=state,
        version=bridge.__version__,
        started_at=started_at,
        process_id=os.getpid(),
        queue_manager=settings.name,
        queue_manager_type=settings.type,
        queue_manager_available=condition == "answers",
        queue_manager_state=condition,
        shard=_shard(configuration),
        waits_for=wait.what,
        waits_since=wait.since,
        channels=len(configuration.channels),
        channels_running=0,
        clients=0,
        sessions=0,
        units_of_work=0,
        mappings=len(configuration.mappings),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
    )


#: Number of bytes searched, at the end of the audit log.
AUDIT_SIZE: Final = 4_000_000


async def show_history(parts: Parts, request: ShowHistory) -> History:
    if parts.history is None:
        raise Refused("the bridge keeps a history only if it has an admin port (admin.port)")
    return parts.history.history(request.seconds, time.time())


async def show_log(parts: Parts, request: ShowLog) -> list[LogLine]:
    if parts.log_tail is None:
        raise Refused("the bridge keeps lines of the log only if it has an admin port (admin.port)")
    return lines_of(parts.log_tail, request)


def lines_of(log_tail: LogTail, request: ShowLog) -> list[LogLine]:
    """Return the last lines of the log that were requested."""
    return log_tail.lines(logging.getLevelNamesMapping()[request.level.upper()], request.search)


async def show_audit_log(parts: Parts, request: ShowAuditLog) -> AuditEntries:
    file = parts.configuration.audit_log.file
    if file is None:
        return AuditEntries(file="", entries=[])
    try:
        entries = await asyncio.to_thread(_entries, file, request.search.casefold(), min(request.rows, MAX_ROWS))
    except OSError as error:
        raise Refused(f"audit log {file}: {error.strerror or error}") from error
    return AuditEntries(file=str(file), entries=entries)


def _entries(file: Path, search: str, rows: int) -> list[dict[str, Any]]:
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(size - AUDIT_SIZE, 0))
        lines = stream.read(AUDIT_SIZE).splitlines()
    if size > AUDIT_SIZE:
        del lines[:1]  # a partial entry
    entries: deque[dict[str, Any]] = deque(maxlen=rows)
    for line in lines:
        if search in line.decode(errors="replace").casefold():
            try:
                entries.append(msgspec.json.decode(line, type=dict[str, Any]))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # an entry that is being written
    return list(entries)[::-1]


#: Maximum number of message identifiers in an entry of the audit log.
MAX_IDS: Final = 50

#: The handlers by the type of their parameter `request`.
HANDLERS: Final[Mapping[type[Request[Any]], Callable[[Parts, Any], Awaitable[object]]]] = {
    get_type_hints(handler)["request"]: handler
    for names in map(
        vars,
        (
            sys.modules[__name__],
            access,
            clients,
            configuration,
            queues,
            objects,
            dead_letters,
            health,
            search,
            topics,
            users,
        ),
    )
    for handler in list(names.values())
    if iscoroutinefunction(handler) and "request" in handler.__annotations__
}


class Administration:
    """Answers requests about one running bridge, on its event loop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def answer(self, request: Request[Any], user: str) -> Answer:
        """Process a request. `user` is recorded in the audit log."""
        try:
            reply = await HANDLERS[type(request)](self.parts, request)
        except Refused as error:
            answer = Answer(
                ok=False,
                lines=[str(error)],
                invalid=isinstance(error, Invalid),
                not_found=isinstance(error, NotFound),
                unavailable=isinstance(error, Unavailable),
            )
        except Exception:
            # An error in a handler must not affect messages.
            log.exception("MQB9001E a request of %s failed: %s", user, _facts(request))
            answer = Answer(ok=False, failed=True, lines=["the bridge failed to answer; its log contains the reason"])
        else:
            answer = reply if isinstance(reply, Answer) else Answer(result=msgspec.Raw(msgspec.json.encode(reply)))
        if request.CHANGES or (request.AUDITED and getattr(request, "first", True)):
            facts = _facts(request)
            audit_log.note("administration", user=user, ok=answer.ok, lines=answer.lines[:20], **facts)
            command = " ".join([facts.pop("command"), *(f"{name}={value}" for name, value in facts.items() if value)])
            outcome = "; ".join(answer.lines[:20])
            if answer.ok:
                log.info("MQB9010I user %s: %s: %s", user, command, outcome)
            else:
                log.warning("MQB9011W user %s: %s was rejected: %s", user, command, outcome)
        return answer


def _facts(request: Request[Any]) -> dict[str, Any]:
    """Return the fields of a request for logs, without secrets and payloads."""
    facts: dict[str, Any] = msgspec.to_builtins(request)
    if isinstance(payload := getattr(request, "payload", None), bytes):
        facts["payload"] = f"{len(payload)} bytes"
    facts |= dict.fromkeys(request.SECRETS, "(hidden)")
    if len(ids := facts.get("ids", ())) > MAX_IDS:
        facts["ids"] = [*ids[:MAX_IDS], f"and {len(ids) - MAX_IDS} more"]
    return facts
