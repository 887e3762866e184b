"""Export of spans to a collector via OTLP/HTTP: the part that needs the OpenTelemetry packages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from bridge import __version__
from bridge.config.operations import TracesConfig
from bridge.config.secrets import without_secret_parts
from bridge.service.spans import Span, TraceContext

log = logging.getLogger(__name__)

_SCOPE: Final = InstrumentationScope("mqbridge", __version__)
#: Export interval in seconds, and maximum number of spans per export.
EVERY: Final = 2.0
BATCH: Final = 512


class SpanExport:
    """Exports spans to the collector on a separate thread. Rejected spans are dropped, counted and logged once."""

    def __init__(self, config: TracesConfig, headers: dict[str, str]) -> None:
        assert config.endpoint is not None
        self._most = config.waiting
        self._resource = Resource.create({"service.name": config.service_name, "service.version": __version__})
        exporter = OTLPSpanExporter(
            endpoint=config.endpoint,
            certificate_file=None if config.ca_file is None else str(config.ca_file),
            headers=headers,
            timeout=config.timeout,
        )
        self._exporter = _CountingExporter(exporter, without_secret_parts(config.endpoint))
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=config.waiting,
            schedule_delay_millis=EVERY * 1e3,
            max_export_batch_size=min(BATCH, config.waiting),
        )

    def add(self, span: Span) -> None:
        """Add a span, or drop it if the queue is full."""
        if self._exporter.admit(self._most):
            self._processor.on_end(self._readable(span))

    def close(self, timeout: float) -> None:
        """Export the remaining spans, for at most `timeout` seconds. Blocks: call it on a separate thread."""
        # A daemon thread, so that a hanging collector cannot delay the end of the process.
        ending = threading.Thread(target=self._processor.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(timeout)
        self._exporter.closed()

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(span.context),
            None if span.parent is None else _context(span.parent),
            self._resource,
            span.attributes,
            [Event(name, timestamp=at) for name, at in span.events],
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=_SCOPE,
        )


def _context(context: TraceContext) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(context.trace_id, context.span_id, False, TraceFlags(context.flags), state)


class _LastWords(logging.Handler):
    """Stores the last log message of OpenTelemetry, which the bridge includes in its own, less frequent log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:500]


_WORDS: Final = _LastWords()


class _CountingExporter(SpanExporter):
    """Exports spans, counts waiting and dropped ones, and logs once when the collector rejects spans."""

    def __init__(self, exporter: SpanExporter, collector: str) -> None:
        self._exporter = exporter
        self._collector = collector
        self._lock = threading.Lock()
        self._waiting = 0
        #: number of spans dropped since the failure was logged
        self._dropped = 0
        self._is_reported = False

    def admit(self, most: int) -> bool:
        """Count a span to be queued and return False if `most` are waiting."""
        with self._lock:
            if self._waiting < most:
                self._waiting += 1
                return True
            self._dropped += 1
            self._report("it has not accepted the waiting spans")
            return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            result = SpanExportResult.FAILURE
            _WORDS.last = f"{type(error).__name__}: {error}"
        with self._lock:
            self._waiting -= len(spans)
            if result is not SpanExportResult.SUCCESS:
                self._dropped += len(spans)
                self._report(_WORDS.last or "it does not answer")
            elif self._is_reported:
                log.info(
                    "MQB9302I the collector at %s accepts spans again; %d were dropped", self._collector, self._dropped
                )
                self._is_reported, self._dropped = False, 0
        return result

    def _report(self, why: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.warning(
                "MQB9301W sending spans to the collector at %s failed: %s; dropping spans until it succeeds",
                self._collector,
                why,
            )

    def closed(self) -> None:
        """Log how many spans are lost at the end."""
        with self._lock:
            if count := self._dropped + self._waiting:
                log.warning(
                    "MQB9303W the collector at %s did not accept %d spans before the stop", self._collector, count
                )

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
