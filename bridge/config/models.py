"""The YAML file as typed models: what an operator may set, with meaning, unit, range and default.

`Configuration()` is the configuration of an empty file. The models hold values only: they open no file, resolve no name
and bind no port. Constructing one with a wrong value raises `pydantic.ValidationError`, whose message says what was
expected; `bridge.config.load` raises `ConfigurationError` instead, with the place in the file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bridge.config import values
from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, Name
from bridge.config.operations import TOKEN_FILE, AdminConfig, ArchiveConfig, TracesConfig
from bridge.config.pipeline import PipelineConfig, PipelineName, SparkConfig
from bridge.config.pipeline_flows import flow_clashes
from bridge.config.problems import Clash
from bridge.config.queue_manager import (
    DEFAULT_TRANSMISSION_QUEUE,
    EmbeddedQueueManagerConfig,
    ListenerConfig,
    QueueManagerConfig,
)
from bridge.config.references import (
    link_clashes,
    otherwise_clashes,
    pipeline_clashes,
    queue_clashes,
    record_clashes,
)
from bridge.config.values import (
    FilePath,
    ObjectName,
    Section,
    Truth,
    without_empty,
)

PASSWORD_CACHE = "verified-passwords"
"""Name of the password cache in the data directory of an embedded queue manager."""

CONTROL_SOCKET = "control.sock"
"""Name of the control socket in the data directory of an embedded queue manager."""

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
WhenFull = Literal["refuse", "drop-oldest", "dead-letter"]


class LimitsConfig(Section):
    """What one client, one user, one network and all clients together may use, and how long the bridge waits."""

    in_flight: Annotated[int, values.integer(1, 65535)] = 20
    """Messages sent to one client and not yet acknowledged by it (65535 packet identifiers are all MQTT has)."""
    pending_bytes: Annotated[int, values.size(1, values.GIB)] = values.MIB
    """Bytes written to one client's connection that it has not read; above this the bridge stops sending to it, and
    QoS 0 publications for it are dropped."""
    pending_publication_bytes: Annotated[int, values.size(1, values.GIB)] = values.MIB
    """Bytes of the requests of one client that the queue manager has not answered yet. A publication counts its payload,
    1 KiB, and 256 bytes per delivery, a topic filter 1 KiB. Above this limit the bridge stops reading from the client."""
    unreleased: Annotated[int, values.integer(1, 65535)] = 1000
    """QoS 2 publications of one client that it has not released by PUBREL; one that has more is disconnected."""
    subscribe_filters: Annotated[int, values.integer(1, 65535)] = 1000
    """Topic filters in one SUBSCRIBE; those behind them are refused (SUBACK 0x80)."""
    subscriptions: Annotated[int, values.integer(1, 1_000_000)] = 5000
    """Subscriptions of one client, with 10 topic levels each on average. More are rejected (SUBACK 0x97, or 0x80 before
    MQTT 5)."""
    subscriptions_per_user: Annotated[int, values.integer(1, 100_000_000)] = 100_000
    """Subscriptions of all clients of one authenticated user. More are rejected (SUBACK 0x97, or 0x80 before MQTT 5)."""
    subscriptions_total: Annotated[int, values.integer(1, 100_000_000)] = 1_000_000
    """Subscriptions of all clients together. More are rejected in the same way."""
    request_bytes: Annotated[int, values.size(0, values.GIB)] = 262_144
    """What the requests of one client of MQTT 5 take that wait for answers from MQ, about 200 bytes each beside Response
    Topic and Correlation Data, as far as the MQMD cannot hold these; the oldest ones make room. An answer to one of those
    goes to the dead-letter queue (MQRC_UNKNOWN_OBJECT_NAME)."""
    sessions: Annotated[int, values.integer(1, 100_000_000)] = 100_000
    """Sessions, of clients that are connected and of those that are away. A client that would begin one more is rejected
    (CONNACK 3, or 0x97 in MQTT 5). A client that already has a session is always accepted."""
    sessions_per_user: Annotated[int, values.integer(1, 100_000_000)] = 10_000
    """Sessions of one authenticated user. A client that would begin one more is rejected in the same way."""
    sessions_per_network: Annotated[int, values.integer(1, 100_000_000)] = 20_000
    """Sessions begun from one network: an IPv4 address, or a /64 of IPv6. A client that would begin one more is rejected in
    the same way. Clients of Unix sockets are not counted."""
    waiting_bytes: Annotated[int, values.size(1024, 64 * values.GIB)] = 64 * values.MIB
    """Bytes of the messages that wait for one client that is away or does not acknowledge, or for one shared subscription.
    Each message counts with its data and 512 bytes."""
    waiting_full: Annotated[WhenFull, values.choice(WhenFull)] = "dead-letter"
    """What happens to messages beyond `waiting_bytes`. `dead-letter`: new messages go to the dead-letter queue
    (MQRC_Q_SPACE_NOT_AVAILABLE). `drop-oldest`: the oldest messages are dropped, and the log reports how many. `refuse`:
    publications that the client has subscribed to are rejected (MQRC_Q_SPACE_NOT_AVAILABLE), for other subscribers too. Only
    the embedded queue manager can do this. Messages that an application puts straight to the client are always accepted."""
    waiting_total: Annotated[int, values.size(1024, 1024 * values.GIB)] = 256 * values.MIB
    """Bytes of the messages that wait for all clients together, counted in the same way. Above this limit, publications for
    clients with more than an equal share of it are rejected as with `waiting_full: refuse`. Clients that keep up are not
    affected. Embedded queue manager only."""
    retained_bytes: Annotated[int, values.size(1024, 64 * values.GIB)] = 64 * values.MIB
    """Bytes of the retained publications of one MQ user, or of one client identifier if there is no MQ user. Each counts
    with its topic string, payload, properties and 512 bytes. More are rejected (MQRC_Q_SPACE_NOT_AVAILABLE). Embedded queue
    manager only."""
    retained_total: Annotated[int, values.size(1024, 1024 * values.GIB)] = 512 * values.MIB
    """Bytes of the retained publications of all clients together, counted and rejected in the same way. Embedded queue
    manager only."""
    memory_watermark: Annotated[str | int, values.share_or_size(values.MIB, 1024 * values.GIB)] | None = "70%"
    """Memory use of the process above which new messages are rejected (MQRC_STORAGE_NOT_AVAILABLE, 0x97), while waiting ones
    are delivered: a percentage of the available memory, or a size. The available memory is the machine's, or the lowest limit
    of the process's cgroups (of a container, say). None: no watermark."""
    retry_interval: Annotated[float, values.duration(0.001)] = 20.0
    """Seconds until an unacknowledged message is sent again to a connected MQTT 3.1 (`MQIsdp`) client. Clients of 3.1.1
    get theirs again after they reconnect (MQTT 3.1.1, section 4.4)."""
    shutdown_timeout: Annotated[float, values.duration(0)] = 10.0
    """Seconds that a stopping bridge waits for what is under way."""


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


