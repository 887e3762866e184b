"""`mqbridge ibm-acceptance`, tests before the first run on a real queue manager: here on the stand-in for IBM's library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.bridges import at_work
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.remote_bridge import RemoteBridgeProcess

NOT_IN_USE = "a bridge runs on this queue manager"


def run(bridge: RemoteBridgeProcess, *options: str) -> tuple[int, list[str]]:
    command = [MQBRIDGE, "ibm-acceptance", "--config", str(bridge.config), *options]
    with LineProcess(command, env=bridge.env) as process:
        lines = process.rest()
        return process.process.wait(), lines


def shown(bridge: RemoteBridgeProcess) -> list[Any]:
    """What the queue manager has of everything that the tests create."""
    wanted = (("QLOCAL(*)", "CURDEPTH"), ("SUB(*)",), ("TPSTATUS('#')", "RETAINED"))
    return [bridge.run_mq("display", *words, "--json").stdout.splitlines() for words in wanted]


@pytest.mark.parametrize("library", ["ibmmq", pytest.param("pymqi", marks=pytest.mark.slow)])
def test_the_stand_in_passes(environments: None, tmp_path: Path, library: str) -> None:
    """All tests pass but those of authentication. Those that send messages are skipped while a bridge runs."""
    bridge = RemoteBridgeProcess(
        tmp_path / "data",
        library=library,
        settings="  user: mqtestbridge\n",
        env={"MQBRIDGE_PASSWORD": "none is asked for"},
    )
    bridge.env["MQI_STANDIN"] = bridge.queue_manager.start().place
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
    with at_work(bridge):
        status, lines = run(bridge)
    assert any(line.startswith(f"skip  exclusive use of the transmission queue: {NOT_IN_USE}") for line in lines), lines
    assert [line for line in lines if line.startswith("fail")][1:] == [], lines
    assert status == 1 and lines[-1].startswith("queue manager MQB1: ")
