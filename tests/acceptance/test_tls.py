"""TLS of a channel with other clients: mosquitto_pub, openssl s_client, paho, with valid and invalid certificates."""

from __future__ import annotations

import os
import queue
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from bridge.config.tls import ListenerTlsConfig
from bridge.security.tls import TlsError, context_of
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.raw_client import RawClient

CONFIG = """
channels:
  - {{name: PLAIN.MQTT, port: 0}}
  - name: TLS
    port: 0
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}
  - name: OPTIONAL
    port: 0
    authentication: [{{method: certificate}}, {{method: anonymous}}]
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key, ca_file: {0}/ca.pem, crl_file: {0}/crl.pem,
          client_certificates: optional}}
  - name: REQUIRED
    port: 0
    authentication: [{{method: certificate, user: "{{CN}}"}}]
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key, ca_file: {0}/ca.pem, crl_file: {0}/crl.pem,
          client_certificates: required}}
  - name: REQUIRED12
    port: 0
    authentication: [{{method: certificate}}]
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key, ca_file: {0}/ca.pem, crl_file: {0}/crl.pem,
          client_certificates: required, versions: [TLSv1.2]}}
  - name: TLS12
    port: 0
    tls: {{certificate_file: {0}/protected.pem, key_file: {0}/protected.key, key_password_file: {0}/password,
          ciphers: ECDHE_ECDSA_AES_256_GCM_SHA384}}
  - name: TLS13
    port: 0
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key, ciphers: ANY_TLS13}}
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of certificates."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    authority.issue("server")
    authority.issue("protected", password="pa55 word")
    (directory / "password").write_text("pa55 word\n")
    authority.client("pump-7")
    authority.client("expired", begins=-3, ends=-1)
    authority.client("early", begins=1)
    authority.issue("usage", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    authority.client("nameless", common_name="x" * 12)
    authority.client("mqm")
    authority.client("temperature-sensor-1")
    authority.client("weak", key=rsa.generate_private_key(65537, 1024))
    authority.issue("weak-server", key=rsa.generate_private_key(65537, 1024))
    authority.revoke(authority.client("revoked"))
    Authority(directory, "other").client("stranger")
    return directory


@pytest.fixture(scope="module")
def bridge(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with channels of all kinds."""
    data_directory = tmp_path_factory.mktemp("tls") / "data"
    with at_work(BridgeProcess(data_directory, config=CONFIG.format(certificates))) as process:
        process.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said/#') DEST(SAID)\n")
        yield process


