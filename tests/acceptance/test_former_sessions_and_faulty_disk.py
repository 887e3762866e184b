"""A disk that is full, or fails to sync, while messages in flight of a former session at a broker are moved and completed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.test_unfinished_sessions import accepted, completed, put
from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.fake_broker import FakeBroker
from tests.helpers.faulty_disk import compiled
from tests.helpers.patience import until

# The disk of IBM MQ does not belong to the bridge.
pytestmark = pytest.mark.queue_managers("embedded")

CONFIG = """\
control_socket: {directory}/control
links:
  plant: {{host: 127.0.0.1, port: {port}, version: "{version}"}}
mappings:
  {name}: {{from: {{queue: {queue}}}, to: {{mqtt: out, link: plant}}, guarantee: exactly-once}}
"""


@pytest.mark.parametrize(
    ("change", "word", "version"),
    [
        ("moved", "full", "5"),
        pytest.param("moved", "fsync", "3.1.1", marks=pytest.mark.slow),
        # The bridge retries after 10 seconds.
        pytest.param("removed", "full", "3.1.1", marks=pytest.mark.slow),
        pytest.param("removed", "fsync", "5", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_or_duplicated(
    new_bridge: Callable[..., BridgeProcess], change: str, word: str, version: str, tmp_path: Path
) -> None:
    """The broker has accepted the message. A reload happens while the disk fails, and a kill follows."""
    broker, fault = FakeBroker(version), tmp_path / "fault"
    port = broker.port

    def config(port: int, name: str = "out", queue: str = "OUT") -> str:
        return CONFIG.format(directory=tmp_path, port=port, version=version, name=name, queue=queue)

    bridge = new_bridge(config=config(port))
    bridge.env |= {"LD_PRELOAD": str(compiled(tmp_path)), "FAULTY_DISK": str(fault)}
    bridge.start()
    assert bridge.config is not None
    administrator = Administrator(bridge)
    bridge.mqsc("DEFINE QLOCAL(OUT) DEFPSIST(YES)\nDEFINE QLOCAL(OTHER)")
    packet_id = accepted(broker, put(bridge, broker))
    fault.write_text(word)
    bridge.config.write_text(config(1) if change == "moved" else config(1, "another", "OTHER"))
    administrator.run("reload")
    until(lambda: "MQRC_RESOURCE_PROBLEM" in administrator.does("mapping", "list"), lambda: bridge.log)
    fault.unlink()
    until(lambda: "kept until" in administrator.does("mapping", "list"), lambda: bridge.log)
    bridge.kill()
    broker = FakeBroker(version, port)
    bridge.start()
    completed(broker, packet_id)
    until(lambda: "kept until" not in administrator.does("mapping", "list"), lambda: bridge.log)
    assert bridge.messages("OUT") == bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []
    broker.close()
