"""The metrics of a bridge: counters derived from the service's events, and their collection for a scrape.

Sessions count publications while they process them (`bridge.telemetry.outbox`): reading them from memory again would cost
more.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Final, get_args

import bridge
from bridge.administration.answers import BridgeState, Problem, ProblemKind
from bridge.administration.mapping_status import RunnerState
from bridge.clock import now_us
from bridge.compilation import PURE
from bridge.config.channel import Reason
from bridge.config.mapping import ToMqttMapping
from bridge.config.models import Configuration
from bridge.histogram import Histogram
from bridge.mapping.table import table_of
from bridge.mq.backend import Commits
from bridge.mq.host import Host, QueueManagerStatus
from bridge.mq.memory import MemoryWatermark, in_bytes
from bridge.mqtt.packets import PacketType
from bridge.mqtt.reason_codes import FAILURE, OF_PACKET
from bridge.service.administration.parts import Parts
from bridge.service.events import (
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    ConnectRejected,
    CredentialsRejected,
    DeadLettered,
    Finished,
    MessagesAbandoned,
    Published,
    Unclaimed,
)
from bridge.service.metric_catalogue import Samples
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.telemetry.outbox import Outgoing
from bridge.telemetry.publication_counts import PublicationCounts
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import put_time_of
from bridge.telemetry.undelivered import EXPIRED, FULL, NOT_ALLOWED, OWN, SLOW, UNDELIVERABLE
from bridge.transport.stream import BY_CLIENT, CONNECTION_LOST, TRANSPORT_ERROR
from bridge.wire import cmqc

#: The label for reasons that are not in REASONS.
OTHER: Final = "other"
#: Reasons for rejected publications, failed units of work and dead-lettered messages.
REASONS: Final = frozenset(
    (
        *get_args(Reason),
        "MQRC_CALL_INTERRUPTED",
        "MQRC_CONNECTION_BROKEN",
        "MQRC_FORMAT_ERROR",
        "MQRC_Q_MGR_NOT_AVAILABLE",
        "MQRC_Q_MGR_STOPPING",
        "MQRC_RESOURCE_PROBLEM",
        "MQRC_STORAGE_NOT_AVAILABLE",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_UNKNOWN_REMOTE_Q_MGR",
    )
)
_REASONS: Final = (*sorted(REASONS), OTHER)
#: Counters by channel and reason -> their reasons.
_BY_CHANNEL: Final = {
    "mqbridge_connects_refused_total": sorted(
        code.name.lower() for code in OF_PACKET[PacketType.CONNACK] if code >= FAILURE
    ),
    "mqbridge_disconnects_total": [
        *sorted(code.name.lower() for code in OF_PACKET[PacketType.DISCONNECT] if code >= FAILURE),
        BY_CLIENT,
        CONNECTION_LOST,
        TRANSPORT_ERROR,
    ],
    "mqbridge_publications_refused_total": _REASONS,
    "mqbridge_units_of_work_failed_total": _REASONS,
}
#: Versions of MQTT by protocol level, which is 0 for a session whose client has not connected yet.
_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5"}


@cache
def reason_label(reason: int) -> str:
    """Return the name of an MQRC, or `other`."""
    name = cmqc.reason_name(reason)
    return name if name in REASONS else OTHER


#: Maximum number of batches per channel, version and direction whose latency is measured between two ticks.
TIMED: Final = 50
_SESSION_ENDED: Final = "its session has ended"
_NO_SESSION: Final = "there is no session"
#: Reasons for not sending a message, and their labels.
_DISCARDED: Final = {
    EXPIRED: "expired",
    SLOW: "slow_client",
    FULL: "waiting_full",
    OWN: "no_local",
    NOT_ALLOWED: "not_authorized",
    UNDELIVERABLE: "undeliverable",
    _SESSION_ENDED: "session_ended",
    _NO_SESSION: "no_session",
}


class ClientCounters:
    """Counters of the clients of one channel and MQTT version. Latencies are in seconds, by QoS."""

    __slots__ = (
        "acknowledgement",
        "clients",
        "connects",
        "counts",
        "deliveries_timed",
        "delivery",
        "put",
        "puts_timed",
        "resent",
    )

    def __init__(self) -> None:
        #: currently connected clients
        self.clients = 0
        #: accepted clients
        self.connects = 0
        #: publications received and sent
        self.counts = PublicationCounts()
        #: PUBLISH with DUP set
        self.resent = 0
        self.put = [Histogram(), Histogram(), Histogram()]
        self.acknowledgement = [Histogram(), Histogram(), Histogram()]
        self.delivery = [Histogram(), Histogram(), Histogram()]
        #: batches whose latency was measured since the last tick
        self.puts_timed = 0
        self.deliveries_timed = 0


class Traffic:
    """The counters of one telemetry service. Methods are called on its event loop. `clock` is that of the service."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: seconds by which the time of day is ahead of the clock
        self._offset = time.time() - clock()
        #: by channel and protocol level
        self.clients: dict[tuple[str, int], ClientCounters] = {}
        #: by metric and labels. Counters with known labels start at zero, so that the first message is an increase.
        self._counts: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        self._counts["mqbridge_dead_letters_total"].update(dict.fromkeys(product(("in", "out"), _REASONS), 0))
        self._counts["mqbridge_messages_discarded_total"].update(dict.fromkeys(zip(_DISCARDED.values()), 0))

    def totals(self) -> tuple[int, int]:
        """Return the number of messages published by clients, and delivered to clients."""
        published = delivered = 0
        for traffic in self.clients.values():
            published += sum(messages for messages, _ in traffic.counts.received())
            delivered += sum(messages for messages, _ in traffic.counts.sent())
        return published, delivered

    def tick(self) -> None:
        """Allow more latency measurements, and correct the offset of the time of day. Called twice a second."""
        self._offset = time.time() - self._clock()
        for traffic in self.clients.values():
            traffic.puts_timed = traffic.deliveries_timed = 0

    def of(self, session: Session) -> ClientCounters:
        """Return the counters for a session's channel and MQTT version."""
        key = session.channel, session.level
        traffic = self.clients.get(key)
        if traffic is None:
            traffic = self.clients[key] = ClientCounters()
        return traffic

    # Messages --------------------------------------------------------------------------------------------------------

    def published(self, event: Published) -> None:
        """Count a client's publications after the end of their unit of work."""
        channel, completion = event.session.channel, event.completion
        if completion.failure:
            self._count("mqbridge_units_of_work_failed_total", channel, reason_label(completion.failure))
            return
        traffic = self.of(event.session)
        if traffic.puts_timed < TIMED:
            traffic.puts_timed += 1
            qos: int = event.publications[0][0].qos
            traffic.put[qos].observe((now_us() - event.received_at) / 1e6)
        if completion.refusals:
            for reason in completion.refusals.values():
                self._count("mqbridge_publications_refused_total", channel, reason_label(reason))
        if completion.diverted:
            for reason in completion.diverted.values():
                self._count("mqbridge_dead_letters_total", "in", reason_label(reason))

    def acknowledged(self, event: Acknowledged) -> None:
        """Measure the latency of messages that a client acknowledged."""
        session, effects = event.session, event.effects
        if session.outbox.resent:
            self._resent(session)
        traffic = self.of(session)
        if traffic.deliveries_timed >= TIMED:
            return
        traffic.deliveries_timed += 1
        outgoing: Outgoing | None
        if effects.acknowledged:
            packet_id, transmission = effects.acknowledged[0]
            outgoing = session.outbox.in_flight.deliveries.get(packet_id)
        else:
            _, outgoing, transmission = effects.released[0]
        if outgoing is None:
            return
        received = effects.received_at / 1e6
        traffic.acknowledgement[outgoing.qos].observe(received - self._offset - outgoing.sent_at)
        put_time = put_time_of(transmission)
        if put_time:
            traffic.delivery[outgoing.qos].observe(received - put_time)

    def finished(self, event: Finished) -> None:
        """Count messages that need no acknowledgement. Discarded ones were not sent."""
        transmissions, discarded = event.transmissions, event.discarded
        traffic = self.of(event.session)
        traffic.counts.sent_0 += len(transmissions) - len(discarded)
        if discarded:
            for why in discarded.values():
                self._count("mqbridge_messages_discarded_total", _DISCARDED[why])
            return
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            put_time = put_time_of(transmissions[0])
            if put_time:
                traffic.delivery[0].observe(time.time() - put_time)

    def _abandoned(self, event: MessagesAbandoned) -> None:
        self._count("mqbridge_messages_discarded_total", _DISCARDED[_SESSION_ENDED], by=len(event.transmissions))

    def _unclaimed(self, event: Unclaimed) -> None:
        self._count("mqbridge_messages_discarded_total", _DISCARDED[event.reason or _NO_SESSION])

    def _dead_lettered(self, event: DeadLettered) -> None:
        self._count("mqbridge_dead_letters_total", "out", reason_label(event.reason))

    def _count(self, name: str, *labels: str, by: int = 1) -> None:
        self._counts[name][labels] += by

    def _resent(self, session: Session) -> None:
        self.of(session).resent += session.outbox.resent
        session.outbox.resent = 0

    # Clients ---------------------------------------------------------------------------------------------------------

    def _connect_rejected(self, event: ConnectRejected) -> None:
        self._count("mqbridge_connects_refused_total", event.channel, event.reason.name.lower())
        if event.by_owner:
            self._count("mqbridge_sessions_refused_total", event.channel)

    def _authentication_failed(self, event: CredentialsRejected) -> None:
        self._count("mqbridge_authentications_failed_total", event.channel)

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        traffic = self.of(session)
        session.counts = session.outbox.counts = traffic.counts
        traffic.clients += 1
        traffic.connects += 1

    def _disconnected(self, event: ClientDisconnected) -> None:
        self.of(event.session).clients -= 1
        self._count("mqbridge_disconnects_total", event.session.channel, event.reason)
        self._resent(event.session)

    # Samples ---------------------------------------------------------------------------------------------------------

    def gather(self, samples: Samples, channels: Iterable[str] = ()) -> None:
        """Add the counts to the samples of a scrape. The counts of `channels` begin at zero."""
        for name in channels:
            self._begin(name)
        for (channel, level), traffic in self.clients.items():
            _gather_clients(samples, traffic, (channel, _VERSIONS.get(level, "unknown")))
        for name, counts in self._counts.items():
            for labels, count in counts.items():
                samples.add(name, count, *labels)

    def _begin(self, channel: str) -> None:
        for level in _VERSIONS:
            self.clients.setdefault((channel, level), ClientCounters())
        for name, reasons in _BY_CHANNEL.items():
            for reason in reasons:
                self._counts[name].setdefault((channel, reason), 0)
        for name in ("mqbridge_authentications_failed_total", "mqbridge_sessions_refused_total"):
            self._counts[name].setdefault((channel,), 0)


