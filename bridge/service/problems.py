"""The list of current problems of a running bridge.

`status`, `/readyz`, the metric `mqbridge_problem`, the alerts, the console and the events "problem began" and "problem
ended" of the log all use this list.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final, Literal, NamedTuple

import msgspec

from bridge.administration.answers import Problem, ProblemKind, counted
from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.models import PIPELINES, Configuration, LimitsConfig
from bridge.config.queue_manager import SET_ASIDE_QUEUE, SHARE_MEMBERS_QUEUE
from bridge.mq.host import Host, QueueManagerStatus, QueueStatus
from bridge.mq.memory import MIB
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.tls import SOON, certificates_in_use
from bridge.service.administration.parts import ROWS_AT_A_TURN, Parts
from bridge.service.events import ClientDisconnected, ConnectRejected
from bridge.service.limit_hits import QUIET_PERIOD
from bridge.service.limit_problems import LARGEST_BACKLOGS, STAGES, limit_problems
from bridge.service.mappings.environment import LOOK_AHEAD
from bridge.service.payload_schemas import INVALID_PERIOD
from bridge.service.periodic import repeated
from bridge.service.process_problems import Clock, Descriptors

log = logging.getLogger(__name__)

#: Seconds between regular evaluations of the list.
INTERVAL: Final = 5.0
#: Thresholds of a large backlog (number of messages, or fraction of MAXDEPTH), and of an old backlog (age in seconds).
LARGE_BACKLOG: Final = 100_000
LARGE_FRACTION: Final = 0.8
OLD_BACKLOG: Final = 86_400.0
#: The highest MAXDEPTH.
MAX_DEPTH: Final = 999_999_999
#: A queue that was full counts as full until its depth falls below this fraction of MAXDEPTH. A large backlog counts as large
#: until it falls below this fraction of the threshold.
ROOM_FRACTION: Final = 0.9
#: Seconds after which a connected client should have acknowledged a message.
ACKNOWLEDGEMENT_TIMEOUT: Final = 300.0
#: Seconds without a removal after which a client that waits for removals is reported.
REMOVAL_TIMEOUT: Final = 30.0
#: Publications per second of one client that are reported as a flood if they last for some time and are more than half of
#: all publications. Clients of channels with publish_rate are not reported.
FLOOD_RATE: Final = 1_000.0
#: Number of rejected connections of a channel within a time in seconds that is reported.
MANY_REJECTIONS: Final = 5
REJECTION_PERIOD: Final = 300.0
#: Number of connections of one client identifier that another one ended, within the same time, that is reported.
MANY_TAKEOVERS: Final = 3
_TAKEN_OVER: Final = ReasonCode.SESSION_TAKEN_OVER.name.lower()
#: Fraction of limits.memory_watermark at which memory use is reported, and the fraction below which it no longer is.
HIGH_MEMORY: Final = 0.85
NORMAL_MEMORY: Final = 0.8
#: Free disk space that is reported: less than this fraction of the file system, and less than this number of bytes.
LOW_DISK_FRACTION: Final = 0.1
LOW_DISK_BYTES: Final = 2048 * MIB
#: Free disk space is reported until it is this many times as much.
ENOUGH_DISK: Final = 1.2
#: Seconds for which lost rows and missing files of the archive, and lost events of clients, are reported.
ARCHIVE_LOSS_TIMEOUT: Final = 3600.0

_SEVERITIES: Final = ("critical", "error", "warning")
_LEVELS: Final = {"critical": logging.ERROR, "error": logging.ERROR, "warning": logging.WARNING}
#: Kinds that have their own log events, which are logged immediately and contain more detail.
_LOGGED_ELSEWHERE: Final = frozenset({ProblemKind.RELOAD})

#: How to fix each kind of problem.
REMEDIES: Final = {
    ProblemKind.QUEUE_MANAGER: "Start the queue manager or repair the network. The bridge reconnects by itself.",
    ProblemKind.LOGIN: "Write the present password to queue_manager.password_file, or a new token to token_file. If they were"
    " correct, check CONNAUTH, CHLAUTH and the authority to connect, or unlock the account, then run `mqbridge reload`.",
    ProblemKind.DISK: "Free space on the disk, or let clients fetch their messages. The bridge notices within seconds.",
    ProblemKind.MEMORY: "Connect the clients with the largest backlogs, remove unused sessions with `mqbridge client"
    " purge`, or give the bridge more memory.",
    ProblemKind.CHANNEL: "Fix the cause, then run `mqbridge channel start {}`.",
    ProblemKind.CERTIFICATE: "Replace the certificate file and the key file. The bridge reads them within seconds.",
    ProblemKind.MAPPING: "Fix the cause. The mapping continues by itself, unless it was paused: `mqbridge mapping"
    " resume {}`.",
    ProblemKind.LINK: "Start the broker, or correct the link's options and run `mqbridge reload`. The bridge reconnects by"
    " itself.",
    ProblemKind.PIPELINE: "Fix the cause that `mqbridge pipeline show {}` prints. A pipeline that was given up or killed must"
    " be started again.",
    ProblemKind.SESSION: "Make the broker reachable at its former address, so that the bridge can finish the session, or run"
    " `mqbridge mapping give-up {}`.",
    ProblemKind.QUEUE: "Let applications take messages, raise MAXDEPTH, or allow puts.",
    ProblemKind.DEAD_LETTERS: "Fix the cause (`mqbridge dlq show ID`), then run `mqbridge dlq retry --all` or `mqbridge dlq"
    " delete --all`.",
    ProblemKind.BACKLOG: "Connect the clients or start the applications that take the messages, or remove unused sessions"
    " with `mqbridge client purge`.",
    ProblemKind.CLIENT: "Make the client reconnect with `mqbridge client disconnect CLIENT`, and check its program.",
    ProblemKind.LIMIT: "",
    ProblemKind.DESCRIPTORS: "Raise LimitNOFILE of the systemd unit (`systemctl edit mqbridge`), or the hard limit of the"
    " shell (ulimit -Hn), and restart, or lower max_clients of the channels.",
    ProblemKind.CLOCK: "Repair the time service (chrony, systemd-timesyncd, or the clock of the virtual machine). Messages"
    " and sessions with an expiry time expire earlier or later by the jump.",
    ProblemKind.REMOVALS: "Allow gets from the queue: `echo \"ALTER QLOCAL('{}') GET(ENABLED)\" | mqbridge mqsc"
    " run -`. The log contains the reason code.",
    ProblemKind.PUBLISH_RATE: "Set publish_rate of its channel, then run `mqbridge reload` and `mqbridge client"
    " disconnect {}`.",
    ProblemKind.REJECTIONS: "Correct the client's password, certificate or configuration, or block its address.",
    ProblemKind.PAYLOADS: "Correct the program of the client. If the schema is wrong, correct its file and run `mqbridge"
    " reload`. Then edit or delete the dead letters (`mqbridge dlq list`).",
    ProblemKind.TABLE: "Correct the file. The bridge reads it within seconds.",
    ProblemKind.CLIENT_IDENTIFIER: "If the log names several addresses (journalctl -u mqbridge -g IDENTIFIER), give each"
    " program an identifier of its own. Otherwise check the network of the client, and shorten its keep-alive.",
    ProblemKind.COMMITS: "Check the disk or the queue manager that the log names.",
    ProblemKind.RELOAD: "Correct the file, then run `mqbridge reload`.",
    ProblemKind.ARCHIVE: "Free space on the archive's disk, or raise archive.memory.",
    ProblemKind.ARCHIVE_FILES: "Restore the files from a copy. Without them, audit, report and replay need --accept-loss.",
    ProblemKind.CLIENT_HISTORY: "Free space on the disk, or make the file of client_history writable for the bridge. The"
    " bridge writes to it again by itself.",
}

Key = tuple[ProblemKind, str]


class ProblemList:
    """Computes the current problems, and logs when a problem begins and ends. Methods are called on the event loop."""

    def __init__(self, host: Host, configuration: Configuration) -> None:
        """List the problems of a bridge that starts or stands by, until `serve`."""
        self._host = host
        self._configuration = configuration
        self._serving: _Serving | None = None
        #: the problems of the last evaluation
        self._known: dict[Key, Problem] = {}
        self._evaluating = asyncio.Lock()
        self.clock = Clock()

    def serve(self, parts: Parts) -> None:
        """List the problems of all parts from now on."""
        self._serving = _Serving(parts)

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluate the list at regular intervals until the context ends."""
        return repeated(self._evaluate_latest, INTERVAL, "evaluating the list of problems")

    async def _evaluate_latest(self) -> None:
        await self._evaluate(None if self._serving is None else self._serving.parts.queue_manager_watch.latest)

    async def current(self) -> list[Problem]:
        """Return all current problems after inspecting the queues again, the most severe first."""
        serving = self._serving
        return await self._evaluate(None if serving is None else await serving.parts.queue_manager_watch.status())

    def not_serving(self) -> list[Problem]:
        """Return the problems that prevent serving clients: the bridge is not ready. Limits are not included."""
        if self._serving is None:
            return list(_of_queue_manager(self._host, self._host.silence is None))
        return list(_not_serving(self._serving.parts))

    def latest(self) -> list[Problem]:
        """Return the problems of the last evaluation, the most severe first."""
        return _sorted(self._known.values())

    async def _evaluate(self, status: QueueManagerStatus | None) -> list[Problem]:
        async with self._evaluating:
            problems = self.not_serving()
            configuration = self._configuration
            if self._serving is not None:
                configuration = self._serving.parts.configuration
                problems += await self._serving.problems(status, self._known)
            problems += self.clock.problems()
            problems += await asyncio.to_thread(_of_certificates, configuration)
            return self._take(problems)

    def _take(self, problems: list[Problem]) -> list[Problem]:
        """Set the beginning of each problem, and log the differences from the last evaluation."""
        before, now = self._known, time.time()
        self._known = {}
        for problem in problems:
            key = problem.kind, problem.subject
            if key in self._known:  # for example, the certificate of a broker to which several mappings connect
                continue
            former = before.pop(key, None)
            since = problem.since or (now if former is None else former.since)
            remedy = problem.remedy or REMEDIES[problem.kind].format(problem.subject)
            problem = msgspec.structs.replace(problem, since=since, remedy=remedy)
            self._known[key] = problem
            if (former is None or _is_worse(problem, former)) and problem.kind not in _LOGGED_ELSEWHERE:
                _log_beginning(problem)
        for problem in before.values():
            if problem.kind not in _LOGGED_ELSEWHERE:
                log.info("MQB0303I problem ended: %s", problem.what)
        return _sorted(self._known.values())


