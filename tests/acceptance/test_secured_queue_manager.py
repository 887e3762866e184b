"""A bridge on a secured queue manager: a CCDT, TLS with a client certificate, and a password, through both packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import remote_bridge
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
    """A queue manager whose channel requires a client certificate and a password, and a bridge that has both."""

    def __init__(self, directory: Path, library: str) -> None:
        self.authority = Authority(directory)
        self.authority.issue("qm1", common_name=NAME)
        self.authority.client("bridge")
        self.authority.key_repository("bridge", KEY_PASSWORD, label="bridge")
        for name, password in (("password", PASSWORD), ("key-password", KEY_PASSWORD)):
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


@pytest.fixture(params=["ibmmq", "pymqi"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if not remote_bridge.built():
        remote_bridge.build()
    made = Site(tmp_path, request.param)
    yield made
    made.bridge.discard()
    assert "Traceback" not in made.bridge.log, made.bridge.log


def test_a_publication_passes_through_a_secured_queue_manager(site: Site) -> None:
    bridge = site.bridge.start()
    with RawClient.connected(bridge.port, "s") as subscriber, RawClient.connected(bridge.port, "p") as publisher:
        subscriber.subscribe(("secured/#", 1))
        publisher.publish("secured/a", b"over TLS", 1)
        assert subscriber.take().payload == b"over TLS"
    assert bridge.stop() == 0


def test_the_log_names_an_expired_certificate_until_there_is_a_new_one(site: Site) -> None:
    """Connections that exist go on. The bridge connects again as soon as the certificate is renewed."""
    bridge = site.bridge.start()
    with RawClient.connected(bridge.port, "s", clean=False) as client:
        client.subscribe(("secured/#", 1))
        site.authority.issue("qm1", common_name=NAME, begins=-2, ends=-1)
        client.publish("secured/a", b"connected before", 1)
        message = client.take()
        assert message.payload == b"connected before"
        client.acknowledge(message)
        site.queue_manager.kill()
        site.start_queue_manager()
        hint = "check that the CipherSpec of the CCDT matches SSLCIPH of the channel, that no certificate has expired"
        parts = ("MQB4003W", "MQRC_SSL_INITIALIZATION_ERROR", hint)
        until(lambda: any(all(part in line for part in parts) for line in bridge.log.splitlines()), lambda: bridge.log)
        site.authority.issue("qm1", common_name=NAME)
        client.publish("secured/a", b"renewed", 1)
        assert client.take().payload == b"renewed"
    assert bridge.stop() == 0


def test_a_wrong_key_repository_password_ends_the_start_with_a_hint(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key-password").write_text("another\n")
    with pytest.raises(Exception, match="MQRC_KEY_REPOSITORY_ERROR") as raised:
        site.bridge.start()
    assert f"hint: check the password of {tmp_path / 'bridge.p12'}" in str(raised.value)
