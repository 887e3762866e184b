"""Authentication over TCP: plain-text and hashed passwords, authenticators of channels, TLS, and limits of connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from argon2 import PasswordHasher
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from bridge.config.queue_manager import ListenerConfig
from bridge.config.tls import ClientTlsConfig
from bridge.mq.embedded.admission import Admission
from bridge.mq.embedded.channels import ConnectionAuthentication
from bridge.mq.mqi import MQError
from bridge.mq.remote import RemoteConnection
from bridge.security.authenticator import FailedConnects
from bridge.security.tls import tls_context
from bridge.wire import cmqc
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE
from tests.helpers.served_queue_manager import ServedQueueManager

#: Hash parameters that are fast to compute.
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text(f"# who\nplain:one\nhashed:{HASHER.hash('two')}\nempty:\nbroken:$argon2id$v=19$nonsense\n")
    return path


@contextlib.contextmanager
def served(directory: Path, **options: Any) -> Iterator[ServedQueueManager]:
    """Run a queue manager whose listener has the options of a configuration file."""
    place = directory / "queue-manager"
    place.mkdir()
    with ServedQueueManager(place, listener=ListenerConfig.model_validate(options)) as manager:
        yield manager


def admitted(admission: Admission, user: str, password: str) -> int:
    """Return MQRC_NONE, or the reason for which a user is rejected."""
    try:
        login = asyncio.run(admission.admit(user, password.encode()))
    except MQError as error:
        return error.reason
    assert login.user_name == user
    return cmqc.MQRC_NONE


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("plain", "one", cmqc.MQRC_NONE),
        ("hashed", "two", cmqc.MQRC_NONE),
        ("hashed", "one", cmqc.MQRC_NOT_AUTHORIZED),
        ("plain", "two", cmqc.MQRC_NOT_AUTHORIZED),
        ("empty", "", cmqc.MQRC_NOT_AUTHORIZED),
        ("empty", "two", cmqc.MQRC_NOT_AUTHORIZED),
        ("other", "two", cmqc.MQRC_NOT_AUTHORIZED),
        ("", "", cmqc.MQRC_NOT_AUTHORIZED),
        ("broken", "two", cmqc.MQRC_NOT_AUTHORIZED),
        ("broken", "$argon2id$v=19$nonsense", cmqc.MQRC_NOT_AUTHORIZED),
    ],
)
def test_passwords_are_checked(user: str, password: str, reason: int, file: Path) -> None:
    admission = Admission(ListenerConfig(password_file=file))
    for _ in range(2):  # cached at the second attempt
        assert admitted(admission, user, password) == reason


@pytest.mark.parametrize(
    ("check", "user", "password", "expected"),
    [
        ("REQUIRED", "plain", "one", "plain"),
        ("REQUIRED", "plain", "two", None),
        ("REQUIRED", "plain", "", None),
        ("REQUIRED", "", "", None),
        ("OPTIONAL", "plain", "one", "plain"),
        ("OPTIONAL", "plain", "two", None),
        ("OPTIONAL", "plain", "", ""),
        ("OPTIONAL", "mqm", "", ""),
        ("OPTIONAL", "", "", ""),
        ("OPTIONAL", "", "one", None),
        ("REQDADM", "plain", "one", "plain"),
        ("REQDADM", "plain", "two", None),
        ("REQDADM", "plain", "", ""),
        ("REQDADM", "mqm", "", None),
        ("REQDADM", "mqm ", "", None),
        ("REQDADM", "", "", ""),
        ("NONE", "plain", "two", ""),
        ("NONE", "mqm", "", ""),
    ],
)
def test_chckclnt_determines_who_needs_a_password(
    check: str, user: str, password: str, expected: str | None, file: Path
) -> None:
    """CHCKCLNT: a password must be correct. A user without a password, if that is allowed, acts as nobody."""
    connection_authentication = ConnectionAuthentication(lambda user: user.rstrip() == "mqm")
    connection_authentication.asks, connection_authentication.check_clients = True, check
    admission = Admission(ListenerConfig(password_file=file), connection_authentication)
    if expected is None:
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            asyncio.run(admission.admit(user, password.encode()))
    else:
        assert asyncio.run(admission.admit(user, password.encode())).user_name == expected


def test_a_command_determines_which_users_need_a_password(file: Path, tmp_path: Path) -> None:
    """It applies to later connections."""
    alter = "ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT"
    with served(tmp_path, password_file=file) as manager:
        local, where = RemoteConnection(manager.directory), ("127.0.0.1", manager.port)
        for check, accepted in (("OPTIONAL", True), ("REQUIRED", False), ("NONE", True)):
            assert local.command(f"{alter}({check})")[0].ok
            if accepted:
                RemoteConnection(where).disconnect()
            else:
                with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
                    RemoteConnection(where)


def test_a_hash_is_not_a_password(file: Path) -> None:
    hashed = next(line.partition(":")[2] for line in file.read_text().splitlines() if line.startswith("hashed:"))
    assert admitted(Admission(ListenerConfig(password_file=file)), "hashed", hashed) == cmqc.MQRC_NOT_AUTHORIZED


def test_a_removed_password_is_rejected(file: Path) -> None:
    admission = Admission(ListenerConfig(password_file=file))
    assert admitted(admission, "hashed", "two") == cmqc.MQRC_NONE
    file.write_text(f"hashed:{HASHER.hash('three')}\n")
    assert admitted(admission, "hashed", "two") == cmqc.MQRC_NOT_AUTHORIZED


def test_an_unreadable_password_file_is_not_a_wrong_password(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """This is the bridge's fault, so the reason differs from that of a wrong password, and the log names the file."""
    admission = Admission(ListenerConfig(password_file=file))
    file.write_text("no colon\n")
    assert admitted(admission, "plain", "one") == cmqc.MQRC_SECURITY_ERROR
    file.unlink()
    assert admitted(admission, "plain", "one") == cmqc.MQRC_SECURITY_ERROR
    assert f"{file}:1" in caplog.text and f"{file} cannot be read" in caplog.text


