"""The tests of `mqbridge ibm-acceptance` on queue managers that fail some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import prepare, run_script
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.acceptance import Acceptance, Outcome
from bridge.mq.ibm.requirements import Requirements
from bridge.mq.mqi import Connection, GetOptions, Got, MQError
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.guarded_connection import GuardedConnection
from tests.ibm_standin.pcf.command_server import StandInCommandServer

XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    StandInCommandServer(queue_manager).start()
    yield queue_manager
    queue_manager.close()


def results(
    queue_manager: QueueManager,
    connection: Callable[[QueueManager], Connection] = EmbeddedConnection,
    wrong_password: Callable[[], Connection] | None = None,
) -> dict[str, Outcome]:
    tests = Acceptance(lambda: connection(queue_manager), Requirements(), wrong_password=wrong_password)
    return {one.test: one for one in tests.run()}


def failed(found: dict[str, Outcome]) -> list[str]:
    return [name for name, one in found.items() if one.result == "fail"]


def test_all_pass_on_a_queue_manager_that_was_prepared(queue_manager: QueueManager) -> None:
    assert failed(results(queue_manager)) == []


def test_a_message_that_is_too_long_for_the_channel_is_a_failure_with_a_remedy(queue_manager: QueueManager) -> None:
    found = results(queue_manager, _Limited)
    assert failed(found) == ["long message"]
    assert "MQRC_DATA_LENGTH_ERROR (2010)" in found["long message"].detail
    assert found["long message"].remedy == "set MAXMSGL(104857600) for the channel"


def test_no_messages_are_sent_if_they_would_go_to_another_queue(queue_manager: QueueManager) -> None:
    run_script(queue_manager, "DEFINE QLOCAL(OTHER) USAGE(XMITQ)\nALTER QMGR DEFXMITQ(OTHER)", "test")
    found = results(queue_manager)
    assert failed(found) == ["objects and authorities", "exclusive use of the transmission queue"]
    assert found["exclusive use of the transmission queue"].remedy == f"ALTER QMGR DEFXMITQ('{XMITQ}')"
    assert found["publication to a client"].result == "skip"


def test_what_a_failed_test_leaves_is_removed(queue_manager: QueueManager) -> None:
    """Messages for clients are taken by another program, so that each test of them fails halfway."""
    found = results(queue_manager, _Robbed)
    assert failed(found) == ["publication to a client", "retained publication", "durable subscription", "long message"]
    assert found["client identifiers"].result == "skip"
    assert found["clean-up"].detail.startswith("nothing is left (1 subscriptions and")
    assert not queue_manager.objects.topics.subscriptions
    assert queue_manager.objects.queues[XMITQ].depth == 0
    assert not [one for one in queue_manager.retained.matching("mqbridge/#") if one is not None]


class _Limited(EmbeddedConnection):
    """A connection over a channel with MAXMSGL(1000000)."""

    def put(self, handle: int, message: AnyMessage, *arguments: Any, **more: Any) -> MQMD:
        if len(message.put_data) > 1_000_000:
            raise MQError(cmqc.MQRC_DATA_LENGTH_ERROR)
        return super().put(handle, message, *arguments, **more)


class _Robbed(EmbeddedConnection):
    """A connection that finds no messages on the transmission queue, until the clean-up asks without waiting."""

    def get(self, handle: int, options: GetOptions) -> Got:
        if options.Options & cmqc.MQGMO_BROWSE_FIRST and options.WaitInterval:
            raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE)
        return super().get(handle, options)


def test_a_wrong_password_must_be_rejected(queue_manager: QueueManager) -> None:
    def rejected() -> Connection:
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED)

    for wrong_password, result in ((rejected, "pass"), (lambda: EmbeddedConnection(queue_manager), "fail")):
        assert results(queue_manager, wrong_password=wrong_password)["wrong password"].result == result


def test_without_a_connection_the_other_tests_are_skipped() -> None:
    def refused() -> Connection:
        raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "connect")

    found = list(Acceptance(refused, Requirements()).run())
    assert [one.test for one in found if one.result == "fail"] == ["connection"]
    assert {one.result for one in found[1:]} == {"skip"}


def test_a_queue_in_use_skips_the_tests_that_send_messages(queue_manager: QueueManager) -> None:
    def connect(manager: QueueManager) -> Connection:
        connection = GuardedConnection(manager)
        connection.reasons = {XMITQ: cmqc.MQRC_OBJECT_IN_USE}
        return connection

    found = {name: one.result for name, one in results(queue_manager, connect).items()}
    assert found["exclusive use of the transmission queue"] == found["publication to a client"] == "skip"
    assert found["syncpoint and backout"] == found["message rate"] == "pass"