def _gather_clients(samples: Samples, traffic: ClientCounters, labels: tuple[str, str]) -> None:
    samples.add("mqbridge_clients", traffic.clients, *labels)
    samples.add("mqbridge_connects_total", traffic.connects, *labels)
    samples.add("mqbridge_messages_resent_total", traffic.resent, *labels)
    for qos in (0, 1, 2):
        for direction, counts in (("in", traffic.counts.received()), ("out", traffic.counts.sent())):
            messages, size = counts[qos]
            samples.add("mqbridge_publications_total", messages, *labels, str(qos), direction)
            samples.add("mqbridge_publication_bytes_total", size, *labels, str(qos), direction)
        for step, histogram in (
            ("put", traffic.put[qos]),
            ("acknowledgement", traffic.acknowledgement[qos]),
            ("delivery", traffic.delivery[qos]),
        ):
            if histogram.count:
                samples.add(f"mqbridge_{step}_seconds", histogram, *labels, str(qos))


#: Seconds between measurements, and the number of measurements for the maximum (those of one minute).
_LAG_INTERVAL: Final = 0.5
_REMEMBERED: Final = 120


class EventLoopLag:
    """Measures the lag of the running event loop."""

    def __init__(self, tick: Callable[[], None]) -> None:
        """Start measuring. `tick` is called at each measurement."""
        self._tick = tick
        self._lag = Histogram()
        self._last: deque[float] = deque(maxlen=_REMEMBERED)
        self._task = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(_LAG_INTERVAL)
            late = max(time.perf_counter() - start - _LAG_INTERVAL, 0.0)
            self._lag.observe(late)
            self._last.append(late)
            self._tick()

    def gather(self, samples: Samples) -> None:
        """Add the measurements to the samples of a scrape."""
        samples.add("mqbridge_event_loop_lag_seconds", self._lag)
        samples.add("mqbridge_event_loop_lag_max_seconds", max(self._last, default=0.0))

    def stop(self) -> None:
        """Stop measuring."""
        self._task.cancel()


