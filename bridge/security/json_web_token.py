"""Authentication with JSON Web Tokens (RFC 7519), sent as the password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jwt import PyJWKSet

from bridge.config.authentication import JwtAuthenticationConfig
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented

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
        self._seen: object = None
        #: key identifier ("" if there is only one key) -> key and its algorithms
        self._keys: dict[str, tuple[Any, list[str]]] = {}

    def read(self) -> dict[str, tuple[Any, list[str]]]:
        """Read the keys by identifier, each with its algorithms. Raises KeyFileError, OSError."""
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from cryptography.x509 import load_pem_x509_certificate

        data = self._path.read_bytes()
        try:
            if self._is_set:
                return self._read_set(jwt.PyJWKSet.from_json(data.decode()))
            is_certificate = b"BEGIN CERTIFICATE" in data
            key = load_pem_x509_certificate(data).public_key() if is_certificate else load_pem_public_key(data)
            return {"": (key, _algorithms(key))}
        except (ValueError, jwt.PyJWTError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{self._path}: {error}") from error

    def _read_set(self, keys: PyJWKSet) -> dict[str, tuple[Any, list[str]]]:
        found: dict[str, tuple[Any, list[str]]] = {}
        for one in keys.keys:
            # Issuers also publish encryption keys (RFC 7517 section 4.2).
            if one.public_key_use not in (None, "sig"):
                continue
            identifier = str(one.key_id or "")
            if identifier in found:
                raise KeyFileError(f"{self._path}: two keys have the identifier (kid) {identifier!r}")
            found[identifier] = one.key, _algorithms(one.key)
        if not found:
            raise KeyFileError(f"{self._path}: it contains no key for verifying tokens")
        return found

    def key(self, identifier: str) -> tuple[Any, list[str]]:
        """Return a key and its algorithms. Raises AuthenticationFailed, AuthenticatorUnavailable."""
        try:
            status = self._path.stat()
            seen = status.st_ino, status.st_size, status.st_mtime_ns
            if seen != self._seen:
                self._keys = self.read()
                self._seen = seen
        except KeyFileError as error:
            raise AuthenticatorUnavailable(str(error)) from None
        except OSError as error:
            raise AuthenticatorUnavailable(f"{self._path} cannot be read: {error.strerror or error}") from error
        keys = self._keys
        found = keys.get("") if not self._is_set else keys.get(identifier)
        if found is None and not identifier and len(keys) == 1:
            found = next(iter(keys.values()))
        if found is None:
            raise AuthenticationFailed(f"its token is signed with a key, {identifier[:40]!r}, that is not in {self._path}")
        return found


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
            why = "it contains no token" if not token else f"its token is longer than {MAX_LENGTH} bytes"
            raise AuthenticationFailed(why)
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
            raise AuthenticationFailed(f"its user name, {presented.user_name!r}, differs from the user of its token, "
                                       f"{user[:40]!r}")
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
        raise KeyFileError(f"no token can be verified by a key of this kind ({type(key).__name__.strip('_')})")
    return _ALGORITHMS[kind]
