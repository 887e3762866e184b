"""Health checks, and metrics in the formats of Prometheus and OpenMetrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bridge.administration.answers import BridgeState
from bridge.config.models import Configuration
from bridge.console.bridge_access import BridgeAccess
from bridge.console.pace import Pace
from bridge.security.tls import certificates_in_use
from bridge.service.lifecycle import Bridge
from bridge.service.metric_catalogue import Distribution, Metric, Samples, Value
from bridge.spark.administration import (
    StatusDamaged,
    is_failing,
    left_by_removed,
    read_status,
    runs,
    spooled,
    staged_bytes,
    state_of,
)
from bridge.spark.environment import environment_at_bridge
from bridge.spark.spool_inventory import messages_of

log = logging.getLogger(__name__)

# Health --------------------------------------------------------------------------------------------------------------

#: Authorizes a scrape.
MayRead = Callable[[Request], Awaitable[bool]]
#: Maximum duration of one turn of the event loop, in seconds.
TURN_TIMEOUT = 5.0


async def health(access: BridgeAccess, request: Request) -> Response:
    """Answer 200 if the event loop of the bridge works, otherwise 503, which means that only a restart helps."""
    try:
        async with asyncio.timeout(TURN_TIMEOUT):
            await access.run(_turn)
    except TimeoutError:
        return _answer([f"the event loop has not turned for {TURN_TIMEOUT:g} s"])
    return _answer([])


async def readiness(access: BridgeAccess, may_read: MayRead, request: Request) -> Response:
    """Answer 200 if clients are served, otherwise 503 with the reasons, one per line. A standby bridge is not ready.

    With the right to read metrics, the current problems follow.
    """
    try:
        async with asyncio.timeout(TURN_TIMEOUT):
            reasons, problems = await access.run(lambda: _readiness(access.bridge))
    except TimeoutError:
        return _answer([f"the event loop has not turned for {TURN_TIMEOUT:g} s"])
    return _answer(reasons, problems if problems and await may_read(request) else [])


def _answer(reasons: list[str], problems: Sequence[str] = ()) -> Response:
    lines = [*(reasons or ["ok"]), *(problem for problem in problems if problem not in reasons)]
    return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200, {"Cache-Control": "no-store"})


async def _turn() -> None:
    await asyncio.sleep(0)


async def _readiness(bridge: Bridge) -> tuple[list[str], list[str]]:
    """Return why clients are not served, and the current problems."""
    problems = [] if bridge.problems is None else bridge.problems.latest()
    return why_not_ready(bridge), [problem.what for problem in problems]


def why_not_ready(bridge: Bridge) -> list[str]:
    """Return the reasons why clients are not served. Called on the event loop of the bridge."""
    if bridge.problems is None or bridge.state is not BridgeState.RUNNING:
        return [str(bridge.state)]
    return [problem.what for problem in bridge.problems.not_serving()]


# Metrics -------------------------------------------------------------------------------------------------------------


#: Seconds for which a scrape is reused.
REUSED_FOR: Final = 1.0


class MetricsPage:
    """`/metrics` of one bridge. `may_read` authorizes a scrape.

    While requests have to wait, a scrape is reused for a second.
    """

    def __init__(self, access: BridgeAccess, may_read: MayRead, pace: Pace) -> None:
        self._access = access
        self._may_read = may_read
        self._pace = pace
        #: content type -> time and text of the last scrape
        self._last: dict[str, tuple[float, bytes]] = {}
        # A registry of its own: libraries share the default one.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def answer(self, request: Request) -> Response:
        """Answer a scrape, or 503 if the event loop of the bridge hangs."""
        if not await self._may_read(request):
            headers = {"WWW-Authenticate": "Bearer"}
            return PlainTextResponse("a token is needed (admin.open_metrics is false)\n", 401, headers)
        bridge = self._access.bridge
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        at, text = self._last.get(content_type, (-REUSED_FOR, b""))
        if self._pace.late and time.monotonic() - at < REUSED_FOR:
            return Response(text, headers={"Content-Type": content_type})
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                samples = await self._access.run(lambda: _gather(bridge))
        except TimeoutError:
            return PlainTextResponse(f"the event loop has not turned for {TURN_TIMEOUT:g} s\n", 503)
        for certificate in certificates_in_use(bridge.configuration):
            samples.add(
                "mqbridge_certificate_expiry_timestamp_seconds", certificate.expiry, certificate.use, certificate.name
            )
        gather_pipelines(samples, bridge.configuration)
        text = encode(_Scrape(samples, self._process))
        self._last[content_type] = time.monotonic(), text
        return Response(text, headers={"Content-Type": content_type})


class _Scrape(Collector):
    """One scrape, for the encoders of prometheus_client."""

    def __init__(self, samples: Samples, process: CollectorRegistry) -> None:
        self._samples = samples
        self._process = process

    def collect(self) -> Iterator[Family]:
        for metric, samples in self._samples:
            yield family_of(metric, samples)
        yield from self._process.collect()


def family_of(metric: Metric, samples: list[tuple[tuple[str, ...], Value]]) -> Family:
    """Convert a metric for prometheus_client."""
    if metric.kind == "info":
        info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.meaning)
        for labels, _ in samples:
            info.add_metric((), dict(zip(metric.labels, labels, strict=True)))
        return info
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in samples:
            assert isinstance(value, Distribution)
            histogram.add_metric(labels, value.buckets, value.sum)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


async def _gather(bridge: Bridge) -> Samples:
    assert bridge.metrics is not None  # created before the admin port
    parts = None if bridge.administration is None else bridge.administration.parts
    problems = [] if bridge.problems is None else await bridge.problems.current()
    jumps = 0 if bridge.problems is None else bridge.problems.clock.jumps
    samples = await bridge.metrics.gather(bridge.state, parts, problems)
    samples.add("mqbridge_clock_jumps_total", jumps)
    samples.add("mqbridge_ready", not why_not_ready(bridge))
    return samples


def gather_pipelines(samples: Samples, configuration: Configuration) -> None:
    """Add the status of each configured pipeline from its status file."""
    environment = environment_at_bridge(configuration)
    for name, pipeline in configuration.pipelines.items():
        try:
            directory = environment.directory_of(name, pipeline)
            _gather_pipeline(samples, name, directory)
            samples.add("mqbridge_pipeline_stage_bytes", staged_bytes(directory), name)
            messages, unread = messages_of(spooled(directory), environment.sources_of(name, pipeline))
            samples.add("mqbridge_pipeline_spool_messages", messages, name)
            samples.add("mqbridge_pipeline_unread_messages", unread, name)
        except (OSError, StatusDamaged) as error:
            log.debug("pipeline %s is in no metric: %s", name, error)
    unread_by_name: Counter[str] = Counter()
    with contextlib.suppress(OSError, StatusDamaged):  # in the list of problems
        for name, _, messages in left_by_removed(configuration.pipelines, environment):
            unread_by_name[name] += messages
    for name, messages in unread_by_name.items():
        samples.add("mqbridge_pipeline_unread_messages", messages, name)


def _gather_pipeline(samples: Samples, name: str, directory: Path) -> None:
    status, process = read_status(directory), runs(directory)
    samples.add("mqbridge_pipeline_up", process is not None, name)
    samples.add("mqbridge_pipeline_failing", is_failing(state_of(status, process), status), name)
    if status is None:
        return
    kinds = {"in": status.rows_in, "out": status.rows_out, "dead_letter": status.dead_letters, "late": status.late}
    kinds["discarded"] = status.discarded
    for kind, rows in kinds.items():
        samples.add("mqbridge_pipeline_rows_total", rows, name, kind)
    samples.add("mqbridge_pipeline_batches_total", status.batches, name)
    if status.last_batch is not None:
        samples.add("mqbridge_pipeline_last_batch_timestamp_seconds", status.last_batch.at, name)
        if status.last_batch.waiting is not None:
            samples.add("mqbridge_pipeline_waiting_messages", status.last_batch.waiting, name)
    if status.last_error is not None:
        samples.add("mqbridge_pipeline_last_error_timestamp_seconds", status.last_error.at, name)
