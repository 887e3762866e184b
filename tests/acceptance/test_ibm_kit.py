"""deploy/mq/acceptance.sh: the report about a queue manager, here on the stand-in. Parts that need Docker are not run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE
from tests.helpers.remote_bridge import RemoteBridgeProcess

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "mq" / "acceptance.sh"
WORKFLOW = ROOT / ".github" / "workflows" / "ibm-mq.yaml"


@pytest.mark.slow
@pytest.mark.timeout(20 * PATIENCE)
@pytest.mark.usefixtures("environments")
def test_the_report_about_the_stand_in(tmp_path: Path) -> None:
    port = free_port()
    config = f"control_socket: {tmp_path}/control.sock\nchannels: [{{name: CLIENTS, port: {port}}}]\n"
    bridge = RemoteBridgeProcess(tmp_path / "data", config=config)
    host = bridge.queue_manager.start()
    environment = {"MQTT_PORT": str(port), "MQBRIDGE": str(MQBRIDGE), "SUBSCRIPTIONS": "50", "MQI_STANDIN": host.place}
    command = ["sh", SCRIPT, "-c", str(bridge.config), "-o", str(tmp_path / "report")]
    process = subprocess.run(command, env=bridge.env | environment, capture_output=True, text=True, check=False)
    report = (tmp_path / "report").read_text()
    assert process.stdout == report
    assert [line for line in report.splitlines() if line.startswith("fail ")] == [
        # The stand-in accepts any channel and name.
        "fail  refusal codes: a connection to an unknown channel is accepted"
    ], report
    assert report.count("\npass  mqtt") == 10, report
    assert (
        "meets all requirements of the bridge" in report and "for the bridge: no acknowledged message is lost" in report
    )
    assert process.returncode == 1 and report.rstrip().rpartition("\n")[2].startswith("FAILED: ")
    bridge.discard()


@pytest.mark.parametrize(
    ("arguments", "answer", "status", "message"),
    [
        ([], "n\n", 2, "not started"),
        ([], "", 2, "not started"),
        (["--nonsense"], "", 2, "sh deploy/mq/acceptance.sh -c bridge.yaml"),
    ],
)
def test_without_consent_to_the_licence_nothing_is_started(
    arguments: list[str], answer: str, status: int, message: str, tmp_path: Path
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    docker.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", SCRIPT, *arguments]
    process = subprocess.run(
        command, env=environment, cwd=tmp_path, input=answer, capture_output=True, text=True, check=False
    )
    assert (process.returncode, message in process.stderr, (tmp_path / "started").exists()) == (status, True, False)


def test_the_workflow_runs_the_script_and_is_marked_as_not_run() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    assert "NOT YET RUN" in text.splitlines()[0]
    (job,) = yaml.safe_load(text)["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert any(run.startswith(f"sh {SCRIPT.relative_to(ROOT)} ") for run in runs)