#: MQQMSTA_RUNNING, and the value for a queue manager that does not answer.
_RUNNING: Final = 2
_AWAY: Final = 0
#: As in mq-metric-samples for a queue manager on Linux.
_PLATFORM: Final = "UNIX"


def gather_queue_manager(
    samples: Samples, status: QueueManagerStatus | None, name: str, transmission_queue: str
) -> None:
    """Add the results of the last inspection of a queue manager."""
    manager = name, _PLATFORM
    samples.add("ibmmq_qmgr_status", _AWAY if status is None else _RUNNING, *manager)
    if status is not None:
        _add(samples, status, manager, transmission_queue)


def _add(samples: Samples, status: QueueManagerStatus, manager: tuple[str, str], transmission_queue: str) -> None:
    for queue in status.queues:
        labels = (*manager, queue.name, "XMITQ" if queue.transmission else "NORMAL")
        age = queue.oldest_message_age if queue.depth else 0.0
        samples.add("ibmmq_queue_depth", queue.depth, *labels)
        samples.add("ibmmq_queue_attribute_max_depth", queue.max_depth, *labels)
        samples.add("ibmmq_queue_input_handles", queue.input_handles, *labels)
        samples.add("ibmmq_queue_output_handles", queue.output_handles, *labels)
        if age is not None:
            samples.add("ibmmq_queue_oldest_message_age", age, *labels)
        if queue.name != transmission_queue:
            continue
        samples.add("mqbridge_transmission_queue_depth", queue.depth)
        samples.add("mqbridge_transmission_queue_max_depth", queue.max_depth)
        if age is not None:
            samples.add("mqbridge_transmission_queue_oldest_message_age_seconds", age)
    samples.add("mqbridge_queues_left_out", status.left_out)
    if status.retained is not None:
        samples.add("mqbridge_retained_publications", status.retained)
    if status.disk_full is not None:
        samples.add("mqbridge_disk_full", status.disk_full)
    if status.witness_failing is not None:
        samples.add("mqbridge_witness_failing", status.witness_failing)
    if status.disk_free is not None and status.disk_size is not None:
        samples.add("mqbridge_disk_free_bytes", status.disk_free)
        samples.add("mqbridge_disk_size_bytes", status.disk_size)
    for kind, size in status.file_sizes.items():
        samples.add("mqbridge_recovery_log_file_bytes", size, kind)