class _Serving:
    """Problems of the parts of a bridge that serves clients."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._rejections = Rejections(parts)
        self._takeovers = Takeovers(parts)
        self._publishers = Publishers()
        self._descriptors = Descriptors()
        self._pipeline_discards = PipelineDiscards()

    async def problems(self, status: QueueManagerStatus | None, former_keys: Collection[Key]) -> list[Problem]:
        """Return the problems, except those that prevent serving clients. `former_keys`: the keys of the last evaluation."""
        parts, problems = self.parts, list[Problem]()
        if parts.host.login_problem and parts.service.backend.available:
            problems.append(_rejected_login(parts.host, "error"))
        hits = parts.service.limit_hits.current()
        if status is not None:
            problems += _of_queues(
                status, parts, former_keys, limited=bool(parts.service.endings.sessions or hits.keys() & set(STAGES))
            )
        problems += _of_resources(status, parts, former_keys)
        problems += limit_problems(parts, hits)
        problems += await asyncio.to_thread(lambda: list(self._descriptors.problems(hits.get("open_files"))))
        problems += _of_channels(parts)
        problems += _of_links_and_mappings(
            parts, {problem.subject for problem in problems if problem.kind is ProblemKind.QUEUE}
        )
        problems += self._rejections.problems()
        problems += self._takeovers.problems()
        problems += _of_payloads(parts)
        problems += _of_tables(parts)
        problems += await self._of_clients()
        problems += await asyncio.to_thread(_of_pipelines, parts.configuration, self._pipeline_discards)
        return problems

    async def _of_clients(self) -> list[Problem]:
        """Return problems of clients: they acknowledge no messages, wait for removals, or flood the bridge."""
        service = self.parts.service
        silent: list[str] = []
        client_ids: list[str] = []
        counts: dict[str, int] = {}
        now = service.clock()
        for number, (client_id, client) in enumerate(list(service.clients.items()), 1):
            if number % ROWS_AT_A_TURN == 0:
                await asyncio.sleep(0)
            session = client.session
            if session is None:
                continue
            counts[client_id] = session.messages_received
            deliveries = session.outbox.in_flight.deliveries
            if session.outbox.in_flight.unacknowledged and now - next(iter(deliveries.values())).sent_at > (
                ACKNOWLEDGEMENT_TIMEOUT
            ):
                silent.append(client_id)
            outbox = session.outbox
            if outbox.held and outbox.unremoved and now - outbox.last_sent > REMOVAL_TIMEOUT:
                client_ids.append(client_id)
        problems = []
        if client_ids:
            others = f" and {len(client_ids) - 1:,} more" if len(client_ids) > 1 else ""
            queue = self.parts.configuration.transmission_queue
            unremoved, client_id = max(
                (service.sessions[client_id].outbox.unremoved, client_id) for client_id in client_ids
            )
            text = (
                f"client {client_id!r}{others} gets no messages, because {counted(unremoved, 'acknowledged message')} "
                f"cannot be removed from {queue} (limits.removal_backlog)"
            )
            problems.append(Problem("error", ProblemKind.REMOVALS, queue, text, "mqbridge check --connect"))
        if silent:
            others = f" and {len(silent) - 1:,} more" if len(silent) > 1 else ""
            _, client_id = max((len(service.sessions[client_id].outbox.backlog), client_id) for client_id in silent)
            text = (
                f"client {client_id!r}{others} acknowledged no message for {ACKNOWLEDGEMENT_TIMEOUT / 60:.0f} minutes"
            )
            problems.append(
                Problem("warning", ProblemKind.CLIENT, "", text, f"mqbridge client show {quote(client_id)}")
            )
        self._publishers.count(counts, now)
        if (flood := self._publishers.flood) is not None:
            client_id, rate, share = flood
            busiest = service.clients.get(client_id)
            if busiest is not None and busiest.channel.publish_rate is None:
                text = f"client {client_id!r} publishes {rate:,.0f} messages per second, {share:.0%} of all"
                problems.append(
                    Problem(
                        "warning", ProblemKind.PUBLISH_RATE, client_id, text, f"mqbridge client show {quote(client_id)}"
                    )
                )
        return problems


def _sorted(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: _SEVERITIES.index(problem.severity))


class Publishers:
    """Finds a client that publishes more than all others together, by the message counts of the sessions."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._counted_at = 0.0
        self._suspect = ""
        #: client identifier, publications per second, and their share of all. None if no client floods.
        self.flood: tuple[str, float, float] | None = None

    def count(self, counts: dict[str, int], now: float) -> None:
        """Compare the message counts of the connected clients with those of the last interval."""
        seconds = now - self._counted_at
        if seconds < 0.8 * INTERVAL:
            return
        before, self._counts, self._counted_at = self._counts, counts, now
        new = {client_id: count - before.get(client_id, count) for client_id, count in counts.items()}
        busiest = max(new, key=new.__getitem__, default="")
        rate = new[busiest] / seconds if busiest else 0.0
        share = new[busiest] / max(1, sum(new.values())) if busiest else 0.0
        floods = rate >= FLOOD_RATE and share > 0.5
        self.flood = (busiest, rate, share) if floods and busiest == self._suspect else None
        self._suspect = busiest if floods else ""


