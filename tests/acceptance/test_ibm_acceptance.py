"""`mqbridge ibm-acceptance`, tests before the first run on a real queue manager: here on the stand-in for IBM's library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.bridge_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

NOT_IN_USE = "a bridge runs on this queue manager"


@pytest.fixture(params=["ibmmq", "pymqi"])
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RemoteBridgeProcess]:
    """A bridge that does not run, at a queue manager that does."""
    environment = {"MQBRIDGE_PASSWORD": "none is asked for"}
    bridge = RemoteBridgeProcess(
        tmp_path / "data",
        library=request.param,
        queue_manager=QueueManagerProcess(tmp_path / "data"),
        settings="  user: mqtestbridge\n",
        env=environment,
    )
    bridge.queue_manager.start()
    bridge.env["MQI_STANDIN"] = bridge.queue_manager.place
    yield bridge
    bridge.discard()


def run(bridge: RemoteBridgeProcess, *options: str) -> tuple[int, list[str]]:
    command = [MQBRIDGE, "ibm-acceptance", "--config", str(bridge.config), *options]
    with LineProcess(command, env=bridge.env) as process:
        lines = process.rest()
        return process.process.wait(), lines


def shown(bridge: RemoteBridgeProcess) -> list[Any]:
    """What the queue manager has of everything that the tests create."""
    wanted = (("QLOCAL(*)", "CURDEPTH"), ("SUB(*)",), ("TPSTATUS('#')", "RETAINED"))
    return [bridge.run_mq("display", *words, "--json").stdout.splitlines() for words in wanted]


def test_all_tests_but_those_of_authentication_pass_on_the_stand_in(bridge: RemoteBridgeProcess) -> None:
    # The reply queue of the command that ran before may still exist.
    until(lambda: b"MQBRIDGE." not in b"".join(shown(bridge)[0]))
    before = shown(bridge)
    status, lines = run(bridge, "--json")
    results = {one["test"]: one for one in map(json.loads, lines)}
    assert {name: one["result"] for name, one in results.items() if one["result"] != "pass"} == {
        # The stand-in's queue manager checks no passwords at its socket, and has no server-connection channels.
        "wrong password": "fail",
        "channel": "skip",
    }, lines
    assert status == 1
    assert "CHCKCLNT" in results["wrong password"]["remedy"]
    assert len(results) == 15
    eventually(lambda: shown(bridge), before)


def test_tests_that_send_messages_are_skipped_while_a_bridge_runs(bridge: RemoteBridgeProcess) -> None:
    bridge.start()
    status, lines = run(bridge)
    assert any(line.startswith(f"skip  exclusive use of the transmission queue: {NOT_IN_USE}") for line in lines), lines
    assert [line for line in lines if line.startswith("fail")][1:] == [], lines
    assert status == 1 and lines[-1].startswith("queue manager MQB1: ")
    assert bridge.stop() == 0
