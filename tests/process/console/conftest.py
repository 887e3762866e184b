from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.console import Console

CONFIG = """
queue_manager:
  type: embedded
  scripts: [{script}]
channels:
  - {{name: PLAIN.MQTT, port: 0}}
audit_log: {{file: {audit}}}
admin: {{port: 0}}
links:
  plant: {{host: 127.0.0.1, port: 1}}
mappings:
  orders:
    from: {{mqtt: "orders/#"}}
    to: {{queue: ORDERS}}
    attributes: {{properties: {{secret: classified}}}}
  upwards:
    from: {{queue: UPWARDS}}
    to: {{mqtt: up/here}}
"""

SCRIPT = """
DEFINE QLOCAL(ORDERS)
DEFINE QLOCAL(UPWARDS)
DEFINE QLOCAL(SMALL) MAXDEPTH(1)
DEFINE QLOCAL(SOURCE)
DEFINE QLOCAL(TARGET)
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with an admin port, mappings, a link and an audit log (audit.jsonl), which the tests of a module share."""
    directory = tmp_path_factory.mktemp("console")
    script = directory / "objects.mqsc"
    script.write_text(SCRIPT)
    config = CONFIG.format(script=script, audit=directory / "audit.jsonl")
    with at_work(BridgeProcess(directory / "data", config=config)) as process:
        yield process


@pytest.fixture
def console(bridge: BridgeProcess) -> Console:
    """A user who has logged in with a token with the right `change`."""
    return Console(bridge).log_in()