class _Rejection(NamedTuple):
    """A rejected connection."""

    #: by time.monotonic()
    moment: float
    #: name of the reason code, or of the failure
    cause: str
    #: client and reason, in words
    what: str
    #: the log message that explains it
    identifier: str


class Rejections:
    """Remembers rejected connections by channel: rejected CONNECTs and failed handshakes."""

    def __init__(self, parts: Parts) -> None:
        self._channels = parts.channels
        #: channel -> the last rejections
        self._last: dict[str, deque[_Rejection]] = {}
        #: channel -> failed handshakes at the last evaluation
        self._handshakes: dict[str, int] = {}
        parts.service.events.attach(self)

    def _rejected(self, event: ConnectRejected) -> None:
        if not event.by_limit:  # otherwise reported as a problem of the limit
            self._note(event.channel, event.reason.name, event.what, "MQB1201W", 1)

    def _note(self, channel: str, cause: str, description: str, identifier: str, number: int) -> None:
        last = self._last.setdefault(channel, deque(maxlen=1_000))
        last.extend([_Rejection(time.monotonic(), cause, description, identifier)] * min(number, 1_000))

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for each channel that rejected many connections recently, with their most common cause."""
        for config in self._channels.configs:
            name, channel = config.name, self._channels.get(config.name)
            if channel is not None:
                failed = channel.handshakes_failed - self._handshakes.get(name, 0)
                self._handshakes[name] = channel.handshakes_failed
                if failed > 0:
                    self._note(name, "handshake", channel.handshake_failure, "MQB1002W", failed)
            since = time.monotonic() - REJECTION_PERIOD
            recent = [rejection for rejection in self._last.get(name, ()) if rejection.moment > since]
            if len(recent) < MANY_REJECTIONS:
                continue
            ((cause, number),) = Counter(rejection.cause for rejection in recent).most_common(1)
            latest = next(rejection for rejection in reversed(recent) if rejection.cause == cause)
            like = "last" if number == len(recent) else f"{number:,} of them like"
            text = (
                f"channel {name} rejected {counted(len(recent), 'connection')} in {REJECTION_PERIOD / 60:.0f} minutes, {like}"
                f" {latest.what}"
            )
            yield Problem("warning", ProblemKind.REJECTIONS, name, text, f"mqbridge explain {latest.identifier}")


class Takeovers:
    """Finds client identifiers whose connections end each other: several programs use them, or the network is unreliable."""

    def __init__(self, parts: Parts) -> None:
        #: client identifier -> times of its last takeovers, by time.monotonic()
        self._times: dict[str, deque[float]] = {}
        parts.service.events.attach(self)

    def _disconnected(self, event: ClientDisconnected) -> None:
        if event.reason == _TAKEN_OVER:
            times = self._times.setdefault(event.session.client_id, deque(maxlen=MANY_TAKEOVERS))
            times.append(time.monotonic())

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if client identifiers were taken over again and again recently."""
        since = time.monotonic() - REJECTION_PERIOD
        self._times = {client_id: times for client_id, times in self._times.items() if times[-1] > since}
        shared = [
            client_id for client_id, times in self._times.items() if len(times) == MANY_TAKEOVERS and times[0] > since
        ]
        if shared:
            latest = max(shared, key=lambda client_id: self._times[client_id][-1])
            others = f" and {len(shared) - 1:,} more" if len(shared) > 1 else ""
            text = (
                f"connections of client identifier {latest!r}{others} end each other: several programs use it, or one client"
                " loses its connection again and again"
            )
            yield Problem("warning", ProblemKind.CLIENT_IDENTIFIER, "", text, f"mqbridge client show {quote(latest)}")


