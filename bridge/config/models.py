"""The YAML file as typed models: what an operator may set, with meaning, unit, range and default.

`Configuration()` is the configuration of an empty file. The models hold values only: they open no file, resolve no name
and bind no port. Constructing one with a wrong value raises `pydantic.ValidationError`, whose message says what was
expected; `bridge.config.load` raises `ConfigurationError` instead, with the place in the file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from bridge.config import values
from bridge.config.archive import ArchiveConfig
from bridge.config.link import LinkConfig, LinkName
from bridge.config.mapping import AnyMapping, Name
from bridge.config.pipeline import PipelineConfig, PipelineName
from bridge.config.pipeline_flows import flow_clashes
from bridge.config.queue_manager import EmbeddedQueueManagerConfig, ListenerConfig, QueueManagerConfig
from bridge.config.queues import DEFAULT_TRANSMISSION_QUEUE
from bridge.config.references import Clash, link_clashes, pipeline_clashes, queue_clashes
from bridge.config.section import (
    Address,
    ChannelName,
    FilePath,
    ObjectName,
    Port,
    Section,
    Truth,
    UserName,
    without_empty,
)
from bridge.config.spark import SparkConfig

CONTROL_SOCKET = "control.sock"
"""Name of the control socket in the data directory of an embedded queue manager."""

Protocol = Literal["MQTTV5", "MQTTV311", "MQTTV3"]
"""A protocol of a telemetry channel, in the words of MQ's `DEFINE CHANNEL CHLTYPE(MQTT) PROTOCOL(..)`:
MQTTV5 is MQTT 5 (`MQTT`, level 5), MQTTV311 is MQTT 3.1.1 (`MQTT`, level 4), MQTTV3 is MQTT 3.1 (`MQIsdp`, level 3)."""

Reason = Literal[
    "MQRC_MSG_TOO_BIG_FOR_Q",
    "MQRC_MSG_TOO_BIG_FOR_Q_MGR",
    "MQRC_NOT_AUTHORIZED",
    "MQRC_PUBLICATION_FAILURE",
    "MQRC_PUT_INHIBITED",
    "MQRC_Q_FULL",
    "MQRC_Q_SPACE_NOT_AVAILABLE",
    "MQRC_TOPIC_STRING_ERROR",
    "MQRC_UNEXPECTED_ERROR",
]
"""A reason for which the queue manager refuses a publication."""

ByteOrder = Literal["big", "little"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class ChannelConfig(Section):
    """A telemetry channel: a listener for MQTT clients with its rules (MQ's `DEFINE CHANNEL CHLTYPE(MQTT)`)."""

    name: ChannelName = "PLAIN.MQTT"
    """Its name; no two channels share one."""
    # Stands before `address`, whose check asks for it: pydantic validates in the order of definition.
    allow_anonymous_remote: Truth = False
    """Whether the channel may listen where other machines reach it, though it asks its clients for no password."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on; one that other machines reach needs `allow_anonymous_remote`."""
    port: Port = 1883
    """TCP port; 0 takes any free one."""
    protocols: list[Annotated[Protocol, values.choice(Protocol)]] = Field(default=["MQTTV5", "MQTTV311", "MQTTV3"])
    """The protocols that it speaks: at least one, each once (MQ: PROTOCOL)."""
    mcauser: UserName | None = None
    """The user that its clients act as towards the queue manager (MQ: MCAUSER); None: each its own MQTT user name."""
    use_client_id: Truth = False
    """Whether each client acts as the user named like its client identifier (MQ: USECLTID); wins over `mcauser`."""
    byte_order: Annotated[ByteOrder, values.choice(ByteOrder)] = "big"
    """Order of the bytes of 16-bit numbers. MQTT's is `big`; `little` is for clients of the dialect before MQTT 3.1."""
    max_clients: Annotated[int, values.integer(1, 1_000_000)] = 10_000
    """How many clients may be connected at a time; one more is disconnected at once."""
    backlog: Annotated[int, values.integer(1, 65535)] = 4096
    """How many connections may wait to be accepted (MQ: BACKLOG)."""
    connect_timeout: Annotated[float, values.duration(0.001)] = 10.0
    """Seconds that a new connection may take until its CONNECT packet is there."""
    keep_alive: Annotated[int, values.integer(0, 65535)] = 0
    """Longest keep-alive in seconds: a client of MQTT 5 that asks for a longer one, or none, is given this one (Server Keep
    Alive). 0: any."""
    session_expiry: Annotated[float, values.duration(1, 0xFFFFFFFE)] | None = None
    """Seconds that a session outlives its connection, at most. None: what the client asks for, which is for ever before
    MQTT 5."""
    authentication_methods: list[str] = Field(default=[])
    """Methods of enhanced authentication (MQTT 5): names of entry points of the group `mqbridge.authentication_methods`. A
    client that names another method is refused; one that names none is let in as before."""
    refused_to_dead_letters: list[Annotated[Reason, values.choice(Reason)]] = Field(default=[])
    """Reasons for which a publication that the queue manager refuses goes to the dead-letter queue and
    is acknowledged. For any other a client of MQTT 5 gets a reason code; another client is disconnected, and sends the
    publication again when it is back."""
    max_packet_size: Annotated[int, values.size(64, 268_435_455)] = 4 * values.MIB
    """Longest packet that a client may send: its Remaining Length, in bytes (MQTT 3.1.1, section 2.2.3)."""

    @model_validator(mode="before")
    @classmethod
    def _empty_list(cls, data: Any) -> Any:
        return without_empty(data, "protocols", "authentication_methods", "refused_to_dead_letters")

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        # If allow_anonymous_remote is itself wrong it is not in `info.data`: its own error is the one to mend first.
        if not values.is_loopback(address) and info.data.get("allow_anonymous_remote") is False:
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because this channel lets clients in without a"
                " password (to let other machines in nonetheless, write 'allow_anonymous_remote: true' in this channel)"
            )
        return address

    @field_validator("protocols")
    @classmethod
    def _each_once(cls, protocols: list[Protocol]) -> list[Protocol]:
        if not protocols or len(set(protocols)) < len(protocols):
            raise values.refusal("a list of at least one of MQTTV5, MQTTV311 and MQTTV3, each at most once")
        return protocols


