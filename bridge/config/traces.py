"""Traces: what becomes of single messages, for a collector of OpenTelemetry."""

from typing import Annotated

from bridge.config import values
from bridge.config.section import FilePath, Section, Truth


class TracesConfig(Section):
    """Traces of messages, from their publication to their delivery, which are sent to a collector by OTLP/HTTP."""

    endpoint: Annotated[str, values.url("http", "https")] | None = None
    """The URL that the collector takes spans at: `http://localhost:4318/v1/traces`, say. None: there are no traces."""
    headers_file: FilePath | None = None
    """Headers of the requests, a line `NAME: VALUE` each: by which the bridge shows the collector who it is, say."""
    ca_file: FilePath | None = None
    """Certificates (PEM) of authorities that may have signed the collector's; None: those that Python's requests trusts."""
    sample: Annotated[float, values.number(0, 1)] = 0.01
    """Which part of the messages that come without a trace begin one. A message that comes with one is traced as its
    sender has decided."""
    service_name: Annotated[str, values.text(r"[ -~]{1,100}", "a name of 1 to 100 ASCII characters")] = "mqbridge"
    """What the bridge is called in traces (`service.name`)."""
    names: Truth = True
    """Whether traces name topics, queues and client identifiers."""
    timeout: Annotated[float, values.duration(0.1, 600)] = 10.0
    """Seconds that the collector may take for a request."""
    waiting: Annotated[int, values.integer(1, 1_000_000)] = 2048
    """Spans that may wait for the collector; what would be more is dropped, which the log tells."""
