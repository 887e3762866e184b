"""Telemetry channels: listeners for MQTT clients, each with its rules."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import AuthenticationConfig, each_kind_once
from bridge.config.tls import ListenerTlsConfig
from bridge.config.values import Address, ChannelName, FilePath, Port, Section, Truth, UserName, without_empty

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

REMOTE_SESSION_EXPIRY = 30 * 24 * 3600.0
"""Default `session_expiry` of a channel that other machines can reach, in seconds."""


class WebSocketConfig(Section):
    """MQTT over WebSockets, for clients in browsers (MQTT 3.1.1 section 6)."""

    path: Annotated[str, values.text(r"/[!-~]{0,255}", "a path that begins with /")] = "/mqtt"
    """The path of its URL."""
    origins: list[Annotated[str, values.text(r"[!-~]{1,255}", "an origin such as https://example.com")]] | None = None
    """Where pages come from that may connect (the browser's header Origin), such as https://example.com; None: from
    anywhere. Programs that are no browsers may where they send no Origin; some do, paho-mqtt for Python among them."""


class ChannelConfig(Section):
    """A telemetry channel: a listener for MQTT clients with its rules (MQ's `DEFINE CHANNEL CHLTYPE(MQTT)`)."""

    name: ChannelName = "PLAIN.MQTT"
    """Its name; no two channels share one."""
    # These stand before `address`, whose check asks for them: pydantic validates in the order of definition.
    allow_anonymous_remote: Truth = False
    """Whether the channel may listen where other machines reach it, though it asks its clients for no password."""
    authentication: list[AuthenticationConfig] = Field(default_factory=list)
    """How its clients show who they are. All that a client presents has to be right; the first method of the list that it
    presents something for names its user. Without any, nobody is asked, and each client is believed its user name."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on; one that other machines reach needs `authentication`, or
    `allow_anonymous_remote`."""
    port: Port = 1883
    """TCP port; 0 takes any free one."""
    socket: FilePath | None = None
    """A Unix socket to listen on, in place of address and port."""
    tls: ListenerTlsConfig | None = None
    """TLS; None: none."""
    websocket: WebSocketConfig | None = None
    """MQTT over WebSockets (MQ: PROTOCOL(HTTP)), as they are by default with `{}`; None: none."""
    proxies: list[Annotated[str, values.network()]] = Field(default=[])
    """Addresses or networks of proxies, which begin each connection with the PROXY protocol, version 1 or 2, and say whose
    it is. Others may not connect. On a Unix socket `unix` stands for whoever may open it."""
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
    """Seconds that a session outlives its connection, at most. None: as long as the client asks for, which is forever before
    MQTT 5. The default is None for a channel on a loopback address or a Unix socket, and 30 days (720 h) for any other."""
    publish_topics: list[Annotated[str, values.topic_pattern()]] | None = None
    """Topic filters that its clients may publish to: %c stands for the client identifier, %u for the user. None: any."""
    subscribe_topics: list[Annotated[str, values.topic_pattern()]] | None = None
    """Topic filters that cover all that its clients may subscribe to, in the same form. None: any."""
    shared_client_ids: Truth = False
    """Whether users of this channel may take over each other's sessions by connecting with the same client identifier. Both
    the channel of the new connection and the channel that the session last used must allow it. If false, a session accepts
    only the user who owns it."""
    max_clients_per_address: Annotated[int, values.integer(1, 1_000_000)] | None = None
    """How many clients of one IP address may be connected at a time; None: as many as there is room for."""
    connect_rate: Annotated[float, values.number(1)] | None = None
    """Connections of one IP address in a second, on the average; what are more are refused. None: any."""
    failed_connects: Annotated[int, values.integer(1, 1_000_000)] = 10
    """Failed attempts to connect from one IP address as one user, after which each further one is judged late: after 1 s,
    2 s, 4 s and so on, up to `connect_timeout`, until there has been none for a minute. Of all users of an address ten times
    as many may fail."""
    publish_rate: Annotated[float, values.number(1)] | None = None
    """Publications of one client in a second, on the average; a client that has sent more is not read for a while. None:
    any."""
    publish_bytes: Annotated[int, values.size(1024, values.GIB)] | None = None
    """Bytes that one client sends in a second, on the average; a client that has sent more is not read for a while. None:
    any."""
    max_connect_size: Annotated[int, values.size(64, 268_435_455)] = 256 * values.KIB
    """Longest CONNECT packet: what a client may send before it is known, as `max_packet_size` counts it."""
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
        return without_empty(
            data, "protocols", "authentication", "authentication_methods", "proxies", "refused_to_dead_letters"
        )

    @model_validator(mode="before")
    @classmethod
    def _default_session_expiry(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "session_expiry" in data or data.get("socket") is not None:
            return data
        address = data.get("address")
        if not isinstance(address, str) or values.is_loopback(address):
            return data
        return {**data, "session_expiry": REMOTE_SESSION_EXPIRY}

    @field_validator("authentication")
    @classmethod
    def _methods(cls, methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
        return each_kind_once(methods)

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        # If allow_anonymous_remote is itself wrong it is not in `info.data`: its own error is the one to mend first.
        believed = info.data.get("allow_anonymous_remote") is False and "authentication" in info.data
        if believed and not info.data["authentication"] and not values.is_loopback(address):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because this channel lets clients in without a"
                " password (to let other machines in, say how their clients show who they are, 'authentication: ...'; or"
                " let them in nonetheless by 'allow_anonymous_remote: true' in this channel)"
            )
        return address

    @field_validator("protocols")
    @classmethod
    def _each_once(cls, protocols: list[Protocol]) -> list[Protocol]:
        if not protocols or len(set(protocols)) < len(protocols):
            raise values.refusal("a list of at least one of MQTTV5, MQTTV311 and MQTTV3, each at most once")
        return protocols
