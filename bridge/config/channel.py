"""Telemetry channels: listeners for MQTT clients and their rules."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import AuthenticationConfig, each_kind_once
from bridge.config.tls import ListenerTlsConfig
from bridge.config.values import Address, ChannelName, FilePath, Port, Section, Truth, UserName
from bridge.files import regular_content

Protocol = Literal["MQTTV5", "MQTTV311", "MQTTV3"]
"""A protocol of a telemetry channel, as in MQ's `DEFINE CHANNEL CHLTYPE(MQTT) PROTOCOL(..)`: MQTTV5 is MQTT 5 (`MQTT`, level
5), MQTTV311 is MQTT 3.1.1 (`MQTT`, level 4), MQTTV3 is MQTT 3.1 (`MQIsdp`, level 3)."""

Reason = Literal[
    "MQRC_FORMAT_ERROR",
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
"""A reason code with which the queue manager rejects a publication. MQRC_FORMAT_ERROR: its payload violates a schema of the
channel."""

ByteOrder = Literal["big", "little"]

REMOTE_SESSION_EXPIRY = 30 * 24 * 3600.0
"""The default `session_expiry` of channels that other machines can reach, in seconds."""


class WebSocketConfig(Section):
    """MQTT over WebSockets, for example for browsers (MQTT 3.1.1, section 6)."""

    path: Annotated[str, values.text(r"/[!-~]{0,255}", "a path that begins with /")] = "/mqtt"
    """Path of the URL."""
    origins: list[Annotated[str, values.text(r"[!-~]{1,255}", "an origin such as https://example.com")]] | None = None
    """Allowed origins of web pages (the browser's header Origin), such as https://example.com. None: all. Programs other than
    browsers can connect if they send no Origin header. Some send one, for example paho-mqtt for Python."""


class ChannelConfig(Section):
    """A telemetry channel: a listener for MQTT clients and its rules (MQ: `DEFINE CHANNEL CHLTYPE(MQTT)`)."""

    #: whether clients are authenticated before CONNECT, by other means
    AUTHENTICATED: ClassVar[bool] = False

    name: ChannelName = "PLAIN.MQTT"
    """Name of the channel. Must be unique."""
    # These precede `address`, whose validator needs them: pydantic validates in the order of definition.
    allow_anonymous_remote: Truth = False
    """Whether the channel may listen on a non-loopback address without `authentication`."""
    authentication: Annotated[list[AuthenticationConfig], AfterValidator(each_kind_once)] = Field(default_factory=list)
    """Authentication methods. All credentials that a client presents must be valid. The first method in the list for which
    the client presents credentials determines its user. If the list is empty, clients are not authenticated, and the bridge
    accepts any user name that they specify."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on. A non-loopback address requires `authentication` or `allow_anonymous_remote`."""
    port: Port = 1883
    """TCP port. 0: any free port."""
    socket: FilePath | None = None
    """Path of a Unix socket to listen on instead of `address` and `port`."""
    tls: ListenerTlsConfig | None = None
    """TLS settings. None: no TLS."""
    websocket: WebSocketConfig | None = None
    """MQTT over WebSockets (MQ: PROTOCOL(HTTP)). `{}` selects the defaults. None: plain MQTT."""
    proxies: list[Annotated[str, values.network]] = Field(default=[])
    """Addresses or networks of proxies. If set, only these may connect, and each connection must start with a PROXY protocol
    header (version 1 or 2), which contains the client's address. `unix` means every process that can open the channel's Unix
    socket."""
    protocols: list[Annotated[Protocol, values.choice(Protocol)]] = Field(default=["MQTTV5", "MQTTV311", "MQTTV3"])
    """Accepted protocols: at least one, each at most once (MQ: PROTOCOL)."""
    mcauser: UserName | None = None
    """MQ user of all clients of the channel (MQ: MCAUSER). None: each client's own user name."""
    use_client_id: Truth = False
    """Whether each client's MQ user is its client identifier (MQ: USECLTID). Takes precedence over `mcauser`."""
    byte_order: Annotated[ByteOrder, values.choice(ByteOrder)] = "big"
    """Byte order of 16-bit integers. MQTT uses `big`. `little` is for clients that use the dialect before MQTT 3.1."""
    max_clients: Annotated[int, values.integer(1, 1_000_000)] = 10_000
    """Maximum number of connected clients. Further connections are closed immediately."""
    backlog: Annotated[int, values.integer(1, 65535)] = 4096
    """Maximum number of connections waiting to be accepted (MQ: BACKLOG)."""
    connect_timeout: Annotated[float, values.duration(0.001)] = 10.0
    """Seconds within which a new connection must send its CONNECT packet."""
    keep_alive: Annotated[int, values.integer(0, 65535)] = 0
    """Maximum keep-alive in seconds. The bridge assigns it to MQTT 5 clients that request a longer keep-alive, or none
    (Server Keep Alive). 0: no maximum."""
    session_expiry: Annotated[float, values.duration(1, 0xFFFFFFFE)] | None = None
    """Maximum session expiry interval in seconds, counted from the end of the connection. None: as the client requests, which
    is forever before MQTT 5. The default is None for a channel on a loopback address or a Unix socket, and 30 days (720 h)
    for any other."""
    publish_topics: list[Annotated[str, values.topic_pattern]] | None = None
    """Topic filters that clients may publish to. %c is the client identifier, %u the user name. None: no restriction."""
    subscribe_topics: list[Annotated[str, values.topic_pattern]] | None = None
    """Topic filters that clients may subscribe to, with the same placeholders. Each subscription must be within one of them.
    None: no restriction."""
    shared_client_ids: Truth = False
    """Whether users of this channel may take over each other's sessions by connecting with the same client identifier. Both
    the channel of the new connection and the channel that the session last used must allow it. If false, a session accepts
    only the user who owns it."""
    max_clients_per_address: Annotated[int, values.integer(1, 1_000_000)] | None = None
    """Maximum number of connected clients with the same IP address (IPv6: in the same /64). None: no limit."""
    connect_rate: Annotated[float, values.number(1)] | None = None
    """Maximum average rate of connections from one IP address (IPv6: from one /64), per second. Further connections are
    rejected. None: no limit."""
    failed_connects: Annotated[int, values.integer(1, 1_000_000)] = 10
    """Number of failed connection attempts, from one IP address (IPv6: one /64) as one user, after which the bridge delays
    authentication of further attempts: by 1 s, 2 s, 4 s and so on, up to `connect_timeout`. A minute without failures resets
    the count. Ten times as many failures are allowed for all users of an address together."""
    publish_rate: Annotated[float, values.number(1)] | None = None
    """Maximum average number of publications from one client, per second. The bridge stops reading from a faster client for a
    while. None: no limit."""
    publish_bytes: Annotated[int, values.size(1024, values.GIB)] | None = None
    """Maximum average number of bytes from one client, per second. The bridge stops reading from a faster client for a while.
    None: no limit."""
    max_connect_size: Annotated[int, values.size(64, 268_435_460)] = 256 * values.KIB
    """Maximum size of a CONNECT packet, which clients send before they are authenticated. Counted like `max_packet_size`."""
    authentication_methods: list[str] = Field(default=[])
    """Methods of enhanced authentication (MQTT 5): names of entry points of the group `mqbridge.authentication_methods`. A
    client that names another method is rejected. A client that names none is authenticated as usual."""
    schemas: dict[Annotated[str, values.topic_filter], FilePath] = Field(default_factory=dict)
    """Topic filter -> file with a JSON Schema (2020-12) for the payloads that clients publish to these topics. All filters
    that match a topic apply. An empty retained publication, which clears its topic, always passes. MQTT 5 clients get reason
    code 0x99 with the first violation for an invalid payload with QoS 1 or 2. Other invalid publications, also with QoS 0 and
    wills, are acknowledged and put to the dead-letter queue (MQRC_FORMAT_ERROR). If `refused_to_dead_letters` contains
    MQRC_FORMAT_ERROR, those of MQTT 5 are, too. A reload applies changed files to connected clients."""
    refused_to_dead_letters: list[Annotated[Reason, values.choice(Reason)]] = Field(default=[])
    """Reason codes of rejected publications that the bridge puts to the dead-letter queue and acknowledges. For other
    reasons, MQTT 5 clients get a reason code. Other clients are disconnected, and send the publication again after they
    reconnect."""
    max_packet_size: Annotated[int, values.size(64, 268_435_460)] = 4 * values.MIB
    """Maximum size of a packet from a client with its fixed header, in bytes. MQTT 5 clients learn it from CONNACK (Maximum
    Packet Size), and get reason code 0x95 for a larger packet."""

    @field_validator("schemas")
    @classmethod
    def _of_topics(cls, schemas: dict[str, Path]) -> dict[str, Path]:
        for topic_filter in schemas:
            if topic_filter.startswith("$share/"):
                raise values.refusal("a topic filter without $share/, which no publication has", topic_filter)
        return schemas

    _schema_contents: dict[str, bytes] = PrivateAttr(default_factory=dict)

    def read_schemas(self) -> None:
        """Read the files of `schemas`, so that a reload notices a changed file. Errors are raised by `schema_content`."""
        for topic_filter in self.schemas:
            with suppress(OSError):
                self.schema_content(topic_filter)

    def schema_content(self, topic_filter: str) -> bytes:
        """Return the content of the file for a topic filter of `schemas`, as first read. Raises OSError."""
        if topic_filter not in self._schema_contents:
            content, _ = regular_content(self.schemas[topic_filter], values.MAX_SCHEMA_SIZE + 1)
            self._schema_contents[topic_filter] = content
        return self._schema_contents[topic_filter]

    def schemas_differ(self, other: Self) -> bool:
        """Return whether another channel has other schemas, or files with another content."""
        return (self.schemas, self._schema_contents) != (other.schemas, other._schema_contents)

    @model_validator(mode="before")
    @classmethod
    def _default_session_expiry(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "session_expiry" in data or data.get("socket") is not None:
            return data
        address = data.get("address")
        if not isinstance(address, str) or values.is_loopback(address):
            return data
        return {**data, "session_expiry": REMOTE_SESSION_EXPIRY}

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        # An invalid `allow_anonymous_remote` is missing from `info.data`. Its own error is reported first.
        believed = info.data.get("allow_anonymous_remote") is False and "authentication" in info.data
        if believed and not info.data["authentication"] and not values.is_loopback(address):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because this channel accepts clients without a"
                " password (to accept clients of other machines, specify 'authentication: ...', or"
                " 'allow_anonymous_remote: true' in this channel)"
            )
        return address

    @field_validator("protocols")
    @classmethod
    def _each_once(cls, protocols: list[Protocol]) -> list[Protocol]:
        if not protocols or len(set(protocols)) < len(protocols):
            raise values.refusal("a list of at least one of MQTTV5, MQTTV311 and MQTTV3, each at most once")
        return protocols
