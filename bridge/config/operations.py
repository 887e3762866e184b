"""Operating the bridge: the admin port, the archive, the log, the audit log, and traces."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import AuthenticationConfig, each_kind_once
from bridge.config.tls import ListenerTlsConfig
from bridge.config.values import Address, FilePath, Port, Section, Truth, without_empty

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

TOKEN_FILE = "admin.tokens"
"""Name of the token file in the data directory of an embedded queue manager."""


class AdminConfig(Section):
    """The admin port: `/metrics`, `/healthz`, `/readyz` and the console."""

    # These stand before `address`, whose check asks for them: pydantic validates in the order of definition.
    tls: ListenerTlsConfig | None = None
    """TLS; None: none."""
    allow_plain_remote: Truth = False
    """Whether it may listen without TLS where other machines reach it: behind a proxy that ends TLS, say."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on; one that other machines reach needs `tls`, or `allow_plain_remote`."""
    port: Port | None = None
    """TCP port; 0 takes any free one. None: there is no admin port."""
    token_file: FilePath | None = None
    """Tokens by which people and programs show who they are: lines `NAME:RIGHT:TOKEN`, where RIGHT is `read` or `change`.
    None: `admin.tokens` in the data directory of an embedded queue manager, which the bridge makes with one token in it; and
    none for a queue manager of IBM MQ."""
    authentication: list[AuthenticationConfig] = Field(default_factory=list)
    """How users show who they are to the console, beside tokens: methods of a channel that judge user name and password."""
    administrators: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name without blanks")]] = Field(default=[])
    """Users of `authentication` that may change something; the others may read."""
    open_metrics: Truth = True
    """Whether `/metrics` is for everybody who reaches the port; else for who has a token. It names no client and no topic."""
    payloads: Truth = True
    """Whether the console shows what is in messages, to who may read. False: sizes and headers only."""

    @model_validator(mode="before")
    @classmethod
    def _empty_lists(cls, data: Any) -> Any:
        return without_empty(data, "authentication", "administrators")

    @field_validator("authentication")
    @classmethod
    def _methods(cls, methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
        for index, one in enumerate(methods):
            if one.method in ("anonymous", "certificate", "scram"):
                expected = "password, jwt, ldap, queue-manager or plugin (a method that judges user name and password)"
                raise values.refusal(expected, index, "method")
        return each_kind_once(methods)

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        plain = info.data.get("allow_plain_remote") is False and info.data.get("tls", ...) is None
        if plain and not values.is_loopback(address):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because tokens and passwords would travel without TLS (to"
                " let other machines in, write 'tls: ...', or 'allow_plain_remote: true' in this section)"
            )
        return address


class RollConfig(Section):
    """When a file of the archive is finished and the next one begun: at the first of the three, and at each full hour.

    Rows that are in no finished file are lost when the archive's process is killed, and the archive says so. When the bridge
    itself is killed, its archive's process finishes the file.
    """

    rows: Annotated[int, values.integer(1, 100_000_000)] = 1_000_000
    """Rows."""
    size: Annotated[int, values.size(64 * values.KIB, 16 * values.GIB)] = 128 * values.MIB
    """Bytes of the file."""
    time: Annotated[float, values.duration(0.01)] = 10.0
    """Seconds since its first row."""


class ArchiveConfig(Section):
    """The archive: a row for each message that came from a client, went to one, or was taken by a mapping.

    The row says what became of the message. A process of its own writes it.
    """

    directory: FilePath | None = None
    """Where its files are: `date=YYYY-MM-DD/hour=HH/NAME.parquet`, in UTC; None: no archive is written."""
    payloads: Truth = True
    """Whether the payloads are in it. Without them it can be audited, and no message can be replayed from it."""
    roll: RollConfig = Field(default_factory=RollConfig)
    """When a file is finished."""
    memory: Annotated[int, values.size(values.MIB, 64 * values.GIB)] = 64 * values.MIB
    """Bytes of messages that may wait to be written. What does not fit is missing in the archive, which says so; the
    messages themselves are never held up."""
    retention_days: Annotated[int, values.integer(1, 36_500)] | None = None
    """After how many days files are removed; None: never."""

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        return without_empty(data, "roll")


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


class LogConfig(Section):
    """The log, which goes to standard error."""

    level: Annotated[LogLevel, values.choice(LogLevel)] = "info"
    """The least severe entries that are written."""
    format: Annotated[LogFormat, values.choice(LogFormat)] = "text"
    """`text` for people, `json` for programs: one object to a line."""


class AuditLogConfig(Section):
    """The audit log: who came, as whom, what was refused and changed."""

    file: FilePath | None = None
    """The file, of JSON lines; None: none."""
    size: Annotated[int, values.size(4096, 64 * values.GIB)] = 10 * values.MIB
    """Bytes of the file, at most; then it is renamed (`.1`, `.2` ...) and another begun."""
    files: Annotated[int, values.integer(2, 1000)] = 10
    """How many of them there are, at most; the oldest is removed."""
