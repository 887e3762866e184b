"""Re-authentication with SCRAM (MQTT 5 section 4.12.1), with tokens and channel authentication records."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scramp import ScramClient
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mqtt.packets import Auth, AuthProperties, Connack, ConnectProperties, Disconnect, Packet
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import ConnectionClosed, RawClient

SCRAM = "SCRAM-SHA-256"
SECRET, OTHER_SECRET = "correct horse 9", "battery staple 9"
CONFIG = """
channel_authentication:
  - {{channel: MAPPED, type: USERMAP, client_user: dev, mcauser: plant}}
channels:
  - {{name: SCRAM, port: 0, authentication: [{{method: scram, file: {0}/clients}}]}}
  - {{name: MAPPED, port: 0, authentication: [{{method: scram, file: {0}/clients}}]}}
  - name: BOTH
    port: 0
    authentication:
      - {{method: jwt, key_file: {0}/issuer.pem, leeway: 0 s}}
      - {{method: scram, file: {0}/clients}}
"""


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, key: ec.EllipticCurvePrivateKey) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("again")
    for user, secret in (("dev", SECRET), ("other", OTHER_SECRET)):
        result = CliRunner().invoke(
            program,
            ["passwd", f"{directory}/clients", user, "--stdin", "--scram-iterations", "4096"],
            input=f"{secret}\n",
        )
        assert result.exit_code == 0, result.output
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "issuer.pem").write_bytes(public)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        process.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said/#') DEST(SAID)\n")
        yield process


def shows(client: RawClient, first: Packet, scram: ScramClient) -> Packet:
    """Perform the exchange that a packet starts, and return the final packet of the bridge."""
    client.send(first)
    challenge = client.expect(Auth)
    assert challenge.properties is not None and challenge.properties.authentication_data is not None
    scram.set_server_first(challenge.properties.authentication_data.decode())
    final = AuthProperties(SCRAM, scram.get_client_final().encode())
    client.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, final))
    return client.receive()


def connected(bridge: BridgeProcess, channel: str, token: str | None = None) -> RawClient:
    """A client of user dev, authenticated with SCRAM and an optional token."""
    scram = ScramClient([SCRAM], "dev", SECRET)
    properties = ConnectProperties(authentication_method=SCRAM, authentication_data=scram.get_client_first().encode())
    user, password = (None, None) if token is None else ("dev", token.encode())
    client = RawClient(
        bridge.ports[channel], f"of {channel}", level=5, user_name=user, password=password, properties=properties
    )
    connack = shows(client, client.packet, scram)
    assert isinstance(connack, Connack) and connack.return_code == 0, connack
    return client


def again(client: RawClient, user: str = "dev", secret: str = SECRET) -> Packet:
    scram = ScramClient([SCRAM], user, secret)
    first = AuthProperties(SCRAM, scram.get_client_first().encode())
    return shows(client, Auth(ReasonCode.RE_AUTHENTICATE, first), scram)


def success_of(packet: Packet) -> bool:
    return isinstance(packet, Auth) and packet.reason_code == ReasonCode.SUCCESS


def test_as_the_same_user(bridge: BridgeProcess) -> None:
    with connected(bridge, "SCRAM") as client:
        for _ in range(2):
            assert success_of(again(client))
        client.ping()


@pytest.mark.parametrize(("user", "secret"), [("other", OTHER_SECRET), ("dev", OTHER_SECRET)])
def test_as_another_user_or_without_the_password(bridge: BridgeProcess, user: str, secret: str) -> None:
    """The connection is closed, because a client cannot change its user."""
    with connected(bridge, "SCRAM") as client:
        assert again(client, user, secret) == Disconnect(ReasonCode.NOT_AUTHORIZED)
        client.expect_closed()


def test_a_mapped_user_stays_mapped(bridge: BridgeProcess) -> None:
    """The authenticated user is checked again, and the client keeps the MCAUSER of its record."""
    with connected(bridge, "MAPPED") as client:
        for _ in range(2):
            client.publish("said/mapped", b"x", 1)
            assert bridge.messages("SAID")[-1]["md"]["UserIdentifier"].strip() == "plant"
            assert success_of(again(client))


def test_a_password_does_not_extend_a_token(bridge: BridgeProcess, key: ec.EllipticCurvePrivateKey) -> None:
    """The connection ends when the token expires, although the client has presented its password again."""
    lifetime = 3
    while True:
        end = int(time.time()) + lifetime
        try:
            client = connected(bridge, "BOTH", jwt.encode({"sub": "dev", "exp": end}, key, "ES256"))
            assert success_of(again(client))
            break
        except (AssertionError, ConnectionClosed):
            if time.time() < end or lifetime > PATIENCE:
                raise
            lifetime *= 2  # on a busy machine, the token expired before the password was checked
    with client:
        assert client.wait_for(Disconnect).reason_code == ReasonCode.MAXIMUM_CONNECT_TIME
        assert time.time() >= end


def test_an_expired_token(bridge: BridgeProcess, key: ec.EllipticCurvePrivateKey) -> None:
    """All credentials must be valid, so a password does not replace the token."""
    scram = ScramClient([SCRAM], "dev", SECRET)
    first = ConnectProperties(authentication_method=SCRAM, authentication_data=scram.get_client_first().encode())
    token = jwt.encode({"sub": "dev", "exp": int(time.time()) - 60}, key, "ES256").encode()
    with RawClient(bridge.ports["BOTH"], "late", level=5, user_name="dev", password=token, properties=first) as client:
        assert shows(client, client.packet, scram) == Connack(ReasonCode.BAD_USER_NAME_OR_PASSWORD)
