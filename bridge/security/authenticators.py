"""The configured authentication of a channel, or of the listener for MQ applications.

Contains authenticators for certificates, JSON Web Tokens (RFC 7519, sent as the password) and LDAP directories.
"""

from __future__ import annotations

import math
import re
import ssl
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unicodedata import category
from urllib.parse import urlsplit

import msgspec

from bridge.config.authentication import (
    AuthenticationConfig,
    CertificateAuthenticationConfig,
    JwtAuthenticationConfig,
    LdapAuthenticationConfig,
    PasswordAuthenticationConfig,
    PluginAuthenticationConfig,
    QueueManagerAuthenticationConfig,
    ScramAuthenticationConfig,
)
from bridge.config.channel import ChannelConfig
from bridge.config.operations import AdminConfig
from bridge.config.queue_manager import ListenerConfig
from bridge.config.values import is_loopback
from bridge.security.authenticator import (
    OTHERS_FAILED,
    Authenticated,
    AuthenticationFailed,
    AuthenticationMethod,
    Authenticator,
    AuthenticatorUnavailable,
    Presented,
    UnknownPlugin,
    plugin,
)
from bridge.security.password_file import PasswordFile, PasswordFileError, PasswordHashes, read_password_file
from bridge.security.verification_queue import VerificationQueue

if TYPE_CHECKING:
    from jwt import PyJWKSet

#: Maximum length of a token in bytes.
MAX_LENGTH = 8192
#: Algorithms by key type. The token must not choose: with HS256, anybody could sign with the public key.
_ALGORITHMS = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "P-256": ["ES256"],
    "P-384": ["ES384"],
    "P-521": ["ES512"],
    "OKP": ["EdDSA"],
}


class KeyFileError(ValueError):
    """A file contains no key for verifying tokens. The message is for display."""


