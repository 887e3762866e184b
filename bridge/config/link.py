"""Links: connections to MQTT brokers that somebody else runs (Mosquitto, HiveMQ, EMQX, AWS IoT ...)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridge.config import values
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import Address, FilePath, Section, Truth

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))

LinkVersion = Literal["5", "3.1.1"]
LinkSession = Literal["durable", "clean"]
LinkTransport = Literal["tcp", "websocket"]

MAPPING_PLACE = "{mapping}"
"""What stands for the name of a mapping in a link's client identifier."""
BRIDGE_PLACE = "{bridge}"
"""What stands for the queue manager, by a digest of its identifier (QMID), in a link's client identifier."""
DEFAULT_CLIENT_ID = f"mqbridge-{BRIDGE_PLACE}-{MAPPING_PLACE}"


def client_id_of(client_id: str, mapping: str, bridge: str) -> str:
    """Return a link's client identifier for a mapping, or for a session of a pipeline.

    A blank `bridge` leaves `{bridge}` out: so the default was in releases that did not have it.
    """
    place, value = (BRIDGE_PLACE, bridge) if bridge else (f"{BRIDGE_PLACE}-", "")
    return client_id.replace(place, value).replace(BRIDGE_PLACE, bridge).replace(MAPPING_PLACE, mapping)


def broker_host(host: str) -> str:
    """Return one name for each host: loopback addresses are `localhost`."""
    name = host.lower()
    return "localhost" if name in _LOOPBACK else name


class LinkTlsConfig(ClientTlsConfig):
    """TLS of a link."""

    alpn: list[Annotated[str, values.text(r"[!-~]{1,255}", "an ALPN protocol name such as mqtt")]] = Field(default=[])
    """Protocol names to offer (ALPN, RFC 7301), the preferred one first. AWS IoT, for example, speaks MQTT on port 443 to
    clients that offer `mqtt` or `x-amzn-mqtt-ca`."""


class LinkConfig(Section):
    """A connection to an MQTT broker. Each mapping that uses it has a connection, and a session, of its own."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "password": "no password in this file, because too many read it (write it into a file that the bridge alone may"
        " read, and name that as password_file; or name an environment variable as password_variable)"
    }

    host: Address
    """Host name or address of the broker."""
    # Before `port`, whose default depends on it.
    tls: LinkTlsConfig | None = None
    """TLS; None: none."""
    transport: Annotated[LinkTransport, values.choice(LinkTransport)] = "tcp"
    """`websocket`: MQTT in binary frames of a WebSocket (MQTT 3.1.1, section 6)."""
    websocket_path: Annotated[str, values.text(r"/[!\"$-~]{0,1000}", "a path that begins with /, without #")] | None = None
    """The path, and query if any, of the WebSocket's URL; None: /mqtt."""
    port: Annotated[int, values.integer(1, 65535)] | None = None
    """TCP port of the broker; None: 1883, or 8883 with TLS; 80, or 443 with TLS, for a WebSocket."""
    failover: list[Annotated[str, values.host_and_port()]] = Field(default=[])
    """Further addresses of the same broker, `host:port`, tried in turn when `host` cannot be reached or refuses. They have to
    share its sessions, as the nodes of a cluster do: what waits in a session at another broker is not found."""
    version: Annotated[LinkVersion, values.choice(LinkVersion)] = "5"
    """MQTT version. 3.1.1 carries no properties: neither the hop mark, nor expiry, nor user properties."""
    client_id: Annotated[
        str, values.text(
            r"(?:[^\x00-\x1f{}]|\{mapping\}|\{bridge\}){1,200}",
            f"a client identifier of 1 to 200 characters, with braces in {MAPPING_PLACE} and {BRIDGE_PLACE} alone",
        ),
    ] = DEFAULT_CLIENT_ID
    """Client identifier. `{mapping}` is the name of the mapping; without it, only one mapping may use the link. `{bridge}` is
    8 hexadecimal digits that differ for each queue manager, so that several bridges can use one broker."""
    session: Annotated[LinkSession, values.choice(LinkSession)] = "durable"
    """`durable`: the broker keeps what comes while the bridge is away. Guarantee exactly-once needs it."""
    user: Annotated[str, values.text(r"[^\x00-\x1f]{1,1024}", "a user name")] | None = None
    """MQTT user name."""
    password_file: FilePath | None = None
    """File whose first line is the password."""
    password_variable: Annotated[
        str, values.text(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "the name of an environment variable (not the password)")
    ] | None = None
    """Environment variable that has the password; `password_file` wins over it."""
    keep_alive: Annotated[float, values.duration(1, 65535)] = 60.0
    """Seconds: the longest silence on the connection (MQTT 3.1.1, section 3.1.2.10)."""
    in_flight: Annotated[int, values.integer(1, 65535)] = 1000
    """Publications sent to the broker, or taken from it, and not yet acknowledged, for each mapping."""

    trusted: Truth = True
    """Whether user properties `mqbridge-clientId` and `mqbridge-hops` of what comes from the broker are believed. Who may
    publish there can write them: with `false` they are passed over, and loops over the broker are not cut."""
    maximum_qos: Annotated[int, values.integer(0, 2)] = 2
    """The highest QoS that the broker takes. One of MQTT 5 says so itself; others close the connection at a higher one."""
    retain: Truth = True
    """Whether the broker takes retained publications. One of MQTT 5 says so itself."""
    maximum_packet_size: Annotated[int, values.size(64, 268_435_460)] = 268_435_460
    """Longest packet that the broker takes, in bytes. One of MQTT 5 says so itself."""

    @property
    def broker_port(self) -> int:
        """Return `port`, or the default port of the transport, with or without TLS."""
        if self.transport == "websocket":
            return self.port or (443 if self.tls is not None else 80)
        return self.port or (8883 if self.tls is not None else 1883)

    @property
    def path_of_websocket(self) -> str | None:
        """Return the path of the WebSocket's URL; None for a link without WebSocket."""
        return (self.websocket_path or "/mqtt") if self.transport == "websocket" else None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Return host and port of each address of the broker, in the order in which they are tried."""
        return [(self.host, self.broker_port), *map(values.host_and_port_of, self.failover)]

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        # `tls:` with nothing below it asks for TLS as it is by default, not for none.
        return {**data, "tls": {}} if isinstance(data, Mapping) and "tls" in data and data["tls"] is None else data

    @model_validator(mode="after")
    def _path_of_a_websocket(self) -> Self:
        if self.websocket_path is not None and self.transport != "websocket":
            raise values.refusal("no path without transport: websocket", "websocket_path")
        return self


# The two words name places of their own: the bridge's own clients, and queues.
LinkName = Annotated[
    str,
    values.text(
        r"(?!(?:local|queue)\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,22}",
        "a link name of 1 to 23 of A-Z a-z 0-9 . _ - (not local, not queue)",
    ),
]
LOCAL = "local"
"""In place of a link's name: the bridge's own MQTT clients."""

LinkReference = Annotated[str, values.text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}", "the name of a link, or local")]
"""The link that a mapping uses."""
