"""The current problems of a running bridge, for `status`, `/readyz`, the metrics and the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from bridge.administration.answers import Problem, ProblemKind
from bridge.administration.mapping_status import State
from bridge.config import Configuration
from bridge.config.mapping import ToMqttMapping
from bridge.mq.host import QueueManagerStatus, QueueStatus
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.certificates import Certificates
from bridge.service.mappings.status import LOOK_AHEAD

#: Thresholds of a large backlog: number of messages, or fraction of MAXDEPTH; and age of an old backlog in seconds.
LARGE_BACKLOG: Final = 100_000
LARGE_PART: Final = 0.8
OLD_BACKLOG: Final = 86_400.0
#: Seconds after which a connected client should have acknowledged a message.
ACKNOWLEDGEMENT_TIMEOUT: Final = 300.0
#: Seconds before expiry at which a certificate is reported.
EXPIRES_SOON: Final = 30 * 86_400.0
#: Shared, so that only changed certificate files are read again.
_certificates = Certificates()


def not_serving(parts: Parts) -> list[Problem]:
    """Return the problems that prevent serving clients: the bridge is not ready."""
    return list(_not_serving(parts))


async def problems(parts: Parts) -> list[Problem]:
    """Return all current problems, beginning with those that prevent serving clients."""
    found = not_serving(parts)
    watch = parts.queue_manager_watch
    diverted = [
        Problem("error", ProblemKind.QUEUE, text, f"mqbridge mqsc display 'QLOCAL({parts.configuration.transmission_queue})'")
        for text in watch.problems
    ]
    found += diverted
    found += [
        Problem("warning", ProblemKind.COMMITS, f"in the last minute, {one}", "mqbridge log level info")
        for one in parts.service.backend.failures
    ]
    if (status := await watch.status()) is not None:
        found += _of_queues(status, parts, skipped=parts.configuration.transmission_queue if diverted else "")
    found += _of_channels(parts)
    found += _of_mappings(parts)
    found += await _of_clients(parts)
    found += await asyncio.to_thread(_of_certificates, parts.configuration)
    if parts.failed_reload:
        text = f"the last reload changed nothing: {parts.failed_reload}"
        found.append(Problem("warning", ProblemKind.RELOAD, text, "mqbridge check FILE, then mqbridge reload"))
    return found


def _not_serving(parts: Parts) -> Iterator[Problem]:
    name = parts.host.name
    if not parts.service.backend.available:
        if parts.configuration.queue_manager.type == "embedded":
            text = f"queue manager {name} takes nothing persistent: its disk is full"
            yield Problem("critical", ProblemKind.DISK, text, "df, then make room on the disk of the data directory")
        else:
            text = f"queue manager {name} does not answer"
            yield Problem("critical", ProblemKind.QUEUE_MANAGER, text, "mqbridge check --connect CONFIG")
    if parts.host.memory.problem:
        yield Problem("critical", ProblemKind.MEMORY, parts.host.memory.problem, "mqbridge client list")
    for text in parts.channels.problems.values():
        yield Problem("critical", ProblemKind.CHANNEL, text, "mqbridge channel list")


def _of_queues(status: QueueManagerStatus, parts: Parts, skipped: str) -> Iterator[Problem]:
    configuration = parts.configuration
    dead_letter_queue = parts.host.dead_letter_queue or status.dead_letter_queue
    read_by_bridge = {configuration.transmission_queue, *_sources(configuration)}
    for queue in status.queues:
        display = f"mqbridge mqsc display 'QLOCAL({queue.name})'"
        if queue.name == dead_letter_queue and queue.depth:
            messages = "1 message is" if queue.depth == 1 else f"{queue.depth:,} messages are"
            text = f"{messages} on dead-letter queue {queue.name}"
            yield Problem("warning", ProblemKind.DEAD_LETTERS, text, "mqbridge dlq list")
        if queue.name == skipped:
            continue
        if queue.put_inhibited:
            yield Problem("error", ProblemKind.QUEUE, f"queue {queue.name} takes no messages: PUT(DISABLED)", display)
        elif 0 < queue.max_depth <= queue.depth:
            text = f"queue {queue.name} is full: MAXDEPTH({queue.max_depth})"
            yield Problem("error", ProblemKind.QUEUE, text, display)
        elif queue.name in read_by_bridge and (why := _backlog(queue)):
            waiting = "1 message waits" if queue.depth == 1 else f"{queue.depth:,} messages wait"
            text = f"{waiting} on queue {queue.name}{why}"
            yield Problem("warning", ProblemKind.BACKLOG, text, display)


def _backlog(queue: QueueStatus) -> str:
    """Return why a backlog is a problem, or ""."""
    if queue.depth >= LARGE_PART * queue.max_depth:
        return f", which is nearly full: MAXDEPTH({queue.max_depth})"
    if queue.depth and queue.oldest_message_age is not None and queue.oldest_message_age > OLD_BACKLOG:
        return f", the oldest for {queue.oldest_message_age / 3600:,.0f} hours"
    return ": a large backlog" if queue.depth >= LARGE_BACKLOG else ""


def _sources(configuration: Configuration) -> Iterator[str]:
    for mapping in configuration.mappings.values():
        if isinstance(mapping, ToMqttMapping) and mapping.source.queue is not None:
            yield mapping.source.queue


def _of_channels(parts: Parts) -> Iterator[Problem]:
    for config in parts.channels.configs:
        if parts.channels.get(config.name) is None and config.name not in parts.channels.problems:
            command = f"mqbridge channel start {config.name}"
            yield Problem("warning", ProblemKind.CHANNEL, f"channel {config.name} is stopped", command)


def _of_mappings(parts: Parts) -> Iterator[Problem]:
    for status in parts.mappings.statuses():
        if status.state in (State.RUNNING, State.STARTING, State.DISABLED):
            continue
        paused = status.state is State.PAUSED
        if status.state is State.RETRYING and (blocked := status.blocked):
            more = f" (and {len(blocked) - 1:,} more queues)" if len(blocked) > 1 else ""
            full = sum(queue.waiting for queue in blocked) >= LOOK_AHEAD
            others = "all later messages wait, too" if full else "messages for other destinations go on"
            text = f"mapping {status.name}: {blocked[0]}{more}; {others}"
            yield Problem("error", ProblemKind.MAPPING, text, "mqbridge mapping list")
            continue
        why = f": {status.last_error}" if status.last_error and not paused else ""
        command = f"mqbridge mapping resume {status.name}" if paused else "mqbridge mapping list"
        text = f"mapping {status.name} is {status.state}{why}"
        yield Problem("warning" if paused else "error", ProblemKind.MAPPING, text, command)


async def _of_clients(parts: Parts) -> list[Problem]:
    """Return a single problem if connected clients acknowledge no messages."""
    silent: list[str] = []
    now = parts.service.clock()
    for number, (client_id, client) in enumerate(list(parts.service.clients.items()), 1):
        if number % ROWS_AT_A_TURN == 0:
            await asyncio.sleep(0)
        session = client.session
        if session is None or not session.outbox.in_flight.unacknowledged:
            continue
        oldest = next(iter(session.outbox.in_flight.deliveries.values()))
        if now - oldest.sent_at > ACKNOWLEDGEMENT_TIMEOUT:
            silent.append(client_id)
    if not silent:
        return []
    others = f" and {len(silent) - 1:,} more" if len(silent) > 1 else ""
    text = f"client {silent[0]!r}{others} acknowledged no message for {ACKNOWLEDGEMENT_TIMEOUT / 60:.0f} minutes"
    return [Problem("warning", ProblemKind.CLIENT, text, f"mqbridge client show {silent[0]}")]


def _of_certificates(configuration: Configuration) -> list[Problem]:
    """Return a problem for each listener certificate that has expired or expires soon. Reads files."""
    found, now = [], time.time()
    for listener, channel, file, expiry in _certificates.expiries(configuration):
        left = expiry - now
        if left > EXPIRES_SOON:
            continue
        where = f"channel {channel}" if channel else listener
        date = time.strftime("%Y-%m-%d", time.gmtime(expiry))
        text = f"the certificate of {where}, {file}, "
        text += f"expired on {date}" if left <= 0 else f"expires on {date}, in {left / 86_400:.0f} days"
        command = f"put a new certificate into {file}"
        found.append(Problem("error" if left <= 0 else "warning", ProblemKind.CERTIFICATE, text, command))
    return found
