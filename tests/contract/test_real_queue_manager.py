"""The option to run the contract tests on a named queue manager, tested with the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.config.queue_manager import ListenerConfig
from tests.helpers.client_packages import BUILD, QUEUE_MANAGER_VARIABLE
from tests.helpers.installed import CLIENT_PACKAGES, missing
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.mqi.connection import StandInConnection

ROOT = Path(__file__).resolve().parents[2]
CHANNEL, USER, PASSWORD = "DEV.ADMIN.SVRCONN", "mqm", "secret"
#: The way in which IBM's developer image admits its administrator.
RULES = (
    f"SET CHLAUTH('{CHANNEL}') TYPE(BLOCKUSER) USERLIST('nobody')",
    f"SET CHLAUTH('{CHANNEL}') TYPE(USERMAP) CLNTUSER('{USER}') USERSRC(MAP) MCAUSER('{USER}')",
)


@pytest.mark.slow  # runs 400 contract tests
def test_the_contract_tests_run_on_a_named_queue_manager(tmp_path: Path) -> None:
    """All tests run over TCP with a password, and none is skipped."""
    if not (CLIENT_PACKAGES / "ibmmq" / "ibmmq").is_dir():
        missing("ibmmq on the stand-in", "tests/programs.sh")
    (tmp_path / "users").write_text(f"{USER}:{PASSWORD}\n")
    listener = ListenerConfig(password_file=tmp_path / "users")
    with ServedQueueManager(
        tmp_path / "data", "QMX", authorities=True, objects=False, stand_in=True, listener=listener
    ) as served:
        administrator = StandInConnection(served.itself, "administrator")
        assert all(administrator.command(rule)[0].ok for rule in RULES)
        environment = {
            QUEUE_MANAGER_VARIABLE: "QMX",
            "MQBRIDGE_TEST_CHANNEL": CHANNEL,
            "MQBRIDGE_TEST_CONNECTIONS": f"127.0.0.1({served.port})",
            "MQBRIDGE_TEST_USER": USER,
            "MQBRIDGE_TEST_PASSWORD": PASSWORD,
            "MQBRIDGE_TEST_ALTERNATE_USER": "stranger",
            "PYTHONPATH": f"{ROOT}:{CLIENT_PACKAGES / 'ibmmq'}",
            "LD_LIBRARY_PATH": str(BUILD / "lib64"),
        }
        command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", "-rs"]
        command += ["-m", "slow or not slow", "-k", "real", "tests/contract/backend"]
        run = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
        )
        administrator.disconnect()
    assert run.returncode == 0, run.stdout[-20_000:]
    assert "SKIPPED" not in run.stdout, run.stdout[-20_000:]
