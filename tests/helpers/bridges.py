"""Bridges of the tests, on each kind of queue manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.remote_bridge import RemoteBridgeProcess

B = TypeVar("B", bound=BridgeProcess)


def bridge_on(queue_manager: str, data_directory: Path, **options: Any) -> BridgeProcess:
    """Return a bridge that is not started, on the embedded queue manager, or on a remote one with this package."""
    if queue_manager == "embedded":
        return BridgeProcess(data_directory, **options)
    return RemoteBridgeProcess(data_directory, library=queue_manager, **options)


@contextmanager
def at_work(bridge: B) -> Iterator[B]:
    """Start a bridge. At the end, it must stop in order, unless a test ended it, and have logged no traceback."""
    try:
        yield bridge.start()
        if bridge.running:
            assert bridge.stop() == 0, bridge.log
    finally:
        bridge.discard()
    assert "Traceback" not in bridge.log, bridge.log
