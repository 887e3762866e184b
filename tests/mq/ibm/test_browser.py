"""The browser of the transmission queue beside the remover, which has a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mapping.message import Message
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.ibm.browser import Browser
from bridge.mq.ibm.transmission import QueuedMessage
from bridge.mq.mqi import MQOD, GetOptions, Got
from bridge.wire.mq import MQMD
from tests.mq.ibm.backends import TRANSMIT, drain


class RemovedMeanwhile(EmbeddedConnection):
    """A connection on which the answer to a browse is slow: by then the message is removed, and the browser told so."""

    def __init__(self, manager: QueueManager, browser: Browser) -> None:
        super().__init__(manager)
        self._manager, self._browser = manager, browser

    def get(self, handle: int, options: GetOptions) -> Got:
        got = super().get(handle, options)
        drain(self._manager, TRANSMIT)
        self._browser.forget([got.md.MsgId])
        return got


def put(manager: QueueManager, body: bytes) -> None:
    connection = EmbeddedConnection(manager)
    connection.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), body))
    connection.disconnect()


def test_a_message_removed_while_it_is_browsed_again_is_handed_over_once(queue_manager: QueueManager) -> None:
    handed_over: list[bytes] = []

    def hand_over(batch: Sequence[QueuedMessage]) -> None:
        handed_over.extend(one.message.data for one in batch)

    browser = Browser(lambda: EmbeddedConnection(queue_manager), TRANSMIT, hand_over, lambda _got, _reason: None)
    put(queue_manager, b"1")
    connection = EmbeddedConnection(queue_manager)
    browser.opened(connection)
    browser.serve(connection)
    connection.disconnect()
    again = RemovedMeanwhile(queue_manager, browser)
    browser.opened(again)
    browser.serve(again)
    put(queue_manager, b"2")
    browser.serve(again)
    assert handed_over == [b"1", b"2"]