#: Number of sessions processed per turn of the event loop.
_AT_A_TURN: Final = 500
#: Seconds for which a count is reused.
_COUNT_INTERVAL: Final = 10.0


class SessionCount:
    """Cached counts of sessions and their contents. Methods are called on the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counted_at: float | None = None
        self._counting = asyncio.Lock()
        #: metric -> labels -> count
        self._counts: dict[str, Counter[tuple[str, ...]]] = {}

    async def gather(self, samples: Samples, sessions: Mapping[str, Session]) -> None:
        """Add the counts to the samples of a scrape, after counting again if they are too old."""
        async with self._counting:
            if self._counted_at is None or self._clock() - self._counted_at >= _COUNT_INTERVAL:
                await self._count(list(sessions.values()))
                self._counted_at = self._clock()
        for name, counts in self._counts.items():
            for labels, count in counts.items():
                samples.add(name, count, *labels)

    async def _count(self, sessions: list[Session]) -> None:
        counts: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        for number, session in enumerate(sessions, 1):
            channel, outbox = session.channel, session.outbox
            counts["mqbridge_sessions"][channel, _truth(session.durable), _truth(session.connected)] += 1
            counts["mqbridge_subscriptions"][channel,] += len(session.filters) + len(session.shares)
            counts["mqbridge_in_flight_messages"][channel,] += outbox.in_flight.unfinished
            counts["mqbridge_waiting_messages"][channel,] += len(outbox.backlog)
            counts["mqbridge_unremoved_messages"][channel,] += outbox.unremoved
            counts["mqbridge_unreleased_publications"][channel,] += len(session.receiver.identifiers)
            if not number % _AT_A_TURN:
                await asyncio.sleep(0)
        self._counts = counts


def _truth(value: bool) -> str:
    return "true" if value else "false"


class Metrics:
    """The metrics of one bridge. Methods are called on its event loop."""

    def __init__(self, configuration: Configuration, started_at: float, loop_time: Callable[[], float]) -> None:
        self._configuration = configuration
        self._started_at = started_at
        self.traffic = Traffic(loop_time)
        self._sessions = SessionCount(loop_time)
        self._lag = EventLoopLag(self.traffic.tick)
        self._commits: Sequence[Commits] = ()
        self._watch: QueueManagerWatch | None = None

    def begin(self, host: Host, watch: QueueManagerWatch) -> None:
        """Start counting the commits of a host's queue manager."""
        self._commits = host.backend.count_commits()
        self._watch = watch
        watch.ages = True

    def stop(self) -> None:
        """Stop measuring."""
        self._lag.stop()

    async def gather(self, state: BridgeState, parts: Parts | None, problems: Iterable[Problem]) -> Samples:
        """Return all samples. If `parts` is None (the bridge is starting or standing by), some are missing."""
        samples = Samples()
        build = bridge.__version__, platform.python_version(), "false" if PURE else "true"
        samples.add("mqbridge_build_info", 1, *build)
        shard = self._configuration.shard
        samples.add("mqbridge_shard_info", 1, *(("0", "1") if shard is None else (str(shard.number), str(shard.of))))
        for bridge_state in BridgeState:
            samples.add(
                "mqbridge_state", bridge_state is state, self._configuration.queue_manager.name, bridge_state.value
            )
        samples.add("mqbridge_start_time_seconds", self._started_at)
        self._lag.gather(samples)
        self._gather_commits(samples)
        kinds = Counter(problem.kind for problem in problems)
        for kind in ProblemKind:
            samples.add("mqbridge_problem", kinds[kind], kind.value)
        if self._watch is not None:
            configuration = self._configuration if parts is None else parts.configuration
            name, queue = configuration.queue_manager.name, configuration.transmission_queue
            status = await self._watch.status()
            gather_queue_manager(samples, status, name, queue)
            if status is not None:
                _gather_backlogs(samples, status, configuration)
        if parts is not None:
            samples.add("mqbridge_units_of_work", parts.service.units.under_way)
            removal_limit = parts.service.delivery.applied_removal_limit
            if removal_limit is not None:
                samples.add("mqbridge_removal_limit", removal_limit)
            self.traffic.gather(samples, [config.name for config in parts.channels.configs])
            await self._sessions.gather(samples, parts.service.sessions)
            _gather_memory(samples, parts.host.memory)
            if parts.host.rejected_logins is not None:
                samples.add("mqbridge_queue_manager_logins_rejected_total", parts.host.rejected_logins)
            if parts.archive is not None:
                samples.add("mqbridge_archive_lost_rows_total", parts.archive.loss.rows)
                samples.add("mqbridge_archive_files_missing", bool(parts.archive.loss.files))
            if (history := parts.service.journal.history) is not None:
                samples.add("mqbridge_client_history_lost_events_total", history.loss.events)
            _gather_channels(samples, parts)
            _gather_mappings(samples, parts)
            _gather_limits(samples, parts, None if self._watch is None else self._watch.latest)
        return samples

    def _gather_commits(self, samples: Samples) -> None:
        if not self._commits:
            return
        total = Commits()
        for commits in self._commits:
            total.add(commits)
        samples.add("mqbridge_commit_seconds", total.seconds)
        samples.add("mqbridge_commits_failed_total", total.failures)
        samples.add("mqbridge_committed_units_of_work_total", total.units)
        if self._configuration.queue_manager.type == "embedded":
            samples.add("mqbridge_recovery_log_written_bytes_total", total.size)