def _of_payloads(parts: Parts) -> Iterator[Problem]:
    """Yield a problem for each channel whose clients published many invalid payloads recently."""
    for channel, recent in parts.service.payload_schemas.recent():
        latest = recent[-1]
        clients = len({publication.client_id for publication in recent})
        others = f" and {clients - 1:,} more" if clients > 1 else ""
        text = (
            f"client {latest.client_id!r}{others} of channel {channel} published {len(recent):,} invalid payloads in"
            f" {INVALID_PERIOD / 60:.0f} minutes, the last one to {latest.topic[:200]!r}: {latest.violation}"
        )
        # A client with a clean session may have left.
        command = f"mqbridge client history {quote(latest.client_id)}"
        yield Problem("warning", ProblemKind.PAYLOADS, channel, text, command)


def _of_tables(parts: Parts) -> Iterator[Problem]:
    """Yield a problem for each table whose file has changed and cannot be used."""
    for name, file in parts.table_files.files.items():
        if file.problem:
            text = f"the former rows of table {name} stay in use: {file.problem}"
            yield Problem("warning", ProblemKind.TABLE, name, text, "mqbridge check")


def _is_worse(problem: Problem, former: Problem) -> bool:
    return problem.severity != "warning" and former.severity == "warning"


def _log_beginning(problem: Problem) -> None:
    if _LEVELS[problem.severity] == logging.WARNING:
        log.warning("MQB0301W problem began: %s; hint: `%s`", problem.what, problem.command)
    else:
        log.error("MQB0302E problem began: %s; hint: `%s`", problem.what, problem.command)


