"""The queue manager, embedded or IBM MQ: its options, its password, and the queues of the bridge."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.authentication import OF_PASSWORDS, AuthenticationConfig, each_kind_once, name_pattern
from bridge.config.tls import ListenerTlsConfig
from bridge.config.values import (
    Address,
    ChannelName,
    FilePath,
    ObjectName,
    Port,
    SecretPath,
    Section,
    Truth,
    VariableName,
)

#: Messages for the bridge's MQTT clients, unless `transmission_queue` names another queue.
DEFAULT_TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
#: Sessions of MQTT clients.
STATE_QUEUE = "SYSTEM.MQTT.PERSISTENT.STATE"
#: Opened for exclusive input by the active bridge. Contains no messages.
LOCK_QUEUE = "SYSTEM.MQTT.BRIDGE.LOCK"
#: Progress of mappings and pipelines.
MAPPING_STATE_QUEUE = "SYSTEM.MQTT.MAPPING.STATE"
#: The shards that have members of each shared subscription.
SHARE_MEMBERS_QUEUE = "SYSTEM.MQTT.SHARE.MEMBERS"
#: Dead letters that a mapping from the dead-letter queue could not process.
SET_ASIDE_QUEUE = "SYSTEM.MQTT.SET.ASIDE"
#: Queue for PCF commands to IBM MQ.
COMMAND_QUEUE = "SYSTEM.ADMIN.COMMAND.QUEUE"


class BridgeQueues(NamedTuple):
    """The queues that only the active bridge of a queue manager, or of a shard, uses."""

    transmission: str = DEFAULT_TRANSMISSION_QUEUE
    """Messages for its clients."""
    state: str = STATE_QUEUE
    """Their sessions."""
    lock: str = LOCK_QUEUE
    """Open for exclusive input."""
    common_transmission: str = DEFAULT_TRANSMISSION_QUEUE
    """DEFXMITQ, if it leads to several bridges; otherwise `transmission`."""


PASSWORD_VARIABLE = "MQBRIDGE_PASSWORD"
"""The default environment variable for the password of the queue manager's user."""

MAX_SHARDS = 1024
"""Maximum number of shards."""

Library = Literal["auto", "pymqi", "ibmmq"]
Mode = Literal["client", "bindings"]
ClientIdentifiers = Literal["as-is", "escaped"]
Authorities = Literal["ignored", "enforced"]
OverlappingSubscriptions = Literal["each", "once"]

MAX_CONNECTIONS_LENGTH = 264
"""Maximum length of a list of connection names, in characters (MQ_CONN_NAME_LENGTH)."""
MAX_KEY_REPOSITORY = 256
"""Maximum length of the path of a key repository, in bytes (MQ_SSL_KEY_REPOSITORY_LENGTH)."""
_UPPER_CASE = "attribute types in upper case without a blank before =, such as CN=QM1"


def _peer_name(text: str) -> None:
    """Validate a peer name for IBM's client (IBM MQ, "IBM MQ rules for SSLPEER values"). Raises ValueError."""
    name_pattern(text)
    unquoted = re.sub(r'"[^"]*"|\\.', "", text)
    for attribute in re.split("[,;]", unquoted):
        if not re.fullmatch(r"[A-Z]+", attribute.partition("=")[0].lstrip()):
            raise ValueError(_UPPER_CASE)


