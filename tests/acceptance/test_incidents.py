"""Incidents at a running bridge: status, metric, log and console report the same problem, with a command and a fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.security.password_file import Entry, hash_of, write_password_file
from bridge.service.problems import MANY_REJECTIONS
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console
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
    "queue": "queue FULL accepts no messages: it is full, MAXDEPTH(2)",
    "mapping": "mapping orders: queue FULL accepts no messages: MQRC_Q_FULL (2053); 1 message waits",
    "dead_letters": "1 message on dead-letter queue SYSTEM.DEAD.LETTER.QUEUE",
    "link": "link cloud is not connected to 127.0.0.1:",
}


def test_all_places_report_the_same_problems(tmp_path: Path) -> None:
    users, script = tmp_path / "users", tmp_path / "objects.mqsc"
    write_password_file(users, {"pump-7": Entry(hash_of("secret"))})
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

    until(lambda: listed().keys() == INCIDENTS.keys(), lambda: str(listed()))
    problems = listed()
    shown = administrator.run("status")
    assert shown.exit_code == 1
    page = console.log_in().get("/").text
    scrape = Scrape(bridge)
    until(lambda: all(f"problem began: {text}" in bridge.log for text in INCIDENTS.values()), lambda: bridge.log)
    for kind, text in INCIDENTS.items():
        problem = problems[kind]
        assert problem["what"].startswith(text) and problem["since"] and problem["remedy"]
        for place in (shown.stdout, page):
            assert text in place
        assert problem["remedy"] in shown.stdout
        assert scrape.get("mqbridge_problem", kind=kind) == 1
    assert bridge.stop() == 0
