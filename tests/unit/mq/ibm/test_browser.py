"""The browser of the transmission queue beside the remover, which has a connection of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import browser as browser_module
from bridge.mq.ibm.browser import Browser
from bridge.mq.ibm.coordination import BackendEvents, BrowsePasses
from bridge.mq.ibm.transmission import MQXQH_LENGTH, QueuedMessage, read_transmission
from bridge.mq.mqi import MQOD, GetOptions, Got, MQError, TruncatedMessage
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import TRANSMIT, drain


class Handler(BackendEvents):
    """Passes messages on."""

    def __init__(
        self,
        browsed: Callable[[Sequence[QueuedMessage]], None],
        malformed: Callable[[Got, int], None] = lambda _got, _reason: None,
    ) -> None:
        self.browsed = browsed  # type: ignore[assignment]
        self.malformed = malformed  # type: ignore[assignment]


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

    browser = Browser(lambda: EmbeddedConnection(queue_manager), TRANSMIT, Handler(hand_over))
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


class ShortChannel(EmbeddedConnection):
    """A connection whose channel has a MAXMSGL below the length of some messages."""

    LIMIT = 66_000

    def get(self, handle: int, options: GetOptions) -> Got:
        if options.MaxLength is not None:
            return super().get(handle, options)
        try:
            return super().get(handle, msgspec.structs.replace(options, MaxLength=self.LIMIT))
        except TruncatedMessage:
            raise MQError(cmqc.MQRC_DATA_LENGTH_ERROR, "get") from None


def test_a_message_longer_than_the_channel_allows_does_not_block_the_messages_after_it(
    queue_manager: QueueManager, caplog: pytest.LogCaptureFixture
) -> None:
    handed_over: list[bytes] = []

    def hand_over(batch: Sequence[QueuedMessage]) -> None:
        handed_over.extend(one.message.data for one in batch)

    browser = Browser(lambda: EmbeddedConnection(queue_manager), TRANSMIT, Handler(hand_over))
    for body in (b"1", bytes(70_000), b"2"):
        put(queue_manager, body)
    connection = ShortChannel(queue_manager)
    browser.opened(connection)
    browser.serve(connection)
    assert handed_over == [b"1", b"2"]
    assert browser.unreadable == 1
    assert "MQB4211E" in caplog.text and "(70428 bytes) for client 'dev'" in caplog.text


def test_a_message_that_the_bridge_fails_to_map_is_rejected_alone(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over: list[bytes] = []
    rejected: list[tuple[bytes, int]] = []

    def read(got: Got) -> QueuedMessage:
        if got.data.endswith(b"bad"):
            raise KeyError("a defect")
        return read_transmission(got)

    def hand_over(batch: Sequence[QueuedMessage]) -> None:
        handed_over.extend(one.message.data for one in batch)

    monkeypatch.setattr(browser_module, "read_transmission", read)
    browser = Browser(
        lambda: EmbeddedConnection(queue_manager),
        TRANSMIT,
        Handler(hand_over, lambda got, reason: rejected.append((got.data[MQXQH_LENGTH:], reason))),
    )
    for body in (b"1", b"bad", b"2"):
        put(queue_manager, body)
    connection = EmbeddedConnection(queue_manager)
    browser.opened(connection)
    browser.serve(connection)
    connection.disconnect()
    assert handed_over == [b"1", b"2"]
    assert rejected == [(b"bad", cmqc.MQRC_UNEXPECTED_ERROR)]


def test_read_ahead_keeps_the_order_of_messages_that_are_committed_behind_the_cursor(queue_manager: QueueManager) -> None:
    """A publisher commits between the passes of the browser."""
    handed_over: list[bytes] = []

    def hand_over(batch: Sequence[QueuedMessage]) -> None:
        handed_over.extend(one.message.data for one in batch)

    passes = BrowsePasses()
    browser = Browser(lambda: EmbeddedConnection(queue_manager), TRANSMIT, Handler(hand_over), passes=passes)
    connection = EmbeddedConnection(queue_manager)
    browser.opened(connection)
    browser.serve(connection)  # nothing is on the queue: the browser has caught up
    publisher = EmbeddedConnection(queue_manager)
    od = MQOD(ObjectName="x", ObjectQMgrName="dev")

    def publish(*bodies: bytes) -> None:
        for body in bodies:
            publisher.put1(od, Message(MQMD(), body), cmqc.MQPMO_SYNCPOINT)
        with passes.commit(lambda: False):
            publisher.commit()

    publisher.put1(od, Message(MQMD(), b"first"), cmqc.MQPMO_SYNCPOINT)
    put(queue_manager, b"other")
    browser.serve(connection)
    assert handed_over == [b"other"]  # the cursor is behind the first message of the unit of work
    with ThreadPoolExecutor(1) as executor:
        published = executor.submit(lambda: (publish(b"second"), publish(b"third")))
        while not published.done():
            browser.serve(connection)
        published.result()
    while len(handed_over) < 4:
        browser.serve(connection)
    assert handed_over == [b"other", b"first", b"second", b"third"]


class ReadingAhead(EmbeddedConnection):
    """A connection that fills a read-ahead buffer at the first browse. Then all messages are removed from the queue."""

    def __init__(self, manager: QueueManager, browser: Browser) -> None:
        super().__init__(manager)
        self._manager, self._browser = manager, browser
        self._buffer: list[Got] = []

    def get(self, handle: int, options: GetOptions) -> Got:
        if self._buffer:
            return self._buffer.pop(0)
        first = super().get(handle, options)
        following = (options.Options & ~cmqc.MQGMO_BROWSE_FIRST & ~cmqc.MQGMO_WAIT) | cmqc.MQGMO_BROWSE_NEXT
        with contextlib.suppress(MQError):
            while True:
                self._buffer.append(super().get(handle, msgspec.structs.replace(options, Options=following)))
        drain(self._manager, TRANSMIT)
        self._browser.forget([got.md.MsgId for got in self._buffer])
        return first


def test_a_message_removed_while_it_is_in_the_read_ahead_buffer_is_handed_over_once(queue_manager: QueueManager) -> None:
    handed_over: list[bytes] = []

    def hand_over(batch: Sequence[QueuedMessage]) -> None:
        handed_over.extend(one.message.data for one in batch)

    browser = Browser(lambda: EmbeddedConnection(queue_manager), TRANSMIT, Handler(hand_over), passes=BrowsePasses())
    for body in (b"1", b"2", b"3"):
        put(queue_manager, body)
    connection = EmbeddedConnection(queue_manager)
    browser.opened(connection)
    browser.serve(connection)
    connection.disconnect()
    again = ReadingAhead(queue_manager, browser)
    browser.opened(again)
    browser.serve(again)
    assert handed_over == [b"1", b"2", b"3"]
