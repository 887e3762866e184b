"""SCRAM-SHA-256 (RFC 7677) as a method of enhanced authentication: no password travels, and the client proves the server."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode

from scramp import ScramException, ScramMechanism

from bridge.security.authentication_method import Challenge, Exchange
from bridge.security.authenticator import Authenticated, AuthenticationFailed, Presented
from bridge.security.password_file import PasswordFile

NAME = "SCRAM-SHA-256"
#: RFC 7677 section 4 wants 4096 at least; who steals the file still has to go through the hash of argon2id beside it.
ITERATIONS = 15_000

_MECHANISM = ScramMechanism(NAME)


def verifier_of(password: str) -> str:
    """Return what verifies a password: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, as PostgreSQL writes it."""
    salt, stored, server, iterations = _MECHANISM.make_auth_info(password, iteration_count=ITERATIONS)
    return f"{NAME}${iterations}:{_text(salt)}${_text(stored)}:{_text(server)}"


class Scram:
    """The method, by a password file."""

    def __init__(self, file: PasswordFile) -> None:
        self._file = file
        #: by which a user that is not there has a salt that is always the same
        self._key = secrets.token_bytes(32)

    def begin(self, presented: Presented) -> Exchange:
        return ScramExchange(self)

    def secrets_of(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        """Return salt, stored key, server key and iterations of a user; of one that is not there what nobody knows."""
        entry = self._file.entries().get(user)
        if entry is None or not entry.scram.startswith(f"{NAME}$"):
            salt = hmac.digest(self._key, user.encode(), "sha256")[:16]
            return salt, secrets.token_bytes(32), secrets.token_bytes(32), ITERATIONS
        try:
            _, first, keys = entry.scram.split("$")
            iterations, _, salt_text = first.partition(":")
            stored, _, server = keys.partition(":")
            return b64decode(salt_text), b64decode(stored), b64decode(server), int(iterations)
        except ValueError:
            raise AuthenticationFailed(f"what verifies user {user[:40]!r} in {self._file.path} is malformed") from None


class ScramExchange:
    """The server's two steps."""

    def __init__(self, method: Scram) -> None:
        self._method = method
        self._server = _MECHANISM.make_server(self._secrets)
        self._user = ""
        self._begun = False

    def _secrets(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        return self._method.secrets_of(user)

    async def respond(self, data: bytes | None) -> Challenge | Authenticated:
        try:
            text = (data or b"").decode("utf-8")
            if not self._begun:
                self._begun = True
                if not text.startswith(("n,,", "y,,")):
                    raise AuthenticationFailed(f"{NAME}: it wants channel binding, or to be somebody else (authzid)")
                self._server.set_client_first(text)
                return Challenge(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            final = self._server.get_server_final().encode()
        except (ScramException, ValueError, LookupError) as error:
            raise AuthenticationFailed(f"{NAME}: user {self._user[:40]!r}: {error}") from None
        return Authenticated(self._user, final)


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()
