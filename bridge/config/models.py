"""Typed models of the YAML file: the options with their meaning, unit, range and default.

`Configuration()` is the configuration of an empty file. The models only contain values: they do not open files, resolve
names or bind ports. An invalid value raises `pydantic.ValidationError`, whose message states the expected value.
`bridge.config.document.load` raises `ConfigurationError` instead, with the position in the file.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from bridge.config import values
from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.link import LOCAL, MAPPING_PLACE, LinkConfig, LinkName, broker_host
from bridge.config.mapping import (
    AnyMapping,
    ConfiguredNames,
    FilterConfig,
    Name,
    PublishTopics,
    ToMqMapping,
    ToMqttMapping,
)
from bridge.config.operations import (
    CLIENT_HISTORY,
    TOKEN_FILE,
    AdminConfig,
    ArchiveConfig,
    AuditLogConfig,
    ClientHistoryConfig,
    LogConfig,
    TracesConfig,
)
from bridge.config.pipeline import PipelineConfig, PipelineDestination, PipelineName, PipelineSource, SparkConfig
from bridge.config.problems import Clash, Location, suggestion
from bridge.config.queue_manager import (
    DEFAULT_TRANSMISSION_QUEUE,
    MAPPING_STATE_QUEUE,
    SET_ASIDE_QUEUE,
    BridgeQueues,
    EmbeddedQueueManagerConfig,
    IbmQueueManagerConfig,
    QueueManagerConfig,
    ShardConfig,
)
from bridge.config.table import LookupTableName, TableConfig
from bridge.config.values import FilePath, ObjectName, SecretPath, Section, Truth

PASSWORD_CACHE = "verified-passwords"
"""Name of the password cache in the data directory of an embedded queue manager."""

PIPELINES = "pipelines"
"""Name of the directory of pipelines in the data directory of an embedded queue manager."""

CONTROL_SOCKET = "control.sock"
"""Name of the control socket in the data directory of an embedded queue manager."""

WhenFull = Literal["dead-letter", "end-session", "drop-oldest", "refuse"]


class LimitsConfig(Section):
    """Limits per client, per user, per network and for all clients together, and timeouts."""

    in_flight: Annotated[int, values.integer(1, 65535)] = 20
    """Maximum number of unacknowledged messages sent to one client (MQTT has 65535 packet identifiers)."""
    removal_backlog: Annotated[int, values.integer(1, 1_000_000)] = 500
    """Maximum number of messages sent to one client that are still on the transmission queue: messages without an
    acknowledgement, and acknowledged messages whose removal is not committed. Above this limit, the bridge stops sending to
    the client. After a crash, at most this number of messages with QoS 0 or 1 are delivered to the client again. While
    removals take longer than a second, the bridge uses a lower limit, at least 8. IBM MQ only:
    the embedded queue manager removes messages as fast as clients acknowledge them."""
    pending_bytes: Annotated[int, values.size(1, values.GIB)] = values.MIB
    """Maximum number of bytes written to one client's connection that the client has not read. Above this limit, the bridge
    stops sending to the client and drops its QoS 0 publications."""
    pending_publication_bytes: Annotated[int, values.size(1, values.GIB)] = values.MIB
    """Maximum number of bytes in the requests of one client that the queue manager has not answered yet. A publication counts
    as its payload, 1 KiB, and 256 bytes per delivery, a topic filter as 1 KiB. Above this limit, the bridge stops reading
    from the client."""
    unreleased: Annotated[int, values.integer(1, 65535)] = 1000
    """Maximum number of QoS 2 publications of one client for which it has not sent PUBREL. A client that exceeds it is
    disconnected."""
    subscribe_filters: Annotated[int, values.integer(1, 65535)] = 1000
    """Maximum number of topic filters in one SUBSCRIBE. Further filters are rejected (SUBACK 0x97, or 0x80 before MQTT 5)."""
    subscriptions: Annotated[int, values.integer(1, 1_000_000)] = 5000
    """Maximum number of subscriptions of one client, with 10 topic levels each on average. More are rejected (SUBACK 0x97, or
    0x80 before MQTT 5)."""
    subscriptions_per_user: Annotated[int, values.integer(1, 100_000_000)] = 100_000
    """Maximum number of subscriptions of all clients of one authenticated user. More are rejected (SUBACK 0x97, or 0x80
    before MQTT 5)."""
    subscriptions_total: Annotated[int, values.integer(1, 100_000_000)] = 1_000_000
    """Maximum number of subscriptions of all clients together. More are rejected in the same way."""
    request_bytes: Annotated[int, values.size(0, values.GIB)] = 262_144
    """Maximum number of bytes for the requests of one MQTT 5 client that wait for answers from MQ: about 200 bytes for each
    request, plus the parts of its Response Topic and Correlation Data that do not fit into the MQMD. Above this limit, the
    oldest requests are discarded. Their answers go to the dead-letter queue (MQRC_UNKNOWN_OBJECT_NAME)."""
    sessions: Annotated[int, values.integer(1, 100_000_000)] = 100_000
    """Maximum number of sessions, of connected and of disconnected clients. A client that would start one more is rejected
    (CONNACK 3, or 0x97 in MQTT 5). A client that already has a session is always accepted."""
    sessions_per_user: Annotated[int, values.integer(1, 100_000_000)] = 10_000
    """Maximum number of sessions of one authenticated user. A client that would start one more is rejected in the same
    way."""
    sessions_per_network: Annotated[int, values.integer(1, 100_000_000)] = 20_000
    """Maximum number of sessions started from one network: an IPv4 address, or an IPv6 /64. A client that would start one
    more is rejected in the same way. Clients of Unix sockets are not counted."""
    waiting_bytes: Annotated[int, values.size(1024, 64 * values.GIB)] = 64 * values.MIB
    """Maximum number of bytes in the backlog of one client that is away or does not acknowledge, or of one shared
    subscription. Each message counts as its payload, topic and properties and 600 bytes. Beyond it, `waiting_full` applies to
    the messages that arrive for this client. On the embedded queue manager, it also limits the backlog of a mapping that
    reads a topic. Beyond it, publications with QoS 1 and 2 are rejected (MQRC_Q_SPACE_NOT_AVAILABLE), first those of the
    publishers that publish most. Other publications do not reach the mapping."""
    waiting_full: Annotated[WhenFull, values.choice(WhenFull)] = "dead-letter"
    """What happens to messages that arrive beyond `waiting_bytes` or `waiting_total`. Messages that wait stay, and other
    clients are not affected, except with `refuse`. `dead-letter`: non-persistent messages are discarded, persistent ones go
    to the dead-letter queue (MQRC_Q_SPACE_NOT_AVAILABLE) up to `dead_letter_bytes` and `dead_letter_total`, and then the
    session ends. `end-session`: non-persistent messages are discarded, and the first persistent one ends the session. The
    client still receives the waiting messages. Then the bridge closes its connection (DISCONNECT 0x97 in MQTT 5), and its
    next CONNACK has Session Present 0. `drop-oldest`: the oldest messages are dropped, although their publishers received an
    acknowledgement. `refuse`: publications that the client has subscribed to are rejected (MQRC_Q_SPACE_NOT_AVAILABLE), so
    one slow client stops the publishers of all others. Embedded queue manager only. Messages that an application puts
    directly to the client are then always accepted."""
    waiting_total: Annotated[str | int, values.share_or_size(1024, 1024 * values.GIB)] = "25%"
    """Maximum number of bytes in the backlogs of all clients together, counted in the same way: a percentage of the available
    memory (see `memory_watermark`), or a size. Beyond it, `waiting_full` applies to clients with more than an equal share of
    it. Clients that keep up are not affected. So does a transmission queue that is filled to 80 % of MAXDEPTH, with equal
    shares of the number of messages."""
    dead_letter_bytes: Annotated[int, values.size(0, 64 * values.GIB)] = 16 * values.MIB
    """Maximum number of bytes of one client, shared subscription, mapping or pipeline on the dead-letter queue. Each message
    counts as its data and 1,600 bytes. Messages that this bridge did not put there do not count. Beyond it, see
    `waiting_full` for clients and `dead_letters_full` of a mapping or pipeline."""
    dead_letter_total: Annotated[str | int, values.share_or_size(1024, 1024 * values.GIB)] = "10%"
    """Maximum number of bytes of all clients, mappings and pipelines on the dead-letter queue, counted in the same way: a
    percentage of the available memory, or a size."""
    retained_bytes: Annotated[int, values.size(1024, 64 * values.GIB)] = 64 * values.MIB
    """Maximum number of bytes in the retained publications of one MQ user, or of one client identifier if there is no MQ
    user. Each counts as its topic string, payload, properties and 1,080 bytes. More are rejected
    (MQRC_Q_SPACE_NOT_AVAILABLE). Embedded queue manager only."""
    retained_total: Annotated[str | int, values.share_or_size(1024, 1024 * values.GIB)] = "15%"
    """Maximum number of bytes in the retained publications of all clients together, counted and rejected in the same way: a
    percentage of the available memory, or a size. Embedded queue manager only."""
    memory_watermark: Annotated[str | int, values.share_or_size(values.MIB, 1024 * values.GIB)] | None = "70%"
    """Memory use of the process above which new messages are rejected (MQRC_STORAGE_NOT_AVAILABLE, 0x97), while waiting
    messages are still delivered: a percentage of the available memory, or a size. The available memory is the machine's, or
    the lowest limit of the process's cgroups (for example of a container). None: no watermark."""
    retry_interval: Annotated[float, values.duration(0.001)] = 20.0
    """Seconds after which an unacknowledged message is sent again to a connected MQTT 3.1 (`MQIsdp`) client. The bridge sends
    unacknowledged messages to MQTT 3.1.1 clients again after they reconnect (MQTT 3.1.1, section 4.4)."""
    shutdown_timeout: Annotated[float, values.duration(0)] = 10.0
    """Seconds that a stopping bridge waits for work in progress."""
    will_grace: Annotated[float, values.duration(0)] = 0.0
    """Seconds after a start in which clients may reconnect before their wills are published. A stopping bridge then records
    the wills of the clients that it disconnects. 0: a stopping bridge publishes them."""


