"""Handlers of administration requests, and the table that maps requests to handlers."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

import bridge
from bridge.administration import requests
from bridge.administration.answers import (
    BridgeState,
    BridgeStatus,
    ChannelStatus,
    LinkConnectionStatus,
    LinkStatus,
    Problem,
    TopicDetails,
    TopicNode,
)
from bridge.administration.counters import Counters, MappingCounters
from bridge.administration.mapping_status import Status
from bridge.administration.requests import (
    MOST_ROWS,
    Answer,
    AnyRequest,
    Invalid,
    ListChannels,
    ListLinks,
    ListMappings,
    ListProblems,
    ListTopics,
    PauseMapping,
    Refused,
    Reload,
    Request,
    ResumeMapping,
    SetLogLevel,
    ShowCounters,
    ShowStatus,
    ShowTopic,
    StartChannel,
    StopChannel,
    TestLink,
)
from bridge.config.link import LinkConfig
from bridge.config.models import Configuration
from bridge.config.values import endpoint
from bridge.mq.host import TooMany
from bridge.mq.mqi import MQError
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.topics import topic_filter_error
from bridge.security import audit_log
from bridge.service.administration import dead_letters, inspection, queues
from bridge.service.administration.clients import (
    disconnect_client,
    list_clients,
    purge_clients,
    show_client,
    watch_client,
)
from bridge.service.administration.parts import ROWS_AT_A_TURN, Done, Parts
from bridge.service.channels import ChannelError, place_of
from bridge.service.log import set_level
from bridge.service.mappings.registry import MappingError

if TYPE_CHECKING:
    from bridge.link.connection import LinkConnection


async def list_channels(parts: Parts, request: ListChannels) -> list[ChannelStatus]:
    """Return the status of all channels in the order of the configuration, then those defined by commands."""
    return statuses_of(parts)


def statuses_of(parts: Parts) -> list[ChannelStatus]:
    """Return the status of all channels. May be called on any thread."""
    clients: dict[str, int] = {}
    for client in list(parts.service.clients.values()):
        clients[client.channel.name] = clients.get(client.channel.name, 0) + 1
    found = []
    # Use the register: a command may inquire about a channel that it has just defined.
    for config in parts.host.telemetry_channels.channels:
        channel = parts.channels.get(config.name)
        bound = None if channel is None else channel.endpoint
        found.append(
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
    return found


async def start_channel(parts: Parts, request: StartChannel) -> Done:
    """Start a stopped channel. Raises Refused."""
    try:
        return Done([await parts.channels.start(request.name)])
    except ChannelError as error:
        raise Refused(str(error)) from error


async def stop_channel(parts: Parts, request: StopChannel) -> Done:
    """Stop a channel, or disconnect one of its clients. Raises Refused."""
    if request.client_id is not None:
        client = parts.service.clients.get(request.client_id)
        if client is None or client.channel.name != request.name:
            raise Refused(f"client {request.client_id!r} is not connected by channel {request.name}")
        client.close("disconnected by an administrator", ReasonCode.ADMINISTRATIVE_ACTION)
        return Done([f"client {request.client_id!r} disconnected"])
    try:
        return Done([await parts.channels.stop(request.name)])
    except ChannelError as error:
        raise Refused(str(error)) from error


#: Maximum number of clients in one reading.
MOST_CLIENTS = 1_000


async def show_counters(parts: Parts, request: ShowCounters) -> Counters:
    """Return a reading of the counters."""
    activity = parts.watch.asked()
    clients = Counter(client.channel.name for client in parts.service.clients.values())
    in_flight = 0
    for number, session in enumerate(list(parts.service.sessions.values()), 1):
        in_flight += len(session.outbox.in_flight.deliveries)
        if not number % ROWS_AT_A_TURN:
            await asyncio.sleep(0)
    depth = await parts.watch.depth()
    names = dict.fromkeys([*(one.name for one in parts.channels.configs), *activity.channels])
    return Counters(
        time=time.time(),
        since=activity.since,
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        in_flight=in_flight,
        units_of_work=parts.service.units.under_way,
        transmission_queue_depth=depth,
        channels=[activity.of(name, clients[name]) for name in names],
        busiest_clients=activity.busiest(min(max(request.clients, 0), MOST_CLIENTS)),
        mappings=[
            MappingCounters(
                name=one.name, state=one.state, taken=one.taken, moved=one.moved, dead_lettered=one.dead_lettered
            )
            for one in parts.mappings.statuses()
        ],
    )


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
        raise Refused(f"there is no link {request.name}")
    if parts.trying_link:
        raise Refused("another link is being tried; try again when that is over")
    parts.trying_link = True
    steps: list[str] = []
    # After a timeout, the thread keeps running. The next test must wait until it has ended.
    trial = asyncio.get_running_loop().run_in_executor(None, _try, request.name, config, steps)

    def ended(_: object) -> None:
        parts.trying_link = False

    trial.add_done_callback(ended)
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT):
            failure = await asyncio.shield(trial)
    except TimeoutError:
        failure = f"given up after {TRIAL_TIMEOUT:g} s"
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


async def set_log_level(parts: Parts, request: SetLogLevel) -> Done:
    """Set the log level until the bridge ends or reloads its configuration file."""
    set_level(request.level)
    parts.service.journal.trace(request.level, parts.configuration.log.trace_clients)
    return Done([f"the log has {request.level} and above"])


async def list_mappings(parts: Parts, request: ListMappings) -> list[Status]:
    """Return the status of each mapping in the order of the configuration."""
    return parts.mappings.statuses()


async def pause_mapping(parts: Parts, request: PauseMapping) -> Done:
    """Pause a mapping. Raises Refused."""
    try:
        return Done([await parts.mappings.pause(request.name)])
    except MappingError as error:
        raise Refused(str(error)) from error


async def resume_mapping(parts: Parts, request: ResumeMapping) -> Done:
    """Resume a paused mapping. Raises Refused."""
    try:
        return Done([await parts.mappings.resume(request.name)])
    except MappingError as error:
        raise Refused(str(error)) from error


T = TypeVar("T")


async def list_topics(parts: Parts, request: ListTopics) -> list[TopicNode]:
    """Return the levels below a topic. Raises Refused."""
    if request.below is not None and (error := topic_filter_error(request.below or "/")) is not None:
        raise Invalid(f"{request.below!r} is not a valid topic: {error}")
    return await _asked(parts, parts.host.topic_inquiry.below(request.below, request.after, _rows(request.rows)))


async def show_topic(parts: Parts, request: ShowTopic) -> TopicDetails:
    """Return the retained publications and subscriptions of a topic filter. Raises Refused."""
    if (error := topic_filter_error(request.topic_filter)) is not None:
        raise Invalid(f"{request.topic_filter!r} is not a valid topic filter: {error}")
    rows = _rows(request.rows)
    return await _asked(parts, parts.host.topic_inquiry.details(request.topic_filter, rows, request.payloads))


def _rows(wanted: int) -> int:
    return min(max(wanted, 1), MOST_ROWS)


async def _asked(parts: Parts, answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (MQError, TooMany) as error:
        raise Refused(f"queue manager {parts.host.name}: {error}") from error


async def reload(parts: Parts, request: Reload) -> Answer:
    """Reload the configuration file."""
    ok, lines = await parts.reload()
    # The configuration was applied, but not completely.
    ok = ok and not parts.channels.problems
    return Answer(ok=ok, lines=lines)


async def show_status(parts: Parts, request: ShowStatus) -> BridgeStatus:
    """Return the status of the bridge and its problems."""
    statuses = parts.mappings.statuses()
    settings = parts.configuration.queue_manager
    return BridgeStatus(
        state=parts.state,
        version=bridge.__version__,
        started_at=parts.started_at,
        process_id=os.getpid(),
        queue_manager=parts.host.name,
        queue_manager_type=settings.type,
        queue_manager_available=parts.service.backend.available,
        queue_manager_state=_queue_manager_state(parts),
        channels=len(parts.channels.configs),
        channels_running=len(parts.channels),
        clients=len(parts.service.clients),
        sessions=len(parts.service.sessions),
        units_of_work=parts.service.units.under_way,
        mappings=len(statuses),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
        problems=await parts.problems(),
    )


async def list_problems(parts: Parts, request: ListProblems) -> list[Problem]:
    """Return the current problems."""
    return await parts.problems()


def _queue_manager_state(parts: Parts) -> str:
    if parts.service.backend.available:
        return "answers"
    embedded = parts.configuration.queue_manager.type == "embedded"
    return "accepts no persistent messages: its disk is full" if embedded else "does not answer"


def standby_status(configuration: Configuration, started_at: float, waits_for: str) -> BridgeStatus:
    """Return the status of a standby bridge, which has no problems."""
    settings = configuration.queue_manager
    return BridgeStatus(
        state=BridgeState.STANDING_BY,
        version=bridge.__version__,
        started_at=started_at,
        process_id=os.getpid(),
        queue_manager=settings.name,
        queue_manager_type=settings.type,
        queue_manager_available=True,
        queue_manager_state=f"is served by another bridge: {waits_for}",
        channels=len(configuration.channels),
        channels_running=0,
        clients=0,
        sessions=0,
        units_of_work=0,
        mappings=len(configuration.mappings),
        log_level=logging.getLevelName(logging.getLogger().level).lower(),
    )


log = logging.getLogger(__name__)

#: Handles a request. Returns the answer's `result`, Done, or a complete answer. Raises Refused.
Handler = Callable[[Parts, Any], Awaitable[object]]

#: Maximum number of message identifiers in an entry of the audit log.
MOST_IDS: Final = 50

HANDLERS: Final = MappingProxyType[type[Request], Handler](
    {
        requests.Reload: reload,
        requests.ShowStatus: show_status,
        requests.ListProblems: list_problems,
        requests.ListChannels: list_channels,
        requests.StartChannel: start_channel,
        requests.StopChannel: stop_channel,
        requests.ListClients: list_clients,
        requests.WatchClient: watch_client,
        requests.ShowClient: show_client,
        requests.DisconnectClient: disconnect_client,
        requests.PurgeClients: purge_clients,
        requests.ShowCounters: show_counters,
        requests.SetLogLevel: set_log_level,
        requests.ListLinks: list_links,
        requests.TestLink: test_link,
        requests.ListTopics: list_topics,
        requests.ShowTopic: show_topic,
        requests.Publish: queues.publish,
        requests.ListSubscriptions: queues.list_subscriptions,
        requests.ListQueues: queues.list_queues,
        requests.ShowQueue: queues.show_queue,
        requests.BrowseQueue: queues.browse_queue,
        requests.ShowMessage: queues.show_message,
        requests.PutMessage: queues.put_message,
        requests.MoveMessages: queues.move_messages,
        requests.ClearQueue: queues.clear_queue,
        requests.ListDeadLetters: dead_letters.list_dead_letters,
        requests.ShowDeadLetter: dead_letters.show_dead_letter,
        requests.RetryDeadLetters: dead_letters.retry_dead_letters,
        requests.DeleteDeadLetters: dead_letters.delete_dead_letters,
        requests.ExportDeadLetters: dead_letters.export_dead_letters,
        requests.ShowHistory: inspection.show_history,
        requests.ShowLog: inspection.show_log,
        requests.ShowAuditLog: inspection.show_audit_log,
        requests.ShowConfiguration: inspection.show_configuration,
        requests.ListMappings: list_mappings,
        requests.PauseMapping: pause_mapping,
        requests.ResumeMapping: resume_mapping,
    }
)


class Administration:
    """Answers requests about one running bridge, on its event loop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def answer(self, request: AnyRequest, user: str) -> Answer:
        """Process a request. `user` is recorded in the audit log."""
        try:
            found = await HANDLERS[type(request)](self.parts, request)
        except Refused as error:
            answer = Answer(ok=False, lines=[str(error)], invalid=isinstance(error, Invalid))
        except Exception:
            # An error of the administration must not affect messages.
            log.exception("MQB9001E a request of %s failed: %s", user, request)
            answer = Answer(ok=False, lines=["the bridge failed to answer; its log contains the reason"])
        else:
            if isinstance(found, Answer):
                answer = found
            elif isinstance(found, Done):
                answer = Answer(lines=found.lines)
            else:
                answer = Answer(result=msgspec.Raw(msgspec.json.encode(found)))
        if request.CHANGES or (request.AUDITED and getattr(request, "first", True)):
            facts = msgspec.to_builtins(request)
            if isinstance(payload := getattr(request, "payload", None), bytes):
                facts["payload"] = f"{len(payload)} bytes"
            if len(ids := facts.get("ids", ())) > MOST_IDS:
                facts["ids"] = [*ids[:MOST_IDS], f"and {len(ids) - MOST_IDS} more"]
            audit_log.note("administration", user=user, ok=answer.ok, lines=answer.lines[:20], **facts)
            command = " ".join([facts.pop("command"), *(f"{name}={value}" for name, value in facts.items() if value)])
            outcome = "; ".join(answer.lines[:20])
            if answer.ok:
                log.info("MQB9010I user %s: %s: %s", user, command, outcome)
            else:
                log.warning("MQB9011W user %s: %s was rejected: %s", user, command, outcome)
        return answer
