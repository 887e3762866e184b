"""SCRAM-SHA-256 (RFC 7677) as a method of enhanced authentication.

The password is not sent, and the client authenticates the server.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from bridge.security.authenticator import Authenticated, AuthenticationFailed, Challenge, Exchange, Presented
from bridge.security.password_file import PasswordEntry, PasswordFile

log = logging.getLogger(__name__)

NAME = "SCRAM-SHA-256"
#: PBKDF2-SHA-256 iterations, from OWASP's "Password Storage Cheat Sheet". An attacker who steals a password file tries
#: passwords at this cost, not at that of the argon2id hashes. Only the client computes them.
ITERATIONS = 600_000

_MECHANISM = ScramMechanism(NAME)
#: Length of the salts that the package creates, in bytes.
_SALT_LENGTH = 32


class Verifier(NamedTuple):
    """A user's SCRAM verifier."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def verifier_of(password: str, iterations: int = ITERATIONS) -> str:
    """Return a password's verifier in PostgreSQL's format: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`.

    Raises ValueError for a password with characters that SASLprep forbids (RFC 4013), such as control characters.
    """
    try:
        salt, stored, server, count = _MECHANISM.make_auth_info(password, iteration_count=iterations)
    except ScramException as error:
        raise ValueError(str(error).removesuffix(": other-error")) from error
    return f"{NAME}${count}:{_text(salt)}${_text(stored)}:{_text(server)}"


def _read(text: str) -> Verifier | None:
    """Parse a verifier, or None if it is malformed."""
    name, first, keys = text.split("$") if text.count("$") == 2 else ("", "", "")
    iterations, _, salt = first.partition(":")
    stored, _, server = keys.partition(":")
    try:
        verifier = Verifier(_raw(salt), _raw(stored), _raw(server), int(iterations))
    except ValueError:
        return None
    return verifier if name == NAME and all(verifier) else None


class Scram:
    """The authentication method, with the verifiers of a password file."""

    def __init__(self, file: PasswordFile) -> None:
        self._file = file
        self._entries: Mapping[str, PasswordEntry] = {}
        self._verifiers: dict[str, Verifier] = {}
        #: sorted iterations and salt lengths of all verifiers, from which those of unknown users are chosen
        self._shapes: list[tuple[int, int]] = []

    def begin(self, presented: Presented) -> Exchange:
        return ScramExchange(self)

    def verifier(self, user: str) -> Verifier:
        """Return a user's verifier. Unknown users get a fake one that does not reveal that they are unknown.

        Its salt is the same on all channels and after restarts, as for existing users. Raises AuthenticatorUnavailable.
        """
        self._look_again()
        verifier = self._verifiers.get(user)
        if verifier is not None:
            return verifier
        digest = hmac.digest(self._file.scram_key, user.encode(), "sha512")
        number = int.from_bytes(digest[:8]) * len(self._shapes) >> 64
        iterations, length = self._shapes[number] if self._shapes else (ITERATIONS, _SALT_LENGTH)
        salt = hmac.digest(self._file.scram_key, b"salt" + digest, "sha512")[:length]
        return Verifier(salt, secrets.token_bytes(32), secrets.token_bytes(32), iterations)

    def _look_again(self) -> None:
        entries = self._file.entries()
        if entries is self._entries:
            return
        self._entries, self._verifiers = entries, {}
        for user, entry in entries.items():
            if not entry.scram:
                continue
            if (verifier := _read(entry.scram)) is None:
                log.error(
                    "MQB1208E the SCRAM verifier of user %r in %s is malformed: this user cannot log in with SCRAM",
                    user[:40],
                    self._file.path,
                )
            else:
                self._verifiers[user] = verifier
        self._shapes = sorted((verifier.iterations, len(verifier.salt)) for verifier in self._verifiers.values())


class ScramExchange:
    """The server side of one exchange, with two steps."""

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
                    unsupported = "channel binding and authorization identities (authzid) are not supported"
                    raise AuthenticationFailed(f"{NAME}: {unsupported}")
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
