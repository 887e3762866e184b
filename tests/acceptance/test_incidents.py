"""Incidents with a running bridge: status, metric, log and console report the same problem, with a command and a remedy."""

from __future__ import annotations

import json
import re
import struct
import time
from pathlib import Path

import pytest

from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from bridge.service.channels import RESERVE
from bridge.service.problems import MANY_REJECTIONS
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
from tests.helpers.faulty_disk import compiled
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient
from tests.helpers.scrape import Scrape

pytestmark = pytest.mark.slow

CONFIG = """
queue_manager: {{scripts: ["{script}"]}}
channels:
  - {{name: OPEN, port: 0}}
  - {{name: PASSWORDS, port: 0, authentication: [{{method: password, file: "{users}"}}]}}
links: {{cloud: {{host: 127.0.0.1, port: {broker}}}}}
mappings:
  orders: {{from: {{mqtt: "orders/{{queue}}", link: local}}, to: {{queue: "{{queue}}"}}}}
  up: {{from: {{queue: UP}}, to: {{mqtt: up, link: cloud}}}}
admin: {{port: 0}}
"""

#: Kind of each problem, and a part of its description.
INCIDENTS = {
    "rejections": "channel PASSWORDS rejected 5 connections in 5 minutes, last client 'pump-7' at 127.0.0.1:",
    "queue": "queue FULL accepts no messages: it is full, MAXDEPTH(2); messages of mapping orders wait for it",
    "dead_letters": "1 message on dead-letter queue SYSTEM.DEAD.LETTER.QUEUE",
    "link": "link cloud is not connected to 127.0.0.1:",
}


def test_all_outputs_report_the_same_problems(tmp_path: Path) -> None:
    users, script = tmp_path / "users", tmp_path / "objects.mqsc"
    write_password_file(users, {"pump-7": PasswordEntry(hash_of("secret"))})
    script.write_text("DEFINE QLOCAL(UP)\nDEFINE QLOCAL(FULL) MAXDEPTH(2)\n")
    config = CONFIG.format(users=users, script=script, broker=free_port())
    bridge = BridgeProcess(tmp_path / "data", config=config).start()
    for _ in range(MANY_REJECTIONS):
        with RawClient(bridge.ports["PASSWORDS"], "pump-7", user_name="pump-7", password=b"wrong") as client:
            assert client.connect().return_code == 4
    with RawClient.connected(bridge.port, "shop") as shop:
        for queue in ("FULL", "FULL", "FULL", "NOWHERE"):
            shop.publish(f"orders/{queue}", b"order", 1)
    administrator, console = Administrator(bridge), Console(bridge)

    def listed() -> dict[str, dict[str, str]]:
        status = json.loads(administrator.run("status", "--json").stdout)
        return {problem["kind"]: problem for problem in status["problems"]}

    until(lambda: "messages of mapping" in listed().get("queue", {}).get("what", ""), lambda: str(listed()))
    until(lambda: listed().keys() == INCIDENTS.keys(), lambda: str(listed()))
    problems = listed()
    outcome = administrator.run("status")
    assert outcome.exit_code == 1
    page = console.log_in().get("/").text
    scrape = Scrape(bridge)
    until(lambda: all(f"problem began: {text}" in bridge.log for text in INCIDENTS.values()), lambda: bridge.log)
    for kind, text in INCIDENTS.items():
        problem = problems[kind]
        assert problem["what"].startswith(text) and problem["since"] and problem["remedy"]
        for place in (outcome.stdout, page):
            assert text in place
        assert problem["remedy"] in outcome.stdout
        assert scrape.get("mqbridge_problem", kind=kind) == 1
    assert bridge.stop() == 0


def reported(bridge: BridgeProcess, kind: str) -> dict[str, str]:
    """Return the only problem of this kind, which status, log, metric and console report."""
    administrator = Administrator(bridge)

    def listed() -> list[dict[str, str]]:
        return list(json.loads(administrator.run("status", "--json").stdout)["problems"])

    until(lambda: [problem["kind"] for problem in listed()] == [kind], lambda: str(listed()))
    (problem,) = listed()
    assert problem["what"] in administrator.run("status").stdout and problem["remedy"]
    assert problem["what"] in Console(bridge).log_in().get("/").text
    assert Scrape(bridge).get("mqbridge_problem", kind=kind) == 1
    until(lambda: f"problem began: {problem['what'][:10]}" in bridge.log, lambda: bridge.log)
    return problem


def test_file_descriptors_are_used_up(tmp_path: Path) -> None:
    """Connections beyond the limit of the operating system are rejected. Connected clients continue."""
    bridge = BridgeProcess(tmp_path / "data", config="admin: {port: 0}\n")
    bridge.wrapper = ["prlimit", "--nofile=300:300"]
    bridge.start()
    clients = [RawClient.connected(bridge.port, f"c{number}") for number in range(300 - RESERVE)]
    with RawClient(bridge.port, "one more") as other:
        assert other.connect().return_code == 3
    problem = reported(bridge, "descriptors")
    assert re.fullmatch(
        r"\d+ of 300 file descriptors are in use: 1 connection refused, the last one by channel PLAIN.MQTT",
        problem["what"],
    )
    assert Scrape(bridge).get("mqbridge_limit_reached_total", limit="open_files") == 1
    assert Scrape(bridge).get("process_max_fds") == 300
    clients[0].subscribe(("t", 1))
    clients[1].publish("t", b"x", 1)
    assert clients[0].take().payload == b"x"
    clients.pop().disconnect()
    until(lambda: connects(bridge.port))
    assert bridge.stop() == 0


def connects(port: int) -> bool:
    """Return whether another client is accepted."""
    with RawClient(port, "in its place") as client:
        return client.connect().return_code == 0


def test_a_jump_of_the_system_clock(tmp_path: Path) -> None:
    """The library shifts the clock of the bridge's process only."""
    library, shift = compiled(tmp_path, "shifted_clock"), tmp_path / "shift"
    shift.write_bytes(struct.pack("l", 0))
    bridge = BridgeProcess(tmp_path / "data", config="admin: {port: 0}\n")
    bridge.env |= {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(shift)}
    bridge.start()
    with RawClient.connected(bridge.port, "c") as client:
        client.subscribe(("t", 1))
        assert Scrape(bridge).get("mqbridge_clock_jumps_total") == 0
        before = time.time()
        with shift.open("r+b") as file:
            file.write(struct.pack("l", 7200))
        problem = reported(bridge, "clock")
        assert problem["what"] == "the system clock was set forward by 7,200 s"
        assert before + 7200 - 1 <= float(problem["since"]) <= time.time() + 7200
        assert Scrape(bridge).get("mqbridge_clock_jumps_total") == 1
        client.publish("t", b"x", 1)
        assert client.take().payload == b"x"
    assert bridge.stop() == 0
