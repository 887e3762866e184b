"""Links to several brokers at once, one of which requires TLS, a certificate, a user and a password."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.certificate_authority import make
from tests.helpers.mapping_site import hops
from tests.helpers.mosquitto import Mosquitto, publish, tls_settings
from tests.helpers.paho_clients import PahoSubscriber
from tests.helpers.patience import eventually

USER, PASSWORD = "bridge", "correct horse"
MANY = 40


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make(directory)
    return directory


@pytest.fixture
def brokers(tmp_path: Path, certificates: Path) -> Iterator[dict[str, Mosquitto]]:
    if shutil.which("mosquitto_passwd") is None:
        pytest.fail("mosquitto_passwd is not installed; it belongs to mosquitto")
    users = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", users, USER, PASSWORD], check=True)
    asks = (f"password_file {users}", "allow_anonymous false", "require_certificate true")
    running = {}
    for name, settings in (("plain", ()), ("secure", tls_settings(certificates, *asks))):
        (tmp_path / name).mkdir()
        running[name] = Mosquitto(tmp_path / name, *settings).start()
    yield running
    for broker in running.values():
        broker.stop()


def secure_client(certificates: Path) -> Callable[[paho.Client], None]:
    def settle(client: paho.Client) -> None:
        client.username_pw_set(USER, PASSWORD)
        own = (str(certificates / "client.pem"), str(certificates / "client.key"))
        client.tls_set(str(certificates / "ca.pem"), *own, keyfile_password="p4ss")

    return settle


def configuration(brokers: dict[str, Mosquitto], certificates: Path) -> dict[str, Any]:
    tls = {
        "ca_file": str(certificates / "ca.pem"),
        "certificate_file": str(certificates / "client.pem"),
        "key_file": str(certificates / "client.key"),
        "key_password_variable": "LINK_KEY_PASSWORD",
    }
    secure = {"host": "localhost", "port": brokers["secure"].port, "user": USER, "tls": tls}
    return {
        "links": {
            "plain": {"host": "127.0.0.1", "port": brokers["plain"].port},
            "by-file": {**secure, "password_file": "password"},
            "by-variable": {**secure, "password_variable": "LINK_PASSWORD", "client_id": "other-{mapping}"},
        },
        "mappings": {
            "over-topics-1": {"from": {"mqtt": "t/{x}", "link": "plain"}, "to": {"topic": "between/{x}"}},
            "over-topics-2": {"from": {"topic": "between/{x}"}, "to": {"mqtt": "t/{x}", "link": "by-file"}},
            "over-queue-1": {"from": {"mqtt": "q/{x}", "link": "by-variable"}, "to": {"queue": "BETWEEN"}},
            "over-queue-2": {
                "from": {"queue": "BETWEEN"}, "to": {"mqtt": "{mqps.Top}", "link": "plain"}, "guarantee": "exactly-once"
            },
        },
        "queue_manager": {"scripts": ["between.mqsc"]},
    }  # fmt: skip


def states(bridge: BridgeProcess) -> dict[str, str]:
    return {mapping["name"]: mapping["state"] for mapping in Administrator(bridge).json("mapping", "list")}


def test_from_broker_to_broker(tmp_path: Path, brokers: dict[str, Mosquitto], certificates: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "between.mqsc").write_text("DEFINE QLOCAL(BETWEEN)\n")
    settings = configuration(brokers, certificates)
    config = "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
    secrets = {"LINK_PASSWORD": PASSWORD, "LINK_KEY_PASSWORD": "p4ss"}
    bridge = BridgeProcess(tmp_path / "bridge", config=config, env=secrets).start()
    try:
        eventually(lambda: set(states(bridge).values()), {"running"})
        plain, secure = brokers["plain"].port, brokers["secure"].port
        settle = secure_client(certificates)
        with (
            PahoSubscriber(secure, "t/#", host="localhost", settle=settle) as at_secure,
            PahoSubscriber(plain, "q/#") as at_plain,
        ):
            for number in range(MANY):
                publish(plain, f"t/{number % 3}", str(number), qos=1, version="mqttv5")
            there = [at_secure.message() for _ in range(MANY)]
            for number in range(MANY):
                at_secure.publish(f"q/{number % 3}", str(number), 2)
            back = [at_plain.message() for _ in range(MANY)]
        for messages, root in ((there, "t"), (back, "q")):
            assert [int(message.payload) for message in messages] == list(range(MANY))
            assert [message.topic for message in messages] == [f"{root}/{number % 3}" for number in range(MANY)]
        assert {hops(dict(message.properties.UserProperty)["mqbridge-hops"]) for message in there + back} == {
            "MQB1/over-topics-1,MQB1/over-topics-2",
            "MQB1/over-queue-1,MQB1/over-queue-2",
        }
        status = Administrator(bridge).run("status").stdout  # all certificates of this test are valid for two days
        for owner in ("link by-file", "the broker of link by-file", "the broker of link by-variable"):
            assert re.search(f"the certificate of {owner}.* expires on", status), status
        assert bridge.stop() == 0, bridge.log
        (tmp_path / "password").write_text("wrong\n")
        bridge.start()
        eventually(lambda: states(bridge)["over-topics-2"], "waiting for the link")
        eventually(lambda: states(bridge)["over-queue-1"], "running")
        eventually(lambda: "by-file" in bridge.log and "Not authorized" in bridge.log, True)
        assert bridge.stop() == 0, bridge.log
        assert PASSWORD not in bridge.log and "p4ss" not in bridge.log
        assert "Traceback" not in bridge.log, bridge.log
    finally:
        bridge.discard()
