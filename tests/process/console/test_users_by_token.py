"""Users of the console who log in with a JSON Web Token instead of a password."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console
from tests.helpers.patience import until

CONFIG = """
admin:
  port: 0
  authentication: [{{method: jwt, key_file: {directory}/issuer.pem, audience: console, leeway: 0}}]
  administrators: [carol]
"""
KEY = ed25519.Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("tokens")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (directory / "issuer.pem").write_bytes(KEY.public_key().public_bytes(serialization.Encoding.PEM, form))
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory=directory))) as process:
        yield process


def token(user: str, seconds: float = 3_600.0, audience: str = "console") -> str:
    return jwt.encode({"sub": user, "aud": audience, "exp": time.time() + seconds}, KEY, "EdDSA")


def test_a_token_replaces_the_password(bridge: BridgeProcess) -> None:
    for user, status in (("carol", 303), ("dave", 403)):
        console = Console(bridge)
        assert console.post("/login", user=user, password=token(user)).status == 303
        console.learn()
        assert f"user {user} (" in console.get("/").text
        assert console.post("/topics/publish", csrf_token=console.csrf_token, topic="a", payload="x").status == status


@pytest.mark.parametrize(
    "token_text",
    [token("carol", -1.0), token("carol", audience="devices"), token("dave"), "x" * 40, token("carol")[:-4] + "AAAA"],
    ids=["expired", "for another audience", "of another user", "no token", "of another key"],
)
def test_an_invalid_token_is_rejected(bridge: BridgeProcess, token_text: str) -> None:
    console = Console(bridge)
    assert console.post("/login", user="carol", password=token_text).status == 403
    assert not console.cookies


def test_the_login_ends_with_the_token(bridge: BridgeProcess) -> None:
    console = Console(bridge)
    until(lambda: console.post("/login", user="erin", password=token("erin", 2.0)).status == 303)
    until(lambda: console.get("/").status == 303)
