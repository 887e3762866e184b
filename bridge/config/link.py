"""Links: connections to external MQTT brokers (Mosquitto, HiveMQ, EMQX, AWS IoT and others)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import Address, SecretPath, Section, Truth, VariableName

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))

LinkVersion = Literal["5", "3.1.1"]
LinkSession = Literal["durable", "clean"]
LinkTransport = Literal["tcp", "websocket"]
FailoverSessions = Literal["separate", "shared"]

MAPPING_PLACE = "{mapping}"
"""Placeholder for the name of the mapping in a link's client identifier."""
BRIDGE_PLACE = "{bridge}"
"""Placeholder for a digest of the queue manager's identifier (QMID) in a link's client identifier."""
DEFAULT_CLIENT_ID = f"mqbridge-{BRIDGE_PLACE}-{MAPPING_PLACE}"


def client_id_of(client_id: str, mapping: str, bridge: str) -> str:
    """Return a link's client identifier for a mapping, or for a session of a pipeline.

    An empty `bridge` removes `{bridge}`, as in the default of releases that did not have it.
    """
    place, value = (BRIDGE_PLACE, bridge) if bridge else (f"{BRIDGE_PLACE}-", "")
    return client_id.replace(place, value).replace(BRIDGE_PLACE, bridge).replace(MAPPING_PLACE, mapping)


def broker_host(host: str) -> str:
    """Return a normalized host name: lower case, with `localhost` for loopback addresses."""
    name = host.lower()
    return "localhost" if name in _LOOPBACK else name


class LinkTlsConfig(ClientTlsConfig):
    """TLS of a link."""

    alpn: list[Annotated[str, values.text(r"[!-~]{1,255}", "an ALPN protocol name such as mqtt")]] = Field(default=[])
    """Protocol names to offer (ALPN, RFC 7301), in order of preference. AWS IoT, for example, accepts MQTT on port 443 from
    clients that offer `mqtt` or `x-amzn-mqtt-ca`."""


