"""SCRAM-SHA-256 (RFC 7677) as a method of enhanced authentication: no password travels, and the client proves the server."""

from __future__ import annotations

import hmac
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from bridge.security.authenticator import Authenticated, AuthenticationFailed, Challenge, Exchange, Presented
from bridge.security.password_file import Entry, PasswordFile

log = logging.getLogger(__name__)

NAME = "SCRAM-SHA-256"
#: Of PBKDF2 with SHA-256, as OWASP's "Password Storage Cheat Sheet" has it: whoever steals a file with verifiers tries
#: passwords at this cost, not at that of the hash of argon2id beside them. The client computes them, the server none.
ITERATIONS = 600_000

_MECHANISM = ScramMechanism(NAME)
#: Bytes of a salt that the package makes.
_SALT_LENGTH = 32


class Verifier(NamedTuple):
    """What verifies the password of a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def verifier_of(password: str, iterations: int = ITERATIONS) -> str:
    """Return what verifies a password: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, as PostgreSQL writes it."""
    salt, stored, server, count = _MECHANISM.make_auth_info(password, iteration_count=iterations)
    return f"{NAME}${count}:{_text(salt)}${_text(stored)}:{_text(server)}"


def _read(text: str) -> Verifier | None:
    """Return a verifier that is written so; None where it is none."""
    name, first, keys = text.split("$") if text.count("$") == 2 else ("", "", "")
    iterations, _, salt = first.partition(":")
    stored, _, server = keys.partition(":")
    try:
        found = Verifier(_raw(salt), _raw(stored), _raw(server), int(iterations))
    except ValueError:
        return None
    return found if name == NAME and all(found) else None


class Scram:
    """The method, by a password file."""

    def __init__(self, file: PasswordFile) -> None:
        self._file = file
        self._entries: Mapping[str, Entry] = {}
        self._verifiers: dict[str, Verifier] = {}
        #: iterations and length of salt of each verifier, in order: of these a user that is not there has some as well
        self._shapes: list[tuple[int, int]] = []

    def begin(self, presented: Presented) -> Exchange:
        return ScramExchange(self)

    def verifier(self, user: str) -> Verifier:
        """Return the verifier of a user; for one that is not there, one that tells nobody so.

        Its salt is the same at each channel and after each start, as that of a user that is there. Raises
        AuthenticatorUnavailable.
        """
        self._look_again()
        found = self._verifiers.get(user)
        if found is not None:
            return found
        made = hmac.digest(self._file.scram_key, user.encode(), "sha512")
        number = int.from_bytes(made[:8]) * len(self._shapes) >> 64
        iterations, length = self._shapes[number] if self._shapes else (ITERATIONS, _SALT_LENGTH)
        salt = hmac.digest(self._file.scram_key, b"salt" + made, "sha512")[:length]
        return Verifier(salt, secrets.token_bytes(32), secrets.token_bytes(32), iterations)

    def _look_again(self) -> None:
        entries = self._file.entries()
        if entries is self._entries:
            return
        self._entries, self._verifiers = entries, {}
        for user, entry in entries.items():
            if not entry.scram:
                continue
            if (one := _read(entry.scram)) is None:
                log.error(
                    "MQB1208E the SCRAM verifier of user %r in %s is malformed: nobody can log in as this user by SCRAM",
                    user[:40],
                    self._file.path,
                )
            else:
                self._verifiers[user] = one
        self._shapes = sorted((one.iterations, len(one.salt)) for one in self._verifiers.values())


class ScramExchange:
    """The server's two steps."""

    def __init__(self, method: Scram) -> None:
        self._method = method
        self._server = _MECHANISM.make_server(self._secrets)
        self._user = ""
        self._begun = False

    def _secrets(self, user: str) -> Verifier:
        self._user = user
        return self._method.verifier(user)

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


def _raw(text: str) -> bytes:
    return b64decode(text, validate=True)
