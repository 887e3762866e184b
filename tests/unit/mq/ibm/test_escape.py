"""MQSC commands through a command server: responses as in runmqsc, also for rejected commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mq.administration import run_mqsc
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import CommandResponse
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.pcf.command_server import CommandServer


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[StandInConnection]:
    queue_manager = QueueManager("MQB1", tmp_path)
    CommandServer(queue_manager).start()
    connection = StandInConnection(queue_manager)
    yield connection
    connection.disconnect()
    queue_manager.close()


def test_each_command_has_its_answer(connection: StandInConnection) -> None:
    script = (
        "* two lines\nDEFINE QLOCAL(A) +\n  DESCR('it''s (ours)')\nDEFINE QLOCAL(A)\nDISPLAY QLOCAL(A) MAXDEPTH DESCR\n"
    )
    created, again, displayed = run_mqsc(connection, script)
    assert (created.line, created.ok, created.message[:9]) == (2, True, "AMQ8006I:")
    assert (again.line, again.ok, again.message) == (4, False, "AMQ8150E: Queue A already exists.")
    assert (displayed.line, displayed.ok, displayed.message[:9]) == (5, True, "AMQ8409I:")
    assert displayed.objects == [{"QUEUE": "A", "TYPE": "QLOCAL", "MAXDEPTH": 5000, "DESCR": "it's (ours)"}]


@pytest.mark.parametrize(
    ("command", "number"),
    [("DEFINE CHEESE(A)", "AMQ8405I"), ("DELETE QLOCAL(NONE)", "AMQ8147E"), ("DISPLAY QLOCAL(NONE)", "AMQ8147E")],
)
def test_rejected_commands_have_a_reason(connection: StandInConnection, command: str, number: str) -> None:
    (response,) = run_mqsc(connection, command)
    assert isinstance(response, CommandResponse)
    assert (response.ok, response.message[:8], response.objects) == (False, number, [])
