"""The configured authentication of a channel, or of the listener for MQ applications."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from unicodedata import category

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
from bridge.security.authenticator import (
    AUTHENTICATOR_GROUP,
    OTHERS_FAILED,
    Authenticated,
    AuthenticationFailed,
    AuthenticationMethod,
    Authenticator,
    AuthenticatorUnavailable,
    Presented,
    load,
)
from bridge.security.password_file import PasswordFile, PasswordFileError, PasswordHashes, read_password_file

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
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class UnknownAuthenticator(Exception):
    """A configured authenticator is not installed or cannot be created. The message is for display."""


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

    async def authenticate(self, presented: Presented, shown: Authenticated | None = None) -> Authenticated:
        """Return the user of a client. `shown` is the result of enhanced authentication.

        All presented credentials must be valid. Enhanced authentication determines the user, otherwise the first
        authenticator. With enhanced authentication, a user name without a password is not a credential. Raises
        AuthenticationFailed, AuthenticatorUnavailable.
        """
        if presented.attempt is not None and not presented.attempt.start():
            raise AuthenticatorUnavailable(OTHERS_FAILED)
        if shown is not None and presented.password is None:
            presented = msgspec.structs.replace(presented, user_name=None)
        expires = math.inf if shown is None or shown.expires is None else shown.expires
        first = shown
        for authenticator in self.authenticators:
            if authenticator.applies_to(presented):
                found = await authenticator.authenticate(presented)
                first = first or found
                expires = min(expires, math.inf if found.expires is None else found.expires)
        if first is None and not self.anonymous:
            raise AuthenticationFailed("it presents no credentials")
        first = first or Authenticated("", verified=False)
        if why := refusal_of_name(first.user_name if first.user_name is not None else presented.user_name or ""):
            raise AuthenticationFailed(why)
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
        #: in memory only: console logins are rare, and users can wait for an expensive hash
        self._admin_hashes = PasswordHashes()
        self._files: dict[Path, PasswordFile] = {}

    def of_channel(self, channel: ChannelConfig) -> ChannelAuthentication:
        """Return the authentication of a channel. Raises UnknownAuthenticator, UnknownMethod."""
        methods: dict[str, AuthenticationMethod] = dict(load(channel.authentication_methods))
        for config in channel.authentication:
            if isinstance(config, ScramAuthenticationConfig):
                from bridge.security.scram import NAME, Scram

                methods[NAME] = Scram(self._file(config.file))
        authentication = self._of(channel.authentication, methods, self._hashes)
        return msgspec.structs.replace(authentication, shared_client_ids=channel.shared_client_ids)

    def of_channels(self, channels: Sequence[ChannelConfig]) -> dict[str, ChannelAuthentication]:
        """Return the authentication of channels by name. Raises UnknownAuthenticator, UnknownMethod."""
        return {one.name: self.of_channel(one) for one in channels}

    def of_listener(self, listener: ListenerConfig) -> ChannelAuthentication:
        """Return the authentication of the listener for MQ applications. Raises UnknownAuthenticator."""
        found = self._of(listener.authentication, {}, self._hashes)
        if listener.password_file is None:
            return found
        from bridge.security.password_file import PasswordAuthenticator

        by_file = PasswordAuthenticator(PasswordFile(listener.password_file, plain=True), self._hashes)
        return ChannelAuthentication(True, [by_file, *found.authenticators], {}, found.anonymous)

    def of_admin(self, admin: AdminConfig) -> ChannelAuthentication:
        """Return the authentication of the admin port. Raises UnknownAuthenticator."""
        return self._of(admin.authentication, {}, self._admin_hashes)

    def close(self) -> None:
        """Stop the threads that compute hashes."""
        for hashes in (self._hashes, self._admin_hashes):
            hashes.executor.shutdown(wait=False, cancel_futures=True)

    def _of(
        self, configs: Sequence[AuthenticationConfig], methods: Mapping[str, AuthenticationMethod], hashes: PasswordHashes
    ) -> ChannelAuthentication:
        return ChannelAuthentication(
            bool(configs),
            [one for config in configs if (one := self._authenticator(config, hashes)) is not None],
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
                from bridge.security.json_web_token import JwtAuthenticator, VerificationKeys

                return JwtAuthenticator(config, VerificationKeys(config))
            case LdapAuthenticationConfig():
                from bridge.security.ldap_directory import LdapAuthenticator, plain_passwords

                if plain_passwords(config):
                    raise UnknownAuthenticator(_in_plain(config))
                return LdapAuthenticator(config)
            case QueueManagerAuthenticationConfig():
                assert self._queue_manager is not None
                return self._queue_manager()
            case PluginAuthenticationConfig():
                return _plugin(config)
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
    if any(category(character) in _UNSEEN for character in user):
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
                remedy = "`mqbridge passwd` makes it"
                if isinstance(error, PermissionError):
                    remedy = "let a group of the bridge's user own it (chgrp), with mode 640"
                yield f"{config.file}: {error.strerror or error}; {remedy}"
                return
            if config.method == "scram" and not any(one.scram for one in entries.values()):
                yield f"{config.file}: no user in it has a SCRAM verifier; add one with `mqbridge passwd`"
            yield from readable_by_others(config.file)
        case JwtAuthenticationConfig():
            from bridge.security.json_web_token import KeyFileError, VerificationKeys

            try:
                VerificationKeys(config).read()
            except KeyFileError as error:
                yield str(error)
            except OSError as error:
                yield f"{config.key_file or config.jwks_file}: {error.strerror or error}"
        case LdapAuthenticationConfig():
            from bridge.security.ldap_directory import plain_passwords

            if plain_passwords(config):
                yield _in_plain(config)
            if config.ca_file is not None and not config.ca_file.is_file():
                yield f"ca_file {config.ca_file} is not there"
        case PluginAuthenticationConfig():
            try:
                _plugin(config)
            except UnknownAuthenticator as error:
                yield str(error)


def readable_by_others(path: Path) -> Iterator[str]:
    """Yield a warning if a file with secrets is accessible to users who are neither its owner nor in its group."""
    if path.stat().st_mode & 0o007:
        yield f"{path} can be read by every user of this machine; run `chmod o= {path}`"


def _in_plain(config: LdapAuthenticationConfig) -> str:
    return f"passwords would be sent to {config.url} without TLS; write start_tls: true, or allow_plain: true"


def _plugin(config: PluginAuthenticationConfig) -> Authenticator:
    installed = {one.name: one for one in entry_points(group=AUTHENTICATOR_GROUP)}
    if config.name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        why = f"authenticator {config.name!r} is not installed (entry points of {AUTHENTICATOR_GROUP}: {known})"
        raise UnknownAuthenticator(why)
    try:
        made: Authenticator = installed[config.name].load()(config.options)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UnknownAuthenticator(f"authenticator {config.name!r} could not be created: {what}") from error
    return made