def test_repeated_failures_delay_authentication(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    admission = Admission(ListenerConfig(password_file=file, failed_connects=2))
    monkeypatch.setattr(admission, "_failed", FailedConnects(lambda: sum(slept)))
    for _ in range(5):
        admitted(admission, "plain", "two")
    assert slept == [0, 0, 1, 2, 4]


def test_passwords_of_clients_are_checked_like_those_of_the_listener(file: Path) -> None:
    """Method queue-manager of a channel: users that cannot be authenticated are rejected (CONNAUTH)."""
    admission = Admission(ListenerConfig(password_file=file))
    _check(admission, "plain", b"one")
    with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
        _check(admission, "plain", b"two")
    for config in ({}, {"authentication": [{"method": "anonymous"}]}):
        with pytest.raises(MQError, match="MQRC_SECURITY_ERROR"):
            _check(Admission(ListenerConfig.model_validate(config)), "plain", b"one")


def _check(admission: Admission, user: str, password: bytes) -> None:
    asyncio.run(admission.check_password(user, password))


def test_applications_connect_over_tcp_with_a_password(file: Path, tmp_path: Path) -> None:
    with served(tmp_path, password_file=file) as manager:
        for user, password in (("plain", "one"), ("hashed", "two")):
            connection = RemoteConnection(("127.0.0.1", manager.port), user=user, password=password)
            assert connection.command("DISPLAY QMGR")[0].ok
            connection.disconnect()
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            RemoteConnection(("127.0.0.1", manager.port), user="hashed", password="one")


def test_the_number_of_connections_is_limited(tmp_path: Path) -> None:
    with served(tmp_path, max_connections=3, max_connections_per_address=2) as manager:
        where = ("127.0.0.1", manager.port)
        first, second = RemoteConnection(where), RemoteConnection(where)
        with pytest.raises(MQError, match="MQRC_CONNECTION_BROKEN"):
            RemoteConnection(where)
        second.disconnect()
        _until_connected(where).disconnect()
        first.disconnect()


def _until_connected(where: tuple[str, int]) -> RemoteConnection:
    """Connect when the limit allows it. The server notices the end of a connection a little later."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return RemoteConnection(where)
        except MQError:
            assert time.monotonic() < deadline


class Tls:
    """Certificates of a listener and of applications."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.authority.issue("listener")
        self.authority.issue("app", usage=ExtendedKeyUsageOID.CLIENT_AUTH)

    def listener(self, **options: object) -> dict[str, object]:
        return {
            "certificate_file": self.directory / "listener.pem",
            "key_file": self.directory / "listener.key",
            **options,
        }

    def client(self, certificate: str | None = None, **options: object) -> ssl.SSLContext:
        files = (
            {}
            if certificate is None
            else {
                "certificate_file": self.directory / f"{certificate}.pem",
                "key_file": self.directory / f"{certificate}.key",
            }
        )
        return tls_context(ClientTlsConfig.model_validate({"ca_file": self.authority.file, **files, **options}))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


def test_applications_connect_with_tls(tls: Tls, file: Path, tmp_path: Path) -> None:
    """Verbs, batches and payloads larger than a TLS record."""
    with served(tmp_path, password_file=file, tls=tls.listener()) as manager:
        where = ("localhost", manager.port)
        connection = RemoteConnection(where, user="plain", password="one", tls=tls.client())
        responses = connection.command("\n".join(f"DEFINE QLOCAL(Q{number})" for number in range(2000)))
        assert all(response.ok for response in responses) and len(responses) == 2000
        connection.disconnect()


@pytest.mark.parametrize(
    "fault", ["plain", "other authority", "other name", "no certificate", "certificate of another"]
)
def test_invalid_tls_clients_are_rejected(
    fault: str, tls: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is rejected with an error of the client or in the log, and does not affect others."""
    required = {"client_certificates": "required", "ca_file": tls.authority.file}
    (tmp_path / "other").mkdir()
    other = Tls(tmp_path / "other")
    with served(tmp_path, tls=tls.listener(**required)) as manager:
        where = ("localhost", manager.port)
        contexts = {
            "plain": None,
            "other authority": other.client("app"),
            "other name": tls.client("app"),
            "no certificate": tls.client(),
            "certificate of another": tls_context(
                ClientTlsConfig(
                    ca_file=tls.authority.file,
                    certificate_file=other.directory / "app.pem",
                    key_file=other.directory / "app.key",
                )
            ),
        }
        place = ("127.0.0.1", manager.port) if fault == "other name" else where
        with pytest.raises(MQError) as refused:
            RemoteConnection(place, tls=contexts[fault])
        assert refused.value.reason in (cmqc.MQRC_SSL_INITIALIZATION_ERROR, cmqc.MQRC_CONNECTION_BROKEN)
        RemoteConnection(where, tls=tls.client("app")).disconnect()
    if fault != "other name":  # of which the listener learns only at the end of the handshake
        assert "rejected an MQ application at 127.0.0.1: TLS: " in caplog.text


def test_a_certificate_identifies_an_application(tls: Tls, tmp_path: Path) -> None:
    options = {
        "tls": tls.listener(client_certificates="optional", ca_file=tls.authority.file),
        "authentication": [{"method": "certificate"}],
    }
    with served(tmp_path, **options) as manager:
        where = ("localhost", manager.port)
        connection = RemoteConnection(where, tls=tls.client("app"))
        assert connection.command("DISPLAY QMGR")[0].ok
        with pytest.raises(MQError, match="MQRC_NOT_AUTHORIZED"):
            RemoteConnection(where, tls=tls.client())
        connection.disconnect()


def test_a_connection_ends_when_its_token_expires(tls: Tls, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (public := tmp_path / "public.pem").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    methods = [{"method": "jwt", "key_file": public, "leeway": 0}]
    with served(tmp_path, tls=tls.listener(), authentication=methods) as manager:
        token = jwt.encode({"sub": "app", "exp": time.time() + 2}, key, "ES256")
        connection = RemoteConnection(("localhost", manager.port), user="app", password=token, tls=tls.client())
        with pytest.raises(MQError) as ended:
            while True:
                connection.command("DISPLAY QMGR")
        assert ended.value.reason == cmqc.MQRC_CONNECTION_BROKEN


def test_a_new_certificate_applies_to_new_connections(tls: Tls, tmp_path: Path) -> None:
    """Existing connections stay."""
    with served(tmp_path, tls=tls.listener()) as manager:
        where = ("localhost", manager.port)
        before = RemoteConnection(where, tls=tls.client())
        (tmp_path / "new").mkdir()
        renewed = Tls(tmp_path / "new")
        for name in ("listener.key", "listener.pem"):
            os.replace(renewed.directory / name, tls.directory / name)
        RemoteConnection(where, tls=renewed.client()).disconnect()
        with pytest.raises(MQError, match="MQRC_SSL_INITIALIZATION_ERROR"):
            RemoteConnection(where, tls=tls.client())
        assert before.command("DISPLAY QMGR")[0].ok
        before.disconnect()


def test_silent_clients_do_not_block_others(tls: Tls, tmp_path: Path) -> None:
    """Half a handshake, and half a request before MQCONN."""
    with served(tmp_path, tls=tls.listener()) as manager:
        where = ("localhost", manager.port)
        with socket.create_connection(where) as silent, socket.create_connection(where) as half:
            half.sendall(b"\x16\x03\x01\x02")
            with tls.client().wrap_socket(socket.create_connection(where), server_hostname="localhost") as encrypted:
                encrypted.sendall(b"\0")
                RemoteConnection(where, tls=tls.client()).disconnect()
            assert silent.fileno() > 0