class PasswordCacheConfig(Section):
    """The cache of verified passwords. It lets many clients reconnect quickly after a restart."""

    enabled: Truth = True
    """Whether verified passwords of a password file are kept across restarts. `false`: in memory only."""
    file: SecretPath | None = None
    """Path of the cache, which the bridge creates with mode 0600. None: `verified-passwords` in the data directory of the
    embedded queue manager, and in memory only for a queue manager of IBM MQ."""


class ConfigurationOrigin:
    """The origins of the values of a configuration. All origins are equal, so that configurations compare by their values."""

    def __init__(
        self,
        file: Path | None = None,
        places: Mapping[Location, str] = MappingProxyType({}),
        notes: Sequence[str] = (),
    ) -> None:
        self.file = file
        self.places = places
        self.notes = notes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigurationOrigin)

    def __hash__(self) -> int:
        return 0


class Configuration(Section):
    """The whole file."""

    queue_manager: QueueManagerConfig = Field(default_factory=EmbeddedQueueManagerConfig)
    """The queue manager that the bridge serves."""
    channels: list[ChannelConfig] = Field(default_factory=lambda: [ChannelConfig()])
    """The telemetry channels. The default is one channel, PLAIN.MQTT. With an empty list, no MQTT client can connect."""
    channel_authentication: list[ChannelAuthenticationConfig] = Field(default=[])
    """Channel authentication records (MQ: SET CHLAUTH): which clients may connect via which channel, and as which user. The
    default record of IBM MQ always applies as well: it blocks privileged users (BLOCKUSER, *MQADMIN) on all channels."""
    common_transmission_queue: ObjectName = Field(default=DEFAULT_TRANSMISSION_QUEUE, alias="transmission_queue")
    """Queue for messages that wait for MQTT clients: the queue manager's default transmission queue (DEFXMITQ). With
    `queue_manager.shard`, each shard has a queue of this name and `.NUMBER`."""
    links: dict[LinkName, LinkConfig] = Field(default_factory=dict)
    """Connections to external MQTT brokers, by name."""
    mappings: dict[Name, AnyMapping] = Field(default_factory=dict)
    """Mappings by name, or a list of mapping files or directories of such files."""
    tables: dict[LookupTableName, TableConfig] = Field(default_factory=dict)
    """Tables by name, which mappings look up: `{devices[$.id].site}` in templates, `devices[payload.id].site` in
    expressions. A changed file is noticed within seconds."""
    pipelines: dict[PipelineName, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name, which `mqbridge pipeline run` runs on Spark, or a list of files, as for mappings."""
    spark: SparkConfig = Field(default_factory=SparkConfig)
    """The Spark that runs the pipelines."""
    control_socket: FilePath | None = None
    """Unix socket for commands of `mqbridge` to the running bridge. None: `control.sock` in the data directory of the
    embedded queue manager, and no socket for a queue manager of IBM MQ."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """Limits per client, per user, per network and for all clients together, and timeouts."""
    password_cache: PasswordCacheConfig = Field(default_factory=PasswordCacheConfig)
    """The cache of verified passwords."""
    archive: ArchiveConfig = Field(default_factory=ArchiveConfig)
    """The archive of messages."""
    log: LogConfig = Field(default_factory=LogConfig)
    """The log, written to standard error."""
    audit_log: AuditLogConfig = Field(default_factory=AuditLogConfig)
    """The audit log."""
    client_history: ClientHistoryConfig = Field(default_factory=ClientHistoryConfig)
    """The history of clients."""
    admin: AdminConfig = Field(default_factory=AdminConfig)
    """The admin port: metrics, health and the console."""
    traces: TracesConfig = Field(default_factory=TracesConfig)
    """Traces of messages."""

    @property
    def shard(self) -> ShardConfig | None:
        """The part of the clients that this bridge serves. None: all clients."""
        return self.queue_manager.shard if isinstance(self.queue_manager, IbmQueueManagerConfig) else None

    @property
    def queues(self) -> BridgeQueues:
        """The queues that only the active bridge uses. Those of a shard have its number as a suffix."""
        common = self.common_transmission_queue
        queues = BridgeQueues(common, common_transmission=common)
        if self.shard is None:
            return queues
        transmission, state, lock, _ = (f"{name}.{self.shard.number}" for name in queues)
        return BridgeQueues(transmission, state, lock, common)

    @property
    def transmission_queue(self) -> str:
        """The queue for messages that wait for the clients of this bridge."""
        return self.queues.transmission

    _origin: ConfigurationOrigin = PrivateAttr(default_factory=ConfigurationOrigin)

    @property
    def file(self) -> Path | None:
        """The file that the configuration was loaded from. None: defaults only."""
        return self._origin.file

    @property
    def places(self) -> Mapping[Location, str]:
        """Location of a value -> its place, such as `bridge.yaml:7`, or the option of the command line that set it."""
        return self._origin.places

    @property
    def notes(self) -> Sequence[str]:
        """Lines about keys of the files that are valid, but have no effect."""
        return self._origin.notes

    def locate(self, file: Path | None, places: Mapping[Location, str], notes: Sequence[str] = ()) -> None:
        """Set the file, the places of the values, and the notes about the files."""
        self._origin = ConfigurationOrigin(file, places, notes)

    @property
    def control_socket_path(self) -> Path | None:
        """Path of the control socket. None: no control socket."""
        if self.control_socket is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / CONTROL_SOCKET
        return self.control_socket

    @property
    def password_cache_path(self) -> Path | None:
        """Path of the password cache. None: verified passwords are cached in memory only."""
        if not self.password_cache.enabled:
            return None
        if self.password_cache.file is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / PASSWORD_CACHE
        return self.password_cache.file

    @property
    def client_history_path(self) -> Path | None:
        """Path of the history of clients. None: in memory only."""
        if self.client_history.file is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / CLIENT_HISTORY
        return self.client_history.file

    @property
    def token_file_path(self) -> Path | None:
        """Path of the token file of the admin port. None: no token file."""
        if self.admin.token_file is None and isinstance(self.queue_manager, EmbeddedQueueManagerConfig):
            return self.queue_manager.data_directory / TOKEN_FILE
        return self.admin.token_file

    @model_validator(mode="after")
    def _no_clashes(self, info: ValidationInfo) -> Self:
        if info.context and info.context.get("parts"):  # `load` reports the clashes of the valid parts of a file
            for mapping in self.mappings.values():
                mapping.use_tables_of(self.tables)
            return self
        if conflicts := clashes(self):
            sentences = "; ".join(f"expected {clash.expected}, found {clash.found}" for clash in conflicts)
            raise PydanticCustomError("clash", "{sentences}", {"sentences": sentences, "clashes": conflicts})
        names = self._names
        for mapping in self.mappings.values():
            mapping.resolve(self.mappings, names, self.tables)
        for pipeline in self.pipelines.values():
            pipeline.resolve(names)
        for channel in self.channels:
            channel.read_schemas()
        return self

    def use_tables(self, running: Mapping[str, TableConfig]) -> None:
        """Replace tables by the running ones with the same file and key, which then use the rows that were read for these."""
        for name, table in running.items():
            if self.tables.get(name) == table:
                table.use(self.tables[name].content.rows)
                self.tables[name] = table
        for mapping in self.mappings.values():
            mapping.use_tables(self.tables)

    @property
    def _names(self) -> ConfiguredNames:
        queue_manager = self.queue_manager
        queues = {*BridgeQueues(self.common_transmission_queue), *self.queues, MAPPING_STATE_QUEUE}
        queue_managers, users = {queue_manager.name}, set[str]()
        if isinstance(queue_manager, IbmQueueManagerConfig):
            queues.add(queue_manager.dead_letter_queue)
            if queue_manager.user is not None:
                users.add(queue_manager.user)
        for mapping in self.mappings.values():
            end = mapping.destination if isinstance(mapping, ToMqMapping) else mapping.source
            if end.requests_queue is not None:
                queues.add(end.requests_queue)
            if isinstance(mapping, ToMqMapping):
                names = mapping.destination.queue_manager, mapping.attributes.reply_to_queue_manager
                queue_managers.update(name for name in names if name is not None and "{" not in name)
        channels = tuple(
            PublishTopics((*channel.publish_topics,), channel.mcauser, channel.use_client_id)
            for channel in self.channels
            if channel.publish_topics is not None
        )
        mapped = frozenset(record.mcauser for record in self.channel_authentication if record.mcauser is not None)
        return ConfiguredNames(
            frozenset(queues), frozenset(queue_managers), frozenset(users), channels=channels, mapped_users=mapped
        )


def default_configuration() -> Configuration:
    """Return the configuration of an empty file."""
    return Configuration()


# Clashes ---------------------------------------------------------------------------------------------------------------

Names = Mapping[str, Collection[str]]
"""Section -> names that the file has in it, including those of invalid parts."""

_FREE = "an address and port where nothing else in this file listens"
_OF_MQTT_5 = ("expiry", "response_topic", "correlation_data", "content_type", "properties")


def clashes(configuration: Configuration, wrong: Names | None = None) -> list[Clash]:
    """Return the conflicts between valid parts of a configuration.

    These are channels with the same name, listeners with the same address and port, and mappings and pipelines that conflict
    with each other, their link or the queue manager. `wrong` contains the names of invalid parts, which the configuration
    lacks. A reference to one of them is not a clash.
    """
    wrong = wrong or {}
    return [
        *_listener_clashes(configuration),
        *_limit_clashes(configuration),
        *_record_clashes(configuration),
        *_link_clashes(configuration, wrong),
        *_shard_clashes(configuration),
        *_queue_clashes(configuration),
        *_otherwise_clashes(configuration, wrong),
        *_pipeline_clashes(configuration, wrong),
        *_flow_clashes(configuration),
    ]


def _listener_clashes(configuration: Configuration) -> Iterator[Clash]:
    queue_manager, admin = configuration.queue_manager, configuration.admin
    endpoints: dict[tuple[str, int], str] = {}
    listener = queue_manager.listener if isinstance(queue_manager, EmbeddedQueueManagerConfig) else None
    if listener is not None and listener.port:
        endpoints[values.same_address(listener.address), listener.port] = "queue_manager.listener"
    if admin.port:
        bound = values.same_address(admin.address), admin.port
        if endpoints.setdefault(bound, "admin") != "admin":
            again = f"{values.endpoint(*bound)} again, where queue_manager.listener listens"
            yield Clash(("admin", "port"), _FREE, again)
        endpoints[bound] = "admin"
    names: dict[str, int] = {}
    for index, channel in enumerate(configuration.channels):
        if names.setdefault(channel.name, index) != index:
            again = f"{channel.name!r} again, which is the name of channels[{names[channel.name]}]"
            yield Clash(("channels", index, "name"), "a name that no other channel has", again)
        bound, owner = (values.same_address(channel.address), channel.port), f"channels[{index}]"
        if channel.port and endpoints.setdefault(bound, owner) != owner:
            again = f"{values.endpoint(*bound)} again, where {endpoints[bound]} listens"
            yield Clash(("channels", index, "port"), _FREE, again)


def _limit_clashes(configuration: Configuration) -> Iterator[Clash]:
    if configuration.limits.waiting_full == "refuse" and configuration.queue_manager.type == "ibm":
        expected = (
            "dead-letter, end-session or drop-oldest, because IBM MQ refuses no publication for this (but for MAXDEPTH)"
        )
        yield Clash(("limits", "waiting_full"), expected)


def _record_clashes(configuration: Configuration) -> Iterator[Clash]:
    """Yield a clash for each channel authentication record that selects the same clients as an earlier one."""
    indexes: dict[tuple[str, ...], int] = {}
    for index, record in enumerate(configuration.channel_authentication):
        if indexes.setdefault(record.key, index) != index:
            again = f"{record.type} again, as in channel_authentication[{indexes[record.key]}]"
            expected = "a record that is for others than the one before it"
            yield Clash(("channel_authentication", index, "type"), expected, again)


def _link_clashes(configuration: Configuration, wrong: Names) -> Iterator[Clash]:
    """Yield the clashes of mappings with their links."""
    links = configuration.links
    sessions: dict[tuple[str, int, str], str] = {}
    for name, mapping in configuration.mappings.items():
        side, end = ("from", mapping.source) if isinstance(mapping, ToMqMapping) else ("to", mapping.destination)
        place: Location = ("mappings", name, side, "link")
        if end.link not in links:
            yield from _unknown_link(place, end.link, links, wrong)
            continue
        session = _session(links[end.link], links[end.link].client_id, name)
        if sessions.setdefault(session, name) != name:
            again = f"{session[-1]!r} again, with which mapping {sessions[session]} connects to the same broker"
            expected = f"a link whose client_id is another for each mapping (write {MAPPING_PLACE} into it)"
            yield Clash(place, expected, again)
        yield from _unfit(name, mapping, end.link, links[end.link])


def _unknown_link(place: Location, name: str, links: Mapping[str, LinkConfig], wrong: Names) -> Iterator[Clash]:
    if name == LOCAL or name in wrong.get("links", ()):
        return
    expectation = "there is none under links:, and local are the bridge's own clients"
    if links:
        expectation = suggestion(name, links) or f"{values.listing([*links, LOCAL], 'or')}"
    yield Clash(place, f"the name of a link ({expectation})")


def _unfit(name: str, mapping: AnyMapping, link_name: str, link: LinkConfig) -> Iterator[Clash]:
    """Yield a clash for each requirement of a mapping that its link does not meet."""
    place: Location = ("mappings", name)
    if mapping.guarantee == "exactly-once" and link.session != "durable":
        yield Clash(
            (*place, "guarantee"), f"at-least-once or at-most-once, because link {link_name} has no durable session"
        )
    if isinstance(mapping, ToMqMapping):
        return
    qos, place = mapping.attributes.qos, (*place, "attributes")
    where = (*place, "qos") if isinstance(qos, int) else (*place, "qos", "persistent")
    if mapping.guarantee == "exactly-once" and (qos if isinstance(qos, int) else qos["persistent"]) < 2:
        yield Clash(where, f"2, because guarantee exactly-once needs QoS 2 on link {link_name}")
    for key in _OF_MQTT_5 if link.version == "3.1.1" else ():
        if getattr(mapping.attributes, key) not in (None, {}, "as-published", "unlimited"):
            yield Clash((*place, key), f"none, because link {link_name} is MQTT 3.1.1, which has no such thing")


def _shard_clashes(configuration: Configuration) -> Iterator[Clash]:
    """Yield a clash for each mapping of a shard that does not exist."""
    for name, mapping in configuration.mappings.items():
        if configuration.shard is None and mapping.shard:
            yield Clash(("mappings", name, "shard"), "0, because the clients are not divided (queue_manager.shard)")
        elif configuration.shard is not None and mapping.shard >= configuration.shard.of:
            last = configuration.shard.of - 1
            yield Clash(("mappings", name, "shard"), f"a shard from 0 to {last} (queue_manager.shard.of)")


def _queue_clashes(configuration: Configuration) -> Iterator[Clash]:
    """Yield a clash for each mapping that uses a reserved or already used queue.

    Mappings cannot use the bridge's own queues. Only one enabled mapping can take from a queue, because it opens the queue
    for exclusive input.
    """
    own = {
        configuration.queues.state: "which stores the sessions of its clients",
        MAPPING_STATE_QUEUE: "which stores the progress of mappings",
        SET_ASIDE_QUEUE: "which stores dead letters that a mapping could not process",
        configuration.transmission_queue: "which stores messages for its clients",
    }
    takers: dict[str, str] = {}
    for name, mapping in configuration.mappings.items():
        side, end = ("to", mapping.destination) if isinstance(mapping, ToMqMapping) else ("from", mapping.source)
        # A queue with that name at another queue manager is not the bridge's.
        if getattr(end, "queue_manager", None) is None:
            for key in ("queue", "requests_queue"):
                if (queue := getattr(end, key)) in own:
                    queue_and_use = f"{queue!r}, {own[queue]}"
                    yield Clash(
                        ("mappings", name, side, key), "a queue that the bridge does not use itself", queue_and_use
                    )
        if isinstance(mapping, ToMqMapping) or not mapping.enabled:
            continue
        source_queue = mapping.source.queue
        if source_queue is not None and source_queue not in own and takers.setdefault(source_queue, name) != name:
            again = f"{source_queue!r} again, from which mapping {takers[source_queue]} takes"
            yield Clash(("mappings", name, "from", "queue"), "a queue that no other enabled mapping takes from", again)


def _otherwise_clashes(configuration: Configuration, wrong: Names) -> Iterator[Clash]:
    """Yield a clash for each name in `otherwise` that is not a mapping with the same source and without `otherwise`."""
    mappings = configuration.mappings
    for name, mapping in mappings.items():
        for index, other in enumerate(mapping.otherwise):
            place: Location = ("mappings", name, "otherwise", index)
            if other not in mappings:
                if other not in wrong.get("mappings", ()):
                    names = suggestion(other, mappings) or values.listing(
                        [other for other in mappings if other != name], "or"
                    )
                    yield Clash(place, f"the name of a mapping ({names})")
            elif other == name or mappings[other].otherwise:
                yield Clash(place, "a mapping without otherwise", f"{other!r}")
            elif _source_kind(mappings[other]) != _source_kind(mapping):
                sentence = "a mapping of the same source (mqtt: of the same link, or topic:)"
                yield Clash(place, sentence, f"{other!r}")


def _source_kind(mapping: AnyMapping) -> tuple[str, str | None]:
    if isinstance(mapping, ToMqMapping):
        return "mqtt", mapping.source.link
    return ("topic", "") if mapping.source.topic is not None else ("queue", mapping.source.queue)


def _pipeline_clashes(configuration: Configuration, wrong: Names) -> Iterator[Clash]:
    """Yield the clashes of pipelines with the rest of the file.

    A pipeline clashes if it names a missing or unsuitable link or mapping, shares a session or a checkpoint directory, or has
    no checkpoint directory.
    """
    links, on_ibm = configuration.links, configuration.queue_manager.type == "ibm"
    directories: dict[Path, str] = {}
    sessions: dict[tuple[str, int, str], str] = {}
    for name, pipeline in configuration.pipelines.items():
        sides: dict[str, PipelineSource | PipelineDestination | None] = {
            "from": pipeline.source,
            "to": pipeline.destination,
        }
        for side, end in sides.items():
            if end is None or end.mqtt is None:
                continue
            place: Location = ("pipelines", name, side, "link")
            if end.link not in links:
                yield from _unknown_link(place, end.link, links, wrong)
            elif MAPPING_PLACE not in links[end.link].client_id:
                yield Clash(
                    place,
                    f"a link whose client_id has {MAPPING_PLACE} in it, because each batch of Spark connects by itself",
                )
        if pipeline.mapping is not None:
            yield from _mapping_clashes(configuration, name, pipeline, pipeline.mapping, wrong)
        yield from _session_clashes(links, name, pipeline.source, sessions)
        place = ("pipelines", name, "checkpoint")
        if pipeline.checkpoint is None and on_ibm:
            yield Clash(place, "a directory, because IBM MQ has no data directory here")
        elif pipeline.checkpoint is not None and directories.setdefault(pipeline.checkpoint, name) != name:
            again = f"which is that of pipeline {directories[pipeline.checkpoint]}"
            yield Clash(place, "a directory that no other pipeline has", again=again)


def _session_clashes(
    links: Mapping[str, LinkConfig], name: str, source: PipelineSource, sessions: dict[tuple[str, int, str], str]
) -> Iterator[Clash]:
    """Yield a clash if another pipeline uses the same session at the broker. Adds this pipeline's session to `sessions`."""
    key = next((key for key in source.options if key.replace("_", "").lower() == "clientid"), None)
    if key is None or source.mqtt is None or source.link not in links or MAPPING_PLACE in source.options[key]:
        return
    client_id = source.options[key]
    session = _session(links[source.link], client_id, name)
    if sessions.setdefault(session, name) != name:
        again = f"{client_id!r} again, with which pipeline {sessions[session]} connects to the same broker"
        yield Clash(
            ("pipelines", name, "from", "options", key), "a client identifier that no other pipeline has", again
        )


def _mapping_clashes(
    configuration: Configuration, name: str, pipeline: PipelineConfig, used: str, wrong: Names
) -> Iterator[Clash]:
    """Yield the clashes of a pipeline with the mapping `used`."""
    mappings, place = configuration.mappings, ("pipelines", name, "mapping")
    if used not in mappings:
        if used not in wrong.get("mappings", ()):
            names = (
                (suggestion(used, mappings) or values.listing(list(mappings), "or")) if mappings else "there is none"
            )
            yield Clash(place, f"the name of a mapping ({names})")
        return
    mapping = mappings[used]
    if pipeline.source.mqtt is not None and not isinstance(mapping, ToMqMapping):
        yield Clash(place, "a mapping from MQTT to MQ, because the pipeline reads mqtt:", f"{used!r}, which is to MQTT")
    elif pipeline.source.mq is not None and isinstance(mapping, ToMqMapping):
        yield Clash(place, "a mapping from MQ to MQTT, because the pipeline reads mq:", f"{used!r}, which is to MQ")
    elif mapping.destination.authority == "publisher":
        sentence = "a mapping without to.as: publisher, because a pipeline puts all its rows with one user"
        yield Clash(place, sentence, f"{used!r}")
    elif isinstance(mapping, ToMqttMapping) and mapping.source.requests_queue is not None:
        sentence = "a mapping without from.requests_queue, because pipelines do not look up the requests of answers"
        yield Clash(place, sentence, f"{used!r}")
    elif isinstance(mapping, ToMqttMapping) and mapping.source.queue is not None and _dead_letters_others(mapping):
        sentence = "a mapping whose filter has others: discard, because a pipeline omits messages that a filter rejects"
        yield Clash(place, sentence, f"{used!r}")
    elif isinstance(mapping, ToMqMapping) and not mapping.attributes.rfh2 and mapping.attributes.has_typed_properties:
        sentence = "a mapping without types of properties, or with rfh2: true, because properties of rows are text"
        yield Clash(place, sentence, f"{used!r}")
    elif mapping.limit is not None or mapping.changes is not None:
        sentence = "a mapping without limit and changes, because the tasks of a pipeline do not know each other's rows"
        yield Clash(place, sentence, f"{used!r}")
    if mapping.enabled:
        sentence = f"false, because pipeline {name} uses the mapping, and the service would move the same messages"
        yield Clash(("mappings", used, "enabled"), sentence)


def _dead_letters_others(mapping: ToMqttMapping) -> bool:
    """Return whether a mapping dead-letters the messages that its filter rejects."""
    return mapping.filter.others != "discard" and mapping.filter != FilterConfig(others=mapping.filter.others)


def _session(link: LinkConfig, client_id: str, user: str) -> tuple[str, int, str]:
    """Return the key that identifies a session: broker and client identifier."""
    return broker_host(link.host), link.broker_port, client_id.replace(MAPPING_PLACE, user)


def _flow_clashes(configuration: Configuration) -> Iterator[Clash]:
    """Yield the clashes between pipelines that use the same queue or directory.

    Only one enabled pipeline can read a queue, because reading removes messages. No pipeline can write to its own source.
    """
    readers: dict[str, str] = {}
    for name, pipeline in configuration.pipelines.items():
        source = pipeline.source
        queue = source.mq.queue if source.mq is not None else None
        if queue is not None and pipeline.enabled and readers.setdefault(queue, name) != name:
            expected, again = "a queue that no other enabled pipeline reads", f"which pipeline {readers[queue]} reads"
            yield Clash(("pipelines", name, "from", "mq", "queue"), expected, f"{queue!r} again, {again}")
        yield from _circles(name, pipeline)


def _circles(name: str, pipeline: PipelineConfig) -> Iterator[Clash]:
    """Yield a clash for each destination that is also the source of the pipeline, which would never end."""
    source, letters, late = pipeline.source, pipeline.dead_letters, pipeline.late
    for key, section in (("to", pipeline.destination), ("late", late)):
        for kind in ("queue", "topic"):
            name_read = getattr(source.mq, kind) if source.mq is not None else None
            if (
                name_read is not None
                and section is not None
                and section.mq is not None
                and getattr(section.mq, kind) == name_read
            ):
                yield Clash(("pipelines", name, key, "mq", kind), f"another {kind} than the one that it reads")
    if source.mq is not None and letters.queue is not None and letters.queue == source.mq.queue:
        yield Clash(("pipelines", name, "dead_letters", "queue"), "another queue than the one that it reads")
    for key, destination in (("to", pipeline.destination), ("late", late), ("dead_letters", letters)):
        if source.archive is not None and destination is not None and destination.archive == source.archive:
            yield Clash(("pipelines", name, key, "archive"), "another directory than the one that it reads")
