"""Real bridges and clients: a session belongs to the user who began it, also after a restart of the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program
from tests.helpers import mosquitto
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.line_process import LineProcess
from tests.helpers.raw_client import RawClient

CONFIG = """
audit_log: {{file: {0}/audit.jsonl}}
channels:
  - name: USERS
    port: 0
    authentication: [{{method: password, file: {0}/clients}}]
    publish_topics: ["devices/%u/#"]
    subscribe_topics: ["devices/%u/#"]
  - {{name: GUESTS, port: 0}}
"""
PASSWORDS = {"alice": "correct horse 7", "bob": "battery staple 8"}
SECRET = "for alice alone"


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeProcess]:
    for user, password in PASSWORDS.items():
        command = ["passwd", str(tmp_path / "clients"), user, "--stdin"]
        assert CliRunner().invoke(program, command, input=f"{password}\n").exit_code == 0
    with at_work(BridgeProcess(tmp_path / "data", config=CONFIG.format(tmp_path))) as process:
        yield process


def user(bridge: BridgeProcess, name: str, level: int, *, clean: bool = False) -> RawClient:
    password = PASSWORDS[name].encode()
    return RawClient(bridge.ports["USERS"], "pump-7", level=level, clean=clean, user_name=name, password=password)


def assert_others_are_rejected(bridge: BridgeProcess, level: int) -> None:
    """Bob with his own password, and a guest who claims to be alice, whether they ask for the session or for its end."""
    code = 0x87 if level == 5 else 5
    for clean in (False, True):
        guest = RawClient(bridge.ports["GUESTS"], "pump-7", level=level, clean=clean, user_name="alice")
        for stranger in (user(bridge, "bob", level, clean=clean), guest):
            with stranger:
                assert stranger.connect().return_code == code
                stranger.expect_closed()


@pytest.mark.parametrize("level", [3, 4, 5])
def test_another_user_gets_neither_the_session_nor_its_messages(bridge: BridgeProcess, level: int) -> None:
    with user(bridge, "alice", level) as alice:
        assert alice.connect().return_code == 0
        assert alice.subscribe(("devices/alice/#", 1)) == (1,)
        assert_others_are_rejected(bridge, level)
        alice.ping()
        alice.disconnect()
    mosquitto.publish(bridge.ports["GUESTS"], "devices/alice/secret", SECRET, qos=1)
    assert_others_are_rejected(bridge, level)
    bridge.stop()
    bridge.start()
    assert_others_are_rejected(bridge, level)
    with user(bridge, "alice", level) as alice:
        connack = alice.connect()
        assert (connack.return_code, connack.session_present) == (0, level != 3)
        message = alice.take()
        assert (message.topic, message.payload) == ("devices/alice/secret", SECRET.encode())
        alice.disconnect()
    assert bridge.log.count("MQB1212W") >= 12
    assert '"event":"session refused"' in (bridge.data_directory.parent / "audit.jsonl").read_text()


def test_mosquitto_clients_of_two_users_with_one_client_identifier(bridge: BridgeProcess) -> None:
    port = bridge.ports["USERS"]

    def options(name: str) -> tuple[str, ...]:
        return ("-i", "pump-7", "-c", "-u", name, "-P", PASSWORDS[name])

    with mosquitto.Subscriber(port, "devices/alice/#", qos=1, options=options("alice")) as subscriber:
        command = ["mosquitto_sub", "-p", str(port), "-V", "mqttv311", "-q", "1", "-t", "devices/bob/#"]
        with LineProcess([*command, *options("bob")]) as bob:
            bob.line_where(lambda line: "not authori" in line)
        mosquitto.publish(bridge.ports["GUESTS"], "devices/alice/secret", SECRET, qos=1)
        assert subscriber.message()["payload"] == SECRET
