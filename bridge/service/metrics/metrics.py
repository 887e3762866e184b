"""All that a running bridge counts, and how it is gathered when somebody asks."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Sequence

import bridge
from bridge.administration.answers import BridgeState, ProblemKind
from bridge.compilation import PURE
from bridge.config import Configuration
from bridge.mq.backend import Commits
from bridge.mq.host import Host
from bridge.mq.memory import MemoryWatermark
from bridge.service.administration.parts import Parts
from bridge.service.administration.problems import problems
from bridge.service.mappings.status import State
from bridge.service.metrics.event_loop import EventLoopLag
from bridge.service.metrics.queue_manager import gather_queue_manager
from bridge.service.metrics.samples import Samples
from bridge.service.metrics.sessions import SessionCount
from bridge.service.metrics.traffic import Traffic
from bridge.service.queue_manager_watch import QueueManagerWatch


class Metrics:
    """The metrics of one bridge. Everything is called on its event loop."""

    def __init__(self, configuration: Configuration, started_at: float, loop_time: Callable[[], float]) -> None:
        self._configuration = configuration
        self._started_at = started_at
        self.traffic = Traffic(loop_time)
        self._sessions = SessionCount(loop_time)
        self._lag = EventLoopLag(self.traffic.tick)
        self._commits: Sequence[Commits] = ()
        self._watch: QueueManagerWatch | None = None

    def begin(self, host: Host, watch: QueueManagerWatch) -> None:
        """Count what the queue manager of a host commits, too."""
        self._commits = host.backend.count_commits()
        self._watch = watch
        watch.ages = True

    def stop(self) -> None:
        """End."""
        self._lag.stop()

    async def gather(self, state: BridgeState, parts: Parts | None) -> Samples:
        """Return all there is to say; of a bridge that has not all its parts yet, what it has."""
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
            gather_queue_manager(samples, await self._watch.status(), name, queue)
        if parts is not None:
            samples.add("mqbridge_units_of_work", parts.service.units.under_way)
            self.traffic.gather(samples)
            await self._sessions.gather(samples, parts.service.sessions)
            _gather_memory(samples, parts.host.memory)
            _gather_channels(samples, parts)
            _gather_mappings(samples, parts)
            kinds = Counter(problem.kind for problem in await problems(parts))
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
    for mapping, link in parts.mappings.links():
        labels = link.name, mapping
        counters = link.counters
        samples.add("mqbridge_link_up", link.up, *labels)
        samples.add("mqbridge_link_reconnects_total", counters.reconnects, *labels)
        samples.add("mqbridge_link_publications_total", counters.received, *labels, "in")
        samples.add("mqbridge_link_publications_total", counters.sent, *labels, "out")
        samples.add("mqbridge_link_publications_refused_total", counters.refused, *labels)