class ListenerConfig(Section):
    """A TCP listener for MQ applications in other processes. Without authentication, all applications are trusted."""

    # These precede `address`, whose validator needs them: pydantic validates in the order of definition.
    allow_anonymous_remote: Truth = False
    """Whether the listener may use a non-loopback address without authentication."""
    password_file: SecretPath | None = None
    """File with lines `user:password`, or `user:$argon2id$...` with the password's hash. TCP connections must authenticate
    with one of them. None: passwords are required only by `authentication`."""
    authentication: list[AuthenticationConfig] = Field(default_factory=list)
    """Authentication methods, instead of `password_file`: those of a channel except `scram` and `queue-manager`."""
    address: Address = "127.0.0.1"
    """IP address or host name to listen on. A non-loopback address requires `password_file`, `authentication` or
    `allow_anonymous_remote`."""
    port: Port = 1414
    """TCP port. 0: any free port."""
    tls: ListenerTlsConfig | None = None
    """TLS settings. None: no TLS."""
    max_connections: Annotated[int, values.integer(1, 1_000_000)] = 1_000
    """Maximum number of connected applications. Further connections are closed immediately."""
    max_connections_per_address: Annotated[int, values.integer(1, 1_000_000)] | None = None
    """Maximum number of connections with the same IP address (IPv6: in the same /64). None: no limit."""
    failed_connects: Annotated[int, values.integer(1, 1_000_000)] = 10
    """Number of rejected connections from one IP address (IPv6: one /64) within a minute, after which the bridge delays the
    answers to further connections from there: by 1 s, 2 s, 4 s and so on, up to 30 s."""

    @field_validator("authentication")
    @classmethod
    def _methods(cls, methods: list[AuthenticationConfig], info: ValidationInfo) -> list[AuthenticationConfig]:
        for index, method in enumerate(methods):
            if method.method in ("scram", "queue-manager"):
                raise values.refusal(f"another method than {method.method}, which is for MQTT clients", index, "method")
            if method.method in OF_PASSWORDS and info.data.get("password_file") is not None:
                raise values.refusal("no password method together with password_file", index, "method")
        return each_kind_once(methods)

    @field_validator("address")
    @classmethod
    def _remote(cls, address: str, info: ValidationInfo) -> str:
        # An invalid option is missing from `info.data`. Its own error is reported first.
        names = ("allow_anonymous_remote", "password_file", "authentication")
        if values.is_loopback(address) or not set(names) <= info.data.keys():
            return address
        if not any(info.data[name] for name in names):
            raise values.refusal(
                "a loopback address (127.0.0.1, ::1 or localhost), because this listener accepts applications without a"
                " password (to accept other machines, write 'password_file: ...' or 'authentication: ...', or"
                " 'allow_anonymous_remote: true', in this listener)"
            )
        return address

    @property
    def believes(self) -> bool:
        """Whether applications can connect without authentication."""
        return self.password_file is None and not self.authentication


class EmbeddedQueueManagerConfig(Section):
    """The embedded queue manager, which runs in the bridge's process."""

    type: Literal["embedded"] = "embedded"
    """Type of the queue manager."""
    name: ObjectName = "MQB1"
    """Name of the queue manager (QMNAME), as MQ applications see it."""
    data_directory: FilePath = Path("data")
    """Directory in which the embedded queue manager stores its messages. The default is relative to the working directory. A
    relative path in the file is relative to the directory of the file."""
    listener: ListenerConfig | None = None
    """TCP listener for MQ applications. None: applications can connect via the Unix socket only."""
    scripts: list[FilePath] = Field(default_factory=list)
    """MQSC scripts to run at each start, in this order, after the bridge's own. Relative paths as for `data_directory`."""
    authorities: Annotated[Authorities, values.choice(Authorities)] = "ignored"
    """Whether applications and MQTT clients need the authorities set by SET AUTHREC (`enforced`)."""
    max_message_length: Annotated[int, values.size(32 * values.KIB, 100 * values.MIB)] = 4 * values.MIB
    """Maximum length of a message in bytes (MAXMSGL). Range and default are those of IBM MQ."""
    overlapping_subscriptions: Annotated[OverlappingSubscriptions, values.choice(OverlappingSubscriptions)] = "each"
    """Delivery to an MQTT client with several matching subscriptions: one message for `each`, like IBM MQ, or one message
    (`once`) with the highest QoS and all Subscription Identifiers."""


