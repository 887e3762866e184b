"""Operations: the admin port, the archive, the log, the audit log, the history of clients, and traces."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import AuthenticationConfig, each_kind_once
from bridge.config.tls import ListenerTlsConfig
from bridge.config.values import Address, FilePath, Port, SecretPath, Section, Truth, UserName

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

TOKEN_FILE = "admin.tokens"
"""Name of the token file in the data directory of an embedded queue manager."""


CLIENT_HISTORY = "client-history.db"
"""Name of the history of clients in the data directory of an embedded queue manager."""

MAX_REQUESTS = 100
"""Maximum number of requests of all applications in progress. Each has a connection to the admin port."""

ApplicationName = Annotated[
    str,
    values.text(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,19}", "the name of an application: 1 to 20 letters, digits, '.', '_' or '-'"
    ),
]


class ApplicationConfig(Section):
    """An application that publishes and calls devices over HTTP, with the token of its name (right `application`)."""

    mq_user: UserName
    """MQ user of the application. The queue manager checks its authorities, as for an MQTT client."""
    publish_topics: list[Annotated[str, values.topic_filter]] | None = None
    """Topic filters that the application may publish to. None: no restriction."""
    reply_topics: list[Annotated[str, values.topic_filter]] = Field(default=[])
    """Topic filters of the topics that the application may specify as `reply_topic` of a call, for devices that do not know
    Response Topic. Replies to the Response Topic need no entry: it is below `replies/NAME`."""
    publish_rate: Annotated[float, values.number(1)] | None = 100.0
    """Maximum average number of requests per second, with a burst of two seconds. Further requests get status 429. None: no
    limit."""
    requests: Annotated[int, values.integer(1, MAX_REQUESTS)] = 20
    """Maximum number of requests in progress, mainly calls that wait for a reply. Further requests get status 429. All
    applications together have at most 100."""
    call_timeout: Annotated[float, values.duration(0.1, 600)] = 30.0
    """Seconds that a call waits for its reply, unless it asks for less. Then it gets status 504."""
    max_payload: Annotated[int, values.size(1, 64 * values.MIB)] = values.MIB
    """Maximum size of a payload in bytes. A request with a larger one gets status 413."""


class AdminConfig(Section):
    """The admin port: `/metrics`, `/healthz`, `/readyz` and the console."""

    # These precede `address`, whose validator needs them: pydantic validates in the order of definition.
    tls: ListenerTlsConfig | None = None
    """TLS settings. None: no TLS."""
    allow_plain_remote: Truth = False
    """Whether the port may listen on a non-loopback address without TLS, for example behind a proxy that terminates TLS."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on. A non-loopback address requires `tls` or `allow_plain_remote`."""
    port: Port | None = None
    """TCP port. 0: any free port. None: no admin port."""
    token_file: SecretPath | None = None
    """File with the access tokens of people and programs: lines `NAME:RIGHT:TOKEN`, where RIGHT is `read`, `operate`,
    `change` or `application`. None: `admin.tokens` in the data directory of an embedded queue manager, which the bridge
    creates with one token, and no file for a queue manager of IBM MQ."""
    applications: dict[ApplicationName, ApplicationConfig] = Field(default_factory=dict)
    """Applications that publish and call devices over HTTP, by the name of their token."""
    authentication: list[AuthenticationConfig] = Field(default_factory=list)
    """Further authentication methods for the console: the methods of a channel that check a user name and password."""
    administrators: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name without blanks")]] = Field(default=[])
    """Users of `authentication` with the right `change`."""
    operators: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name without blanks")]] = Field(default=[])
    """Users of `authentication` with the right `operate`: they disconnect clients, pause and resume mappings, start channels,
    test and connect links, and retry dead letters. All others can only read."""
    open_metrics: Truth = True
    """Whether `/metrics` is available without a token. The metrics contain no client identifiers and no topics."""
    payloads: Truth = True
    """Whether the console shows message contents to users with the right to read. If false, it shows sizes and headers
    only."""

    @field_validator("applications")
    @classmethod
    def _requests_together(cls, applications: dict[str, ApplicationConfig]) -> dict[str, ApplicationConfig]:
        together = sum(application.requests for application in applications.values())
        if together > MAX_REQUESTS:
            raise values.refusal(
                f"applications with at most {MAX_REQUESTS} `requests` together, not {together} (`requests` is 20 by default)"
            )
        return applications

    @field_validator("authentication")
    @classmethod
    def _methods(cls, methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
        for index, method in enumerate(methods):
            if method.method in ("anonymous", "certificate", "scram"):
                expected = "password, jwt, ldap, queue-manager or plugin (a method that checks user name and password)"
                raise values.refusal(expected, index, "method")
        return each_kind_once(methods)

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        plain = info.data.get("allow_plain_remote") is False and info.data.get("tls", ...) is None
        if plain and not values.is_loopback(address):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because tokens and passwords would be sent without TLS (to"
                " accept other machines, write 'tls: ...', or 'allow_plain_remote: true' in this section)"
            )
        return address


class RollConfig(Section):
    """When the archive starts a new file: when any of the three limits is reached, and at each full hour.

    If the archive process is killed, the rows of its unfinished file are lost, and the archive records the gap. If the bridge
    is killed, the archive process still finishes the file.
    """

    rows: Annotated[int, values.integer(1, 100_000_000)] = 1_000_000
    """Number of rows."""
    size: Annotated[int, values.size(64 * values.KIB, 16 * values.GIB)] = 128 * values.MIB
    """Size of the file in bytes."""
    time: Annotated[float, values.duration(0.01)] = 10.0
    """Seconds since the first row of the file."""


class ArchiveConfig(Section):
    """The archive: one row for each message from a client, to a client, or taken by a mapping, with its outcome.

    A separate process writes it.
    """

    directory: FilePath | None = None
    """Directory of the files `date=YYYY-MM-DD/hour=HH/NAME.parquet` (UTC). None: no archive."""
    payloads: Truth = True
    """Whether rows contain payloads. Without payloads, the archive can be audited, but not replayed."""
    roll: RollConfig = Field(default_factory=RollConfig)
    """When the archive starts a new file."""
    memory: Annotated[int, values.size(values.MIB, 64 * values.GIB)] = 64 * values.MIB
    """Maximum bytes of messages that wait to be written. Further rows are dropped, and the archive records the gap. The
    archive never delays messages."""
    retention_days: Annotated[int, values.integer(1, 36_500)] | None = None
    """Number of days after which files are deleted. None: never."""


class TracesConfig(Section):
    """Traces of messages from publication to delivery, sent to a collector via OTLP/HTTP."""

    endpoint: Annotated[str, values.url("http", "https")] | None = None
    """URL of the collector, for example `http://localhost:4318/v1/traces`. None: no traces."""
    headers_file: SecretPath | None = None
    """File with headers of the requests, one `NAME: VALUE` per line, for example for authentication."""
    ca_file: FilePath | None = None
    """Certificates of the authorities trusted to sign the collector's certificate (PEM). None: those that Python's requests
    package trusts."""
    sample: Annotated[float, values.number(0, 1)] = 0.01
    """Fraction of the messages without a trace context for which the bridge starts a trace. For other messages, the bridge
    follows the sampling decision of the sender."""
    service_name: Annotated[str, values.text(r"[ -~]{1,100}", "a name of 1 to 100 ASCII characters")] = "mqbridge"
    """Name of the bridge in traces (`service.name`)."""
    names: Truth = True
    """Whether traces contain the names of topics and queues, and client identifiers."""
    timeout: Annotated[float, values.duration(0.1, 600)] = 10.0
    """Timeout of a request to the collector, in seconds."""
    waiting: Annotated[int, values.integer(1, 1_000_000)] = 2048
    """Maximum number of spans that wait for the collector. Further spans are dropped, and the log reports them."""

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
            raise values.refusal(
                "a URL without user and password (name a headers_file with an Authorization)", "endpoint"
            )
        if self.headers_file is not None and place.scheme == "http" and not values.is_loopback(place.hostname or ""):
            raise values.refusal("https, because the contents of headers_file would be sent without TLS", "endpoint")
        return self


class LogConfig(Section):
    """The log, written to standard error."""

    level: Annotated[LogLevel, values.choice(LogLevel)] = "info"
    """Minimum severity of log entries."""
    format: Annotated[LogFormat, values.choice(LogFormat)] = "text"
    """`text` for reading, `json` for programs (one object per line)."""
    trace_clients: list[Annotated[str, values.text(r"[^\x00-\x1f]{1,1000}", "a client identifier")]] = Field(default=[])
    """Clients whose connections, subscriptions and publications are logged: client identifiers, where `*` matches any
    characters. At the level `debug`, all clients are traced if the list is empty."""


class AuditLogConfig(Section):
    """The audit log: connections with their users, rejections, and changes."""

    file: FilePath | None = None
    """Path of the file, in JSON Lines format. None: no audit log."""
    size: Annotated[int, values.size(4096, 64 * values.GIB)] = 10 * values.MIB
    """Maximum size of the file in bytes. A full file is renamed (`.1`, `.2` ...), and a new one started."""
    files: Annotated[int, values.integer(2, 1000)] = 10
    """Maximum number of files. The oldest is deleted."""


class ClientHistoryConfig(Section):
    """The history of clients: connections, takeovers, rejections, subscriptions and dropped messages of each client."""

    file: FilePath | None = None
    """Path of the file, an SQLite database that the bridge creates. None: `client-history.db` in the data directory of the
    embedded queue manager, and in memory only for a queue manager of IBM MQ."""
    events_per_client: Annotated[int, values.integer(1, 10_000)] = 100
    """Maximum number of events of one client. The oldest are deleted."""
    events: Annotated[int, values.integer(1_000, 10_000_000)] = 200_000
    """Maximum number of events of all clients together, about 150 bytes each. The oldest are deleted. In addition, the
    history contains up to a tenth of this number of rejected connections."""
    retention: Annotated[float, values.duration(60, 315_360_000)] = 2_592_000.0
    """Seconds after which events are deleted (30 days)."""
