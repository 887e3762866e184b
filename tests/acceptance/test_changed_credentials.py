"""The password or token of the bridge changes while its 41 connections are lost: the account is not locked.

The queues have DEFREADA(YES), so MQGETs that browse and MQGETs in syncpoint exclude each other on a handle without explicit
read ahead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.known_secrets import register
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess
from tests.helpers.scrape import Scrape
from tests.helpers.token_issuer import Issuer
from tests.ibm_standin.rules import Rules, write

CHANNEL = "DEV.APP.SVRCONN"
OLD, NEW = "of the bridge 17", "of the bridge 18"
register(OLD)
register(NEW)
#: Failed logins that do not lock an account: operating systems and directories allow at least three.
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


class Password:
    """A password at the queue manager, and in a file of the bridge."""

    def __init__(self, directory: Path) -> None:
        self._users, self._file = directory / "users", directory / "password"
        self._present = OLD
        self.change()
        self.write()
        self._present = NEW
        self.listener = f"password_file: {self._users}"
        self.settings = f"  user: bridge\n  password_file: {self._file}\n"
        self.description = "of user bridge"

    def change(self) -> None:
        """Change it at the queue manager."""
        self._users.write_text(f"bridge:{self._present}\n")

    def write(self) -> None:
        """Write the credentials that the queue manager accepts to the file of the bridge."""
        self._file.write_text(f"{self._present}\n")


class Token:
    """A token, and the key of its issuer."""

    def __init__(self, directory: Path) -> None:
        self._issuer = Issuer(directory)
        self.write()
        self.listener = f"authentication: [{{method: jwt, key_file: {self._issuer.public}}}]"
        self.settings = f"  token_file: {self._issuer.file}\n"
        self.description = f"with the token of {self._issuer.file}"

    def change(self) -> None:
        self._issuer.change_key()

    def write(self) -> None:
        self._issuer.issue("bridge", 86_400)


class Site:
    """A queue manager that checks credentials, and a bridge with the correct ones in a file."""

    def __init__(self, directory: Path, library: str, kind: type[Password | Token]) -> None:
        self.credentials = kind(directory)
        self.queue_manager = QueueManagerProcess(directory / "data", SCRIPT)
        self._listen(free_port()).start()
        # FAILDLAY: the answer to a failed login takes longer than the next attempt of another thread.
        write(directory / "data", Rules(failed_login_delay=0.3))
        self.bridge = RemoteBridgeProcess(
            directory / "data",
            library=library,
            queue_manager=self.queue_manager,
            settings=self.credentials.settings,
            config=CONFIG.format(directory),
            env={"MQI_STANDIN": f"127.0.0.1({self.queue_manager.port})"},
        )
        self.bridge.start()

    def _listen(self, port: int) -> QueueManagerProcess:
        return self.queue_manager.listen(self.credentials.listener, "failed_connects: 1000", port=port)

    def restart(self) -> None:
        """Start the stopped queue manager, with the same port."""
        self._listen(self.queue_manager.port).start()

    def cut(self) -> None:
        """Break all connections of the bridge."""
        for command in (f"STOP CHANNEL({CHANNEL}) MODE(FORCE)", f"START CHANNEL({CHANNEL})"):
            self.bridge.mq("run", "-", stdin=command.encode())

    @property
    def failed_logins(self) -> int:
        """Return the failed logins that the current run of the queue manager has counted."""
        assert self.queue_manager.process is not None
        return sum("MQB3305W" in line for line in self.queue_manager.process.lines_so_far())

    def problems(self) -> dict[str, str]:
        """Return them by kind."""
        status = json.loads(Administrator(self.bridge).run("status", "--json").stdout)
        return {problem["kind"]: problem["what"] for problem in status["problems"]}


@pytest.fixture(
    params=[
        pytest.param(("ibmmq", Password), id="ibmmq"),
        pytest.param(("pymqi", Password), id="pymqi", marks=pytest.mark.slow),
        pytest.param(("ibmmq", Token), id="ibmmq-token"),  # pymqi cannot send a token
    ]
)
def site(environments: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(tmp_path, *request.param)
    yield site
    site.bridge.discard()
    assert "Traceback" not in site.bridge.log, site.bridge.log


@pytest.mark.parametrize("reloaded", [False, True], ids=["the file is read again", "reload"])
def test_changed_credentials(site: Site, reloaded: bool) -> None:
    """One problem with the cause, at most three failed logins, and new credentials are used once they are in the file."""
    bridge, administrator = site.bridge, Administrator(site.bridge)
    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        client.subscribe(("login/#", 1))
        client.publish("login/1", b"before", 1)
        assert client.take().payload == b"before"
        site.credentials.change()
        site.cut()
        until(lambda: "login" in site.problems(), lambda: bridge.log)
        assert site.problems()["login"] == (
            f"queue manager MQB1 rejected the login {site.credentials.description}: MQRC_NOT_AUTHORIZED (2035)"
        )
        assert "queue_manager" not in site.problems(), "it is the same cause"
        if reloaded:
            # The administrator believes that the account was unlocked: the old credentials are tried once more.
            administrator.run("reload")
            until(lambda: site.failed_logins == 2, lambda: bridge.log)
        # The queue manager logs and counts before it answers, but its log arrives later.
        until(lambda: site.failed_logins >= 1)
        assert site.failed_logins <= HARMLESS
        until(lambda: Scrape(bridge).get("mqbridge_queue_manager_logins_rejected_total") == site.failed_logins)
        assert Scrape(bridge).get("mqbridge_problem", kind="login") == 1
        site.credentials.write()
        if reloaded:
            administrator.run("reload")
        until(lambda: not site.problems(), lambda: str(site.problems()) + bridge.log)
        client.publish("login/2", b"after", 1)
        assert client.take().payload == b"after"
    assert site.failed_logins <= HARMLESS


def test_credentials_changed_while_the_queue_manager_is_unreachable_cause_no_failed_login(site: Site) -> None:
    bridge, queue_manager = site.bridge, site.queue_manager
    with RawClient.connected(bridge.port, "keeper", clean=False) as client:
        client.subscribe(("login/#", 1))
        queue_manager.stop()
        until(lambda: "queue_manager" in site.problems(), lambda: bridge.log)
        site.credentials.change()
        site.credentials.write()
        site.restart()
        until(lambda: not site.problems(), lambda: str(site.problems()) + bridge.log)
        client.publish("login/1", b"after", 1)
        assert client.take().payload == b"after"
    assert site.failed_logins == 0
