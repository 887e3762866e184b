"""A running bridge reloads its configuration with `mqbridge reload` and SIGHUP, and reports the changes of mappings."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient
from tests.helpers.remote_bridge import RemoteBridgeProcess

BEFORE = """
mappings:
  kept: {from: {mqtt: "kept/#"}, to: {queue: KEPT}}
  paused: {from: {mqtt: "paused/#"}, to: {queue: PAUSED}}
"""
PAUSED = BEFORE.replace("queue: PAUSED}", "queue: PAUSED}, enabled: false")
MORE = BEFORE + '  more: {from: {mqtt: "more/#"}, to: {queue: MORE}}\n'
WRONG = BEFORE + '  wrong: {from: {mqtt: "wrong/#/more"}, to: {queue: MORE}}\n'


def statuses(bridge: BridgeProcess) -> dict[str, Any]:
    return {mapping["name"]: mapping for mapping in Administrator(bridge).json("mapping", "list")}


def configure(bridge: BridgeProcess, text: str) -> None:
    assert bridge.config is not None
    head = bridge.config.read_text().split("mappings:")[0].rstrip("\n")
    bridge.config.write_text(head + text)


@pytest.mark.queue_managers("embedded", slow="ibmmq")
def test_reload(new_bridge: Callable[..., BridgeProcess], queue_manager: str, tmp_path: Any) -> None:
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + BEFORE).start()
    bridge.mqsc("DEFINE QLOCAL(KEPT)\nDEFINE QLOCAL(PAUSED)\nDEFINE QLOCAL(MORE)")
    until(lambda: all(mapping["state"] == "running" for mapping in statuses(bridge).values()), lambda: statuses(bridge))
    client = RawClient.connected(bridge.port, "sender")

    def publish(topic: str) -> None:
        client.publish(topic, b"1", 1)  # to its PUBACK

    # Disabled: its messages wait. The others continue, and are not restarted.
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 1)
    configure(bridge, PAUSED)
    assert Administrator(bridge).does("reload") == "mapping paused disabled; its messages wait\n"
    assert statuses(bridge)["paused"]["state"] == "disabled"
    publish("paused/a")
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 2)
    assert statuses(bridge)["kept"]["moved"] == 2
    assert bridge.messages("PAUSED") == []

    # An invalid file changes nothing, and the error is reported.
    configure(bridge, WRONG)
    result = Administrator(bridge).run("reload")
    assert result.exit_code != 0
    line = bridge.config.read_text().splitlines().index(WRONG.splitlines()[-1]) + 1
    assert any(complaint.startswith(f"{bridge.config}:{line}:") for complaint in result.stderr.splitlines()), (
        result.stderr
    )
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGHUP)
    until(lambda: "nothing has changed" in bridge.log, lambda: bridge.log)
    assert f"reload: {bridge.config}:{line}:" in bridge.log
    publish("kept/a")
    bridge.wait_for_depth("KEPT", 3)

    # SIGHUP has the same effect: the enabled mapping processes waiting messages, and a new one starts.
    configure(bridge, MORE)
    bridge.process.send_signal(signal.SIGHUP)
    bridge.wait_for_depth("PAUSED", 1)
    until(lambda: statuses(bridge).get("more", {}).get("state") == "running", lambda: statuses(bridge))
    publish("more/a")
    bridge.wait_for_depth("MORE", 1)
    assert "mapping paused enabled" in bridge.log
    assert "mapping more added" in bridge.log
    table = Administrator(bridge).does("mapping", "list")
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["mapping", "kept", "paused", "more"]

    # Messages that wait for a removed mapping are deleted with it, which the reload reports.
    configure(bridge, PAUSED)
    Administrator(bridge).does("reload")
    for _ in range(3):
        publish("paused/a")
    configure(bridge, BEFORE.partition("  paused:")[0])
    assert "mapping paused removed, and 3 messages that waited for it\n" in Administrator(bridge).does("reload")
    client.disconnect()
    assert bridge.stop() == 0
    for words in (("reload",), ("mapping", "list")):
        assert "no bridge answers at" in Administrator(bridge).run(*words).stderr


@pytest.mark.queue_managers("ibmmq")
def test_a_reload_while_the_queue_manager_hangs(new_bridge: Callable[..., BridgeProcess], tmp_path: Any) -> None:
    """A new mapping is added, and runs as soon as the queue manager answers. SIGTERM ends the bridge during a reload."""
    bridge = new_bridge(config=f"control_socket: {tmp_path / 'control'}\n" + BEFORE)
    assert isinstance(bridge, RemoteBridgeProcess)
    bridge.start()
    bridge.mqsc("DEFINE QLOCAL(KEPT)\nDEFINE QLOCAL(PAUSED)\nDEFINE QLOCAL(MORE)")
    until(lambda: all(mapping["state"] == "running" for mapping in statuses(bridge).values()), lambda: statuses(bridge))
    bridge.queue_manager.pause()
    configure(bridge, MORE)
    assert Administrator(bridge).does("reload") == "mapping more added\n"
    assert statuses(bridge)["more"]["state"] == "starting"
    bridge.queue_manager.resume()
    until(lambda: statuses(bridge)["more"]["state"] == "running", lambda: statuses(bridge))

    bridge.queue_manager.pause()
    configure(bridge, MORE.replace("queue: MORE", "queue: KEPT"))
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGHUP)
    bridge.process.send_signal(signal.SIGTERM)
    bridge.process.wait(PATIENCE)
    bridge.queue_manager.resume()
