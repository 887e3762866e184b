"""The metrics of a bridge, and their collection for a scrape."""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import bridge
from bridge.administration.answers import BridgeState, ProblemKind
from bridge.administration.histogram import Histogram
from bridge.administration.mapping_status import State
from bridge.compilation import PURE
from bridge.config import Configuration
from bridge.config.mapping import ToMqttMapping
from bridge.mq.backend import Commits
from bridge.mq.host import Host, QueueManagerStatus
from bridge.mq.memory import MemoryWatermark
from bridge.service.administration.parts import Parts
from bridge.service.metrics.catalogue import Samples
from bridge.service.metrics.traffic import Traffic
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.telemetry.session import Session

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
            began = time.perf_counter()
            await asyncio.sleep(_LAG_INTERVAL)
            late = max(time.perf_counter() - began - _LAG_INTERVAL, 0.0)
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
    samples: Samples, found: QueueManagerStatus | None, name: str, transmission_queue: str
) -> None:
    """Add the results of the last inspection of a queue manager."""
    manager = name, _PLATFORM
    samples.add("ibmmq_qmgr_status", _AWAY if found is None else _RUNNING, *manager)
    if found is not None:
        _add(samples, found, manager, transmission_queue)


def _add(samples: Samples, found: QueueManagerStatus, manager: tuple[str, str], transmission_queue: str) -> None:
    for queue in found.queues:
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
    samples.add("mqbridge_queues_left_out", found.left_out)
    if found.retained is not None:
        samples.add("mqbridge_retained_publications", found.retained)
    if found.disk_full is not None:
        samples.add("mqbridge_disk_full", found.disk_full)
    if found.disk_free is not None and found.disk_size is not None:
        samples.add("mqbridge_disk_free_bytes", found.disk_free)
        samples.add("mqbridge_disk_size_bytes", found.disk_size)
    for what, size in found.file_sizes.items():
        samples.add("mqbridge_recovery_log_file_bytes", size, what)


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
        #: (channel, durable, connected) -> number of sessions
        self._sessions: Counter[tuple[str, bool, bool]] = Counter()
        #: metric -> channel -> count
        self._held: dict[str, Counter[str]] = {}

    async def gather(self, samples: Samples, sessions: Mapping[str, Session]) -> None:
        """Add the counts to the samples of a scrape, after counting again if they are too old."""
        async with self._counting:
            if self._counted_at is None or self._clock() - self._counted_at >= _COUNT_INTERVAL:
                await self._count(list(sessions.values()))
                self._counted_at = self._clock()
        for (channel, durable, connected), count in self._sessions.items():
            samples.add("mqbridge_sessions", count, channel, _truth(durable), _truth(connected))
        for name, counts in self._held.items():
            for channel, count in counts.items():
                samples.add(name, count, channel)

    async def _count(self, sessions: list[Session]) -> None:
        found: Counter[tuple[str, bool, bool]] = Counter()
        subscriptions: Counter[str] = Counter()
        in_flight: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        unreleased: Counter[str] = Counter()
        for number, session in enumerate(sessions, 1):
            channel, outbox = session.channel, session.outbox
            found[channel, session.durable, session.connected] += 1
            subscriptions[channel] += len(session.filters) + len(session.shares)
            in_flight[channel] += outbox.in_flight.unfinished
            waiting[channel] += len(outbox.backlog)
            unreleased[channel] += len(session.receiver.identifiers)
            if not number % _AT_A_TURN:
                await asyncio.sleep(0)
        self._sessions = found
        self._held = {
            "mqbridge_subscriptions": subscriptions,
            "mqbridge_in_flight_messages": in_flight,
            "mqbridge_waiting_messages": waiting,
            "mqbridge_unreleased_publications": unreleased,
        }


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

    async def gather(self, state: BridgeState, parts: Parts | None) -> Samples:
        """Return all samples. If `parts` is None (the bridge is starting or standing by), some are missing."""
        samples = Samples()
        build = bridge.__version__, platform.python_version(), "false" if PURE else "true"
        samples.add("mqbridge_build_info", 1, *build)
        for one in BridgeState:
            samples.add("mqbridge_state", one is state, self._configuration.queue_manager.name, one.value)
        samples.add("mqbridge_start_time_seconds", self._started_at)
        self._lag.gather(samples)
        self._gather_commits(samples)
        if self._watch is not None:
            configuration = self._configuration if parts is None else parts.configuration
            name, queue = configuration.queue_manager.name, configuration.transmission_queue
            status = await self._watch.status()
            gather_queue_manager(samples, status, name, queue)
            if status is not None:
                _gather_backlogs(samples, status, configuration)
        if parts is not None:
            samples.add("mqbridge_units_of_work", parts.service.units.under_way)
            self.traffic.gather(samples)
            await self._sessions.gather(samples, parts.service.sessions)
            _gather_memory(samples, parts.host.memory)
            if parts.archive is not None:
                samples.add("mqbridge_archive_lost_rows_total", parts.archive.loss.rows)
            _gather_channels(samples, parts)
            _gather_mappings(samples, parts)
            kinds = Counter(problem.kind for problem in await parts.problems())
            for kind in ProblemKind:
                samples.add("mqbridge_problem", kinds[kind], kind.value)
        return samples

    def _gather_commits(self, samples: Samples) -> None:
        if not self._commits:
            return
        total = Commits()
        for one in self._commits:
            total.add(one)
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
        for state in State:
            samples.add("mqbridge_mapping_state", status.state is state, name, state.value)
        for outcome in ("moved", "filtered", "cut", "dead_lettered"):
            samples.add("mqbridge_mapping_messages_total", getattr(status, outcome), name, outcome)
        samples.add("mqbridge_mapping_commits_total", status.commits, name)
        samples.add("mqbridge_mapping_backouts_total", status.backouts, name)
        blocked = status.blocked
        samples.add("mqbridge_mapping_blocked_queues", len(blocked), name)
        samples.add("mqbridge_mapping_blocked_messages", sum(queue.waiting for queue in blocked), name)
        if status.last_error_at is not None:
            samples.add("mqbridge_mapping_last_error_timestamp_seconds", status.last_error_at, name)
    for name, seconds in parts.mappings.durations():
        samples.add("mqbridge_mapping_unit_of_work_seconds", seconds, name)
    for mapping, link in parts.mappings.links():
        labels = link.name, mapping
        counters = link.counters
        samples.add("mqbridge_link_up", link.up, *labels)
        samples.add("mqbridge_link_reconnects_total", counters.reconnects, *labels)
        samples.add("mqbridge_link_publications_total", counters.received, *labels, "in")
        samples.add("mqbridge_link_publications_total", counters.sent, *labels, "out")
        samples.add("mqbridge_link_publications_refused_total", counters.refused, *labels)
        samples.add("mqbridge_link_in_flight_messages", link.in_flight, *labels)
        samples.add("mqbridge_link_publish_seconds", counters.seconds, *labels)
