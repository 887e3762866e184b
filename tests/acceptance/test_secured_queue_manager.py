"""A bridge on a secured queue manager: a CCDT, TLS with a client certificate, and a password, through both packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.known_secrets import register
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import NAME, QueueManagerProcess, RemoteBridgeProcess

CHANNEL = "MQTT.BRIDGE"
CHANNELS = """
channels:
- {name: PLAIN, port: 0}
"""
PASSWORD, KEY_PASSWORD = "of the bridge 8", "of its key repository 9"
register(PASSWORD)
register(KEY_PASSWORD)


class Site:
    """A queue manager whose channel requires a client certificate and a password, and a bridge with both."""

    def __init__(self, directory: Path, library: str) -> None:
        self.authority = Authority(directory)
        self.authority.issue("qm1", common_name=NAME)
        self.authority.client("bridge")
        self.authority.key_repository("bridge", KEY_PASSWORD, label="bridge")
        for name, password in (("password", PASSWORD), ("key-password", "another")):
            (directory / name).write_text(f"{password}\n")
        (directory / "users").write_text(f"bridge:{PASSWORD}\n")
        tls = (
            f"{{certificate_file: {directory / 'qm1.pem'}, key_file: {directory / 'qm1.key'},"
            f" client_certificates: required, ca_file: {self.authority.file}}}"
        )
        self.ccdt = directory / "ccdt.json"
        self.queue_manager = QueueManagerProcess(directory / "data").listen(
            f"password_file: {directory / 'users'}", f"tls: {tls}"
        )
        self.start_queue_manager()
        self.bridge = RemoteBridgeProcess(
            directory / "data",
            library=library,
            queue_manager=self.queue_manager,
            reached=f"""\
  ccdt_url: file://{self.ccdt}
  user: bridge
  password_file: {directory / "password"}
  tls:
    key_repository: {directory / "bridge.p12"}
    key_repository_password_file: {directory / "key-password"}
    certificate_label: bridge
""",
            config=CHANNELS,
            env={"MQI_STANDIN": ""},
        )

    def start_queue_manager(self) -> None:
        """Start the queue manager, and write its address to the CCDT."""
        self.queue_manager.start()
        channel = {
            "name": CHANNEL,
            "clientConnection": {
                "connection": [{"host": "127.0.0.1", "port": self.queue_manager.port}],
                "queueManager": NAME,
            },
            "transmissionSecurity": {
                "cipherSpecification": "ANY_TLS12_OR_HIGHER",
                "certificatePeerName": f"CN={NAME},O=Example",
            },
            "type": "clientConnection",
        }
        new = self.ccdt.with_suffix(".new")
        new.write_text(json.dumps({"channel": [channel]}))
        new.replace(self.ccdt)


@pytest.mark.parametrize(
    ("library", "renewed"), [("ibmmq", True), ("pymqi", False), pytest.param("pymqi", True, marks=pytest.mark.slow)]
)
def test_a_secured_queue_manager(environments: None, tmp_path: Path, library: str, renewed: bool) -> None:
    """A publication passes through it. A wrong password of the key repository ends the start with a hint.

    The log names an expired certificate until there is a new one. Connections that exist continue.
    """
    site = Site(tmp_path, library)
    with pytest.raises(Exception, match="MQRC_KEY_REPOSITORY_ERROR") as raised:
        site.bridge.start()
    site.bridge.ended()
    assert f"hint: check the password of {tmp_path / 'bridge.p12'}" in str(raised.value)
    (tmp_path / "key-password").write_text(f"{KEY_PASSWORD}\n")
    with at_work(site.bridge) as bridge, RawClient.connected(bridge.port, "s", clean=False) as client:
        client.subscribe(("secured/#", 1))
        client.publish("secured/a", b"over TLS", 1)
        assert client.take().payload == b"over TLS"
        if renewed:
            the_certificate_expires(site, client)


def the_certificate_expires(site: Site, client: RawClient) -> None:
    """The bridge reconnects as soon as the certificate of the queue manager is renewed."""
    bridge = site.bridge
    site.authority.issue("qm1", common_name=NAME, begins=-2, ends=-1)
    client.publish("secured/a", b"connected before", 1)
    assert client.take().payload == b"connected before"
    site.queue_manager.kill()
    site.start_queue_manager()
    hint = "check that the CipherSpec of the CCDT matches SSLCIPH of the channel, that no certificate has expired"
    parts = ("MQB4003W", "MQRC_SSL_INITIALIZATION_ERROR", hint)
    until(lambda: any(all(part in line for part in parts) for line in bridge.log.splitlines()), lambda: bridge.log)
    site.authority.issue("qm1", common_name=NAME)
    client.publish("secured/a", b"renewed", 1)
    assert client.take().payload == b"renewed"
