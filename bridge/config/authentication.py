"""Client authentication: the methods of a channel, and channel authentication records with their patterns.

The patterns follow IBM MQ: addresses ("Generic IP addresses") and distinguished names ("IBM MQ rules for SSLPEER values").
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from bridge.config import values
from bridge.config.values import FilePath, SecretPath, Section, Truth, UserName

_MAPPED: Final = re.compile(r"::ffff:([0-9.*-]+)", re.IGNORECASE)
_NUMBERS: Final = {10: re.compile(r"0|[1-9][0-9]{0,2}"), 16: re.compile(r"[0-9A-Fa-f]{1,4}")}


class _Part(NamedTuple):
    low: int
    high: int
    #: stands for one or more parts
    many: bool = False


class AddressPattern:
    """A pattern of IP addresses."""

    def __init__(self, text: str) -> None:
        """Parse a pattern. Raises ValueError with the expectation as a phrase."""
        #: matches every client, including clients without an address (on a Unix socket)
        self._is_any = text == "*"
        if mapped := _MAPPED.fullmatch(text):
            text = mapped[1]
        self._version = 6 if ":" in text else 4
        self._base, self._count = (16, 8) if self._version == 6 else (10, 4)
        self._last = 0xFFFF if self._version == 6 else 0xFF
        self._parts = self._read(text)

    def _read(self, text: str) -> list[_Part]:
        words = _without_double_colon(text) if self._version == 6 else text.split(".")
        parts = [self._part(word, text) for word in words]
        wild = [part for part in parts if part.many]
        if len(parts) > self._count or (len(parts) < self._count and not wild):
            raise ValueError(f"an IPv{self._version} address has {self._count} parts, and {text} has {len(parts)}")
        if len(parts) > 1 and parts[-1].many and parts[-2].many:
            raise ValueError(f"no * except the one at the end of {text}, which is for all parts that follow")
        if self._version == 6 and parts[:6] == [_Part(0, 0)] * 5 + [_Part(0xFFFF, 0xFFFF)]:
            raise ValueError(f"an IPv4 address, which {text} is mapped into IPv6, as such")
        return parts

    def _part(self, word: str, text: str) -> _Part:
        if word == "*":
            return _Part(0, self._last, many=True)
        low, hyphen, high = word.partition("-")
        number = _NUMBERS[self._base]
        if not number.fullmatch(low) or (hyphen and not number.fullmatch(high)):
            raise ValueError(f"a number, a range of them or * as each part of {text}, which {word!r} is not")
        first, last = int(low, self._base), int(high or low, self._base)
        if last > self._last:
            raise ValueError(f"parts of at most {self._last} in {text}")
        if hyphen and first >= last:
            raise ValueError(f"the lower number first in range {word} of {text}")
        return _Part(first, last)

    def matches(self, address: str) -> bool:
        """Return whether the pattern matches an IP address. "" is the address of a client on a Unix socket."""
        if self._is_any:
            return True
        try:
            there = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        there = getattr(there, "ipv4_mapped", None) or there
        if there.version != self._version:
            return False
        size = 16 // self._count if self._version == 6 else 1
        packed = there.packed
        numbers = [int.from_bytes(packed[at : at + size]) for at in range(0, len(packed), size)]
        return self._match(0, numbers)

    def _match(self, begin: int, numbers: list[int]) -> bool:
        """Match the parts from index `begin` against `numbers`. Recursion is limited by the number of parts (eight)."""
        for index in range(begin, len(self._parts)):
            part = self._parts[index]
            if part.many:
                rest = len(self._parts) - index - 1
                return any(self._match(index + 1, numbers[count:]) for count in range(1, len(numbers) - rest + 1))
            if not numbers or not part.low <= numbers[0] <= part.high:
                return False
            numbers = numbers[1:]
        return not numbers

    @property
    def specificity(self) -> tuple[int, ...]:
        """A sort key that compares greater for patterns that match fewer addresses, with the first part compared first."""
        if self._is_any:
            return (-0x1_0000,)
        more = self._count - len(self._parts)
        widths: list[int] = []
        for part in self._parts:
            spread = 1
            if part.many:
                spread, more = 1 + more, 0
            widths += [part.low - part.high] * spread
        return tuple(widths)


@lru_cache(1_000)
def address_pattern(text: str) -> AddressPattern:
    """Parse a pattern (cached). Raises ValueError with the expectation as a phrase."""
    return AddressPattern(text)


def _without_double_colon(text: str) -> list[str]:
    """Return the parts of an IPv6 pattern, with `::` expanded. Raises ValueError."""
    before_colons, double, right = text.partition("::")
    if not double:
        return text.split(":")
    if "*" in text:
        raise ValueError(f"either :: or * in {text}, for it is not clear which parts each is for")
    before, behind = (side.split(":") if side else [] for side in (before_colons, right))
    missing = 8 - len(before) - len(behind)
    if missing < 1:
        raise ValueError(f"fewer than eight parts next to the :: of {text}")
    return [*before, *["0"] * missing, *behind]


#: Attribute types that a pattern may contain -> their other names in patterns and certificates.
ATTRIBUTES: Final = {
    "SERIALNUMBER": (),
    "MAIL": ("E", "EMAILADDRESS"),
    "UID": ("USERID",),
    "CN": ("COMMONNAME",),
    "T": ("TITLE",),
    "OU": ("ORGANIZATIONALUNITNAME",),
    "DC": ("DOMAINCOMPONENT",),
    "O": ("ORGANIZATIONNAME",),
    "STREET": ("STREETADDRESS",),
    "L": ("LOCALITYNAME",),
    "ST": ("SP", "S", "STATEORPROVINCENAME"),
    "PC": ("POSTALCODE",),
    "C": ("COUNTRYNAME",),
    "UNSTRUCTUREDNAME": (),
    "UNSTRUCTUREDADDRESS": (),
    "DNQ": ("DNQUALIFIER",),
}
_NAMES: Final = {other: name for name, others in ATTRIBUTES.items() for other in (name, *others)}
#: Represents an escaped asterisk. Does not occur in patterns.
_ASTERISK: Final = "\0"


@lru_cache(1_000)
def name_pattern(text: str) -> tuple[tuple[str, str], ...]:
    """Return the attribute types and values of a pattern (cached). Raises ValueError with the expectation as a phrase."""
    attributes = _read(text)
    if not attributes:
        raise ValueError("a distinguished name such as CN=pump*,O=Example")
    for key, value in attributes:
        if key not in ATTRIBUTES:
            raise ValueError(f"one of {', '.join(ATTRIBUTES)} before = in {key or value!r}")
        if not value:
            raise ValueError(f"a value after {key}=")
        if "*" in value[1:-1]:
            raise ValueError(f"* at the beginning or the end of {key}={value}, or \\* for an asterisk")
    return tuple(attributes)


def matches_name(pattern: str, name: str) -> bool:
    """Return whether a distinguished name has all attributes of a pattern, in any order.

    A value of the pattern may start and end with `*`. If an attribute type occurs several times, its values must match in
    order. An invalid pattern matches no name.
    """
    try:
        attributes = name_pattern(pattern)
    except ValueError:
        return False
    there = _read(name)
    positions: dict[str, int] = {}
    for key, value in attributes:
        values = [pattern for other, pattern in there if other == key]
        index = positions.get(key, 0)
        while index < len(values) and not _value_matches(value, values[index]):
            index += 1
        if index == len(values):
            return False
        positions[key] = index + 1
    return True


def _value_matches(pattern: str, value: str) -> bool:
    pattern, value = pattern.lower(), value.replace(_ASTERISK, "*").lower()
    begins, ends = pattern.startswith("*"), pattern.endswith("*")
    middle = pattern[begins : len(pattern) - (ends and len(pattern) > begins)].replace(_ASTERISK, "*")
    if begins and ends:
        return middle in value
    if begins:
        return value.endswith(middle)
    return value.startswith(middle) if ends else value == middle


def _read(name: str) -> list[tuple[str, str]]:
    """Return the attribute types and values of a distinguished name, which are separated by commas or semicolons.

    Separators within a value are escaped with a backslash or quotes. A part without `=` has an empty type.
    """
    attributes: list[tuple[str, str]] = []
    part, quoted, escaped = "", False, False
    for character in name + ",":
        if escaped:
            part, escaped = part + (_ASTERISK if character == "*" else character), False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character in ",;" and not quoted:
            key, equals, value = part.partition("=")
            attributes.append((_type(key), value.strip()) if equals else ("", part.strip()))
            part = ""
        else:
            part += character
    if quoted or escaped:
        attributes.append(("", part))
    return attributes


def _type(key: str) -> str:
    key = key.strip().upper()
    return _NAMES.get(key, key)


_FILED = "no password in this file, because this file is not secret (name a file that only the bridge may read)"
_TEXT = values.text(r"[^\x00-\x1f]{1,1024}", "text of 1 to 1024 characters")


class AnonymousConfig(Section):
    """Accept clients without credentials. Such a client has no user name, and acts as `mcauser` if that is set."""

    method: Literal["anonymous"]
    """`anonymous`."""


class PasswordAuthenticationConfig(Section):
    """Check the user name and password against a password file."""

    method: Literal["password"]
    """`password`."""
    file: SecretPath
    """File with lines `user:HASH`, created by `mqbridge passwd`. Changes take effect without a restart."""


class ScramAuthenticationConfig(Section):
    """SCRAM-SHA-256 (RFC 7677), for MQTT 5 clients that name it as Authentication Method. No password is transmitted."""

    method: Literal["scram"]
    """`scram`."""
    file: SecretPath
    """File created by `mqbridge passwd`. It contains the SCRAM verifiers next to the hashes."""


class CertificateAuthenticationConfig(Section):
    """Authenticate clients by their TLS certificate, or by the certificate that a proxy reports."""

    method: Literal["certificate"]
    """`certificate`."""
    user: Annotated[
        str,
        values.text(
            r"(?:[^\x00-\x1f{}]|\{(?:CN|DN|SAN)\}){1,200}",
            "a template of 1 to 200 characters with {CN}, {DN} or {SAN}, such as {CN}",
        ),
    ] = "{CN}"
    """Template of the user name: {CN} is the Common Name, {DN} the whole distinguished name, {SAN} the first Subject
    Alternative Name."""


class JwtAuthenticationConfig(Section):
    """A JSON Web Token (RFC 7519) as the password. The bridge closes the connection when the token expires."""

    REFUSED: ClassVar[Mapping[str, str]] = {"secret": _FILED, "key": _FILED}

    method: Literal["jwt"]
    """`jwt`."""
    key_file: FilePath | None = None
    """Public key of the token issuer, PEM (RS256, PS256, ES256, EdDSA)."""
    jwks_file: FilePath | None = None
    """JSON Web Key Set (RFC 7517) instead of `key_file`. The token's `kid` selects the key."""
    audience: Annotated[str, _TEXT] | None = None
    """Required value of `aud`. None: tokens with `aud` are rejected."""
    issuer: Annotated[str, _TEXT] | None = None
    """Required value of `iss`. None: any value."""
    user_claim: Annotated[str, _TEXT] = "sub"
    """Claim that contains the user name."""
    leeway: Annotated[float, values.duration(0, 600)] = 30.0
    """Allowed clock difference, in seconds."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.key_file is None) == (self.jwks_file is None):
            raise values.refusal("key_file or jwks_file, one of them", "method")
        return self


class LdapAuthenticationConfig(Section):
    """Check the user name and password with an LDAP bind."""

    REFUSED: ClassVar[Mapping[str, str]] = {"bind_password": _FILED, "password": _FILED}

    method: Literal["ldap"]
    """`ldap`."""
    url: Annotated[str, values.url("ldap", "ldaps")]
    """URL of the directory server, such as ldaps://ldap.example.com."""
    bind_dn: Annotated[
        str, values.text(r"[^\x00-\x1f]{0,1000}\{user\}[^\x00-\x1f]{0,1000}", "a distinguished name with {user} in it")
    ]
    """Distinguished name for the bind. {user} is the MQTT user name, escaped according to RFC 4514."""
    start_tls: Truth = False
    """Whether to upgrade an ldap:// connection to TLS before sending the password."""
    ca_file: FilePath | None = None
    """Certificates of the trusted authorities (PEM). None: the system's."""
    allow_plain: Truth = False
    """Whether passwords may be sent to another machine without TLS."""
    timeout: Annotated[float, values.duration(0.1, 60)] = 5.0
    """Timeout for the directory server, in seconds."""


