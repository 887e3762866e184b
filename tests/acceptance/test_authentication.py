"""Authentication with a real bridge: passwords, SCRAM, tokens, the queue manager's check, rejections, and topics
per client.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scramp import ScramClient
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.mq.mqi import MQError
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Auth, AuthProperties, Connack, ConnectProperties, Disconnect, Puback, Publish, Will
from bridge.mqtt.reason_codes import ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient

SECRET, OTHER_SECRET = "correct horse 7", "battery staple 8"
CONFIG = """
audit_log: {{file: {0}/audit.jsonl}}
queue_manager: {{listener: {{port: 0, password_file: {0}/listener}}}}
channels:
  - name: PASSWORD
    port: 0
    failed_connects: 1000
    authentication: [{{method: password, file: {0}/clients}}, {{method: scram, file: {0}/clients}}]
    publish_topics: ["own/%c/#", "of/%u", "said/#"]
    subscribe_topics: ["own/%c/#", "$share/g/x/+"]
  - name: ANONYMOUS
    port: 0
    failed_connects: 1000
    authentication: [{{method: password, file: {0}/clients}}, {{method: anonymous}}]
  - name: TOKEN
    port: 0
    failed_connects: 1000
    authentication: [{{method: jwt, key_file: {0}/issuer.pem, audience: mqtt, issuer: us, leeway: 0 s}}]
  - name: QMGR
    port: 0
    failed_connects: 1000
    authentication: [{{method: queue-manager}}]
  - {{name: BELIEVED, port: 0, failed_connects: 1000}}
