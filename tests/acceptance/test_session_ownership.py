"""Real bridges and clients: a session belongs to the user who started it, also after a restart of the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
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
LEVELS = (3, 4, 5)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeProcess]:
    write_password_file(
        tmp_path / "clients", {name: PasswordEntry(hash_of(secret)) for name, secret in PASSWORDS.items()}
    )
    with at_work(BridgeProcess(tmp_path / "data", config=CONFIG.format(tmp_path))) as process:
        yield process


def user(bridge: BridgeProcess, name: str, level: int, *, clean: bool = False) -> RawClient:
    password = PASSWORDS[name].encode()
    port = bridge.ports["USERS"]
    return RawClient(port, f"pump-{level}", level=level, clean=clean, user_name=name, password=password)


def assert_others_are_rejected(bridge: BridgeProcess, level: int) -> None:
    """Bob with his own password, and a guest who claims to be alice, try to resume and to end the session."""
    code = 0x87 if level == 5 else 5
    for clean in (False, True):
        guest = RawClient(bridge.ports["GUESTS"], f"pump-{level}", level=level, clean=clean, user_name="alice")
        for stranger in (user(bridge, "bob", level, clean=clean), guest):
            with stranger:
                assert stranger.connect().return_code == code
                stranger.expect_closed()


def test_another_user_gets_neither_the_session_nor_its_messages(bridge: BridgeProcess) -> None:
    for level in LEVELS:
        with user(bridge, "alice", level) as alice:
            assert alice.connect().return_code == 0
            assert alice.subscribe((f"devices/alice/{level}", 1)) == (1,)
            assert_others_are_rejected(bridge, level)
            alice.ping()
            alice.disconnect()
        mosquitto.publish(bridge.ports["GUESTS"], f"devices/alice/{level}", SECRET, qos=1)
        assert_others_are_rejected(bridge, level)
    bridge.restart()
    for level in LEVELS:
        assert_others_are_rejected(bridge, level)
        with user(bridge, "alice", level) as alice:
            connack = alice.connect()
            assert (connack.return_code, connack.session_present) == (0, level != 3)
            message = alice.take()
            assert (message.topic, message.payload) == (f"devices/alice/{level}", SECRET.encode())
            alice.disconnect()
    assert bridge.log.count("MQB1212W") >= 12 * len(LEVELS)
    assert '"event":"session refused"' in (bridge.data_directory.parent / "audit.jsonl").read_text()

    # The same with the clients of mosquitto.
    port = bridge.ports["USERS"]

    def options(name: str) -> tuple[str, ...]:
        return ("-i", "pump-4", "-c", "-u", name, "-P", PASSWORDS[name])

    with mosquitto.Subscriber(port, "devices/alice/4", qos=1, options=options("alice")) as subscriber:
        command = ["mosquitto_sub", "-p", str(port), "-V", "mqttv311", "-q", "1", "-t", "devices/bob/#"]
        with LineProcess([*command, *options("bob")]) as bob:
            bob.line_where(lambda line: "not authori" in line)
        mosquitto.publish(bridge.ports["GUESTS"], "devices/alice/4", SECRET, qos=1)
        assert subscriber.message()["payload"] == SECRET
