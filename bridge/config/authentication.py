"""How the clients of a channel show who they are: its list of authentication methods."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from bridge.config import values
from bridge.config.section import FilePath, Section, Truth

_FILED = "no password in this file, because too many read it (name a file that the bridge alone may read)"
_TEXT = values.text(r"[^\x00-\x1f]{1,1024}", "text of 1 to 1024 characters")


class AnonymousConfig(Section):
    """Lets in a client that has presented nothing that another method judges. It acts as nobody, or as `mcauser`."""

    method: Literal["anonymous"]
    """`anonymous`."""


class PasswordAuthenticationConfig(Section):
    """User name and password by a file."""

    method: Literal["password"]
    """`password`."""
    file: FilePath
    """File with lines `user:HASH`, as `mqbridge passwd` writes them. A change to it needs no restart."""


class ScramAuthenticationConfig(Section):
    """SCRAM-SHA-256 (RFC 7677), by which no password travels: clients of MQTT 5 that name it as Authentication Method."""

    method: Literal["scram"]
    """`scram`."""
    file: FilePath
    """The file of `mqbridge passwd`, which has what verifies SCRAM beside each hash."""


class CertificateAuthenticationConfig(Section):
    """The certificate of TLS, or what a proxy says of one."""

    method: Literal["certificate"]
    """`certificate`."""
    user: Annotated[
        str,
        values.text(
            r"(?:[^\x00-\x1f{}]|\{(?:CN|DN|SAN)\}){1,200}",
            "a template of 1 to 200 characters with {CN}, {DN} or {SAN}, such as {CN}",
        ),
    ] = "{CN}"
    """The user that it makes of the client: {CN} is the Common Name, {DN} the whole distinguished name, {SAN} the first
    Subject Alternative Name."""


class JwtAuthenticationConfig(Section):
    """A JSON Web Token (RFC 7519) in place of a password. The connection ends when it expires."""

    REFUSED: ClassVar[Mapping[str, str]] = {"secret": _FILED, "key": _FILED}

    method: Literal["jwt"]
    """`jwt`."""
    key_file: FilePath | None = None
    """The public key of who issues tokens, PEM (RS256, PS256, ES256, EdDSA)."""
    jwks_file: FilePath | None = None
    """Keys as a JSON Web Key Set (RFC 7517), found by the token's `kid`; in place of `key_file`."""
    audience: Annotated[str, _TEXT] | None = None
    """What `aud` has to be; None: a token that has one is refused."""
    issuer: Annotated[str, _TEXT] | None = None
    """What `iss` has to be; None: anything."""
    user_claim: Annotated[str, _TEXT] = "sub"
    """The claim that names the user."""
    leeway: Annotated[float, values.duration(0, 600)] = 30.0
    """Seconds by which clocks may differ."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.key_file is None) == (self.jwks_file is None):
            raise values.refusal("key_file or jwks_file, one of them", "method")
        return self


class LdapAuthenticationConfig(Section):
    """User name and password by a bind at a directory (LDAP)."""

    REFUSED: ClassVar[Mapping[str, str]] = {"bind_password": _FILED, "password": _FILED}

    method: Literal["ldap"]
    """`ldap`."""
    url: Annotated[str, values.url("ldap", "ldaps")]
    """Where the directory answers, such as ldaps://ldap.example.com."""
    bind_dn: Annotated[
        str, values.text(r"[^\x00-\x1f]{0,1000}\{user\}[^\x00-\x1f]{0,1000}", "a distinguished name with {user} in it")
    ]
    """The name to bind as; {user} stands for the MQTT user name, escaped as RFC 4514 wants it."""
    start_tls: Truth = False
    """Whether a connection of ldap:// becomes one of TLS before the password is sent."""
    ca_file: FilePath | None = None
    """The authorities to trust, PEM; None: those of the machine."""
    allow_plain: Truth = False
    """Whether passwords may be sent without TLS to another machine than this one."""
    timeout: Annotated[float, values.duration(0.1, 60)] = 5.0
    """Seconds that the directory may take."""


class QueueManagerAuthenticationConfig(Section):
    """User name and password by the queue manager's own check (MQCSP; CONNAUTH)."""

    method: Literal["queue-manager"]
    """`queue-manager`."""


class PluginAuthenticationConfig(Section):
    """An authenticator that is installed as a Python package: an entry point of the group `mqbridge.authenticators`."""

    method: Literal["plugin"]
    """`plugin`."""
    name: Annotated[str, _TEXT]
    """Its name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What it is to know."""


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
#: Methods that judge user name and password, of which a channel has one: a password that is wrong for one is wrong.
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
"""One way to show who a client is."""


def each_kind_once(methods: list[AuthenticationConfig]) -> list[AuthenticationConfig]:
    """Return methods of which no two judge the same: what is wrong for one is wrong, and falls through to no other.

    Raises ValueError (`values.refusal`).
    """
    seen: dict[str, str] = {}
    for index, one in enumerate(methods):
        kind = "password" if one.method in OF_PASSWORDS else one.method
        if kind in seen and kind != "plugin":
            expected = f"no method beside {seen[kind]} that judges the same, because what is wrong for one is wrong"
            raise values.refusal(expected, index, "method")
        seen[kind] = one.method
    return methods
