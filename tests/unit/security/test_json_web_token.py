"""Tokens with a key set (JWKS): selection of keys, changes of keys, and forged tokens."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from bridge.config.authentication import JwtAuthenticationConfig
from bridge.security.authenticator import AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.authenticators import JwtAuthenticator, VerificationKeys

KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed": ed25519.Ed25519PrivateKey.generate(),
    "other": ec.generate_private_key(ec.SECP256R1()),
}
ALGORITHMS = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA", "other": "ES256"}
_WRITERS: dict[str, Any] = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm, "other": ECAlgorithm}


def public(name: str, **more: object) -> dict[str, object]:
    """Return a public key as a JWK."""
    key: dict[str, object] = json.loads(_WRITERS[name].to_jwk(KEYS[name].public_key()))
    return key | {"kid": name} | more


def pem(name: str) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    encoded: bytes = KEYS[name].public_key().public_bytes(serialization.Encoding.PEM, form)
    return encoded


class Issuer:
    """A file of public keys, and the authenticator that uses it."""

    def __init__(self, path: Path, *keys: dict[str, object]) -> None:
        self.path = path
        self.publish(*keys)
        config = JwtAuthenticationConfig.model_validate({"method": "jwt", "jwks_file": path, "leeway": 0})
        self.authenticator = JwtAuthenticator(config, VerificationKeys(config))

    def publish(self, *keys: dict[str, object]) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": keys}))
        new.replace(self.path)

    async def user(self, token: str | bytes) -> str | None:
        token_bytes = token if isinstance(token, bytes) else token.encode()
        return (await self.authenticator.authenticate(Presented("c", None, token_bytes))).user_name

    async def refuses(self, token: str | bytes) -> str:
        with pytest.raises(AuthenticationFailed) as refused:
            await self.user(token)
        return str(refused.value)


def token(key: str, kid: str | None = None, algorithm: str = "", **claims: object) -> str:
    headers = None if kid is None else {"kid": kid}
    everything = {"sub": "pump", "exp": int(time.time()) + 3600} | claims
    return jwt.encode(everything, KEYS[key], algorithm or ALGORITHMS[key], headers=headers)


def forged(kid: str, algorithm: str, secret: bytes) -> str:
    """Return a token signed with a secret, with HMAC or without a signature, even if the library rejects that secret."""
    header = json.dumps({"alg": algorithm, "typ": "JWT", "kid": kid}).encode()
    claims = json.dumps({"sub": "pump", "exp": int(time.time()) + 3600}).encode()
    body = b".".join(map(jwt.utils.base64url_encode, (header, claims)))
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body, secret) if secret else b""
    return (body + b"." + jwt.utils.base64url_encode(signature)).decode()


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "keys.json", *map(public, ("rsa", "ec", "ed")))


@pytest.mark.parametrize("name", ["rsa", "ec", "ed"])
async def test_each_key_verifies_its_own_tokens(issuer: Issuer, name: str) -> None:
    """The token names its key. A key of another kind, or a missing key, verifies nothing."""
    assert await issuer.user(token(name, name)) == "pump"
    for other in {"rsa", "ec", "ed"} - {name}:
        await issuer.refuses(token(name, other))
    assert "''" in await issuer.refuses(token(name))
    assert "'elsewhere'" in await issuer.refuses(token(name, "elsewhere"))
    await issuer.refuses(token("other", "ec"))


async def test_a_single_key_needs_no_name(tmp_path: Path) -> None:
    """If the set has one key, it verifies a token without a key name, but not a token that names another key."""
    issuer = Issuer(tmp_path / "keys.json", public("ec"))
    assert await issuer.user(token("ec")) == "pump"
    await issuer.refuses(token("ec", "elsewhere"))


async def test_a_token_without_an_expiry_is_rejected(issuer: Issuer) -> None:
    endless = jwt.encode({"sub": "pump"}, KEYS["ec"], ALGORITHMS["ec"], headers={"kid": "ec"})
    assert '"exp" claim' in await issuer.refuses(endless)


@pytest.mark.parametrize("name", ["rsa", "ec", "ed"])
async def test_a_token_cannot_choose_its_verification(issuer: Issuer, name: str) -> None:
    """Neither a public key as an HMAC secret, in any form, nor a missing signature is accepted."""
    jwk = json.dumps(public(name)).encode()
    for secret in (pem(name), pem(name).strip(), jwk):
        await issuer.refuses(forged(name, "HS256", secret))
    for algorithm in ("none", "None", "NONE", ""):
        await issuer.refuses(forged(name, algorithm, b""))
        await issuer.refuses(forged(name, algorithm, pem(name)))


async def test_another_algorithm_of_the_same_kind_of_key(issuer: Issuer) -> None:
    assert await issuer.user(token("rsa", "rsa", "PS256")) == "pump"
    await issuer.refuses(token("ec", "rsa"))


async def test_keys_change_while_the_bridge_runs(issuer: Issuer) -> None:
    """A new key is accepted when it is in the file, and an old one until it is removed."""
    old, new = token("ec", "ec"), token("other", "next")
    assert await issuer.user(old) == "pump"
    await issuer.refuses(new)
    issuer.publish(public("ec"), public("other", kid="next"))
    assert [await issuer.user(jws) for jws in (old, new)] == ["pump", "pump"]
    issuer.publish(public("other", kid="next"))
    assert await issuer.user(new) == "pump"
    await issuer.refuses(old)
    issuer.publish(public("other", kid="ec"))  # another key with the name of the old one
    await issuer.refuses(old)


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [{"kty": "oct", "kid": "ec", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}],
        [public("ec"), {"kty": "oct", "kid": "h", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}],
        [{"kty": "RSA", "kid": "ec", "n": "AQAB", "e": "AQAB"}],
        [public("ec"), public("other", kid="ec")],
    ],
    ids=["none", "a secret", "a secret and a key", "too short", "two of one name"],
)
async def test_a_file_without_usable_keys(issuer: Issuer, keys: list[dict[str, object]]) -> None:
    """It rejects all clients, and the error is that of the file, not of the client."""
    issuer.publish(*keys)
    with pytest.raises(AuthenticatorUnavailable, match="keys"):
        await issuer.user(token("ec", "ec"))


async def test_an_encryption_key_verifies_nothing(issuer: Issuer) -> None:
    """Issuers publish such keys with the others."""
    issuer.publish(public("ec", use="sig", alg="ES256"), public("rsa", use="enc"))
    assert await issuer.user(token("ec", "ec")) == "pump"
    await issuer.refuses(token("rsa", "rsa"))