def _of_queue_manager(host: Host, available: bool) -> Iterator[Problem]:
    if available:
        return
    if host.login_problem:
        yield _rejected_login(host, "critical")
        return
    silence = host.silence
    why, since = ("", 0.0) if silence is None else (f": {silence.why}", silence.since)
    text = f"queue manager {host.name} does not answer{why}"
    yield Problem("critical", ProblemKind.QUEUE_MANAGER, host.name, text, "mqbridge check --connect", since)


def _not_serving(parts: Parts) -> Iterator[Problem]:
    available = parts.service.backend.available
    if not available and not parts.host.login_problem and parts.configuration.queue_manager.type == "embedded":
        text = f"the disk of queue manager {parts.host.name} is full: it accepts no persistent messages"
        yield Problem("critical", ProblemKind.DISK, parts.host.name, text, "df -h")
    else:
        yield from _of_queue_manager(parts.host, available)
    for channel, text in parts.channels.problems.items():
        yield Problem("critical", ProblemKind.CHANNEL, channel, text, f"mqbridge channel start {channel}")


def _rejected_login(host: Host, severity: Literal["critical", "error"]) -> Problem:
    text = f"queue manager {host.name} {host.login_problem}"
    return Problem(severity, ProblemKind.LOGIN, host.name, text, "mqbridge check --connect")


def _of_queues(
    status: QueueManagerStatus, parts: Parts, former_keys: Collection[Key], *, limited: bool
) -> Iterator[Problem]:
    """Yield problems of queues. `limited`: problems of limits already name the clients with the largest backlogs."""
    configuration = parts.configuration
    dead_letter_queue = parts.host.dead_letter_queue or status.dead_letter_queue
    transmission_queue = configuration.transmission_queue
    read_by_bridge = {transmission_queue, configuration.queues.common_transmission, *_sources(configuration)}
    diverted = parts.queue_manager_watch.diverted
    waiting: dict[str, list[str]] = {}
    for mapping in parts.mappings.statuses():
        for name in _awaited_queues(parts, mapping):
            waiting.setdefault(name, []).append(mapping.name)
    if SHARE_MEMBERS_QUEUE in status.missing:
        text = f"queue {SHARE_MEMBERS_QUEUE} is not defined, so clients cannot subscribe to $share groups"
        remedy = "Run the output of `mqbridge mqsc-script` at the queue manager. The bridge needs no restart."
        yield Problem(
            "warning", ProblemKind.QUEUE, SHARE_MEMBERS_QUEUE, text, "mqbridge check --connect", remedy=remedy
        )
    for queue in status.queues:
        display = f"mqbridge mqsc display 'QLOCAL({queue.name})'"
        if queue.name == dead_letter_queue and (queue.depth or diverted):
            text = f"{counted(queue.depth, 'message')} on dead-letter queue {queue.name}"
            if diverted:
                text += f", which grows: {diverted:,} were put by the queue manager or by applications"
            yield Problem(
                "error" if diverted else "warning", ProblemKind.DEAD_LETTERS, queue.name, text, "mqbridge dlq list"
            )
        if queue.name == SET_ASIDE_QUEUE and queue.depth:
            text = f"{counted(queue.depth, 'message')} on queue {queue.name}: dead letters that a mapping could not process"
            yield Problem("warning", ProblemKind.DEAD_LETTERS, queue.name, text, "mqbridge dlq list --set-aside")
        if queue.get_inhibited and queue.name in (
            transmission_queue,
            configuration.queues.state,
            SHARE_MEMBERS_QUEUE,
        ):
            text = f"the bridge can remove no messages from {queue.name}: GET(DISABLED)"
            yield Problem("error", ProblemKind.REMOVALS, queue.name, text, display)
        was_full = (ProblemKind.QUEUE, queue.name) in former_keys
        remedy = ""
        if queue.put_inhibited:
            why, remedy = "PUT(DISABLED)", f"Allow puts: {_altering(queue.name, 'PUT(ENABLED)')}."
        elif 0 < queue.max_depth * (ROOM_FRACTION if was_full else 1) <= queue.depth:
            why = f"it is full, MAXDEPTH({queue.max_depth})"
            more = _altering(queue.name, f"MAXDEPTH({min(2 * queue.max_depth, MAX_DEPTH)})")
            remedy = f"Let applications take messages, or let the queue have more: {more}."
        else:
            why = ""
        if why:
            text = f"queue {queue.name} accepts no messages: {why}"
            if queue.name == transmission_queue:
                text = f"transmission {text}; publications for clients go to the dead-letter queue"
            if mappings := waiting.get(queue.name):
                others = f" and {len(mappings) - 1:,} more" if len(mappings) > 1 else ""
                text += f"; messages of mapping {mappings[0]}{others} wait for it"
            yield Problem("error", ProblemKind.QUEUE, queue.name, text, display, remedy=remedy)
        elif limited and queue.name == transmission_queue:
            continue
        elif queue.name in read_by_bridge and (
            why := _backlog(queue, (ProblemKind.BACKLOG, queue.name) in former_keys)
        ):
            text, command = f"{counted(queue.depth, 'message')} waiting on queue {queue.name}{why}", display
            if queue.name == transmission_queue:
                text, command = f"{text}{_largest_backlog(parts)}", LARGEST_BACKLOGS
            yield Problem("warning", ProblemKind.BACKLOG, queue.name, text, command)