class TlsConfig(Section):
    """TLS of the connection to the queue manager."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "key_repository_password": "no password in this file, because this file is not secret (write it to a file that only"
        " the bridge may read, and name that file as key_repository_password_file)"
    }

    key_repository: SecretPath
    """The key repository with the certificates (MQSCO KeyRepository): a PKCS#12 file or a `.kdb` file. A name without an
    extension means a `.kdb` file. Relative paths are relative to the directory of this file."""
    key_repository_password_file: SecretPath | None = None
    """File whose first line is the password of the key repository. None: the client library uses the stash file (`.sth`)
    next to the key repository."""
    key_repository_password_variable: VariableName | None = None
    """Environment variable that contains that password."""
    cipher_spec: (
        Annotated[str, values.text(r"[A-Z0-9_]{1,32}", "a CipherSpec of 1 to 32 of the characters A-Z 0-9 _")] | None
    ) = None
    """CipherSpec of the channel (SSLCIPH). Required unless `ccdt_url` is set: then the CCDT contains it."""
    certificate_label: (
        Annotated[str, values.text(r"[ -~]{1,64}", "a certificate label of 1 to 64 ASCII characters")] | None
    ) = None
    """Label of the bridge's own certificate. None: `ibmwebspheremq` followed by the user that runs the bridge, in lower case.
    If the key repository has no certificate with that default label, the bridge presents no certificate."""
    peer_name: (
        Annotated[
            str, values.read_by(_peer_name, r"[^\x00-\x1f]{1,1024}", "a distinguished name such as CN=QM1,O=Example")
        ]
        | None
    ) = None
    """Distinguished name that the queue manager's certificate must match (SSLPEER). None: any certificate that the key
    repository trusts. The host name is never compared with the certificate."""
    fips: Truth = False
    """Whether only FIPS-certified cryptography is used (MQSCO FipsRequired)."""

    def files_with_secrets(self) -> Iterator[tuple[str, Path]]:
        """Yield the files of the key repository: the stash file contains its password."""
        yield from self.files.items()

    @property
    def files(self) -> dict[str, Path]:
        """The files that the client library and the bridge read, by option name."""
        password = self.key_repository_password_file
        has_password = password is not None or self.key_repository_password_variable is not None
        repository, *stash = key_repository_files(self.key_repository, has_password=has_password)
        password = stash[0] if stash else password
        paths = {"key_repository": repository}
        return paths if password is None else paths | {"key_repository_password_file": password}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(bytes(self.key_repository)) > MAX_KEY_REPOSITORY:
            raise values.refusal(f"a path of at most {MAX_KEY_REPOSITORY} bytes", "key_repository")
        if self.key_repository_password_file is not None and self.key_repository_password_variable is not None:
            both = "key_repository_password_file or key_repository_password_variable, not both"
            raise values.refusal(both, "key_repository_password_variable")
        return self


def key_repository_files(key_repository: Path, *, has_password: bool) -> list[Path]:
    """Return the files that the client library reads: the key repository, and its stash file unless there is a password.

    Source: IBM MQ, "Supplying the key repository password for an IBM MQ MQI client on AIX, Linux, and Windows".
    """
    repository = key_repository if key_repository.suffix else key_repository.with_suffix(".kdb")
    return [repository] if has_password else [repository, repository.with_suffix(".sth")]


class BatchConfig(Section):
    """Limits of one unit of work of a publisher.

    A publisher commits when it reaches any of the three limits, or when no more publications are waiting.
    """

    # State records and a receipt are added. The sum must not exceed MAXUMSGS of the queue manager, 10000 by default.
    messages: Annotated[int, values.integer(1, 5000)] = 500
    """Number of publications."""
    size: Annotated[int, values.size(1, 100 * values.MIB)] = values.MIB
    """Total size of their payloads, in bytes."""
    time: Annotated[float, values.duration(0, 10)] = 0.05
    """Time spent putting, in seconds."""


class ShardConfig(Section):
    """A part of the clients of a queue manager: those with crc32(client identifier in UTF-8) mod `of` = `number`."""

    number: Annotated[int, values.integer(0, MAX_SHARDS - 1)]
    """Number of the shard, from 0."""
    of: Annotated[int, values.integer(2, MAX_SHARDS)]
    """Number of shards. It is recorded on the state queue, and cannot change while that has sessions."""
    server_reference: (
        Annotated[str, values.text(r"[!-~]{1,1024}", "a server such as mqtt-{shard}.example.com:8883")] | None
    ) = None
    """Server Reference (MQTT 5) for clients of other shards, which are rejected. `{shard}` is the number of their shard."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.number >= self.of:
            raise values.refusal(f"an integer from 0 to {self.of - 1}, because there are {self.of} shards", "number")
        return self