def _gather_memory(samples: Samples, memory: MemoryWatermark) -> None:
    samples.add("mqbridge_memory_used_bytes", memory.used)
    if memory.watermark is not None:
        samples.add("mqbridge_memory_watermark_bytes", memory.watermark)
    samples.add("mqbridge_memory_above_watermark", memory.above)
    samples.add("mqbridge_memory_rejected_messages_total", memory.rejected)


def _gather_limits(samples: Samples, parts: Parts, status: QueueManagerStatus | None) -> None:
    for name, config in parts.table_files.tables.items():
        table = table_of(config)
        samples.add("mqbridge_table_rows", len(table), name)
        samples.add("mqbridge_table_read_timestamp_seconds", table.read_at, name)
        samples.add("mqbridge_table_failures_total", parts.table_files.files[name].failures, name)
    for labels, number in parts.service.payload_schemas.counts.items():
        samples.add("mqbridge_invalid_publications_total", number, *labels)
    for limit, number in parts.service.limit_hits.totals().items():
        samples.add("mqbridge_limit_reached_total", number, limit)
    for application in parts.applications:
        samples.add("mqbridge_application_requests_in_progress", application.in_progress, application.name)
        for outcome, number in application.counts.items():
            samples.add("mqbridge_application_requests_total", number, application.name, outcome)
    backlogs, room = parts.service.delivery.backlog_limits, parts.host.dead_letter_room
    totals = [("waiting_total", backlogs.bytes, backlogs.total_bytes)]
    totals.append(("dead_letter_total", room.total, room.total_bytes))
    if status is not None and status.retained_bytes is not None:
        totals.append(("retained_total", status.retained_bytes, in_bytes(parts.service.limits.retained_total)))
    for limit, used, value in totals:
        samples.add("mqbridge_limit_used_bytes", used, limit)
        samples.add("mqbridge_limit_bytes", value, limit)


