"""A running bridge reads its configuration again: by `mqbridge reload` and by SIGHUP; and tells what its mappings do."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import run
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient

BEFORE = """
mappings:
  kept: {from: {mqtt: "kept/#"}, to: {queue: KEPT}}
  paused: {from: {mqtt: "paused/#"}, to: {queue: PAUSED}}
"""
PAUSED = BEFORE.replace("queue: PAUSED}", "queue: PAUSED}, enabled: false")
MORE = BEFORE + '  more: {from: {mqtt: "more/#"}, to: {queue: MORE}}\n'
WRONG = BEFORE + '  wrong: {from: {mqtt: "wrong/#/more"}, to: {queue: MORE}}\n'


def command(bridge: BridgeProcess, *words: str) -> subprocess.CompletedProcess[str]:
    assert bridge.config is not None
    return run(*words, "--config", bridge.config, *bridge.data_options(), env=bridge.env)


def statuses(bridge: BridgeProcess) -> dict[str, Any]:
    done = command(bridge, "mapping", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


def configure(bridge: BridgeProcess, text: str) -> None:
    assert bridge.config is not None
    head = bridge.config.read_text().split("mappings:")[0].rstrip("\n")
    bridge.config.write_text(head + text)


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_reload(new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Any) -> None:
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + BEFORE).start()
    bridge.mqsc("DEFINE QLOCAL(KEPT)\nDEFINE QLOCAL(PAUSED)\nDEFINE QLOCAL(MORE)")
    until(lambda: all(one["state"] == "running" for one in statuses(bridge).values()), lambda: statuses(bridge))
    client = RawClient.connected(bridge.port, "sender")

    def publish(topic: str) -> None:
        client.publish(topic, b"1", 1)  # to its PUBACK

    # Disabled: its messages wait. The others go on, and are not started anew.
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 1)
    configure(bridge, PAUSED)
    done = command(bridge, "reload")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mapping paused disabled; its messages wait\n", "")
    assert statuses(bridge)["paused"]["state"] == "disabled"
    publish("paused/a")
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 2)
    assert statuses(bridge)["kept"]["moved"] == 2
    assert bridge.messages("PAUSED") == []

    # A bad file changes nothing, and says why.
    configure(bridge, WRONG)
    done = command(bridge, "reload")
    assert done.returncode != 0
    line = bridge.config.read_text().splitlines().index(WRONG.splitlines()[-1]) + 1
    assert any(one.startswith(f"{bridge.config}:{line}:") for one in done.stderr.splitlines()), done.stderr
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGHUP)
    until(lambda: "nothing has changed" in bridge.log, lambda: bridge.log)
    assert f"reload: {bridge.config}:{line}:" in bridge.log
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 3)

    # SIGHUP does the same: enabled again, it takes what has waited; a new one begins.
    configure(bridge, MORE)
    bridge.process.send_signal(signal.SIGHUP)
    bridge.wait_for_depth("PAUSED", 1)
    until(lambda: statuses(bridge).get("more", {}).get("state") == "running", lambda: statuses(bridge))
    publish("more/a")
    bridge.wait_for_depth("MORE", 1)
    assert "mapping paused enabled" in bridge.log
    assert "mapping more added" in bridge.log
    table = command(bridge, "mapping", "list")
    assert [line.split()[0] for line in table.stdout.splitlines()[:4]] == ["mapping", "kept", "paused", "more"]
    client.disconnect()


def test_waiting_messages_of_a_removed_mapping(
    new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Any
) -> None:
    """It is gone with it, which the reload says."""
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + BEFORE).start()
    bridge.mqsc("DEFINE QLOCAL(KEPT)\nDEFINE QLOCAL(PAUSED)")
    until(lambda: all(one["state"] == "running" for one in statuses(bridge).values()), lambda: statuses(bridge))
    configure(bridge, PAUSED)
    assert command(bridge, "reload").returncode == 0
    client = RawClient.connected(bridge.port, "publisher")
    for number in range(3):
        client.publish("paused/a", b"%d" % number, 1)
    configure(bridge, BEFORE.partition("  paused:")[0])
    done = command(bridge, "reload")
    assert (done.returncode, done.stdout) == (0, "mapping paused removed, and 3 messages that waited for it\n")
    client.disconnect()


def test_no_bridge_to_ask(new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Any) -> None:
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + BEFORE)
    for words in (("reload",), ("mapping", "list")):
        done = command(bridge, *words)
        assert done.returncode != 0
        assert "no bridge answers at" in done.stderr
        assert "Traceback" not in done.stderr