class QueueManagerAuthenticationConfig(Section):
    """Check the user name and password at the queue manager (MQCSP, CONNAUTH)."""

    method: Literal["queue-manager"]
    """`queue-manager`."""


class PluginAuthenticationConfig(Section):
    """An authenticator from an installed Python package: an entry point of the group `mqbridge.authenticators`."""

    method: Literal["plugin"]
    """`plugin`."""
    name: Annotated[str, _TEXT]
    """Name of the entry point."""
    options: Annotated[dict[str, Any], BeforeValidator(values.plain)] = Field(default_factory=dict)
    """Options for the authenticator."""


METHODS: dict[str, type[Section]] = {
    "anonymous": AnonymousConfig,
    "password": PasswordAuthenticationConfig,
    "scram": ScramAuthenticationConfig,
    "certificate": CertificateAuthenticationConfig,
    "jwt": JwtAuthenticationConfig,
    "ldap": LdapAuthenticationConfig,
    "queue-manager": QueueManagerAuthenticationConfig,
    "plugin": PluginAuthenticationConfig,
}
#: Methods that check a user name and password. A channel may have one of them, so that a wrong password is final.
OF_PASSWORDS = frozenset({"password", "jwt", "ldap", "queue-manager"})


def _method_of(data: Any) -> str | None:
    method = data.get("method") if isinstance(data, Mapping) else getattr(data, "method", None)
    return method if method in METHODS else None