def _gather_channels(samples: Samples, parts: Parts) -> None:
    for config in parts.channels.configs:
        channel = parts.channels.get(config.name)
        samples.add("mqbridge_channel_up", channel is not None, config.name)
        if channel is not None:
            samples.add("mqbridge_connections", len(channel.connections), config.name)
            samples.add("mqbridge_connections_refused_total", channel.refused, config.name)
            samples.add("mqbridge_handshakes_failed_total", channel.handshakes_failed, config.name)


def _gather_backlogs(samples: Samples, status: QueueManagerStatus, configuration: Configuration) -> None:
    depths = {queue.name: queue.depth for queue in status.queues}
    for name, mapping in configuration.mappings.items():
        if isinstance(mapping, ToMqttMapping) and mapping.source.queue in depths:
            samples.add("mqbridge_mapping_backlog_messages", depths[mapping.source.queue], name)


def _gather_mappings(samples: Samples, parts: Parts) -> None:
    for status in parts.mappings.statuses():
        name = status.name
        for state in RunnerState:
            samples.add("mqbridge_mapping_state", status.state is state, name, state.value)
        for outcome in ("moved", "filtered", "cut", "dead_lettered"):
            samples.add("mqbridge_mapping_messages_total", getattr(status, outcome), name, outcome)
        samples.add("mqbridge_mapping_messages_total", sum(status.discarded.values()), name, "discarded")
        samples.add("mqbridge_mapping_messages_total", sum(status.left_out.values()), name, "left_out")
        for why, number in list(status.left_out.items()):
            samples.add("mqbridge_mapping_left_out_total", number, name, why)
        samples.add("mqbridge_mapping_parts_total", status.parts, name)
        for reason, number in list(status.discarded.items()):
            samples.add("mqbridge_mapping_discarded_total", number, name, reason)
        samples.add("mqbridge_mapping_commits_total", status.commits, name)
        samples.add("mqbridge_mapping_backouts_total", status.backouts, name)
        samples.add(
            "mqbridge_mapping_unfinished_messages", sum(session.messages for session in status.unfinished), name
        )
        blocked = status.blocked
        samples.add("mqbridge_mapping_blocked_queues", len(blocked), name)
        samples.add("mqbridge_mapping_blocked_messages", sum(queue.waiting for queue in blocked), name)
        if status.last_error_at is not None:
            samples.add("mqbridge_mapping_last_error_timestamp_seconds", status.last_error_at, name)
    for name, seconds in parts.mappings.durations():
        samples.add("mqbridge_mapping_unit_of_work_seconds", seconds, name)
    brokers: dict[str, float] = {}
    for mapping, link in parts.mappings.links():
        if link.certificate_expiry is not None:
            brokers[link.name] = link.certificate_expiry
        labels = link.name, mapping
        counters = link.counters
        samples.add("mqbridge_link_up", link.up, *labels)
        samples.add("mqbridge_link_reconnects_total", counters.reconnects, *labels)
        samples.add("mqbridge_link_publications_total", counters.received, *labels, "in")
        samples.add("mqbridge_link_publications_total", counters.sent, *labels, "out")
        samples.add("mqbridge_link_publications_refused_total", counters.refused, *labels)
        samples.add("mqbridge_link_in_flight_messages", link.in_flight, *labels)
        samples.add("mqbridge_link_publish_seconds", counters.seconds, *labels)
    for name, expiry in brokers.items():
        samples.add("mqbridge_certificate_expiry_timestamp_seconds", expiry, "broker", name)
