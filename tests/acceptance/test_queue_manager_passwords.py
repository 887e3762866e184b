"""Method `queue-manager` with a remote queue manager: it checks the passwords of MQTT clients (MQCSP), through ibmmq."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.known_secrets import register
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import QueueManagerProcess, RemoteBridgeProcess

CHANNELS = """
channels:
- {name: QMGR, port: 0, failed_connects: 1000, connect_timeout: 5 s, authentication: [{method: queue-manager}]}
"""
OWN = "for the bridge 7"
register(OWN)
USERS = f"bridge:{OWN}\nalice:correct horse\nempty:\n"


@pytest.fixture
def bridge(environments: None, tmp_path: Path) -> Iterator[RemoteBridgeProcess]:
    (tmp_path / "users").write_text(USERS)
    script = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('alice') AUTHADD(CONNECT)\n"
    host = QueueManagerProcess(tmp_path / "data", script).listen(f"password_file: {tmp_path / 'users'}").start()
    process = RemoteBridgeProcess(
        tmp_path / "data",
        queue_manager=host,
        settings="  user: bridge\n",
        config=CHANNELS,
        env={"MQBRIDGE_PASSWORD": OWN, "MQI_STANDIN": f"127.0.0.1({host.port})"},
    )
    process.start()
    yield process
    process.discard()
    assert "Traceback" not in process.log, process.log


def code(bridge: RemoteBridgeProcess, user: str | None, password: str | None) -> int:
    password_bytes = None if password is None else password.encode()
    with RawClient(bridge.ports["QMGR"], "c1", user_name=user, password=password_bytes) as client:
        return client.connect().return_code


def test_passwords(bridge: RemoteBridgeProcess) -> None:
    """Right and wrong passwords. While the queue manager is unreachable, clients are rejected as "unavailable"."""
    host = bridge.queue_manager
    codes = {
        who: code(bridge, *who)
        for who in (
            ("alice", "correct horse"),
            ("alice", "wrong"),
            ("alice", ""),
            ("alice", None),
            ("empty", ""),
            ("nobody-knows", "correct horse"),
            ("alice ", "correct horse"),
            ("bridge", OWN),
            (None, None),
        )
    }
    assert codes == {
        ("alice", "correct horse"): 0,
        ("alice", "wrong"): 4,
        ("alice", ""): 4,
        ("alice", None): 5,
        ("empty", ""): 4,
        ("nobody-knows", "correct horse"): 4,
        ("alice ", "correct horse"): 4,
        ("bridge", OWN): 4,  # the bridge's own user at the queue manager is privileged
        (None, None): 5,
    }
    assert "correct horse" not in bridge.log and OWN not in bridge.log
    for reason in (
        "the queue manager rejected user 'alice': the password is wrong, or a CHLAUTH record rejects the user",
        "the queue manager rejected user 'nobody-knows': the user has no CONNECT authority for the queue manager",
    ):
        assert reason in bridge.log
    host.kill()
    eventually(lambda: code(bridge, "alice", "correct horse"), 3)
    assert code(bridge, "alice", "wrong") == 3