class LinkConfig(Section):
    """A connection to an MQTT broker. Each mapping that uses the link has its own connection and session."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "password": "no password in this file, because this file is not secret (write it to a file that only the bridge may"
        " read, and name that as password_file; or name an environment variable as password_variable)"
    }

    host: Address
    """Host name or IP address of the broker."""
    # Precedes `port`, whose default depends on it.
    tls: LinkTlsConfig | None = None
    """TLS settings. None: no TLS."""
    transport: Annotated[LinkTransport, values.choice(LinkTransport)] = "tcp"
    """Transport protocol. `websocket`: MQTT in binary WebSocket frames (MQTT 3.1.1, section 6)."""
    websocket_path: Annotated[str, values.text(r"/[!\"$-~]{0,1000}", "a path that begins with /, without #")] | None = (
        None
    )
    """Path, and optional query, of the WebSocket URL. None: /mqtt."""
    port: Annotated[int, values.integer(1, 65535)] | None = None
    """TCP port of the broker. None: 1883, or 8883 with TLS. For a WebSocket: 80, or 443 with TLS."""
    failover: list[Annotated[str, values.host_and_port]] = Field(default=[])
    """Further addresses of the same broker, `host:port`, tried in turn if `host` is unreachable or rejects the connection.
    Messages stored in a session at one address are delivered at another one only if they share sessions, as the nodes of a
    cluster do."""
    failover_sessions: Annotated[FailoverSessions, values.choice(FailoverSessions)] = "separate"
    """Whether `host` and the addresses of `failover` know the same sessions. `shared`: nodes of a cluster that replicates
    sessions. `separate`: each address has its own sessions, and an exactly-once batch is finished at the address where it
    started."""
    version: Annotated[LinkVersion, values.choice(LinkVersion)] = "5"
    """MQTT version. 3.1.1 has no properties, so the hop mark, expiry and user properties are not sent."""
    bridge_bit: Truth = False
    """Whether to connect as a bridge (bit 7 of the protocol level), with `version: 3.1.1`. The broker then sends publications
    with the RETAIN flag as published, as with MQTT 5. mosquitto supports it. Other brokers may reject the connection."""
    client_id: Annotated[
        str,
        values.text(
            r"(?:[^\x00-\x1f{}]|\{mapping\}|\{bridge\}){1,200}",
            f"a client identifier of 1 to 200 characters, with braces in {MAPPING_PLACE} and {BRIDGE_PLACE} alone",
        ),
    ] = DEFAULT_CLIENT_ID
    """Client identifier. `{mapping}` is the name of the mapping. Without it, only one mapping may use the link. `{bridge}` is
    8 hexadecimal digits that differ for each queue manager, so that several bridges can use the same broker."""
    session: Annotated[LinkSession, values.choice(LinkSession)] = "durable"
    """Session type. `durable`: the broker stores messages while the bridge is disconnected. Required for guarantee
    exactly-once."""
    user: Annotated[str, values.text(r"[^\x00-\x1f]{1,1024}", "a user name")] | None = None
    """MQTT user name."""
    password_file: SecretPath | None = None
    """File whose first line is the password. Takes precedence over `password_variable`."""
    password_variable: VariableName | None = None
    """Environment variable that contains the password. Ignored if `password_file` is set."""
    keep_alive: Annotated[float, values.duration(1, 65535)] = 60.0
    """Keep-alive in seconds: the maximum interval between packets from the bridge (MQTT 3.1.1, section 3.1.2.10)."""
    in_flight: Annotated[int, values.integer(1, 65535)] = 1000
    """Maximum number of unacknowledged publications to the broker, and from it, for each mapping."""

    trusted: Truth = True
    """Whether to trust the user properties `mqbridge-clientId` and `mqbridge-hops` of publications from the broker. Every
    publisher at the broker can set them. If false, the bridge ignores them and cannot detect loops through the broker."""
    maximum_qos: Annotated[int, values.integer(0, 2)] = 2
    """Highest QoS that the broker supports. MQTT 5 brokers announce it. Others close the connection if it is exceeded."""
    retain: Truth = True
    """Whether the broker supports retained publications. MQTT 5 brokers announce it."""
    maximum_packet_size: Annotated[int, values.size(64, 268_435_460)] = 268_435_460
    """Maximum size of a packet that the broker accepts, in bytes. MQTT 5 brokers announce it."""

    @property
    def broker_port(self) -> int:
        """The configured `port`, or the default port for the transport and TLS."""
        if self.transport == "websocket":
            return self.port or (443 if self.tls is not None else 80)
        return self.port or (8883 if self.tls is not None else 1883)

    @property
    def path_of_websocket(self) -> str | None:
        """Path of the WebSocket URL. None for a link without WebSocket."""
        return (self.websocket_path or "/mqtt") if self.transport == "websocket" else None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each broker address, in the order in which they are tried."""
        return [(self.host, self.broker_port), *map(values.host_and_port_of, self.failover)]

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        # An empty `tls:` means TLS with its defaults, not no TLS.
        return {**data, "tls": {}} if isinstance(data, Mapping) and "tls" in data and data["tls"] is None else data

    @model_validator(mode="after")
    def _path_of_a_websocket(self) -> Self:
        if self.websocket_path is not None and self.transport != "websocket":
            raise values.refusal("no path without transport: websocket", "websocket_path")
        return self

    @model_validator(mode="after")
    def _bridge_bit_of_3_1_1(self) -> Self:
        if self.bridge_bit and self.version == "5":
            raise values.refusal(
                "no bridge bit with version: 5, in which the broker keeps the RETAIN flag anyway", "bridge_bit"
            )
        return self


# local and queue are reserved: they denote the bridge's own clients, and queues.
LinkName = Annotated[
    str,
    values.text(
        r"(?!(?:local|queue)\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,22}",
        "a link name of 1 to 23 of A-Z a-z 0-9 . _ - (not local, not queue)",
    ),
]
LOCAL = "local"
"""In place of a link name: the bridge's own MQTT clients."""

LinkReference = Annotated[str, values.text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}", "the name of a link, or local")]
"""The link that a mapping uses."""