def publish(
    bridge: BridgeProcess, channel: str, certificates: Path, *options: str, host: str = "localhost"
) -> subprocess.CompletedProcess[str]:
    command = ["mosquitto_pub", "-h", host, "-p", str(bridge.ports[channel]), "-q", "1", "-t", "said/x", "-m", "hello"]
    trusted = [] if "--cafile" in options else ["--cafile", f"{certificates}/ca.pem"]
    return subprocess.run([*command, *trusted, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)


def own(certificates: Path, name: str) -> tuple[str, ...]:
    return "--cert", f"{certificates}/{name}.pem", "--key", f"{certificates}/{name}.key"


def users_of(bridge: BridgeProcess) -> list[str]:
    """Get the messages that have arrived. Return their users."""
    users = [message["md"]["UserIdentifier"].strip() for message in bridge.messages("SAID")]
    bridge.mqsc("CLEAR QLOCAL(SAID)\n")
    return users


def test_a_certificate_whose_user_name_is_too_long_for_mq_is_rejected(
    bridge: BridgeProcess, certificates: Path
) -> None:
    process = publish(bridge, "REQUIRED", certificates, *own(certificates, "temperature-sensor-1"))
    assert process.returncode != 0
    assert users_of(bridge) == []
    assert "its user name 'temperature-sensor-1' is longer than 12 bytes" in bridge.log


def test_a_record_maps_a_certificate_whose_user_name_is_too_long_for_mq(
    bridge: BridgeProcess, certificates: Path
) -> None:
    record = "SET CHLAUTH(REQUIRED) TYPE(SSLPEERMAP) SSLPEER('CN=temperature*') USERSRC(MAP) MCAUSER('sensor')"
    bridge.mqsc(f"{record} ACTION(ADD)\n")
    try:
        process = publish(bridge, "REQUIRED", certificates, *own(certificates, "temperature-sensor-1"))
        assert process.returncode == 0, process.stderr
        assert users_of(bridge) == ["sensor"]
    finally:
        bridge.mqsc("SET CHLAUTH(REQUIRED) TYPE(SSLPEERMAP) SSLPEER('CN=temperature*') ACTION(REMOVE)\n")


@pytest.mark.parametrize("channel", ["TLS", "OPTIONAL", "TLS12", "TLS13"])
def test_a_publication_over_tls(bridge: BridgeProcess, certificates: Path, channel: str) -> None:
    """A client that trusts the authority publishes, with each version of TLS."""
    process = publish(bridge, channel, certificates)
    assert process.returncode == 0, process.stderr
    assert len(users_of(bridge)) == 1


@pytest.mark.parametrize(
    ("channel", "options", "host"),
    [
        ("TLS", ("--cafile", "{}/other.pem"), "localhost"),
        ("TLS", (), "127.0.0.1"),
        ("TLS12", ("--tls-version", "tlsv1.3"), "localhost"),
    ],
    ids=["authority", "name", "version"],
)
def test_messages_that_a_client_does_not_accept(
    bridge: BridgeProcess, certificates: Path, channel: str, options: tuple[str, ...], host: str
) -> None:
    process = publish(bridge, channel, certificates, *(option.format(certificates) for option in options), host=host)
    assert process.returncode != 0
    assert users_of(bridge) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("expired", "certificate has expired"),
        ("early", "certificate is not yet valid"),
        ("stranger", "unable to get local issuer certificate"),
        ("revoked", "certificate revoked"),
        ("usage", "(unsuitable|unsupported) certificate purpose"),
        ("weak", "(too weak|too small)"),
        (None, "it sent no certificate"),
    ],
)
@pytest.mark.parametrize("channel", ["REQUIRED", "REQUIRED12"])
def test_rejected_certificates(
    bridge: BridgeProcess, certificates: Path, name: str | None, reason: str, channel: str
) -> None:
    """The handshake fails at the bridge, its log contains the reason, and no message arrives.

    The client's own OpenSSL accepts any key (SECLEVEL=0), so that the bridge rejects it.
    """
    before = len(bridge.log)
    options = () if name is None else own(certificates, name)
    process = publish(bridge, channel, certificates, *options, "--ciphers", "ALL:@SECLEVEL=0")
    assert process.returncode != 0
    eventually(lambda: bool(re.search(reason, bridge.log[before:])), True)
    assert f"channel {channel}:" in bridge.log[before:]
    assert users_of(bridge) == []


@pytest.mark.parametrize("ciphers", ["ANY_TLS12_OR_HIGHER", "ECDHE_RSA_AES_256_GCM_SHA384"])
def test_a_weak_certificate_of_the_channel_itself(certificates: Path, ciphers: str) -> None:
    """The bridge does not accept a key that is too short, regardless of the configured ciphers."""
    certificate, key = certificates / "weak-server.pem", certificates / "weak-server.key"
    config = ListenerTlsConfig(certificate_file=certificate, key_file=key, ciphers=ciphers)
    with pytest.raises(TlsError, match="too small"):
        context_of(config)


def paho_publishes(
    bridge: BridgeProcess, channel: str, certificates: Path, authority: str = "ca", name: str | None = None
) -> bool:
    """Return whether a publication of paho is acknowledged."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    certificate, key = (None, None) if name is None else (f"{certificates}/{name}.pem", f"{certificates}/{name}.key")
    client.tls_set(f"{certificates}/{authority}.pem", certificate, key, ciphers="ALL:@SECLEVEL=0")
    accepted: queue.Queue[bool] = queue.Queue()
    client.on_connect = lambda *_: accepted.put(True)
    client.on_disconnect = lambda *_: accepted.put(False)
    try:
        client.connect("localhost", bridge.ports[channel])
    except ssl.SSLError:
        return False
    client.loop_start()
    try:
        if not accepted.get(timeout=PATIENCE):
            return False
        publication = client.publish("said/x", "hello", 1)
        publication.wait_for_publish(PATIENCE)
        return publication.is_published()
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize(
    ("channel", "authority", "name", "users"),
    [
        ("TLS", "other", None, []),
        ("REQUIRED", "ca", "pump-7", ["pump-7"]),
        ("REQUIRED12", "ca", "pump-7", ["pump-7"]),
        ("REQUIRED", "ca", "revoked", []),
    ],
)
def test_paho(
    bridge: BridgeProcess, certificates: Path, channel: str, authority: str, name: str | None, users: list[str]
) -> None:
    """The same results as for mosquitto_pub, with Python's TLS."""
    assert paho_publishes(bridge, channel, certificates, authority, name) is bool(users)
    assert users_of(bridge) == users