class PasswordCacheConfig(Section):
    """The cache of verified passwords, with which a fleet reconnects quickly after a restart."""

    enabled: Truth = True
    """Whether verified passwords of a password file are kept across restarts. `false`: in memory only."""
    file: FilePath | None = None
    """The file, which the bridge creates with mode 0600. None: `verified-passwords` in the data directory of the embedded
    queue manager, and none (in memory only) for a queue manager of IBM MQ."""


class Configuration(Section):
    """The whole file."""

    queue_manager: QueueManagerConfig = Field(default_factory=EmbeddedQueueManagerConfig)
    """The queue manager that the bridge serves."""
    channels: list[ChannelConfig] = Field(default_factory=lambda: [ChannelConfig()])
    """The telemetry channels. By default there is one, PLAIN.MQTT; with an empty list no MQTT client can connect."""
    channel_authentication: list[ChannelAuthenticationConfig] = Field(default=[])
    """Who may connect by which channel, and as whom, as MQ's SET CHLAUTH says it. Beside these the record holds that IBM MQ
    ships with: no client is a privileged user (BLOCKUSER, *MQADMIN, for all channels)."""
    transmission_queue: ObjectName = DEFAULT_TRANSMISSION_QUEUE
    """The queue where messages for MQTT clients wait: the queue manager's default transmission queue (DEFXMITQ)."""
    links: dict[LinkName, LinkConfig] = Field(default_factory=dict)
    """Connections to MQTT brokers that somebody else runs, by name."""
    mappings: dict[Name, AnyMapping] = Field(default_factory=dict)
    """The mappings by name. A file may name mapping files, or directories of such, instead."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(default_factory=dict)
    """The pipelines by name, which `mqbridge pipeline run` runs on Spark. Files may be named instead, as for mappings."""
    spark: SparkConfig = Field(default_factory=SparkConfig)
    """Spark, on which the pipelines run."""
    control_socket: FilePath | None = None
    """Unix socket by which commands of `mqbridge` reach the running bridge; None: `control.sock` in the data directory of the
    embedded queue manager, and none for a queue manager of IBM MQ."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """What one client, one user, one network and all clients together may use, and how long the bridge waits."""
    password_cache: PasswordCacheConfig = Field(default_factory=PasswordCacheConfig)
    """The cache of verified passwords."""
    archive: ArchiveConfig = Field(default_factory=ArchiveConfig)
    """The archive of what passes."""
    log: LogConfig = Field(default_factory=LogConfig)
    """The log, which goes to standard error."""
    audit_log: AuditLogConfig = Field(default_factory=AuditLogConfig)
    """The audit log."""
    admin: AdminConfig = Field(default_factory=AdminConfig)
    """The admin port: metrics, health and the console."""
    traces: TracesConfig = Field(default_factory=TracesConfig)
    """Traces of messages."""

    @property
    def control_socket_path(self) -> Path | None:
        """Return the path of the control socket; None where there is none."""
        if self.control_socket is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / CONTROL_SOCKET
        return self.control_socket

    @property
    def password_cache_path(self) -> Path | None:
        """Return the path of the password cache; None if verified passwords are cached in memory only."""
        if not self.password_cache.enabled:
            return None
        if self.password_cache.file is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / PASSWORD_CACHE
        return self.password_cache.file

    @property
    def token_file_path(self) -> Path | None:
        """Return the path of the token file of the admin port; None where there is none."""
        if self.admin.token_file is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / TOKEN_FILE
        return self.admin.token_file

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        lists = ("channels", "channel_authentication", "links", "mappings", "pipelines")
        sections = ("spark", "limits", "password_cache", "archive", "log", "audit_log", "admin", "traces")
        return without_empty(data, "queue_manager", *lists, *sections)

    @model_validator(mode="after")
    def _no_clashes(self) -> Self:
        found = clashes(self.model_dump(by_alias=True, exclude_none=True))
        if found:
            sentences = "; ".join(f"expected {clash.expected}, found {clash.found}" for clash in found)
            raise PydanticCustomError("clash", "{sentences}", {"sentences": sentences})
        for mapping in self.mappings.values():
            mapping.resolve(self.mappings)
        return self


_FREE = "an address and port where nothing else in this file listens"


def default_configuration() -> Configuration:
    """Return the configuration of an empty file."""
    return Configuration()


def clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the clashes in `data` (plain values of a file) between parts that are right by themselves.

    They are the channels that share a name, the listeners that share address and port, and the mappings and pipelines
    that do not go with each other, their link or queue manager.

    The function takes plain values rather than models, and passes over what is not of the right type, so that a file
    with other mistakes is told of its clashes at the same time.
    """
    listed = data.get("channels")
    names: dict[str, int] = {}
    endpoints: dict[tuple[str, int], str] = {}
    found: list[Clash] = []
    queue_manager = data.get("queue_manager")
    listener = queue_manager.get("listener") if isinstance(queue_manager, Mapping) else None
    if isinstance(listener, Mapping) and (bound := _endpoint(listener, ListenerConfig())):
        endpoints[bound] = "queue_manager.listener"
    admin = data.get("admin")
    if isinstance(admin, Mapping) and (bound := _endpoint(admin, AdminConfig())):
        if bound in endpoints:
            again = f"{values.endpoint(*bound)} again, where queue_manager.listener listens"
            found.append(Clash(("admin", "port"), _FREE, again))
        endpoints[bound] = "admin"
    for index, channel in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(channel, Mapping):
            continue
        name = channel.get("name", ChannelConfig().name)
        if isinstance(name, str) and names.setdefault(name, index) != index:
            again = f"{name!r} again, which is the name of channels[{names[name]}]"
            found.append(Clash(("channels", index, "name"), "a name that no other channel has", again))
        bound = _endpoint(channel, ChannelConfig())
        owner = f"channels[{index}]"
        if bound and endpoints.setdefault(bound, owner) != owner:
            again = f"{values.endpoint(*bound)} again, where {endpoints[bound]} listens"
            found.append(Clash(("channels", index, "port"), _FREE, again))
    limits, queue_manager = data.get("limits"), data.get("queue_manager")
    refuses = isinstance(limits, Mapping) and limits.get("waiting_full") == "refuse"
    if refuses and isinstance(queue_manager, Mapping) and queue_manager.get("type") == "ibm":
        expected = "drop-oldest or dead-letter, because IBM MQ refuses no publication for this (but for MAXDEPTH)"
        found.append(Clash(("limits", "waiting_full"), expected))
    found += record_clashes(data)
    found += link_clashes(data) + queue_clashes(data) + otherwise_clashes(data)
    return found + pipeline_clashes(data) + flow_clashes(data)


def _endpoint(section: Mapping[str, Any], defaults: ListenerConfig | ChannelConfig | AdminConfig) -> tuple[str, int] | None:
    """Return address and port where `section` listens.

    Returns None if they are not known, or mean any free port (which clashes with nothing).
    """
    address, port = section.get("address", defaults.address), section.get("port", defaults.port)
    if not isinstance(address, str) or not isinstance(port, int) or port == 0:
        return None
    return values.same_address(address), port
