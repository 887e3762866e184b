"""Authentication with an LDAP directory: a simple bind with user name and password (RFC 4513 section 5.1.3).

For a directory, CAROL and full-width letters are equivalent to carol, and leading and trailing blanks are insignificant. So
the user name is the one that the directory reports ("Who am I?", RFC 4532), not the one in CONNECT. If the directory does not
report a name that matches `bind_dn`, only the canonical spelling of a user name is accepted.
"""

from __future__ import annotations

import math
import re
import ssl
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from bridge.config.authentication import LdapAuthenticationConfig
from bridge.config.values import is_loopback
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.verification_queue import VerificationQueue

#: Maximum number of concurrent binds.
_THREADS: Final = 4
_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN = 49, 32, 34


class LdapAuthenticator:
    """Binds as each client, in a thread pool."""

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
            raise AuthenticationFailed("its password is not UTF-8, which a directory wants") from None
        bound = await self._queue.run(presented, self._bind, user, text)
        found = user_of(bound, self._config.bind_dn)
        if found is None and user != plainest(user):
            why = f"{user[:40]!r} could be written {plainest(user)[:40]!r}"
            raise AuthenticationFailed(f"{self._config.url} does not say as whom it has bound, and {why}")
        return Authenticated(found or user)

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
            patience = math.ceil(config.timeout)
            connection = Connection(
                server, name, password, auto_bind=AUTO_BIND_NONE, receive_timeout=patience, raise_exceptions=False
            )
            try:
                connection.open()
                if config.start_tls and not connection.start_tls():
                    raise AuthenticatorUnavailable(f"{config.url} does not begin TLS (start_tls)")
                bound = connection.bind()
                result = connection.result
                authorization_identity = connection.extend.standard.who_am_i() if bound else None
            finally:
                connection.unbind()
        except (LDAPException, OSError) as error:
            raise AuthenticatorUnavailable(f"{config.url} does not answer: {error}") from None
        if not bound:
            if result["result"] in (_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN):
                raise AuthenticationFailed(f"{config.url} does not know {name!r} with that password")
            raise AuthenticatorUnavailable(f"{config.url} refuses the bind: {result['description']}")
        return authorization_identity or ""


def user_of(authorization_identity: str, bind_dn: str) -> str | None:
    """Return the part of a bound name that corresponds to {user} in `bind_dn`, or None if the name does not match."""
    from ldap3.core.exceptions import LDAPInvalidDnError
    from ldap3.utils.dn import parse_dn

    kind, _, name = authorization_identity.partition(":")
    try:
        asked, found = parse_dn(bind_dn), parse_dn(name)
    except LDAPInvalidDnError:
        return None
    if kind != "dn" or len(asked) != len(found):
        return None
    for (attribute, template, _), (other, value, _) in zip(asked, found, strict=True):
        before, place, behind = template.partition("{user}")
        if place and attribute.lower() == other.lower():
            text = _unescaped(value)
            before, behind = _unescaped(before), _unescaped(behind)
            fits = text.lower().startswith(before.lower()) and text.lower().endswith(behind.lower())
            user = text[len(before) : len(text) - len(behind)]
            return user if fits and user else None
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
    parts = urlsplit(config.url)
    plain = parts.scheme == "ldap" and not config.start_tls
    return plain and not config.allow_plain and not is_loopback(parts.hostname or "")
