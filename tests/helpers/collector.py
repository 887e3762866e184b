"""An OpenTelemetry collector: a server for OTLP/HTTP, in the test's process or in one that can be stopped."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.helpers.patience import until

_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


class CollectedSpan(msgspec.Struct, frozen=True):
    """A received span: ids in hexadecimal, times in nanoseconds."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    #: "" at the start of the trace
    parent_id: str
    state: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[str]
    #: "" for no error
    error: str
    service: str

    @property
    def traceparent(self) -> str:
        """Return the context of a message from this span."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class Collector:
    """Receive spans at a free port of loopback."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        #: headers of each request
        self.headers: list[dict[str, str]] = []
        #: status instead of 200
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if collector.status == 200 and self.path == "/v1/traces":
                    collector.spans.extend(_spans(body))
                self.send_response(collector.status if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Write nothing to standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def trace(self, topic: str | None, *names: str) -> list[CollectedSpan]:
        """Return a span of each name with this destination, or with such a parent, when all have arrived. Fails if there are
        more.
        """

        def groups() -> dict[str, list[CollectedSpan]]:
            ids = {
                span.span_id
                for span in self.spans
                if topic in (None, span.attributes.get("messaging.destination.name"))
            }
            return {
                name: [
                    span
                    for span in self.spans
                    if _operation(span) == name and (span.span_id in ids or span.parent_id in ids)
                ]
                for name in names
            }

        until(lambda: all(groups().values()), lambda: f"of {names} to {topic}: {self.spans}")
        spans = []
        for group in groups().values():
            (span,) = group
            spans.append(span)
        return spans

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _operation(span: CollectedSpan) -> str:
    """Return the operation of a span, with the name of the mapping for a mapping."""
    operation = span.attributes["messaging.operation.name"]
    return f"mapping {span.attributes['mqbridge.mapping']}" if operation == "map" else str(operation)


def _spans(body: bytes) -> list[CollectedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        CollectedSpan(
            name=span.name,
            kind=_KINDS[span.kind],
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            state=span.trace_state,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes={attribute.key: _value(attribute.value) for attribute in span.attributes},
            events=[event.name for event in span.events],
            error=span.status.message if span.status.code == 2 else "",
            service={attribute.key: _value(attribute.value) for attribute in resource.resource.attributes}[
                "service.name"
            ],
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
