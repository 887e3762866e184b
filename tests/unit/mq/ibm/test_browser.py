"""The browser of the transmission queue, concurrent with the remover, which has a separate connection."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

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
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MqiGot


class Handler(BackendEvents):
    """Keep the messages that the browser hands over or rejects."""

    def __init__(self) -> None:
        self.handed_over: list[bytes] = []
        self.rejected: list[tuple[bytes, int]] = []

    def browsed(self, batch: Sequence[QueuedMessage]) -> None:
        self.handed_over += [message.message.data for message in batch]

    def malformed(self, message: Got, reason: int) -> None:
        self.rejected.append((message.data[MQXQH_LENGTH:], reason))


@pytest.fixture
def passes() -> BrowsePasses:
    return BrowsePasses()


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def browser(queue_manager: QueueManager, handler: Handler, passes: BrowsePasses | None) -> Browser:
    return Browser(lambda: StandInConnection(queue_manager), TRANSMIT, handler, passes=passes)


def put(manager: QueueManager, *bodies: bytes) -> None:
    connection = StandInConnection(manager)
    for body in bodies:
        connection.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), body))
    connection.disconnect()


def serve(browser: Browser, connection: StandInConnection) -> StandInConnection:
    browser.opened(connection)
    browser.serve(connection)
    return connection


class ReadingAhead(StandInConnection):
    """A connection that fills a read-ahead buffer at the first browse, whose answer is slow.

    By then, all messages are removed from the queue, and the browser has been notified.
    """

    def __init__(self, manager: QueueManager, browser: Browser) -> None:
        super().__init__(manager)
        self._manager, self._browser = manager, browser
        self._buffer: list[MqiGot] = []

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        if self._buffer:
            return self._buffer.pop(0)
        first = super().get(handle, options)
        following = (options.Options & ~cmqc.MQGMO_BROWSE_FIRST & ~cmqc.MQGMO_WAIT) | cmqc.MQGMO_BROWSE_NEXT
        with contextlib.suppress(MQError):
            while True:
                self._buffer.append(super().get(handle, msgspec.structs.replace(options, Options=following)))
        drain(self._manager, TRANSMIT)
        self._browser.forget([message.md.MsgId for message in (first, *self._buffer)])
        return first


@pytest.mark.parametrize(
    ("passes", "bodies"), [(None, (b"1",)), (BrowsePasses(), (b"1", b"2", b"3"))], ids=["browsed", "read ahead"]
)
def test_a_message_removed_while_it_is_browsed_again_is_handed_over_once(
    queue_manager: QueueManager, browser: Browser, handler: Handler, bodies: tuple[bytes, ...]
) -> None:
    put(queue_manager, *bodies)
    serve(browser, StandInConnection(queue_manager)).disconnect()
    again = serve(browser, ReadingAhead(queue_manager, browser))
    put(queue_manager, b"later")
    browser.serve(again)
    assert handler.handed_over == [*bodies, b"later"]


class Busy(StandInConnection):
    """A connection to a queue to which an application puts a message during each MQGET."""

    def __init__(self, manager: QueueManager) -> None:
        super().__init__(manager)
        self._manager = manager

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        put(self._manager, b"more")
        return super().get(handle, options)


@pytest.mark.parametrize("passes", [None, BrowsePasses()], ids=["browsed", "read ahead"])
def test_the_start_does_not_wait_for_messages_that_arrive_meanwhile(
    queue_manager: QueueManager, browser: Browser, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_module, "BATCH_MESSAGES", 2)
    put(queue_manager, b"1", b"2", b"3")
    caught_up = []
    monkeypatch.setattr(handler, "has_caught_up", lambda: caught_up.append(len(handler.handed_over)))
    connection = Busy(queue_manager)
    browser.opened(connection)
    for _ in range(3):
        browser.serve(connection)
    assert caught_up == [4] and handler.handed_over[:3] == [b"1", b"2", b"3"]


class Counted(StandInConnection):
    """Counts MQGETs, by handle, and those from the front of the queue."""

    def __init__(self, manager: QueueManager) -> None:
        super().__init__(manager)
        self.gets: Counter[int] = Counter()
        self.from_front = 0

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        self.gets[handle] += 1
        self.from_front += bool(options.Options & cmqc.MQGMO_BROWSE_FIRST)
        return super().get(handle, options)


def test_while_idle_one_mqget_waits_and_publishers_commit(
    queue_manager: QueueManager,
    browser: Browser,
    handler: Handler,
    passes: BrowsePasses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser_module, "IDLE_AFTER", 0.0)
    monkeypatch.setattr(browser_module, "IDLE_WAIT", 1)
    monkeypatch.setattr(browser_module, "PASS_INTERVAL", 1.0)
    backlog = [b"%d" % number for number in range(20)]
    put(queue_manager, *backlog)
    connection = Counted(queue_manager)
    browser.opened(connection)
    while not browser._has_caught_up:
        browser.serve(connection)
    browser.serve(connection)  # the sentinel is put after the backlog
    for _ in range(3):
        before = connection.gets.total()
        browser.serve(connection)
        assert connection.gets.total() == before + 1

    monkeypatch.setattr(browser_module, "IDLE_WAIT", 60_000)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(browser.serve, connection)
        publisher = StandInConnection(queue_manager)
        with passes.commit(lambda: False):
            publisher.commit()
        publisher.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(), b"new"))
        waiting.result()
    assert handler.handed_over == [*backlog, b"new"]


@pytest.mark.parametrize(("interval", "passed_over"), [(1.0, 0), (0.0, 20)], ids=["between passes", "in each pass"])
def test_the_cost_of_waiting_does_not_depend_on_messages_of_absent_clients(
    queue_manager: QueueManager,
    browser: Browser,
    handler: Handler,
    passes: BrowsePasses,
    monkeypatch: pytest.MonkeyPatch,
    interval: float,
    passed_over: int,
) -> None:
    """An MQGET from the front skips all of them. Less frequent passes find messages before the cursor."""
    monkeypatch.setattr(browser_module, "IDLE_AFTER", 0.0)
    monkeypatch.setattr(browser_module, "IDLE_WAIT", 0)
    monkeypatch.setattr(browser_module, "PASS_INTERVAL", interval)
    put(queue_manager, *(b"%d" % number for number in range(20)))
    connection = Counted(queue_manager)
    browser.opened(connection)
    while not browser._has_caught_up:
        browser.serve(connection)
    browser.serve(connection)
    before = connection.from_front
    for _ in range(20):
        browser.serve(connection)
    assert connection.from_front - before == passed_over
    urgent = StandInConnection(queue_manager)
    urgent.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(MQMD(Priority=9), b"urgent"))
    for _ in range(2):
        browser.serve(connection)
    assert (handler.handed_over[-1] == b"urgent") is (interval == 0.0)
    put(queue_manager, b"new")
    while handler.handed_over[-1] != b"new":
        browser.serve(connection)
    assert sorted(handler.handed_over[20:]) == [b"new", b"urgent"]


class ShortChannel(StandInConnection):
    """A connection whose channel has a MAXMSGL below the length of some messages."""

    LIMIT = 66_000

    def get(self, handle: int, options: GetOptions) -> MqiGot:
        if options.MaxLength is not None:
            return super().get(handle, options)
        try:
            return super().get(handle, msgspec.structs.replace(options, MaxLength=self.LIMIT))
        except TruncatedMessage:
            raise MQError(cmqc.MQRC_DATA_LENGTH_ERROR, "get") from None


def test_a_message_longer_than_the_channel_allows_does_not_block_later_messages(
    queue_manager: QueueManager, browser: Browser, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue_manager, b"1", bytes(70_000), b"2")
    connection = serve(browser, ShortChannel(queue_manager))
    assert handler.handed_over == [b"1", b"2"]
    assert len(browser.unreadable) == 1
    assert "MQB4211E" in caplog.text and "(70428 bytes) for client 'dev'" in caplog.text
    browser.probe(connection)
    assert len(browser.unreadable) == 1
    drain(queue_manager, TRANSMIT)
    browser.probe(connection)
    assert browser.unreadable == set()


def test_a_message_that_the_bridge_fails_to_map_is_rejected_alone(
    queue_manager: QueueManager, browser: Browser, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(message: Got, position: int, queue: str) -> QueuedMessage:
        if message.data.endswith(b"bad"):
            raise KeyError("a defect")
        return read_transmission(message, position, queue)

    monkeypatch.setattr(browser_module, "read_transmission", read)
    put(queue_manager, b"1", b"bad", b"2")
    serve(browser, StandInConnection(queue_manager)).disconnect()
    assert handler.handed_over == [b"1", b"2"]
    assert handler.rejected == [(b"bad", cmqc.MQRC_UNEXPECTED_ERROR)]


def test_read_ahead_keeps_the_order_of_messages_committed_before_the_cursor(
    queue_manager: QueueManager, browser: Browser, handler: Handler, passes: BrowsePasses
) -> None:
    """A publisher commits between the passes of the browser."""
    connection = serve(browser, StandInConnection(queue_manager))  # nothing is on the queue: the browser has caught up
    publisher = StandInConnection(queue_manager)
    od = MQOD(ObjectName="x", ObjectQMgrName="dev")

    def publish(*bodies: bytes) -> None:
        for body in bodies:
            publisher.put1(od, Message(MQMD(), body), cmqc.MQPMO_SYNCPOINT)
        with passes.commit(lambda: False):
            publisher.commit()

    publisher.put1(od, Message(MQMD(), b"first"), cmqc.MQPMO_SYNCPOINT)
    put(queue_manager, b"other")
    browser.serve(connection)
    assert handler.handed_over == [b"other"]  # the cursor is after the first message of the unit of work
    with ThreadPoolExecutor(1) as executor:
        published = executor.submit(lambda: (publish(b"second"), publish(b"third")))
        while not published.done():
            browser.serve(connection)
        published.result()
    while len(handler.handed_over) < 4:
        browser.serve(connection)
    assert handler.handed_over == [b"other", b"first", b"second", b"third"]
