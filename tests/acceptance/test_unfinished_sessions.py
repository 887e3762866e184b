"""`mqbridge mapping show` and `give-up`: a session at a broker that a mapping has left with messages in flight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.administrator import Administrator
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.fake_broker import FakeBroker
from tests.helpers.patience import until

CONFIG = """\
links:
  plant: {{host: 127.0.0.1, port: {port}, version: "{version}"}}
mappings:
  out: {{from: {{queue: OUT}}, to: {{mqtt: out, link: plant}}, guarantee: exactly-once}}
"""


@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_an_unfinished_session_is_shown_and_given_up(new_bridge: Callable[..., BridgeProcess], version: str) -> None:
    broker = FakeBroker(version)
    bridge = new_bridge(config=CONFIG.format(port=broker.port, version=version)).start()
    administrator = Administrator(bridge)
    bridge.mqsc("DEFINE QLOCAL(OUT)")
    peer = broker.connected()
    assert bridge.run_mq("put", "OUT", "--persistent", "reading").returncode == 0
    # The broker has the message, and never acknowledges it.
    assert [topic for topic, _ in peer.published(1, 0x04)] == ["out"]
    address = f"127.0.0.1:{broker.port}"
    broker.close()
    assert administrator.refused("mapping", "give-up", "out", "--yes") == "mapping out has no unfinished session\n"
    assert bridge.config is not None
    bridge.config.write_text(CONFIG.format(port=1, version=version))
    administrator.does("reload")

    line = f" at {address}: 1 message that the broker may have, kept until it is reachable"
    until(lambda: line in administrator.does("mapping", "show", "out"), lambda: bridge.log)
    assert line in administrator.does("mapping", "list")
    (shown,) = administrator.json("mapping", "show", "out")
    assert [(one["address"], one["messages"], one["received"]) for one in shown["unfinished"]] == [(address, 1, 0)]
    assert bridge.messages("OUT") == bridge.messages("SYSTEM.DEAD.LETTER.QUEUE") == []

    given_up = administrator.does("mapping", "give-up", "out", "--yes")
    assert given_up == "gave up 1 session of mapping out; 1 message moved to the dead-letter queue\n"
    (letter,) = bridge.messages("SYSTEM.DEAD.LETTER.QUEUE")
    assert "reading" in str(letter)
    assert administrator.json("mapping", "show", "out")[0]["unfinished"] == []
    assert administrator.refused("mapping", "give-up", "out", "--yes") == "mapping out has no unfinished session\n"
