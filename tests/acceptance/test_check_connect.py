"""`mqbridge check --connect` with a hanging queue manager: the command ends, and distinguishes "cannot connect" from "no
answer".
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.cli import connections
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import run
from tests.helpers.line_process import suspend
from tests.helpers.mosquitto import free_port
from tests.helpers.remote_bridge import NAME, RemoteBridgeProcess

NO_ANSWER = f"no answer from queue manager {NAME} within {connections.TIMEOUT:g} s"
Remote = Callable[..., RemoteBridgeProcess]


def checked(bridge: BridgeProcess) -> str:
    """Return the reason for which the queue manager cannot be used."""
    assert bridge.config is not None
    process = run("check", bridge.config, "--connect", env=bridge.env)
    assert process.returncode == 1
    first, last = process.stderr.splitlines()
    assert last == f"mqbridge: error: {bridge.config} is valid, but 1 requirement not met"
    return str(first)


def reaching(remote: Remote, port: int) -> RemoteBridgeProcess:
    """Return the configuration of a bridge with a queue manager at a port."""
    reached = f"  channel: DEV.APP.SVRCONN\n  connections: 127.0.0.1({port})\n"
    return remote(reached=reached, env={"MQI_STANDIN": ""})


def test_the_command_ends_within_15_seconds() -> None:
    assert connections.TIMEOUT + connections.PROBE_TIMEOUT < 15
    assert connections.REPLY_WAIT / 1000 < connections.TIMEOUT


def test_a_stopped_queue_manager(remote: Remote) -> None:
    bridge = remote()
    port = bridge.queue_manager.listen().start().port
    bridge = reaching(lambda **options: remote(queue_manager=bridge.queue_manager, **options), port)
    bridge.queue_manager.pause()
    assert checked(bridge).startswith(f"connected to 127.0.0.1({port}), but {NO_ANSWER}: ")
    bridge.queue_manager.kill()
    assert re.match(f"no connection to queue manager {NAME}: MQRC_HOST_NOT_AVAILABLE", checked(bridge))


def test_a_port_that_accepts_connections_and_never_answers(remote: Remote) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert checked(reaching(remote, port)).startswith(f"connected to 127.0.0.1({port}), but {NO_ANSWER}: ")


def test_an_embedded_queue_manager_whose_process_is_stopped(tmp_path: Path) -> None:
    bridge = BridgeProcess(
        tmp_path / "data", config=f"queue_manager: {{name: {NAME}, data_directory: {tmp_path}/data}}\n"
    ).start()
    assert bridge.process is not None
    suspend(bridge.process.pid)
    try:
        assert checked(bridge) == f"connected, but {NO_ANSWER}: the bridge hangs"
    finally:
        bridge.discard()


def test_an_unreachable_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "refused" in connections._probe(f"127.0.0.1({free_port()})")
    assert connections._probe("no.such.host.invalid(1414)")