def _altering(queue: str, attribute: str) -> str:
    """Return a command that alters a queue."""
    return f"`echo \"ALTER QLOCAL('{queue}') {attribute}\" | mqbridge mqsc run -`"


def _largest_backlog(parts: Parts) -> str:
    sessions = parts.service.sessions.values()
    session = max(sessions, key=lambda session: len(session.outbox.backlog), default=None)
    if session is None or not (waiting := len(session.outbox.backlog)):
        return ""
    return f"; {waiting:,} of them for client {session.client_id!r}"


def _backlog(queue: QueueStatus, was_large: bool) -> str:
    """Return why a backlog is a problem, or "". A large backlog counts as large until it is clearly smaller."""
    fraction = ROOM_FRACTION if was_large else 1
    if queue.depth >= fraction * LARGE_FRACTION * queue.max_depth:
        return f", which is nearly full: MAXDEPTH({queue.max_depth})"
    if queue.depth and queue.oldest_message_age is not None and queue.oldest_message_age > OLD_BACKLOG:
        return f", the oldest for {queue.oldest_message_age / 3600:,.0f} hours"
    return ": a large backlog" if queue.depth >= fraction * LARGE_BACKLOG else ""


def _sources(configuration: Configuration) -> Iterator[str]:
    for mapping in configuration.mappings.values():
        if isinstance(mapping, ToMqttMapping) and mapping.source.queue is not None:
            yield mapping.source.queue


def _of_resources(status: QueueManagerStatus | None, parts: Parts, former_keys: Collection[Key]) -> Iterator[Problem]:
    # A queue with GET(DISABLED) is reported as a separate problem.
    if failures := [failure for failure in parts.service.backend.failures if "MQRC_GET_INHIBITED" not in failure]:
        text = f"in the last minute, {'; '.join(failures)}"
        yield Problem("warning", ProblemKind.COMMITS, "", text, "journalctl -u mqbridge -p warning")
    memory = parts.host.memory
    if memory.problem:
        yield Problem("critical", ProblemKind.MEMORY, "", memory.problem, LARGEST_BACKLOGS)
    if memory.watermark is not None and not memory.above:
        limit = NORMAL_MEMORY if (ProblemKind.MEMORY, "") in former_keys else HIGH_MEMORY
        if memory.used > limit * memory.watermark:
            text = (
                f"memory use is {memory.used / MIB:.0f} MiB; new messages are rejected above limits.memory_watermark "
                f"({memory.watermark / MIB:.0f} MiB)"
            )
            yield Problem("warning", ProblemKind.MEMORY, "", text, LARGEST_BACKLOGS)
    if status is not None and status.witness_failing:
        text = f"commits of queue manager {parts.host.name} cannot be recorded in queuemanager.witness"
        yield Problem("error", ProblemKind.DISK, "witness", text, "mqbridge explain MQB3012E")
    if status is not None and status.disk_free is not None and status.disk_size and parts.service.backend.available:
        low = min(LOW_DISK_FRACTION * status.disk_size, LOW_DISK_BYTES)
        if status.disk_free < low * (ENOUGH_DISK if (ProblemKind.DISK, parts.host.name) in former_keys else 1):
            text = f"only {status.disk_free / MIB:,.0f} MiB are free on the disk of queue manager {parts.host.name}"
            yield Problem("warning", ProblemKind.DISK, parts.host.name, text, "df -h")
    if (
        parts.archive is not None
        and (archive_loss := parts.archive.loss).rows
        and time.time() - archive_loss.last < ARCHIVE_LOSS_TIMEOUT
    ):
        text = f"{archive_loss.rows:,} rows are missing from the archive"
        yield Problem("warning", ProblemKind.ARCHIVE, "", text, "mqbridge report", archive_loss.first)
    if parts.archive is not None and time.time() - (archive_loss := parts.archive.loss).noticed < ARCHIVE_LOSS_TIMEOUT:
        command = f"mqbridge data verify {quote(str(parts.configuration.archive.directory))}"
        yield Problem("warning", ProblemKind.ARCHIVE_FILES, "", archive_loss.files, command, archive_loss.noticed)
    history = parts.service.journal.history
    if history is not None and time.time() - (loss := history.loss).last < ARCHIVE_LOSS_TIMEOUT:
        text = f"the history of clients cannot be written: {loss.why}; {counted(loss.events, 'event')} of clients lost"
        yield Problem("warning", ProblemKind.CLIENT_HISTORY, "", text, "mqbridge explain MQB2017W", loss.first)
    if parts.failed_reload:
        text = f"the last reload changed nothing: {parts.failed_reload}"
        yield Problem("warning", ProblemKind.RELOAD, "", text, "mqbridge check")


