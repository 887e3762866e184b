"""The password of the bridge is changed at the queue manager while its 41 connections are lost: the account is not locked.

The queues have DEFREADA(YES), which makes MQGETs that browse and MQGETs in syncpoint exclude each other on a handle that does
not say otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.known_secrets import register
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import Scrape
from tests.ibm_standin.rules import Rules, write

CHANNEL = "DEV.APP.SVRCONN"
OLD, NEW = "of the bridge 17", "of the bridge 18"
register(OLD)
register(NEW)
#: Failed logins that do not lock an account: three are what operating systems and directories allow at least.
HARMLESS = 3
QUEUES = ("SYSTEM.MQTT.TRANSMIT.QUEUE", "SYSTEM.MQTT.PERSISTENT.STATE", "SYSTEM.DEAD.LETTER.QUEUE")
SCRIPT = f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(SVRCONN) TRPTYPE(TCP)\n" + "".join(
    f"ALTER QLOCAL({queue}) DEFREADA(YES)\n" for queue in QUEUES
)
CONFIG = """
control_socket: {}/control
channels: [{{name: PLAIN, port: 0}}]
admin: {{port: 0}}
"""


class Site:
    """A queue manager that knows a password of user `bridge`, and a bridge with the same password in a file."""

    def __init__(self, directory: Path, library: str) -> None:
        self._users, self.password = directory / "users", directory / "password"
        self.password.write_text(f"{OLD}\n")
        self.change_password(OLD)
        self.queue_manager = QueueManagerProcess(directory / "data", SCRIPT)
        self.queue_manager.listen(f"password_file: {self._users}", "failed_connects: 1000").start()
        # FAILDLAY: the answer to a failed login takes longer than the next attempt of another thread would.
        write(directory / "data", Rules(failed_login_delay=0.3))
        self.bridge = RemoteBridgeProcess(
            directory / "data",
            library=library,
            queue_manager=self.queue_manager,
            settings=f"  user: bridge\n  password_file: {self.password}\n",
            config=CONFIG.format(directory),
            env={"MQI_STANDIN": f"127.0.0.1({self.queue_manager.port})"},
        )
        self.bridge.start()

    def change_password(self, password: str) -> None:
        """At the queue manager."""
        self._users.write_text(f"bridge:{password}\n")

    def cut(self) -> None:
        """Break all connections of the bridge."""
        for command in (f"STOP CHANNEL({CHANNEL}) MODE(FORCE)", f"START CHANNEL({CHANNEL})"):
            self.bridge.mq("run", "-", stdin=command.encode())

    @property
    def failed_logins(self) -> int:
        """As the queue manager has counted them."""
        assert self.queue_manager.process is not None
        return sum("MQB3305W" in line for line in self.queue_manager.process.lines_so_far())


@pytest.fixture(params=["ibmmq", pytest.param("pymqi", marks=pytest.mark.slow)])
def site(environments: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(tmp_path, request.param)
    yield site
    site.bridge.discard()
    assert "Traceback" not in site.bridge.log, site.bridge.log


@pytest.mark.parametrize("reloaded", [False, True], ids=["the file is read again", "reload"])
def test_a_changed_password(site: Site, reloaded: bool) -> None:
    """One problem with the cause, at most three failed logins, and the new password is used as soon as it is in the file."""
    bridge, administrator = site.bridge, Administrator(site.bridge)

    def problems() -> dict[str, str]:
        status = json.loads(administrator.run("status", "--json").stdout)
        return {problem["kind"]: problem["what"] for problem in status["problems"]}

    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        client.subscribe(("login/#", 1))
        client.publish("login/1", b"before", 1)
        assert client.take().payload == b"before"
        site.change_password(NEW)
        site.cut()
        until(lambda: "login" in problems(), lambda: bridge.log)
        assert problems()["login"] == (
            "queue manager MQB1 rejected the login of user bridge: MQRC_NOT_AUTHORIZED (2035)"
        )
        assert "queue_manager" not in problems(), "it is the same cause"
        if reloaded:
            # The account was unlocked, the administrator believes: the old password is tried once more.
            administrator.run("reload")
            until(lambda: site.failed_logins == 2, lambda: bridge.log)
        assert 1 <= site.failed_logins <= HARMLESS
        # The queue manager counts before it answers.
        until(lambda: Scrape(bridge).get("mqbridge_queue_manager_logins_rejected_total") == site.failed_logins)
        assert Scrape(bridge).get("mqbridge_problem", kind="login") == 1
        site.password.write_text(f"{NEW}\n")
        if reloaded:
            administrator.run("reload")
        until(lambda: not problems(), lambda: str(problems()) + bridge.log)
        client.publish("login/2", b"after", 1)
        assert client.take().payload == b"after"
    assert site.failed_logins <= HARMLESS
