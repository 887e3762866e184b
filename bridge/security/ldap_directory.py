"""Who a client is by a directory: a simple bind with its user name and password (RFC 4513 section 5.1.3)."""

from __future__ import annotations

import asyncio
import math
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from bridge.config.authentication import LdapAuthenticationConfig
from bridge.config.values import is_loopback
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented

#: Binds at a time, and clients that may wait for one.
_THREADS: Final = 4
_MOST_WAITING: Final = 200
_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN = 49, 32, 34


class LdapAuthenticator:
    """Binds as each client, in threads of its own."""

    def __init__(self, config: LdapAuthenticationConfig) -> None:
        self._config = config
        self._executor = ThreadPoolExecutor(_THREADS, "ldap")
        self._waiting = 0

    def judges(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        user, password = presented.user_name, presented.password
        # A bind with an empty password is an anonymous one, and succeeds (RFC 4513 section 5.1.2).
        if not user or not password:
            raise AuthenticationFailed("it gives no user name, or no password")
        try:
            text = password.decode("utf-8")
        except UnicodeDecodeError:
            raise AuthenticationFailed("its password is no text in UTF-8, which a directory wants") from None
        if self._waiting >= _MOST_WAITING:
            raise AuthenticatorUnavailable(f"{self._waiting} clients wait for {self._config.url}")
        self._waiting += 1
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._bind, user, text)
        finally:
            self._waiting -= 1
        return Authenticated(user)

    def _bind(self, user: str, password: str) -> None:
        """Bind once. Raises AuthenticationFailed, AuthenticatorUnavailable."""
        from ldap3 import AUTO_BIND_NONE, Connection, Server, Tls
        from ldap3.core.exceptions import LDAPException
        from ldap3.utils.dn import escape_rdn

        config = self._config
        tls = Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=None if config.ca_file is None else str(config.ca_file))
        name = config.bind_dn.replace("{user}", escape_rdn(user))
        try:
            server = Server(config.url, tls=tls, connect_timeout=config.timeout, get_info="NO_INFO")
            # ldap3 takes whole seconds here.
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
            finally:
                connection.unbind()
        except (LDAPException, OSError, ssl.SSLError) as error:
            raise AuthenticatorUnavailable(f"{config.url} does not answer: {error}") from None
        if not bound:
            if result["result"] in (_INVALID_CREDENTIALS, _NO_SUCH_OBJECT, _INVALID_DN):
                raise AuthenticationFailed(f"{config.url} does not know {name!r} with that password")
            raise AuthenticatorUnavailable(f"{config.url} refuses the bind: {result['description']}")


def plain_passwords(config: LdapAuthenticationConfig) -> bool:
    """Return whether passwords would travel to another machine without TLS, though nobody said that they may."""
    parts = urlsplit(config.url)
    plain = parts.scheme == "ldap" and not config.start_tls
    return plain and not config.allow_plain and not is_loopback(parts.hostname or "")
