"""An hour of attacks by several users, with default limits: 100 ordinary clients lose nothing and are not rejected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bridge.mqtt.packets import Puback, Publish
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from tests.helpers.administrator import Administrator
from tests.helpers.attackers import USERS
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.memory_cgroup import memory_cgroup
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape, admin_url

pytestmark = pytest.mark.slow

#: The duration of the attack.
MINUTES = float(os.environ.get("MQBRIDGE_TEST_ATTACK_MINUTES") or 60)
ORDINARY = 100
#: An ordinary client reconnects after this number of publications.
RECONNECTS_AFTER = 60
#: Some limits are shares of the memory.
MEMORY = 512 * 1024 * 1024
CONFIG = """
control_socket: {directory}/control
channels:
  - name: A
    port: 0
    authentication: [{{method: password, file: "{users}"}}]
    publish_topics: ["own/%u", "public/#", "orders/#"]
    subscribe_topics: ["#"]
mappings:
  orders: {{from: {{mqtt: "orders/#", link: local}}, to: {{queue: NOWHERE}}}}
admin: {{port: 0}}
"""


class Ordinary(threading.Thread):
    """Publish once a second to a separate topic, and receive the publications."""

    def __init__(self, port: int, number: int, ends: threading.Event) -> None:
        super().__init__(daemon=True)
        self.user = f"ordinary-{number}"
        self._port, self._level, self._ends = port, 4 + number % 2, ends
        self._topic = f"own/{self.user}"
        self._client = self._connect()
        self._client.subscribe((self._topic, 1))
        self.published = 0
        #: why it ended too early
        self.why: BaseException | None = None

    def _connect(self) -> RawClient:
        return RawClient.connected(
            self._port, self.user, clean=False, level=self._level, user_name=self.user, password=self.user.encode()
        )

    def run(self) -> None:
        try:
            while not self._ends.wait(1):
                self._publish()
                if not self.published % RECONNECTS_AFTER:
                    self._client.disconnect()
                    self._client = self._connect()
            self._client.disconnect()
        except BaseException as error:
            self.why = error

    def _publish(self) -> None:
        """Publish, and receive the answer and the publication, in either order. The next message must be this one."""
        client, payload = self._client, b"%d" % self.published
        packet_id = client.next_packet_id()
        client.send(Publish(self._topic, payload, 1, False, False, packet_id))
        puback = client.wait_for(Puback)
        assert (puback.packet_id, puback.reason_code) == (packet_id, 0)
        publication = client.wait_for(Publish)
        assert (bytes(publication.payload), publication.dup) == (payload, False)
        client.send(Puback(publication.packet_id))
        self.published += 1


def attack(bridge: BridgeProcess) -> None:
    ends = threading.Event()
    ordinary = [Ordinary(bridge.port, number, ends) for number in range(ORDINARY)]
    for client in ordinary:
        client.start()
    admin = urlsplit(admin_url(bridge.announced)).port
    command = [sys.executable, "-m", "tests.helpers.attackers", str(bridge.port), str(admin)]
    until, scrape, kinds, scrapes = time.monotonic() + MINUTES * 60, Scrape(bridge), set(), 0
    with subprocess.Popen(command, stdin=subprocess.PIPE) as attackers:
        assert attackers.stdin is not None
        while time.monotonic() < until and not any(client.why for client in ordinary):
            time.sleep(5)
            assert attackers.poll() is None
            scrape.get("mqbridge_connections", channel="A")
            scrapes += 1
            status = json.loads(Administrator(bridge).run("status", "--json").stdout)
            kinds |= {(problem["kind"], problem["subject"]) for problem in status["problems"]}
        ends.set()
        for client in ordinary:
            client.join(200)
        attackers.kill()
    assert [(client.user, client.published, client.why) for client in ordinary if client.why] == []
    assert not any(client.is_alive() for client in ordinary)
    print(f"{sum(client.published for client in ordinary)} publications, {scrapes} scrapes, problems: {sorted(kinds)}")
    assert "MQB0008E" not in bridge.log, "the memory watermark comes last"
    # Each of the attacks has reached a limit. A client is named by the last one that its backlog has reached.
    subjects = {subject for kind, subject in kinds if kind == "limit"}
    assert subjects & {"waiting_bytes", "waiting_total", "waiting_full"}
    assert subjects & {"retained_bytes", "retained_total"}
    assert subjects & {"dead_letter_bytes", "dead_letter_total"}
    assert "MQB5011E" in bridge.log, "the mapping has discarded messages that it cannot process"


@pytest.mark.timeout(MINUTES * 60 + 900)
def test_ordinary_clients_are_served_during_an_attack(tmp_path: Path) -> None:
    users = tmp_path / "users"
    names = [*USERS, *(f"ordinary-{number}" for number in range(ORDINARY))]
    write_password_file(users, {name: PasswordEntry(hash_of(name)) for name in names})
    with memory_cgroup(MEMORY) as cgroup:
        bridge = BridgeProcess(tmp_path / "data", config=CONFIG.format(directory=tmp_path, users=users))
        bridge.wrapper = cgroup.wrapper
        try:
            attack(bridge.start())
            assert bridge.stop() == 0
        finally:
            bridge.discard()
        assert not cgroup.kills
    assert "Traceback" not in bridge.log