@pytest.mark.parametrize(
    ("channel", "name", "users"),
    [("REQUIRED", "pump-7", ["pump-7"]), ("OPTIONAL", "pump-7", ["pump-7"]), ("OPTIONAL", None, [""])],
)
def test_a_certificate_determines_the_user(
    bridge: BridgeProcess, certificates: Path, channel: str, name: str | None, users: list[str]
) -> None:
    """The Common Name is the user. A client without a certificate has no user, whatever name it claims."""
    options = () if name is None else own(certificates, name)
    process = publish(bridge, channel, certificates, *options, "-u", "mqm")
    assert process.returncode == 0, process.stderr
    assert users_of(bridge) == users


def test_a_certificate_of_a_privileged_user(bridge: BridgeProcess, certificates: Path) -> None:
    result = publish(bridge, "REQUIRED", certificates, *own(certificates, "mqm"))
    assert "not authorised" in result.stderr
    assert "user 'mqm' is blocked by channel authentication record '*' of type BLOCKUSER" in bridge.log


def test_versions_ciphers_and_alpn(bridge: BridgeProcess, certificates: Path) -> None:
    """openssl s_client sees MQTT offered by ALPN, and the cipher of the CipherSpec."""
    command = ["openssl", "s_client", "-connect", f"localhost:{bridge.ports['TLS12']}", "-alpn", "mqtt"]
    process = subprocess.run(
        [*command, "-CAfile", f"{certificates}/ca.pem"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "ALPN protocol: mqtt" in process.stdout
    assert "Cipher is ECDHE-ECDSA-AES256-GCM-SHA384" in process.stdout
    assert "Verify return code: 0 (ok)" in process.stdout
    assert subprocess.run(
        [*command, "-tls1_3"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    ).returncode


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_sessions_are_resumed(bridge: BridgeProcess, certificates: Path, version: str, tmp_path: Path) -> None:
    """A returning client resumes the TLS session of its first connection."""
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "pump-7.pem", certificates / "pump-7.key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2 if version == "tls1_2" else ssl.TLSVersion.TLSv1_3
    session = None
    for resumed in (False, True):
        with RawClient(bridge.ports["REQUIRED"], "resumes") as client:
            stream = context.wrap_socket(client.socket, server_hostname="localhost", session=session)
            client.socket = stream
            client.connect()
            assert stream.session_reused is resumed
            session = stream.session
            client.disconnect()


def test_certificates_that_change_while_clients_are_connected(certificates: Path, tmp_path: Path) -> None:
    """New connections get the new certificate, old ones stay. An invalid file changes nothing."""
    authority = Authority(tmp_path)
    authority.issue("server")
    config = f"channels: [{{name: TLS, tls: {{certificate_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.key}}}}]\n"
    bridge = BridgeProcess(tmp_path / "data", config=config).start()
    try:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

        def serial() -> str:
            with RawClient(bridge.port, "look") as client:
                stream = context.wrap_socket(client.socket, server_hostname="localhost")
                client.socket = stream
                certificate = stream.getpeercert()
                assert certificate is not None
                return str(certificate["serialNumber"])

        with RawClient(bridge.port, "stays") as stays:
            stays.socket = context.wrap_socket(stays.socket, server_hostname="localhost")
            stays.connect()
            first = serial()
            (tmp_path / "server.pem").write_text("no certificate")
            eventually(lambda: "loading changed TLS files failed" in bridge.log, True)
            assert serial() == first
            renewed = authority.issue("server")
            eventually(lambda: int(serial(), 16), renewed.serial_number)
            stays.ping()
        assert bridge.stop() == 0
    finally:
        bridge.discard()
    assert os.stat(tmp_path / "server.key").st_mode & 0o077 == 0
