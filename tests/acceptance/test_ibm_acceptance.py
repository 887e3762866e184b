"""`mqbridge ibm-acceptance`, tests before the first use of a real queue manager: here on the stand-in for IBM's library."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge.config.queue_manager import ListenerConfig
from bridge.mq.embedded.mqsc.commands import run_script
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.known_secrets import register
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import eventually, until
from tests.helpers.remote_bridge import RemoteBridgeProcess, library_environment
from tests.helpers.served_queue_manager import ServedQueueManager

CHANNEL = "MQTT.BRIDGE"
SECRET = "of the bridge 21"
register(SECRET)
#: Seconds until the next line. The test that kills a bridge waits up to 120 s for the messages, twice.
SILENCE = 240
NOT_IN_USE = "a bridge runs on this queue manager"


def run(bridge: RemoteBridgeProcess, *options: str) -> tuple[int, list[str]]:
    command = [MQBRIDGE, "ibm-acceptance", "--config", str(bridge.config), *options]
    with LineProcess(command, env=bridge.env) as process:
        lines = process.rest(SILENCE)
        return process.process.wait(), lines


def displays(bridge: RemoteBridgeProcess) -> list[Any]:
    """Return everything at the queue manager that the tests create."""
    wanted = (("QLOCAL(*)", "CURDEPTH"), ("SUB(*)",), ("TPSTATUS('#')", "RETAINED"))
    outputs = [bridge.run_mq("display", *words, "--json").stdout.splitlines() for words in wanted]
    # The killed bridge leaves its own records, as each bridge does.
    outputs[0] = [line for line in outputs[0] if b"SYSTEM.MQTT.PERSISTENT.STATE" not in line]
    return outputs


@pytest.mark.parametrize("library", ["ibmmq", pytest.param("pymqi", marks=pytest.mark.slow)])
def test_all_other_tests_pass_on_the_stand_in(environments: None, tmp_path: Path, library: str) -> None:
    """All tests pass except those of authentication. Those that send messages are skipped while a bridge runs."""
    bridge = RemoteBridgeProcess(
        tmp_path / "data",
        library=library,
        settings="  user: mqtestbridge\n",
        env={"MQBRIDGE_PASSWORD": "none is asked for"},
    )
    bridge.env["MQI_STANDIN"] = bridge.queue_manager.start().place
    # The reply queue of the previous command may still exist.
    until(lambda: b"MQBRIDGE." not in b"".join(displays(bridge)[0]))
    before = displays(bridge)
    bridge.mq("put", "T", "x", "--to", "dev1")
    status, lines = run(bridge)
    assert status == 1 and "is in use: 1 messages for clients are on SYSTEM.MQTT.TRANSMIT.QUEUE" in lines[-2]
    assert "use --yes to run the tests anyway" in lines[-1]
    bridge.run_mq("run", "-", stdin=b"CLEAR QLOCAL(SYSTEM.MQTT.TRANSMIT.QUEUE)")
    status, lines = run(bridge, "--json", "--subscriptions", "200")
    results = {report["test"]: report for report in map(json.loads, lines)}
    assert {name: report["result"] for name, report in results.items() if report["result"] != "pass"} == {
        # The stand-in's queue manager checks no passwords at its socket, and has no server-connection channels.
        "wrong password": "fail",
        "channel": "skip",
        "TLS": "skip",
        "refusal codes": "fail",
    }, lines
    assert re.search(
        r"2000 publications acknowledged, \d+ before the kill; 0 lost", results["kill of a bridge under load"]["detail"]
    )
    assert "the user of the subscription (the publisher put" in results["user of a publication"]["detail"]
    assert status == 1
    assert "CHCKCLNT" in results["wrong password"]["remedy"]
    assert len(results) == 27 and all(report["meaning"] for report in results.values())
    eventually(lambda: displays(bridge), before)
    with at_work(bridge):
        status, lines = run(bridge, "--yes", "--subscriptions", "10")
    assert any(line.startswith(f"skip  exclusive use of the transmission queue: {NOT_IN_USE}") for line in lines), lines
    assert [line for line in lines if line.startswith("fail")][2:] == [], lines
    assert status == 1 and lines[-1].startswith("queue manager MQB1: ")


def test_all_tests_pass_on_a_queue_manager_with_tls_and_passwords(environments: None, tmp_path: Path) -> None:
    """Only the attributes of the channel cannot be inquired on the stand-in."""
    authority = Authority(tmp_path)
    authority.issue("qm1", common_name="QM1")
    authority.client("client")
    repository = authority.key_repository("client", SECRET, label="bridge")
    for name, content in (("users", f"bridge:{SECRET}"), ("password", SECRET), ("key.password", SECRET)):
        (tmp_path / name).write_text(f"{content}\n")
        (tmp_path / name).chmod(0o600)
    tls = {
        "certificate_file": tmp_path / "qm1.pem",
        "key_file": tmp_path / "qm1.key",
        "client_certificates": "required",
        "ca_file": authority.file,
    }
    listener = ListenerConfig.model_validate({"tls": tls, "password_file": tmp_path / "users", "failed_connects": 1000})
    with ServedQueueManager(tmp_path / "data", listener=listener, stand_in=True, channels=[CHANNEL]) as served:
        run_script(served.itself, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)", "test")
        config = tmp_path / "bridge.yaml"
        config.write_text(
            f"""
queue_manager:
  type: ibm
  name: MQB1
  library: ibmmq
  channel: {CHANNEL}
  connections: 127.0.0.1({served.port})
  user: bridge
  password_file: password
  tls:
    key_repository: {repository}
    key_repository_password_file: key.password
    cipher_spec: ANY_TLS12_OR_HIGHER
    certificate_label: bridge
    peer_name: CN=QM1
channels: []
mappings:
  active: {{from: {{queue: A}}, to: {{mqtt: a}}}}
  disabled: {{enabled: false, from: {{queue: B}}, to: {{mqtt: b}}}}
"""
        )
        command = [MQBRIDGE, "ibm-acceptance", "--config", str(config), "--json", "--subscriptions", "20"]
        with LineProcess(command, env=library_environment("ibmmq")) as process:
            lines = process.rest(SILENCE)
            status = process.process.wait()
    results = {report["test"]: report for report in map(json.loads, lines)}
    assert {name: report["result"] for name, report in results.items() if report["result"] != "pass"} == {
        "channel": "skip"
    }, lines
    assert status == 0
    assert results["wrong password"]["detail"] == "rejected with MQRC_NOT_AUTHORIZED (2035)"
    assert re.fullmatch(
        r"connected with TLS; rejected without TLS: MQRC_\w+ \(\d+\), with another peer name:"
        r" MQRC_SSL_PEER_NAME_MISMATCH \(2398\)",
        results["TLS"]["detail"],
    )
    assert results["refusal codes"]["detail"] == (
        "unknown channel: MQRC_UNKNOWN_CHANNEL_NAME (2540), unknown queue manager: MQRC_Q_MGR_NAME_ERROR (2058),"
        " unused port: MQRC_HOST_NOT_AVAILABLE (2538)"
    )
    assert results["connections"]["detail"] == "42 concurrent connections, in addition to this one"
    assert SECRET not in "".join(lines)
