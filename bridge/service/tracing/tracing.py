"""The traces of one bridge: what hears of messages, and the way to the collector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bridge.config.traces import TracesConfig
from bridge.extras import install
from bridge.service.tracing.deliveries import DeliveryTraces
from bridge.service.tracing.mappings import MappingTraces
from bridge.service.tracing.publications import PublicationTraces
from bridge.service.tracing.span import Spans

#: Seconds that the end of the bridge waits for the collector.
CLOSE_TIMEOUT = 3.0


class TracesError(Exception):
    """There can be no traces; words for a person."""


class Export(Spans, Protocol):
    """Takes spans to a collector."""

    def close(self, timeout: float) -> None:
        """Have sent what waits, for at most so many seconds."""


class Tracing:
    """Traces messages of clients and mappings; `clock` is the service's."""

    def __init__(self, config: TracesConfig, export: Export, clock: Callable[[], float]) -> None:
        self._config = config
        self._export = export
        self.publications = PublicationTraces(export, config.sample, names=config.names)
        self.deliveries = DeliveryTraces(export, clock, names=config.names)

    def mapping(self, name: str) -> MappingTraces:
        """Return what traces a mapping, for its thread."""
        return MappingTraces(name, self._export, self._config.sample, names=self._config.names)

    def close(self) -> None:
        """Have sent what waits. It blocks for a while: call it in a thread of its own."""
        self._export.close(CLOSE_TIMEOUT)


def tracing_of(config: TracesConfig, clock: Callable[[], float]) -> Tracing | None:
    """Return the traces that a configuration asks for; None for none. Raises TracesError."""
    if config.endpoint is None:
        return None
    headers = {} if config.headers_file is None else _headers(config.headers_file)
    # Imported only where there are traces.
    try:
        from bridge.service.tracing.export import SpanExport
    except ImportError as error:
        raise TracesError(
            f"traces: {error}; `{install('otel')}` brings what they need"
        ) from error
    try:
        return Tracing(config, SpanExport(config, headers), clock)
    except OSError as error:
        raise TracesError(f"traces: {error}") from error


def _headers(file: Path) -> dict[str, str]:
    """Read the headers file: lines NAME: VALUE; those that are empty or begin with # are passed over. Raises TracesError."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TracesError(f"traces.headers_file {file}: {getattr(error, 'strerror', None) or error}") from error
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not value.strip() or not line.isprintable():
            # The line itself is a secret.
            raise TracesError(f"traces.headers_file {file}, line {number}: expected NAME: VALUE")
        headers[name.strip()] = value.strip()
    return headers
