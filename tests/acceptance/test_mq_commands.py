"""`mqbridge mq` as a process, with the queue manager of a bridge."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.forked_process import MQBRIDGE
from tests.helpers.line_process import LineProcess
from tests.helpers.patience import PATIENCE


@pytest.mark.queue_managers("ibmmq", slow="pymqi")
def test_ctrl_c_ends_a_command_that_waits_for_messages(new_bridge: Callable[..., BridgeProcess]) -> None:
    """IBM's library returns from MQGET only when a message arrives or the wait is over. Python handles signals afterwards."""
    bridge = new_bridge().start()
    process = LineProcess([MQBRIDGE, "mq", "sub", "a/#", "--config", str(bridge.config)], env=bridge.env)
    process.line_where(lambda line: line.startswith("subscribed to"))
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(PATIENCE) == 130