def _of_channels(parts: Parts) -> Iterator[Problem]:
    for config in parts.channels.configs:
        if parts.channels.get(config.name) is None and config.name not in parts.channels.problems:
            command = f"mqbridge channel start {config.name}"
            yield Problem("warning", ProblemKind.CHANNEL, config.name, f"channel {config.name} is stopped", command)


def _of_links_and_mappings(parts: Parts, shut: Collection[str]) -> Iterator[Problem]:
    """Yield one problem for each broken link, and for each mapping that stopped for another reason.

    The queues in `shut` accept no messages, which has already been reported.
    """
    broken: dict[str, list[str]] = {}
    for mapping, link in parts.mappings.links():
        expired = link.certificate_expiry is not None and link.certificate_expiry <= time.time()
        if link.certificate_expiry is not None:
            broker = f"the broker of link {link.name}"
            for problem in _of_certificate(broker, broker, link.certificate_expiry, f"mqbridge link test {link.name}"):
                yield msgspec.structs.replace(problem, remedy="The operator of the broker must renew its certificate.")
        error, _ = link.last_error
        if link.up or not error:
            continue
        broken.setdefault(link.name, []).append(mapping)
        if len(broken[link.name]) == 1 and not expired:
            text = f"link {link.name} is not connected to {link.address}: {error}"
            yield Problem("error", ProblemKind.LINK, link.name, text, f"mqbridge link test {link.name}", link.since)
    waiting_for_link = {mapping for mappings in broken.values() for mapping in mappings}
    for status in parts.mappings.statuses():
        yield from _of_unfinished_sessions(status)
        state = status.state
        if state in (RunnerState.RUNNING, RunnerState.STARTING, RunnerState.DISABLED, RunnerState.REMOVED):
            continue
        if state is RunnerState.WAITING_FOR_LINK and status.name in waiting_for_link:
            continue
        if state is RunnerState.WAITING_FOR_QUEUE_MANAGER and (
            not parts.service.backend.available or parts.host.login_problem
        ):
            continue
        if state in (RunnerState.RETRYING, RunnerState.STUCK) and _is_consequence(parts, status, shut):
            continue
        paused = state is RunnerState.PAUSED
        if state is RunnerState.RETRYING and (blocked := status.blocked):
            more = f" (and {len(blocked) - 1:,} more queues)" if len(blocked) > 1 else ""
            full = sum(queue.waiting for queue in blocked) >= LOOK_AHEAD
            others = "all later messages wait, too" if full else "messages for other destinations continue"
            text = f"mapping {status.name}: {blocked[0]}{more}; {others}"
        else:
            why = f": {status.last_error}" if status.last_error and not paused else ""
            text = f"mapping {status.name} is {state}{why}"
        command = f"mqbridge mapping resume {status.name}" if paused else "mqbridge mapping list"
        yield Problem("warning" if paused else "error", ProblemKind.MAPPING, status.name, text, command)


#: Reasons with which a queue manager rejects a login.
_LOGIN_REASONS: Final = ("MQRC_NOT_AUTHORIZED", "MQRC_SECURITY_ERROR")


def _is_consequence(parts: Parts, status: MappingStatus, shut: Collection[str]) -> bool:
    """Return whether another problem explains why a mapping does not continue: queue, login, disk or memory."""
    if parts.host.login_problem and any(reason in status.last_error for reason in _LOGIN_REASONS):
        return True
    if queues := _awaited_queues(parts, status):
        return queues <= set(shut)
    disk_full = not parts.service.backend.available and "MQRC_RESOURCE_PROBLEM" in status.last_error
    return disk_full or (parts.host.memory.above and "MQRC_STORAGE_NOT_AVAILABLE" in status.last_error)


def _awaited_queues(parts: Parts, status: MappingStatus) -> set[str]:
    """Return the queues that accept no messages of a mapping, if they are known."""
    if status.state is not RunnerState.RETRYING:
        return set()
    if status.blocked:
        return {
            f"{blocked.queue} at {blocked.queue_manager}" if blocked.queue_manager else blocked.queue
            for blocked in status.blocked
        }
    mapping = parts.configuration.mappings.get(status.name)
    queue = mapping.destination.queue if isinstance(mapping, ToMqMapping) else None
    full = any(reason in status.last_error for reason in ("MQRC_Q_FULL", "MQRC_PUT_INHIBITED"))
    return {queue} if queue is not None and full else set()


def _of_unfinished_sessions(status: MappingStatus) -> Iterator[Problem]:
    since = min((session.since for session in status.unfinished), default=math.inf)
    if time.time() - since > OLD_BACKLOG:
        oldest = min(status.unfinished, key=lambda session: session.since)
        others = f" (and {len(status.unfinished) - 1:,} more)" if len(status.unfinished) > 1 else ""
        text = f"mapping {status.name}: {oldest}{others}"
        yield Problem("warning", ProblemKind.SESSION, status.name, text, f"mqbridge mapping show {status.name}", since)