class IbmQueueManagerConfig(Section):
    """A queue manager of IBM MQ, accessed through `pymqi` or `ibmmq`."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "password": "no password in this file, because this file is not secret (write it to a file that only the bridge may"
        f" read, and name that as password_file; or into the environment variable {PASSWORD_VARIABLE})",
        "token": "no token in this file, because this file is not secret (write it to a file that only the bridge may read,"
        " and name that file as token_file)",
    }

    type: Literal["ibm"] = "ibm"
    """Type of the queue manager."""
    name: Annotated[
        str,
        values.text(
            r"\*?[A-Za-z0-9._/%]{1,48}",
            "an MQ name of 1 to 48 of the characters A-Z a-z 0-9 . _ / %, or * and such a name",
        ),
    ]
    """Name of the queue manager (QMNAME). With `ccdt_url`, also `*` and the name of a queue manager group: the bridge tries
    the CCDT entries with that name. All of them must lead to the same queue manager, because it stores the sessions of the
    clients."""
    library: Annotated[Library, values.choice(Library)] = "auto"
    """Python package for the connection. `auto`: the one that is installed."""
    # These two precede the options that depend on them: pydantic validates in the order of definition.
    mode: Annotated[Mode, values.choice(Mode)] = "client"
    """`client`: connect over TCP. `bindings`: connect locally, on the queue manager's machine."""
    ccdt_url: Annotated[str, values.url("file", "http", "https", "ftp")] | None = Field(
        default=None, validate_default=True
    )
    """URL of a client channel definition table (CCDT), which contains channel, connections and CipherSpec. With `pymqi`, all
    connections of a process use the same CCDT."""
    channel: ChannelName | None = Field(default=None, validate_default=True)
    """Server-connection channel, in mode client."""
    connections: Annotated[list[str], values.connections(MAX_CONNECTIONS_LENGTH)] | None = Field(
        default=None, validate_default=True
    )
    """Addresses of the queue manager, `host(port)`, tried in this order."""
    user: Annotated[str, values.text(r"[!-~]{1,1024}", "a user name of ASCII characters without blanks")] | None = None
    """User name for authentication. None: the user that runs the bridge, without a password."""
    password_file: SecretPath | None = None
    """File whose first line is the user's password. A relative path is relative to the directory of this file. Takes
    precedence over `password_variable`."""
    password_variable: VariableName = PASSWORD_VARIABLE
    """Environment variable that contains the user's password."""
    token_file: SecretPath | None = None
    """File that contains an authentication token (JSON Web Token), instead of `user` and a password. The bridge reads
    the file for each connection, so that the token can be renewed. Requires `ibmmq`, IBM MQ 9.4 on Linux or AIX, and
    mode client."""
    tls: TlsConfig | None = None
    """TLS of a client connection. None: no TLS. With `ccdt_url`, its key repository is used for channels that have a
    CipherSpec."""
    application_name: Annotated[
        str, values.text(r"[!-~](?:[ -~]{0,26}[!-~])?", "an application name of 1 to 28 ASCII characters")
    ] = "mqbridge"
    """Application name that the queue manager shows as APPLTAG."""
    dead_letter_queue: ObjectName = "SYSTEM.DEAD.LETTER.QUEUE"
    """Queue for messages that the bridge cannot deliver."""
    client_identifiers: Annotated[ClientIdentifiers, values.choice(ClientIdentifiers)] = "as-is"
    """How client identifiers become queue manager names. `as-is`: unchanged. `escaped`: every byte that is not allowed in
    such a name becomes `%` and two hexadecimal digits (`dev-1` becomes `dev%2D1`). Change it only while no durable session
    exists."""
    publishers: Annotated[int, values.integer(1, 64)] = 4
    """Number of threads that put publications, each with its own connection. Each client is assigned to one of them."""
    removers: Annotated[int, values.integer(1, 64)] = 32
    """Maximum number of threads that remove delivered messages from the transmission queue, each with its own connection.
    Each removal takes one round trip, so together they remove about this number of messages per round trip. The number of
    active threads depends on the round trip time and the lag of removals."""
    subscription_connections: Annotated[int, values.integer(1, 10_000)] = 50
    """Maximum number of connections for the subscriptions of clean sessions. Each has at most MAXHANDS - 56 subscriptions.
    MaxChannels of the queue manager and MAXINST of the channel must allow these connections, those of `publishers` and
    `removers`, and five more."""
    batch: BatchConfig = Field(default_factory=BatchConfig)
    """Limits of one unit of work of a publisher."""
    asynchronous_puts: Truth = True
    """Whether the bridge puts without waiting for each response (MQPMO_ASYNC_RESPONSE). It then asks the queue manager for
    failed puts before each commit (MQSTAT). `pymqi` has no MQSTAT, so the bridge calls it in the client library."""

    read_ahead: Truth = True
    """Whether a client connection browses many messages in one round trip (MQOO_READ_AHEAD). If false, each delivery takes a
    round trip, and messages that an MQ application commits in one unit of work are never reordered."""
    shard: ShardConfig | None = None
    """The part of the clients that this bridge serves, together with its standby. None: all clients."""
    standby_delay: Annotated[float, values.duration(0, 3600)] = 0.0
    """Seconds that a standby waits after the active bridge has ended, so that a standby on a preferred host, with a shorter
    delay, becomes active."""
    outage_timeout: Annotated[float, values.duration(0, 3600)] = 10.0
    """Seconds without the queue manager after which the bridge closes the connections of its clients and rejects new ones, so
    that they connect to a standby. 0: never."""
    probe_interval: Annotated[float, values.duration(0.1, 600)] = 10.0
    """Seconds after which the bridge checks an idle connection. A lost connection can remain undetected this long."""

    @property
    def connection_list(self) -> str:
        """The `connections` in MQ's format: `host(port),host(port)`. Empty without `connections`."""
        return ",".join(self.connections or ())

    @field_validator("ccdt_url", "token_file", "tls")
    @classmethod
    def _for_clients(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("mode") == "bindings":
            raise values.refusal("no value, because mode bindings connects without a channel")
        return value

    @field_validator("ccdt_url")
    @classmethod
    def _group(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is None and info.data.get("name", "").startswith("*"):
            raise values.refusal("the URL of a CCDT, because name is a queue manager group")
        return url

    @field_validator("token_file")
    @classmethod
    def _token(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if file is not None and (info.data.get("user") is not None or info.data.get("password_file") is not None):
            raise values.refusal("no token_file together with user and password_file, because a token replaces both")
        if file is not None and info.data.get("library") == "pymqi":
            raise values.refusal("no value with library: pymqi, which cannot send a token (use ibmmq)")
        return file

    @field_validator("tls")
    @classmethod
    def _channel_tls(cls, tls: TlsConfig | None, info: ValidationInfo) -> TlsConfig | None:
        if tls is None or "ccdt_url" not in info.data:
            return tls
        if info.data["ccdt_url"] is None:
            if tls.cipher_spec is None:
                raise values.refusal(
                    "a CipherSpec, because without ccdt_url the bridge defines the channel", "cipher_spec"
                )
            return tls
        for name in ("cipher_spec", "peer_name"):
            if getattr(tls, name) is not None:
                raise values.refusal("no value, because the CCDT that ccdt_url names contains it", name)
        return tls

    @field_validator("channel", "connections")
    @classmethod
    def _where(cls, value: Any, info: ValidationInfo) -> Any:
        if "mode" not in info.data or "ccdt_url" not in info.data:
            return value  # invalid itself, which is reported first
        if value is not None and info.data["mode"] == "bindings":
            raise values.refusal("no value, because mode bindings connects without a channel")
        if value is not None and info.data["ccdt_url"] is not None:
            raise values.refusal("no value, because the CCDT of ccdt_url contains it")
        if value is None and info.data["mode"] == "client" and info.data["ccdt_url"] is None:
            expected = "the name of a server-connection channel" if info.field_name == "channel" else "host(port)"
            raise values.refusal(f"{expected}, because mode client needs channel and connections (or ccdt_url)")
        return value


def _type_of(data: Any) -> str | None:
    """Return the type of queue manager that `data` describes, or None if the type is unknown."""
    if not isinstance(data, Mapping):
        return str(getattr(data, "type", "embedded"))
    kind = data.get("type", "embedded")
    return kind if kind in ("embedded", "ibm") else None


QueueManagerConfig = Annotated[
    Annotated[EmbeddedQueueManagerConfig, Tag("embedded")] | Annotated[IbmQueueManagerConfig, Tag("ibm")],
    Discriminator(
        _type_of,
        custom_error_type="unknown_type",
        custom_error_message="type: expected {expected}",
        custom_error_context={"expected": "embedded or ibm"},
    ),
]
"""The queue manager that the bridge serves. The default type is embedded."""


class NoPassword(OSError):
    """A missing or unreadable password. The message names its user and source, but never contains the password."""


def read_password(whose: str, file: Path | None, variable: str | None, environment: Mapping[str, str]) -> str:
    """Return the first line of `file` if given, otherwise the value of the environment variable `variable`.

    Raises NoPassword if neither contains a password. `whose` appears in its message: "user mqbridge".
    """
    if file is not None:
        try:
            password = file.read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
        except OSError as error:
            raise NoPassword(f"no password for {whose}: password_file {file}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            # The text of this exception contains the bytes of the file.
            raise NoPassword(f"no password for {whose}: password_file {file} is not UTF-8") from None
        place = f"the first line of password_file {file} is empty"
    elif variable is not None:
        password = environment.get(variable, "")
        place = f"password_file is not set, and the environment variable {variable} is not set"
    else:
        password, place = "", "neither password_file nor password_variable is given"
    if not password:
        raise NoPassword(f"no password for {whose}: {place}")
    return password
