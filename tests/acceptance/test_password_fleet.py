"""A fleet with passwords: verification after a restart, and for clients that have disconnected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from bridge.mqtt.packets import Connack
from bridge.security.password_file import PasswordEntry, read_password_file, write_password_file
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

CONFIG = """
channels:
  - name: PASSWORD
    port: 0
    failed_connects: 1
    connect_timeout: 120 s
    authentication: [{{method: password, file: {0}/clients}}]
  - {{name: OPEN, port: 0}}
"""
#: Python runs this module at start. Each verification with the password file adds a line with its hash to the file `begun`,
#: and then waits until the file `gate` exists.
SPY = """
import os, pathlib, time
from argon2 import PasswordHasher

folder = pathlib.Path(os.environ["SPY_FOLDER"])
verify = PasswordHasher.verify

def spying(self, hash, password):
    with (folder / "begun").open("a") as file:
        file.write(f"{hash}\\n")
    while not (folder / "gate").exists():
        time.sleep(0.01)
    return verify(self, hash, password)

PasswordHasher.verify = spying
"""


class Fleet:
    """A bridge whose verifications are counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        secret = "correct horse 9"
        self.password = secret.encode()
        # Checks that take as long as those of users, unlike the passwords of other tests: their order matters.
        hasher = PasswordHasher(time_cost=3, memory_cost=65536, parallelism=4)
        write_password_file(
            folder / "clients", {f"user-{number}": PasswordEntry(hasher.hash(secret)) for number in range(4)}
        )
        (folder / "sitecustomize.py").write_text(SPY)
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        environment = {"PYTHONPATH": path, "SPY_FOLDER": str(folder)}
        self.bridge = BridgeProcess(folder / "data", config=CONFIG.format(folder), env=environment).start()

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    @property
    def verified(self) -> list[str]:
        """Return the hashes of the started verifications with the password file, in order."""
        file = self.folder / "begun"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def verifications(self) -> int:
        return len(self.verified)

    def client(
        self, client_id: str, user: str = "user-0", password: bytes | None = None, source: str = ""
    ) -> RawClient:
        """A client that has sent CONNECT."""
        password = self.password if password is None else password
        port = self.bridge.ports["PASSWORD"]
        client = RawClient(port, client_id, user_name=user, password=password, source=source)
        client.send(client.packet)
        return client

    def log_in(self, client_id: str, user: str = "user-0") -> None:
        client = self.client(client_id, user)
        self.expect_accepted(client)
        client.vanish()

    def expect_accepted(self, client: RawClient) -> None:
        answer = client.expect(Connack)
        assert answer.return_code == 0, self.bridge.log


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    password_fleet = Fleet(tmp_path)
    yield password_fleet
    password_fleet.bridge.discard()
    assert "Traceback" not in password_fleet.bridge.log, password_fleet.bridge.log


def test_after_a_kill_no_password_is_verified_with_the_password_file_again(fleet: Fleet) -> None:
    """Unless the cache is disabled. Then it has no file."""
    fleet.open_gate()
    users = [f"user-{number}" for number in range(4)]
    for user in users:
        fleet.log_in(user, user)
    assert fleet.verifications == 4
    fleet.bridge.kill()
    fleet.bridge.start()
    for user in users:
        fleet.log_in(user, user)
    assert fleet.verifications == 4
    cache = fleet.bridge.data_directory / "verified-passwords"
    assert cache.stat().st_mode & 0o777 == 0o600
    fleet.bridge.kill()
    cache.unlink()
    assert fleet.bridge.config is not None
    fleet.bridge.config.write_text(CONFIG.format(fleet.folder) + "password_cache: {enabled: false}\n")
    fleet.bridge.start()
    fleet.log_in("a")
    fleet.log_in("b")
    assert fleet.verifications == 5
    assert not cache.exists()


def test_disconnected_clients_are_neither_verified_nor_counted_as_failed(fleet: Fleet) -> None:
    """Failures of 10 clients would delay all others of their network (failed_connects: 1)."""
    threads = len(os.sched_getaffinity(0))
    running = [fleet.client(f"running-{number}") for number in range(threads)]
    until(lambda: fleet.verifications == threads)
    for client in [fleet.client(f"left-{number}", "user-1") for number in range(30)]:
        client.vanish()
    # The bridge has seen the connections end when it accepts a later one.
    later = RawClient.connected(fleet.bridge.ports["OPEN"], "later")
    waiting = fleet.client("waiting", "user-2")
    fleet.open_gate()
    fleet.expect_accepted(waiting)
    assert fleet.verifications == threads + 1
    fleet.log_in("last", "user-1")
    assert "MQB1206W" not in fleet.bridge.log
    for client in (*running, later, waiting):
        client.vanish()

    # A flood of wrong passwords does not delay another network.
    before = fleet.verifications
    (fleet.folder / "gate").unlink()
    guesses = [fleet.client(f"guess-{number}", f"unknown-{number}", b"wrong") for number in range(200)]
    until(lambda: fleet.verifications == before + threads)
    device = fleet.client("device", "user-3", source="127.0.0.2")
    # The bridge has queued the device's check when it accepts a later connection.
    RawClient.connected(fleet.bridge.ports["OPEN"], "later").vanish()
    fleet.open_gate()
    fleet.expect_accepted(device)
    entry = read_password_file(fleet.folder / "clients")["user-3"]
    assert fleet.verified.index(entry.hash) <= before + threads + 1
    for client in (*guesses, device):
        client.vanish()