"""


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, key: ec.EllipticCurvePrivateKey) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("authentication")
    for user, password in (("dev", SECRET), ("mqm", SECRET), ("mqm          x", SECRET), ("other", OTHER_SECRET)):
        assert passwd(directory / "clients", user, password).exit_code == 0
    (directory / "listener").write_text(f"app:{SECRET}\n")
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "issuer.pem").write_bytes(public)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        process.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said/#') DEST(SAID)\n")
        yield process
    audited = (directory / "audit.jsonl").read_text(encoding="utf-8")
    for secret in (SECRET, OTHER_SECRET, "eyJ", "first one", "second one"):
        assert secret not in process.log + audited + "".join(process.announced)
    assert json.loads(audited.splitlines()[-1])["event"] == "stopped"


def passwd(file: Path, user: str, password: str, *options: str) -> Result:
    return CliRunner().invoke(
        program, ["passwd", str(file), user, "--stdin", "--scram-iterations", "4096", *options], input=f"{password}\n"
    )


def client_of(
    bridge: BridgeProcess, channel: str, user: str | None, password: str | None, level: int = 4, client_id: str = "c1"
) -> RawClient:
    sent = None if password is None else password.encode()
    return RawClient(bridge.ports[channel], client_id, level=level, user_name=user, password=sent)


@pytest.mark.parametrize(
    ("channel", "user", "password", "codes"),
    [
        ("PASSWORD", "dev", SECRET, (0, 0)),
        ("PASSWORD", "dev", OTHER_SECRET, (4, 0x86)),
        ("PASSWORD", "dev", "", (4, 0x86)),
        ("PASSWORD", "nobody-knows", SECRET, (4, 0x86)),
        ("PASSWORD", None, None, (5, 0x87)),
        # Blocked with the right password: the answer is the same as for a wrong one.
        ("PASSWORD", "mqm", SECRET, (4, 0x86)),
        ("PASSWORD", "mqm          x", SECRET, (4, 0x86)),
        ("ANONYMOUS", None, None, (0, 0)),
        ("ANONYMOUS", "dev", SECRET, (0, 0)),
        ("ANONYMOUS", "dev", OTHER_SECRET, (4, 0x86)),
        ("QMGR", "app", SECRET, (0, 0)),
        ("QMGR", "app", OTHER_SECRET, (4, 0x86)),
        ("QMGR", None, None, (5, 0x87)),
        ("BELIEVED", "anybody", None, (0, 0)),
        ("BELIEVED", "mqm", None, (5, 0x87)),
    ],
)
@pytest.mark.parametrize("level", [4, 5])
def test_passwords(
    bridge: BridgeProcess, channel: str, user: str | None, password: str | None, codes: tuple[int, int], level: int
) -> None:
    """Wrong credentials are rejected, whatever else the channel allows. MQTT 3.1.1 has no password without a user name."""
    with client_of(bridge, channel, user, password, level) as client:
        assert client.connect().return_code == codes[level == 5]


def test_a_changed_password(bridge: BridgeProcess, tmp_path: Path) -> None:
    """`mqbridge passwd` takes effect at the next connection."""
    file = bridge.data_directory.parent / "clients"
    assert passwd(file, "new", "first one").exit_code == 0
    for password, code in (("first one", 0), ("second one", 4)):
        with client_of(bridge, "PASSWORD", "new", password) as client:
            assert client.connect().return_code == code
    assert passwd(file, "new", "second one").exit_code == 0
    with client_of(bridge, "PASSWORD", "new", "first one") as client:
        assert client.connect().return_code == 4
    assert passwd(file, "new", "", "--delete").exit_code == 0
    with client_of(bridge, "PASSWORD", "new", "second one") as client:
        assert client.connect().return_code == 4


@pytest.mark.parametrize(("password", "accepted"), [(SECRET, True), (OTHER_SECRET, False)])
def test_scram(bridge: BridgeProcess, password: str, accepted: bool) -> None:
    """The client of another package proves its password, and verifies the proof of the server."""
    scram = ScramClient(["SCRAM-SHA-256"], "dev", password)
    first = ConnectProperties(
        authentication_method="SCRAM-SHA-256", authentication_data=scram.get_client_first().encode()
    )
    with RawClient(bridge.ports["PASSWORD"], "scram", level=5, properties=first) as client:
        client.send(client.packet)
        challenge = client.expect(Auth)
        assert challenge.properties is not None and challenge.properties.authentication_data is not None
        scram.set_server_first(challenge.properties.authentication_data.decode())
        final = scram.get_client_final().encode()
        client.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, AuthProperties("SCRAM-SHA-256", final)))
        connack = client.expect(Connack)
        assert connack.return_code == (0 if accepted else ReasonCode.NOT_AUTHORIZED)
        if accepted:
            assert connack.properties is not None and connack.properties.authentication_data is not None
            scram.set_server_final(connack.properties.authentication_data.decode())
            client.publish("said/scram", b"x", 1)
            assert bridge.messages("SAID")[-1]["md"]["UserIdentifier"].strip() == "dev"


def token(key: ec.EllipticCurvePrivateKey, **claims: object) -> str:
    right = {"sub": "pump", "aud": "mqtt", "iss": "us", "exp": int(time.time()) + 3600}
    return jwt.encode({name: value for name, value in (right | claims).items() if value is not None}, key, "ES256")


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({}, 0),
        ({"exp": 1}, 4),
        ({"aud": "others"}, 4),
        ({"iss": None}, 4),
        ({"sub": "mqm"}, 4),
    ],
)
def test_tokens(bridge: BridgeProcess, key: ec.EllipticCurvePrivateKey, claims: dict[str, object], code: int) -> None:
    with client_of(bridge, "TOKEN", None, token(key, **claims), 5) as client:
        assert client.connect().return_code == {0: 0, 4: 0x86, 5: 0x87}[code]


def test_a_connection_ends_when_its_token_expires(bridge: BridgeProcess, key: ec.EllipticCurvePrivateKey) -> None:
    expires = int(time.time()) + 2
    with client_of(bridge, "TOKEN", None, token(key, exp=expires), 5) as client:
        assert client.connect().return_code == 0
        assert client.expect(Disconnect).reason_code == ReasonCode.MAXIMUM_CONNECT_TIME
        assert time.time() >= expires


@pytest.mark.parametrize(
    ("topic", "code"),
    [("own/c1/a/b", 0), ("own/c1", 0), ("of/dev", 0), ("own/c2/a", 0x87), ("of/other", 0x87), ("free", 0x87)],
)
def test_publish_topics_of_a_client(bridge: BridgeProcess, topic: str, code: int) -> None:
    with client_of(bridge, "PASSWORD", "dev", SECRET, 5) as client:
        assert client.connect().return_code == 0
        client.send(Publish(topic, b"x", 1, False, False, 1))
        assert client.expect(Puback).reason_code in ((0, 0x10) if code == 0 else (code,))
    if code:
        with client_of(bridge, "PASSWORD", "dev", SECRET, 4) as client, pytest.raises(ConnectionClosed):
            assert client.connect().return_code == 0
            client.publish(topic, b"x", 1)


@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [
        ("own/c1/#", 1), ("own/c1/+/x", 1), ("own/c1", 1), ("own/+/x", 0x87), ("own/#", 0x87), ("#", 0x87),
        ("own/c2/#", 0x87), ("$share/g/own/c1/x", 1), ("$share/g/own/c2/x", 0x87),
    ],
)  # fmt: skip
def test_subscribe_topics_of_a_client(bridge: BridgeProcess, topic_filter: str, code: int) -> None:
    with client_of(bridge, "PASSWORD", "dev", SECRET, 5) as client:
        assert client.connect().return_code == 0
        assert client.subscribe((topic_filter, 1)) == (code,)


@pytest.mark.parametrize("client_id", ["+", "#", "c1/a", "c2/#"])
def test_a_client_identifier_that_contains_a_wildcard(bridge: BridgeProcess, client_id: str) -> None:
    """It does not give access to topics of others."""
    with client_of(bridge, "PASSWORD", "dev", SECRET, 5, client_id) as client:
        assert client.connect().return_code == 0
        assert client.subscribe(("own/c1/#", 1), (f"own/{client_id}", 1), ("own/c2/x", 1)) == (0x87, 0x87, 0x87)


def test_a_will_does_not_bypass_authorization(bridge: BridgeProcess) -> None:
    will = Will("own/c1/will", b"x", 1)
    client = RawClient(bridge.ports["PASSWORD"], "c3", user_name="dev", password=SECRET.encode(), will=will)
    assert client.connect().return_code == 0
    client.vanish()
    warning = "the will of client 'c3' to 'own/c1/will' as user 'dev' was rejected"
    eventually(lambda: warning in bridge.log, True)


def test_the_audit_log(bridge: BridgeProcess) -> None:
    """The log contains connections, users and rejections. Only the bridge's user and group can access the file."""
    file = bridge.data_directory.parent / "audit.jsonl"
    assert file.stat().st_mode & 0o777 == 0o640
    with client_of(bridge, "PASSWORD", "dev", "wrong", 5, "audited\n\x1b[31m") as client:
        assert client.connect().return_code == 0x86
    with client_of(bridge, "PASSWORD", "dev", SECRET, 5, "audited") as client:
        assert client.connect().return_code == 0
        client.subscribe(("#", 1))
        client.send(Publish("free", b"x", 1, False, False, 1))
        assert client.expect(Puback).reason_code == 0x87
        client.disconnect()

    def entries() -> list[tuple[str, ...]]:
        events = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        keys = ("user", "code", "filter", "topic", "reason")
        mine = [entry for entry in events if entry.get("client", "").startswith("audited")]
        assert all(entry["address"].startswith("127.0.0.1:") and entry["channel"] == "PASSWORD" for entry in mine)
        return [(entry["event"], *(str(entry[name]) for name in keys if name in entry)) for entry in mine]

    expected = [
        ("connected", "dev"),
        ("subscription refused", "#"),
        ("publication refused", "free", "2035"),
        ("disconnected",),
    ]
    eventually(lambda: entries()[-4:], expected)


