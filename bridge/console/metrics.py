"""Metrics for Prometheus, as text or in the form of OpenMetrics: what the bridge has counted, and its process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bridge.console.bridge_access import BridgeAccess
from bridge.console.health import TURN_TIMEOUT, why_not_ready
from bridge.console.pipeline_metrics import gather_pipelines
from bridge.service.certificates import Certificates
from bridge.service.lifecycle import Bridge
from bridge.service.metrics.catalogue import Distribution, Metric, Samples, Value


class MetricsPage:
    """`/metrics` of one bridge; `may_read` says who may have it."""

    def __init__(self, access: BridgeAccess, may_read: Callable[[Request], Awaitable[bool]]) -> None:
        self._access = access
        self._may_read = may_read
        self._certificates = Certificates()
        # Of the process; not the registry that libraries share.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def answer(self, request: Request) -> Response:
        """Answer a scrape; 503 where the event loop of the bridge does not turn, and nothing can be told."""
        if not await self._may_read(request):
            headers = {"WWW-Authenticate": "Bearer"}
            return PlainTextResponse("a token is needed (admin.open_metrics is false)\n", 401, headers)
        bridge = self._access.bridge
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                samples = await self._access.run(lambda: _gather(bridge))
        except TimeoutError:
            return PlainTextResponse(f"the event loop has not turned for {TURN_TIMEOUT:g} s\n", 503)
        for listener, channel, _, expiry in self._certificates.expiries(bridge.configuration):
            samples.add("mqbridge_certificate_expiry_timestamp_seconds", expiry, listener, channel)
        gather_pipelines(samples, bridge.configuration)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(_Scrape(samples, self._process)), headers={"Content-Type": content_type})


class _Scrape(Collector):
    """One scrape, as the encoders of prometheus_client want it."""

    def __init__(self, samples: Samples, process: CollectorRegistry) -> None:
        self._samples = samples
        self._process = process

    def collect(self) -> Iterator[Family]:
        for metric, values in self._samples:
            yield family_of(metric, values)
        yield from self._process.collect()


def family_of(metric: Metric, values: list[tuple[tuple[str, ...], Value]]) -> Family:
    """Return a metric as prometheus_client has it."""
    if metric.kind == "info":
        info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.meaning)
        for labels, _ in values:
            info.add_metric((), dict(zip(metric.labels, labels, strict=True)))
        return info
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in values:
            assert isinstance(value, Distribution)
            histogram.add_metric(labels, value.buckets, value.sum)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


async def _gather(bridge: Bridge) -> Samples:
    assert bridge.metrics is not None  # it is begun before the admin port
    parts = None if bridge.administration is None else bridge.administration.parts
    samples = await bridge.metrics.gather(bridge.state, parts)
    samples.add("mqbridge_ready", not why_not_ready(bridge))
    return samples