class LimitsConfig(Section):
    """What one client may hold up, and how long the bridge waits."""

    in_flight: Annotated[int, values.integer(1, 65535)] = 20
    """Messages sent to one client and not yet acknowledged by it (65535 packet identifiers are all MQTT has)."""
    pending_bytes: Annotated[int, values.size(1, values.GIB)] = values.MIB
    """Bytes written to one client's connection that it has not read; above this the bridge stops sending to it, and
    QoS 0 publications for it are dropped."""
    pending_publications: Annotated[int, values.integer(1, 1_000_000)] = 1000
    """Publications of one client that the queue manager has not yet committed; above this its socket is not read."""
    unreleased: Annotated[int, values.integer(1, 65535)] = 1000
    """QoS 2 publications of one client that it has not released by PUBREL; one that has more is disconnected."""
    subscribe_filters: Annotated[int, values.integer(1, 65535)] = 1000
    """Topic filters in one SUBSCRIBE; those behind them are refused (SUBACK 0x80)."""
    subscriptions: Annotated[int, values.integer(1, 1_000_000)] = 5000
    """Subscriptions of one client; what would be more is refused (SUBACK 0x80)."""
    request_bytes: Annotated[int, values.size(0, values.GIB)] = 262_144
    """What the requests of one client of MQTT 5 take that wait for answers from MQ, about 200 bytes each beside Response
    Topic and Correlation Data, as far as the MQMD cannot hold these; the oldest ones make room. An answer to one of those
    goes to the dead-letter queue (MQRC_UNKNOWN_OBJECT_NAME)."""
    retained_bytes: Annotated[int, values.size(1024, 64 * values.GIB)] = 64 * values.MIB
    """What the retained publications of one client take, about 512 bytes each beside topic string and payload; one that
    would be more is refused (MQRC_Q_SPACE_NOT_AVAILABLE). Of the embedded queue manager only."""
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


class Configuration(Section):
    """The whole file."""

    queue_manager: QueueManagerConfig = Field(default_factory=EmbeddedQueueManagerConfig)
    """The queue manager that the bridge serves."""
    channels: list[ChannelConfig] = Field(default_factory=lambda: [ChannelConfig()])
    """The telemetry channels. By default there is one, PLAIN.MQTT; with an empty list no MQTT client can connect."""
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
    """Unix socket for `mqbridge reload` and `mqbridge mappings`; None: `control.sock` in the data directory of the
    embedded queue manager, and none for a queue manager of IBM MQ."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """What one client may hold up, and how long the bridge waits."""
    archive: ArchiveConfig = Field(default_factory=ArchiveConfig)
    """The archive of what passes."""
    log: LogConfig = Field(default_factory=LogConfig)
    """The log, which goes to standard error."""

    @property
    def control_socket_path(self) -> Path | None:
        """Return the path of the control socket; None where there is none."""
        if self.control_socket is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / CONTROL_SOCKET
        return self.control_socket

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        sections = ("queue_manager", "channels", "links", "mappings", "pipelines", "spark", "limits", "archive", "log")
        return without_empty(data, *sections)

    @model_validator(mode="after")
    def _no_clashes(self) -> Self:
        found = clashes(self.model_dump(by_alias=True, exclude_none=True))
        if found:
            sentences = "; ".join(f"expected {clash.expected}, found {clash.found}" for clash in found)
            raise PydanticCustomError("clash", "{sentences}", {"sentences": sentences})
        return self


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
    found = []
    queue_manager = data.get("queue_manager")
    listener = queue_manager.get("listener") if isinstance(queue_manager, Mapping) else None
    if isinstance(listener, Mapping) and (bound := _endpoint(listener, ListenerConfig())):
        endpoints[bound] = "queue_manager.listener"
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
            expected = "an address and port where nothing else in this file listens"
            found.append(Clash(("channels", index, "port"), expected, again))
    return found + link_clashes(data) + queue_clashes(data) + pipeline_clashes(data) + flow_clashes(data)


def _endpoint(section: Mapping[str, Any], defaults: ListenerConfig | ChannelConfig) -> tuple[str, int] | None:
    """Return address and port where `section` listens.

    Returns None if they are not known, or mean any free port (which clashes with nothing).
    """
    address, port = section.get("address", defaults.address), section.get("port", defaults.port)
    if not isinstance(address, str) or not isinstance(port, int) or port == 0:
        return None
    return values.same_address(address), port
