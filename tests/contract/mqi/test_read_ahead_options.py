"""Handles for MQGET specify read ahead explicitly, so DEFREADA of a queue has no effect ("MQGET options and read ahead")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.mq.mqi import MQOD
from bridge.wire import cmqc
from tests.helpers import client_packages
from tests.helpers.client_packages import connecting
from tests.helpers.served_queue_manager import ServedQueueManager

pytestmark = pytest.mark.smoke
QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


@pytest.mark.parametrize("package", ["pymqi", "ibmmq"], indirect=True)
@pytest.mark.parametrize(
    ("options", "read_ahead"),
    [
        pytest.param(cmqc.MQOO_BROWSE, cmqc.MQOO_NO_READ_AHEAD, id="browse"),
        pytest.param(cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_NO_READ_AHEAD, id="shared"),
        pytest.param(cmqc.MQOO_INPUT_EXCLUSIVE | cmqc.MQOO_BROWSE, cmqc.MQOO_NO_READ_AHEAD, id="exclusive"),
        pytest.param(cmqc.MQOO_INPUT_AS_Q_DEF, cmqc.MQOO_NO_READ_AHEAD, id="as defined"),
        pytest.param(cmqc.MQOO_BROWSE | cmqc.MQOO_READ_AHEAD, cmqc.MQOO_READ_AHEAD, id="browse, read ahead"),
        pytest.param(cmqc.MQOO_OUTPUT, 0, id="output"),
        pytest.param(cmqc.MQOO_INQUIRE, 0, id="inquire"),
    ],
)
def test_read_ahead_is_explicit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, options: int, read_ahead: int
) -> None:
    used: list[int] = []
    library = client_packages.package(package)
    original = library.Queue.open

    def open_queue(queue: Any, description: Any, *arguments: Any) -> Any:
        used.append(arguments[0])
        return original(queue, description, *arguments)

    monkeypatch.setattr(library.Queue, "open", open_queue)
    with ServedQueueManager(tmp_path, stand_in=True) as served, connecting(package, served.place) as connect:
        connection = connect()
        connection.close(connection.open(MQOD(ObjectName=QUEUE), options))
        connection.disconnect()
    assert [used_options & (cmqc.MQOO_NO_READ_AHEAD | cmqc.MQOO_READ_AHEAD) for used_options in used] == [read_ahead]