def test_applications_in_the_audit_log(bridge: BridgeProcess) -> None:
    """The log contains connections, and changes by commands, but no inquiries."""
    (port,) = re.findall(r"MQ applications connect at 127\.0\.0\.1:(\d+)", "".join(bridge.announced))
    where = ("127.0.0.1", int(port))
    with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
        RemoteConnection(where, user="app", password="wrong")
    connection = RemoteConnection(where, user="app", password=SECRET, application="audited")
    connection.command("DISPLAY QMGR\nDEFINE QLOCAL(AUDITED)\nDELETE QLOCAL(NONE)")
    connection.clear_retained("audited/topic")
    connection.disconnect()

    def entries() -> list[dict[str, object]]:
        text = (bridge.data_directory.parent / "audit.jsonl").read_text(encoding="utf-8")
        events = [
            entry
            for entry in map(json.loads, text.splitlines())
            if entry.get("user") == "app" and "client" not in entry
        ]
        return [{key: entry[key] for key in ("event", "command", "ok") if key in entry} for entry in events]

    expected: list[dict[str, object]] = [
        {"event": "application refused"},
        {"event": "application connected"},
        {"event": "command", "command": "DEFINE QLOCAL(AUDITED)", "ok": True},
        {"event": "command", "command": "DELETE QLOCAL(NONE)", "ok": False},
        {"event": "command", "command": "CLEAR TOPICSTR('audited/topic')", "ok": True},
    ]
    eventually(entries, expected)


def test_mosquitto_pub_with_a_password(bridge: BridgeProcess) -> None:
    port = str(bridge.ports["PASSWORD"])
    command = ["mosquitto_pub", "-p", port, "-q", "1", "-t", "said/m", "-m", "x", "-u", "dev", "-P"]
    for password, status in ((SECRET, 0), ("wrong", 4)):
        process = subprocess.run([*command, password], capture_output=True, timeout=PATIENCE, check=False)
        assert process.returncode == status, process.stderr
