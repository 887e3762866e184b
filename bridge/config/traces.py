"""Traces: what becomes of single messages, for a collector of OpenTelemetry."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import model_validator

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

    @model_validator(mode="after")
    def _no_secret_in_the_clear(self) -> Self:
        if self.endpoint is None:
            return self
        try:
            place = urlsplit(self.endpoint)
            usable = bool(place.hostname) and place.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise values.refusal("a URL with a host and its port, such as http://127.0.0.1:4318/v1/traces", "endpoint")
        if "@" in place.netloc:
            raise values.refusal("a URL without user and password (name a headers_file with an Authorization)", "endpoint")
        if self.headers_file is not None and place.scheme == "http" and not values.is_loopback(place.hostname or ""):
            raise values.refusal("https, because what is in headers_file would travel without TLS", "endpoint")
        return self
