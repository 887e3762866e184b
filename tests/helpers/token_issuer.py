"""An issuer of JSON Web Tokens that a queue manager trusts."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Issuer:
    """Issues tokens for a queue manager, into a file that the bridge reads."""

    def __init__(self, directory: Path) -> None:
        #: the key that the queue manager accepts
        self.public = directory / "issuer.pem"
        self.file = directory / "token"
        self.change_key()

    def change_key(self) -> None:
        """Use another key from now on. The queue manager rejects earlier tokens."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        new = self.public.with_suffix(".new")
        new.write_bytes(self._key.public_key().public_bytes(serialization.Encoding.PEM, form))
        new.replace(self.public)

    def issue(self, user: str, lifetime: float, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        """Write a token for a user that is valid for `lifetime` seconds."""
        self.file.write_text(jwt.encode({"sub": user, "exp": time.time() + lifetime}, key or self._key, "ES256") + "\n")