AuthenticationConfig = Annotated[
    Annotated[AnonymousConfig, Tag("anonymous")]
    | Annotated[PasswordAuthenticationConfig, Tag("password")]
    | Annotated[ScramAuthenticationConfig, Tag("scram")]
    | Annotated[CertificateAuthenticationConfig, Tag("certificate")]
    | Annotated[JwtAuthenticationConfig, Tag("jwt")]
    | Annotated[LdapAuthenticationConfig, Tag("ldap")]
    | Annotated[QueueManagerAuthenticationConfig, Tag("queue-manager")]
    | Annotated[PluginAuthenticationConfig, Tag("plugin")],
    Discriminator(
        _method_of,
        custom_error_type="unknown_method",
        custom_error_message="method: expected {expected}",
        custom_error_context={"expected": values.listing(list(METHODS), "or")},
    ),
]
"""An authentication method."""


def each_kind_once(methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
    """Return `methods` if no two of them check the same credentials. Credentials that one rejects must not reach another.

    Raises ValueError (`values.refusal`).
    """
    methods_by_kind: dict[str, str] = {}
    for index, method in enumerate(methods):
        kind = "password" if method.method in OF_PASSWORDS else method.method
        if kind in methods_by_kind and kind != "plugin":
            expected = f"only one of {methods_by_kind[kind]} and other methods that check the same credentials"
            raise values.refusal(expected, index, "method")
        methods_by_kind[kind] = method.method
    return methods


RecordType = Literal["ADDRESSMAP", "USERMAP", "SSLPEERMAP", "BLOCKUSER", "BLOCKADDR"]
UserSource = Literal["MAP", "CHANNEL", "NOACCESS"]

_PROFILE = values.text(r"[A-Za-z0-9._/%]{0,20}\*?", "a channel name, or the beginning of one followed by *")
_ADDRESS = values.read_by(
    address_pattern,
    r"[0-9A-Fa-f.:*-]{1,64}",
    "an IP address, in which a part may be * or a range such as 1-5 (no host name)",
)
_DN = values.read_by(name_pattern, r"[^\x00-\x1f]{1,1024}", "a distinguished name such as CN=pump*,O=Example")

#: Keys of a record by type, besides channel, type, description and warn. The first is required.
_OF_MAPS = ("user_source", "mcauser")
KEYS: dict[str, tuple[str, ...]] = {
    "ADDRESSMAP": ("address", *_OF_MAPS),
    "USERMAP": ("client_user", "address", *_OF_MAPS),
    "SSLPEERMAP": ("ssl_peer", "ssl_cert_issuer", "address", *_OF_MAPS),
    "BLOCKUSER": ("user_list",),
    "BLOCKADDR": ("address_list",),
}


class ChannelAuthenticationConfig(Section):
    """A channel authentication record (MQ: SET CHLAUTH)."""

    channel: Annotated[str, _PROFILE] = "*"
    """Name of the channel, or a prefix with `*` (`PLAIN.*`)."""
    type: Annotated[RecordType, values.choice(RecordType)]
    """Type of the record. It selects clients by address, user name or certificate, or blocks users or addresses."""
    address: Annotated[str, _ADDRESS] | None = None
    """IP address of the client. Parts may be `*` or a range."""
    client_user: (
        Annotated[str, values.text(r"[!-~]{1,64}", "a user name of 1 to 64 characters without blanks")] | None
    ) = None
    """User name of the client, authenticated or merely claimed (MQ: CLNTUSER)."""
    ssl_peer: Annotated[str, _DN] | None = None
    """Pattern for the distinguished name of the client's certificate: attributes in any order, with `*` at either end of a
    value."""
    ssl_cert_issuer: Annotated[str, _DN] | None = None
    """Pattern for the distinguished name of the certificate's issuer."""
    user_source: Annotated[UserSource, values.choice(UserSource)] = "MAP"
    """MAP: the client acts as `mcauser`. CHANNEL: the channel determines the user. NOACCESS: the client is rejected (MQ:
    USERSRC)."""
    mcauser: UserName | None = None
    """MQ user of the matching clients, with user_source MAP."""
    user_list: list[Annotated[str, values.text(r"[!-~]{1,64}", "a user name, or *MQADMIN")]] = Field(default=[])
    """Blocked users. *MQADMIN stands for all privileged users."""
    address_list: list[Annotated[str, _ADDRESS]] = Field(default=[])
    """Blocked addresses, in the form of `address`."""
    warn: Truth = False
    """Whether the bridge accepts the clients that the record would reject, and logs a warning."""
    description: str = ""
    """Description of the record."""

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        allowed = {"channel", "type", "warn", "description", *KEYS[self.type]}
        if other := sorted(self.model_fields_set - allowed):
            raise values.refusal(f"no {other[0]} in a record of type {self.type}", other[0])
        if not getattr(self, needed := KEYS[self.type][0]):
            raise values.refusal(f"{needed} in a record of type {self.type}", "type")
        if "mcauser" in KEYS[self.type] and (self.user_source == "MAP") != (self.mcauser is not None):
            expected = (
                "mcauser, which user_source MAP needs" if self.mcauser is None else "user_source MAP with mcauser"
            )
            raise values.refusal(expected, "type" if self.mcauser is None else "user_source")
        if self.type == "BLOCKADDR" and self.channel != "*":
            raise values.refusal("channel '*' in a record of type BLOCKADDR", "channel")
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """The values that identify a record: no two records may share them (MQ: SET CHLAUTH)."""
        by = (self.address, self.client_user, self.ssl_peer, self.ssl_cert_issuer)
        return (self.channel, self.type, *(part or "" for part in by))