class VerificationKeys:
    """The public keys of token issuers, reloaded when their file changes."""

    def __init__(self, config: JwtAuthenticationConfig) -> None:
        path = config.key_file or config.jwks_file
        assert path is not None
        self._path: Path = path
        self._is_set = config.key_file is None
        self._stamp: object = None
        #: key identifier ("" if there is only one key) -> key and its algorithms
        self._keys: dict[str, tuple[Any, list[str]]] = {}

    def read(self) -> dict[str, tuple[Any, list[str]]]:
        """Read the keys by identifier, each with its algorithms. Raises KeyFileError, OSError."""
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from cryptography.x509 import load_pem_x509_certificate

        content = self._path.read_bytes()
        try:
            if self._is_set:
                return self._read_set(jwt.PyJWKSet.from_json(content.decode()))
            is_certificate = b"BEGIN CERTIFICATE" in content
            key = load_pem_x509_certificate(content).public_key() if is_certificate else load_pem_public_key(content)
            return {"": (key, _algorithms(key))}
        except (ValueError, jwt.PyJWTError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{self._path}: {error}") from error

    def _read_set(self, keys: PyJWKSet) -> dict[str, tuple[Any, list[str]]]:
        by_identifier: dict[str, tuple[Any, list[str]]] = {}
        for jwk in keys.keys:
            # Issuers also publish encryption keys (RFC 7517 section 4.2).
            if jwk.public_key_use not in (None, "sig"):
                continue
            identifier = str(jwk.key_id or "")
            if identifier in by_identifier:
                raise KeyFileError(f"{self._path}: two keys have the identifier (kid) {identifier!r}")
            by_identifier[identifier] = jwk.key, _algorithms(jwk.key)
        if not by_identifier:
            raise KeyFileError(f"{self._path}: it contains no key for verifying tokens")
        return by_identifier

    def key(self, identifier: str) -> tuple[Any, list[str]]:
        """Return a key and its algorithms. Raises AuthenticationFailed, AuthenticatorUnavailable."""
        try:
            status = self._path.stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if stamp != self._stamp:
                self._keys = self.read()
                self._stamp = stamp
        except KeyFileError as error:
            raise AuthenticatorUnavailable(str(error)) from None
        except OSError as error:
            raise AuthenticatorUnavailable(f"{self._path} cannot be read: {error.strerror or error}") from error
        keys = self._keys
        key = keys.get("") if not self._is_set else keys.get(identifier)
        if key is None and not identifier and len(keys) == 1:
            key = next(iter(keys.values()))
        if key is None:
            raise AuthenticationFailed(
                f"its token is signed with a key, {identifier[:40]!r}, that is not in {self._path}"
            )
        return key


class JwtAuthenticator:
    """Verifies tokens. A user name in CONNECT must match the token's."""

    def __init__(self, config: JwtAuthenticationConfig, keys: VerificationKeys) -> None:
        self._config = config
        self._keys = keys

    def applies_to(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        import jwt

        token, config = presented.password, self._config
        if not token or len(token) > MAX_LENGTH:
            reason = "it contains no token" if not token else f"its token is longer than {MAX_LENGTH} bytes"
            raise AuthenticationFailed(reason)
        try:
            key, algorithms = self._keys.key(str(jwt.get_unverified_header(token).get("kid") or ""))
            claims = jwt.decode(
                token,
                key,
                algorithms=algorithms,
                audience=config.audience,
                issuer=config.issuer,
                leeway=config.leeway,
                options={"require": ["exp", *(["iss"] if config.issuer else [])]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise AuthenticationFailed(f"token rejected: {error}") from None
        user = claims.get(config.user_claim)
        if not isinstance(user, str) or not user:
            raise AuthenticationFailed(f"its token contains no user in {config.user_claim!r}")
        if presented.user_name not in (None, "", user):
            raise AuthenticationFailed(
                f"its user name, {presented.user_name!r}, differs from the user of its token, {user[:40]!r}"
            )
        return Authenticated(user, expires=float(claims["exp"]) + config.leeway)


def _algorithms(key: Any) -> list[str]:
    """Return the algorithms of a public key. Raises KeyFileError."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < 2048:
            raise KeyFileError(f"an RSA key of {key.key_size} bits is too short; the minimum is 2048")
        return _ALGORITHMS["RSA"]
    if isinstance(key, ec.EllipticCurvePublicKey):
        kind = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}.get(key.curve.name, "")
    else:
        kind = "OKP" if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) else ""
    if kind not in _ALGORITHMS:
        raise KeyFileError(f"keys of type {type(key).__name__.strip('_')} cannot verify tokens")
    return _ALGORITHMS[kind]


#: Maximum number of concurrent binds.
_THREADS: Final = 4
_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN = 49, 32, 34


class LdapAuthenticator:
    """Binds as each client, in a thread pool: a simple bind with user name and password (RFC 4513 section 5.1.3).

    For a directory, CAROL and full-width letters are equivalent to carol, and leading and trailing blanks are insignificant.
    So the user name is the one that the directory reports ("Who am I?", RFC 4532), not the one in CONNECT. If the directory
    does not report a name that matches `bind_dn`, only the canonical spelling of a user name is accepted.
    """

    def __init__(self, config: LdapAuthenticationConfig) -> None:
        self._config = config
        self._queue = VerificationQueue(ThreadPoolExecutor(_THREADS, "ldap"), _THREADS)

    def applies_to(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        user, password = presented.user_name, presented.password
        # A bind with an empty password is anonymous and succeeds (RFC 4513 section 5.1.2).
        if not user or not password:
            raise AuthenticationFailed("it contains no user name or no password")
        try:
            text = password.decode("utf-8")
        except UnicodeDecodeError:
            raise AuthenticationFailed("its password is not UTF-8, which LDAP requires") from None
        bound = await self._queue.run(presented, self._bind, user, text)
        user_name = user_of(bound, self._config.bind_dn)
        if user_name is None and user != plainest(user):
            raise AuthenticationFailed(
                f"{self._config.url} does not report the bound name, and {user[:40]!r} is not the canonical spelling"
                f" {plainest(user)[:40]!r}"
            )
        return Authenticated(user_name or user)

    def _bind(self, user: str, password: str) -> str:
        """Bind once and return the authzId, such as `dn:uid=carol,o=Example`, or "" if the directory does not report it.

        Raises AuthenticationFailed, AuthenticatorUnavailable.
        """
        from ldap3 import AUTO_BIND_NONE, Connection, Server, Tls
        from ldap3.core.exceptions import LDAPException
        from ldap3.utils.dn import escape_rdn

        config = self._config
        tls = Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=None if config.ca_file is None else str(config.ca_file))
        name = config.bind_dn.replace("{user}", escape_rdn(user))
        try:
            server = Server(config.url, tls=tls, connect_timeout=config.timeout, get_info="NO_INFO")
            # ldap3 requires whole seconds here.
            receive_timeout = math.ceil(config.timeout)
            connection = Connection(
                server,
                name,
                password,
                auto_bind=AUTO_BIND_NONE,
                receive_timeout=receive_timeout,
                raise_exceptions=False,
            )
            try:
                connection.open()
                if config.start_tls and not connection.start_tls():
                    raise AuthenticatorUnavailable(f"{config.url} does not support StartTLS (start_tls)")
                bound = connection.bind()
                bind_result = connection.result
                authorization_identity = connection.extend.standard.who_am_i() if bound else None
            finally:
                connection.unbind()
        except (LDAPException, OSError) as error:
            raise AuthenticatorUnavailable(f"{config.url} does not answer: {error}") from None
        if not bound:
            if bind_result["result"] in (_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN):
                raise AuthenticationFailed(f"{config.url} does not know {name!r} with that password")
            raise AuthenticatorUnavailable(f"{config.url} rejected the bind: {bind_result['description']}")
        return authorization_identity or ""


def user_of(authorization_identity: str, bind_dn: str) -> str | None:
    """Return the part of a bound name that corresponds to {user} in `bind_dn`, or None if the name does not match."""
    from ldap3.core.exceptions import LDAPInvalidDnError
    from ldap3.utils.dn import parse_dn

    kind, _, name = authorization_identity.partition(":")
    try:
        template_parts, name_parts = parse_dn(bind_dn), parse_dn(name)
    except LDAPInvalidDnError:
        return None
    if kind != "dn" or len(template_parts) != len(name_parts):
        return None
    for (template_attribute, template, _), (attribute, value, _) in zip(template_parts, name_parts, strict=True):
        prefix, placeholder, suffix = template.partition("{user}")
        if placeholder and template_attribute.lower() == attribute.lower():
            text = _unescaped(value)
            prefix, suffix = _unescaped(prefix), _unescaped(suffix)
            matches = text.lower().startswith(prefix.lower()) and text.lower().endswith(suffix.lower())
            user = text[len(prefix) : len(text) - len(suffix)]
            return user if matches and user else None
    return None


def plainest(user: str) -> str:
    """Return the canonical spelling of a user name, required if the directory does not report its own spelling."""
    return " ".join(unicodedata.normalize("NFKC", user).casefold().split())


def _unescaped(value: str) -> str:
    """Unescape a value of a distinguished name: a backslash precedes two hexadecimal digits or a character."""
    whole = re.sub(rb"\\([0-9A-Fa-f]{2}|.)", _byte, value.encode(), flags=re.DOTALL)
    return whole.decode("utf-8", "replace")


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode()) if len(match[1]) == 2 else match[1]


def plain_passwords(config: LdapAuthenticationConfig) -> bool:
    """Return whether passwords would be sent to another machine without TLS and without `allow_plain`."""
    url = urlsplit(config.url)
    plain = url.scheme == "ldap" and not config.start_tls
    return plain and not config.allow_plain and not is_loopback(url.hostname or "")


_PART = re.compile(r"\{(CN|DN|SAN)\}")


class CertificateAuthenticator:
    """Derives the user name from the certificate with a template that contains {CN}, {DN} or {SAN}."""

    def __init__(self, template: str) -> None:
        self._template = template

    def applies_to(self, presented: Presented) -> bool:
        return presented.certificate is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        certificate = presented.certificate
        assert certificate is not None
        names = certificate.alternative_names
        parts = {"CN": certificate.common_name, "DN": certificate.subject, "SAN": names[0] if names else ""}

        def part(match: re.Match[str]) -> str:
            if not parts[match[1]]:
                raise AuthenticationFailed(f"its certificate, of {certificate.subject!r}, has no {match[1]}")
            return parts[match[1]]

        return Authenticated(_PART.sub(part, self._template))


#: Maximum length of a user name in characters.
MAX_NAME_LENGTH: Final = 1_024
#: Unicode categories not allowed in user names: control, format, surrogate, line separator and paragraph separator.
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class ChannelAuthentication(msgspec.Struct, frozen=True):
    """The authentication of a channel's clients, or of the listener's applications."""

    #: whether authentication is configured; if not, user names are accepted without verification
    asks: bool = False
    authenticators: Sequence[Authenticator] = ()
    #: enhanced authentication methods by name
    methods: Mapping[str, AuthenticationMethod] = {}
    #: whether clients without credentials are accepted
    anonymous: bool = False
    #: whether users of the channel may resume sessions of other users
    shared_client_ids: bool = False

    async def authenticate(self, presented: Presented, login: Authenticated | None = None) -> Authenticated:
        """Return the user of a client. `login` is the result of enhanced authentication.

        All presented credentials must be valid. Enhanced authentication determines the user, otherwise the first
        authenticator. With enhanced authentication, a user name without a password is not a credential. Raises
        AuthenticationFailed, AuthenticatorUnavailable.
        """
        if presented.attempt is not None and not presented.attempt.start():
            raise AuthenticatorUnavailable(OTHERS_FAILED)
        if login is not None and presented.password is None:
            presented = msgspec.structs.replace(presented, user_name=None)
        expires = math.inf if login is None or login.expires is None else login.expires
        first = login
        for authenticator in self.authenticators:
            if authenticator.applies_to(presented):
                outcome = await authenticator.authenticate(presented)
                first = first or outcome
                expires = min(expires, math.inf if outcome.expires is None else outcome.expires)
        if first is None and not self.anonymous:
            raise AuthenticationFailed("it presents no credentials")
        first = first or Authenticated("", verified=False)
        if refusal := refusal_of_name(first.user_name if first.user_name is not None else presented.user_name or ""):
            raise AuthenticationFailed(refusal)
        return msgspec.structs.replace(first, expires=None if math.isinf(expires) else expires)


class Authenticators:
    """Creates the authentication of channels. Shares password files and caches between them."""

    def __init__(
        self, queue_manager: Callable[[], Authenticator] | None = None, password_cache_file: Path | None = None
    ) -> None:
        """Create the factory.

        `queue_manager` creates the authenticator of method `queue-manager`, which listeners don't support. Verified passwords
        of channels are cached in `password_cache_file`, unless it is None.
        """
        self._queue_manager = queue_manager
        #: authentication of the admin port's users
        self.admin = ChannelAuthentication()
        self._hashes = PasswordHashes(password_cache_file)
        #: in memory only, because console logins are rare and users can wait for an expensive hash
        self._admin_hashes = PasswordHashes()
        self._files: dict[Path, PasswordFile] = {}

    def of_channel(self, channel: ChannelConfig) -> ChannelAuthentication:
        """Return the authentication of a channel. Raises UnknownPlugin."""
        methods: dict[str, AuthenticationMethod] = {
            name: plugin("authentication method", name) for name in channel.authentication_methods
        }
        for config in channel.authentication:
            if isinstance(config, ScramAuthenticationConfig):
                from bridge.security.scram import NAME, Scram

                methods[NAME] = Scram(self._file(config.file))
        authentication = self._of(channel.authentication, methods, self._hashes)
        return msgspec.structs.replace(authentication, shared_client_ids=channel.shared_client_ids)

    def of_channels(self, channels: Sequence[ChannelConfig]) -> dict[str, ChannelAuthentication]:
        """Return the authentication of channels by name. Raises UnknownPlugin."""
        return {channel.name: self.of_channel(channel) for channel in channels}

    def of_listener(self, listener: ListenerConfig) -> ChannelAuthentication:
        """Return the authentication of the listener for MQ applications. Raises UnknownPlugin."""
        authentication = self._of(listener.authentication, {}, self._hashes)
        if listener.password_file is None:
            return authentication
        from bridge.security.password_file import PasswordAuthenticator

        by_file = PasswordAuthenticator(PasswordFile(listener.password_file, plain=True), self._hashes)
        return ChannelAuthentication(True, [by_file, *authentication.authenticators], {}, authentication.anonymous)

    def of_admin(self, admin: AdminConfig) -> ChannelAuthentication:
        """Return the authentication of the admin port. Raises UnknownPlugin."""
        return self._of(admin.authentication, {}, self._admin_hashes)

    def close(self) -> None:
        """Stop the threads that compute hashes."""
        for hashes in (self._hashes, self._admin_hashes):
            hashes.executor.shutdown(wait=False, cancel_futures=True)

    def _of(
        self,
        configs: Sequence[AuthenticationConfig],
        methods: Mapping[str, AuthenticationMethod],
        hashes: PasswordHashes,
    ) -> ChannelAuthentication:
        return ChannelAuthentication(
            bool(configs),
            [authenticator for config in configs if (authenticator := self._authenticator(config, hashes)) is not None],
            methods,
            any(config.method == "anonymous" for config in configs),
        )

    def _authenticator(self, config: AuthenticationConfig, hashes: PasswordHashes) -> Authenticator | None:
        # Imported on demand: each needs its own package.
        match config:
            case PasswordAuthenticationConfig():
                from bridge.security.password_file import PasswordAuthenticator

                return PasswordAuthenticator(self._file(config.file), hashes)
            case CertificateAuthenticationConfig():
                return CertificateAuthenticator(config.user)
            case JwtAuthenticationConfig():
                return JwtAuthenticator(config, VerificationKeys(config))
            case LdapAuthenticationConfig():
                if plain_passwords(config):
                    raise UnknownPlugin(_in_plain(config))
                return LdapAuthenticator(config)
            case QueueManagerAuthenticationConfig():
                assert self._queue_manager is not None
                return self._queue_manager()
            case PluginAuthenticationConfig():
                authenticator: Authenticator = plugin("authenticator", config.name, config.options)
                return authenticator
            case _:
                return None

    def _file(self, path: Path) -> PasswordFile:
        return self._files.setdefault(path, PasswordFile(path))


def refusal_of_name(user: str) -> str:
    """Return why a user name is not allowed, or "".

    IBM MQ pads names with blanks and ends them at a NUL, so such a suffix would turn a name into another user's. In logs,
    invisible and direction-changing characters would make a name look like another one.
    """
    if len(user) > MAX_NAME_LENGTH:
        return f"its user name is longer than {MAX_NAME_LENGTH} characters"
    if user != user.strip():
        return f"its user name, {user[:40]!r}, begins or ends with a blank"
    if any(category(character) in _INVISIBLE for character in user):
        return f"its user name, {user[:40]!r}, contains an invisible character"
    return ""


def lacking(config: AuthenticationConfig) -> Iterator[str]:
    """Yield a description of each missing or invalid resource that a method needs."""
    match config:
        case PasswordAuthenticationConfig() | ScramAuthenticationConfig():
            try:
                entries = read_password_file(config.file)
            except PasswordFileError as error:
                yield str(error)
                return
            except OSError as error:
                remedy = "create it with `mqbridge passwd`"
                if isinstance(error, PermissionError):
                    remedy = "change its group to one of the bridge's user (chgrp), with mode 640"
                yield f"{config.file}: {error.strerror or error}; {remedy}"
                return
            if config.method == "scram" and not any(entry.scram for entry in entries.values()):
                yield f"{config.file}: no user in it has a SCRAM verifier; add one with `mqbridge passwd`"
        case JwtAuthenticationConfig():
            try:
                VerificationKeys(config).read()
            except KeyFileError as error:
                yield str(error)
            except OSError as error:
                yield f"{config.key_file or config.jwks_file}: {error.strerror or error}"
        case LdapAuthenticationConfig():
            if plain_passwords(config):
                yield _in_plain(config)
            if config.ca_file is not None and not config.ca_file.is_file():
                yield f"ca_file {config.ca_file} does not exist"
        case PluginAuthenticationConfig():
            try:
                plugin("authenticator", config.name, config.options)
            except UnknownPlugin as error:
                yield str(error)


def _in_plain(config: LdapAuthenticationConfig) -> str:
    return f"passwords would be sent to {config.url} without TLS; set start_tls: true, or allow_plain: true"