class PipelineDiscards:
    """Writes audit records about dead letters that pipelines have discarded: one a minute for each pipeline."""

    def __init__(self) -> None:
        #: pipeline -> when it discarded the last message of the last audit record, and the time of that record
        self._noted: dict[str, tuple[float, float]] = {}

    def note(self, name: str, condition: Mapping[str, Any]) -> None:
        """Write a record if a pipeline has discarded messages since the last one. It contains the number since its start."""
        discarded_at, now = condition["discarded_at"] or 0.0, time.monotonic()
        before, noted_at = self._noted.get(name, (0.0, now - QUIET_PERIOD))
        if discarded_at == before or now - noted_at < QUIET_PERIOD:
            return
        self._noted[name] = discarded_at, now
        last = datetime.fromtimestamp(discarded_at, UTC).isoformat(timespec="milliseconds")
        number, why = condition["discarded"], condition["discarded_why"]
        audit_log.note("messages discarded", pipeline=name, number_since_start=number, last=last, why=why)


def _of_pipelines(configuration: Configuration, discards: PipelineDiscards) -> list[Problem]:
    """Return a problem for each pipeline that fails, was killed, or has messages of a former queue. Reads files."""
    settings = configuration.queue_manager
    if not configuration.pipelines and (
        settings.type != "embedded" or not (settings.data_directory / PIPELINES).is_dir()
    ):
        return []
    # Imported on demand, because most bridges have no pipelines.
    from bridge.spark.administration import StatusDamaged, condition, left_by_removed
    from bridge.spark.environment import environment_at_bridge

    problems, now = [], time.time()
    environment = environment_at_bridge(configuration)
    for name, config in configuration.pipelines.items():
        severity: Literal["error", "warning"] = "error"
        since = 0.0
        try:
            report = condition(name, config, environment, now)
        except (StatusDamaged, OSError) as error:
            text = f"the condition of pipeline {name} is unknown: {error}"
        else:
            discards.note(name, report)
            if now - (report["discarded_at"] or 0.0) < QUIET_PERIOD:
                problems.append(_of_discards(name, report, configuration.limits))
            if report["failing"] and (config.enabled or report["process"] is not None):
                last = report["last_error"]
                why = f": {last['what']}" if report["state"] != "killed" and last is not None else ""
                since = last["at"] if why else 0.0
                text = f"pipeline {name} {_PIPELINE_STATES.get(report['state'], 'fails')}{why}"
            elif report["unread"]:
                severity = "warning"
                unread = ", ".join(
                    f"{counted(rows, 'message')} of {source}" for source, rows in report["unread"].items()
                )
                text = f"the spool of pipeline {name} has {unread}, which it no longer reads"
            else:
                continue
        problems.append(Problem(severity, ProblemKind.PIPELINE, name, text, f"mqbridge pipeline show {name}", since))
    try:
        spools: dict[str, list[str]] = {}
        for name, source, messages in left_by_removed(configuration.pipelines, environment):
            spools.setdefault(name, []).append(f"{counted(messages, 'message')} of {source}")
    except (StatusDamaged, OSError) as error:
        text = f"the spool of a removed pipeline cannot be read: {error}"
        return [*problems, Problem("error", ProblemKind.PIPELINE, "", text, "mqbridge pipeline spool list")]
    for name, spooled in spools.items():
        text = f"the spool of pipeline {name}, which was removed, has {', '.join(spooled)}"
        problems.append(Problem("warning", ProblemKind.PIPELINE, name, text, "mqbridge pipeline spool list"))
    return problems


def _of_discards(name: str, condition: Mapping[str, Any], limits: LimitsConfig) -> Problem:
    """Return the problem of a pipeline that discards dead letters."""
    most = f"limits.dead_letter_bytes is {limits.dead_letter_bytes / MIB:,.1f} MiB"
    why = f"; the last one: {condition['discarded_why']}" if condition["discarded_why"] else ""
    text = (
        f"pipeline {name} has discarded {counted(condition['discarded'], 'message')} that it cannot process, because too many"
        f" dead letters are on the queue, {most}{why}"
    )
    remedy = "Retry the dead letters or delete them: `mqbridge dlq list`."
    command = f"mqbridge pipeline show {name}"
    return Problem("error", ProblemKind.LIMIT, f"pipeline {name}", text, command, condition["discarded_at"], remedy)


#: Verbs for states of a pipeline that processes nothing.
_PIPELINE_STATES: Final = {"killed": "was killed", "given up": "was given up"}


def _of_certificate(subject: str, owner: str, expiry: float, command: str) -> Iterator[Problem]:
    """Yield a problem if a certificate has expired or expires soon. `owner` is its owner, in words."""
    days = (expiry - time.time()) / 86_400
    if days <= SOON:
        date = time.strftime("%Y-%m-%d", time.gmtime(expiry))
        when = f"expired on {date}" if days <= 0 else f"expires on {date}, in {days:.0f} days"
        text, since = f"the certificate of {owner} {when}", expiry if days <= 0 else 0.0
        yield Problem("error" if days <= 0 else "warning", ProblemKind.CERTIFICATE, subject, text, command, since)


def _of_certificates(configuration: Configuration) -> list[Problem]:
    """Return a problem for each certificate of the bridge that has expired or expires soon. Reads files."""
    problems: list[Problem] = []
    for certificate in certificates_in_use(configuration):
        command = f"openssl x509 -in {certificate.file} -noout -enddate"
        if certificate.use == "key_repository":
            command = f"openssl pkcs12 -in {certificate.file} -clcerts -nokeys"
        problems += _of_certificate(
            certificate.owner, f"{certificate.owner}, {certificate.file},", certificate.expiry, command
        )
    return problems
