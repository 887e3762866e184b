"""Queues against a simple model: several connections put, get, browse, commit and back out, and the process is restarted."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

QUEUES = {"PRIORITY": "", "FIFO": "MSGDLVSQ(FIFO)", "SMALL": "MAXDEPTH(3)"}
APPLICATIONS = range(2)

queues = st.sampled_from(sorted(QUEUES))
applications = st.sampled_from(APPLICATIONS)


class Held:
    """A message of the model."""

    def __init__(self, number: int, queue: str, priority: int, persistent: bool) -> None:
        self.number = number
        self.queue = queue
        self.priority = priority
        self.persistent = persistent
        self.backouts = 0
        #: application whose unit of work put or got it, and which of both
        self.put_by: int | None = None
        self.got_by: int | None = None

    @property
    def data(self) -> bytes:
        return str(self.number).encode()

    @property
    def place(self) -> tuple[int, int]:
        return (0 if self.queue == "FIFO" else -self.priority, self.number)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="queues"))
        self.runs = itertools.count()
        self.numbers = itertools.count()
        self.held: list[Held] = []
        #: (application, queue) -> position of the browse cursor and its message
        self.cursors: dict[tuple[int, str], Held] = {}
        self.directory = self.home / "first"
        self.start()

    def start(self) -> None:
        self.manager = QueueManager("MQB1", self.directory)
        self.connections = [EmbeddedConnection(self.manager) for _ in APPLICATIONS]
        self.handles: dict[tuple[int, str], int] = {}

    @initialize()
    def define(self) -> None:
        for name, attributes in QUEUES.items():
            assert self.connections[0].command(f"DEFINE QLOCAL({name}) {attributes}")[0].ok

    def teardown(self) -> None:
        self.manager.close()
        shutil.rmtree(self.home)

    def handle(self, application: int, queue: str) -> int:
        key = (application, queue)
        if key not in self.handles:
            options = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT
            self.handles[key] = self.connections[application].open(MQOD(ObjectName=queue), options)
        return self.handles[key]

    def available(self, queue: str) -> list[Held]:
        messages = [
            message
            for message in self.held
            if message.queue == queue and message.put_by is None and message.got_by is None
        ]
        return sorted(messages, key=lambda message: message.place)

    def depth(self, queue: str) -> int:
        return sum(message.queue == queue for message in self.held)

    # Verbs -----------------------------------------------------------------------------------------------------------

    @rule(
        application=applications,
        queue=queues,
        priority=st.sampled_from([3, 7]),
        persistent=st.booleans(),
        syncpoint=st.booleans(),
    )
    def put(self, application: int, queue: str, priority: int, persistent: bool, syncpoint: bool) -> None:
        self.put_one(application, queue, priority, persistent, syncpoint)

    def put_one(self, application: int, queue: str, priority: int, persistent: bool, syncpoint: bool) -> None:
        message = Held(next(self.numbers), queue, priority, persistent)
        options = cmqc.MQPMO_SYNCPOINT if syncpoint else cmqc.MQPMO_NO_SYNCPOINT
        md = MQMD(Priority=priority, Persistence=int(persistent))
        try:
            self.connections[application].put(self.handle(application, queue), Message(md, message.data), options)
        except MQError as error:
            assert error.reason == cmqc.MQRC_Q_FULL
            assert queue == "SMALL"
            assert self.depth(queue) == 3
            return
        assert queue != "SMALL" or self.depth(queue) < 3
        message.put_by = application if syncpoint else None
        self.held.append(message)

    @rule(application=applications, queue=queues, syncpoint=st.booleans(), under_cursor=st.booleans())
    def get(self, application: int, queue: str, syncpoint: bool, under_cursor: bool) -> None:
        self.get_one(application, queue, syncpoint, under_cursor)

    def get_one(self, application: int, queue: str, syncpoint: bool, under_cursor: bool) -> None:
        available = self.available(queue)
        expected = available[0] if available else None
        options = cmqc.MQGMO_SYNCPOINT if syncpoint else cmqc.MQGMO_NO_SYNCPOINT
        none = cmqc.MQRC_NO_MSG_AVAILABLE
        if under_cursor:
            cursor = self.cursors.get((application, queue))
            expected = cursor if cursor in available else None
            options |= cmqc.MQGMO_MSG_UNDER_CURSOR
            none = cmqc.MQRC_NO_MSG_UNDER_CURSOR
        try:
            message = self.connections[application].get(self.handle(application, queue), GetOptions(Options=options))
        except MQError as error:
            assert error.reason == none
            assert expected is None
            return
        assert expected is not None
        assert message.data == expected.data
        assert (message.md.Priority, message.md.Persistence) == (expected.priority, expected.persistent)
        assert message.md.BackoutCount == expected.backouts
        if syncpoint:
            expected.got_by = application
        else:
            self.held.remove(expected)

    @rule(application=applications, queue=queues, first=st.booleans(), count=st.integers(1, 8))
    def browse(self, application: int, queue: str, first: bool, count: int) -> None:
        for number in range(count):
            self.browse_one(application, queue, first and number == 0)

    @rule(queue=queues, puts=st.lists(st.tuples(applications, st.sampled_from([3, 7]), st.booleans()), max_size=8))
    def crowd(self, queue: str, puts: list[tuple[int, int, bool]]) -> None:
        """Applications put one after the other. Puts in syncpoint are committed later, in another order."""
        for application, priority, syncpoint in puts:
            self.put_one(application, queue, priority, True, syncpoint)

    def browse_one(self, application: int, queue: str, first: bool) -> None:
        cursor = None if first else self.cursors.get((application, queue))
        remaining = [message for message in self.available(queue) if cursor is None or message.place > cursor.place]
        options = cmqc.MQGMO_BROWSE_FIRST if first else cmqc.MQGMO_BROWSE_NEXT
        try:
            message = self.connections[application].get(self.handle(application, queue), GetOptions(Options=options))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
            assert not remaining
            return
        assert remaining
        assert message.data == remaining[0].data
        self.cursors[application, queue] = remaining[0]

    @rule(
        application=applications,
        verbs=st.lists(st.tuples(st.sampled_from(["put", "get"]), queues, st.booleans()), min_size=1, max_size=8),
        end=st.sampled_from(["commit", "back out", "go on"]),
    )
    def unit_of_work(self, application: int, verbs: list[tuple[str, str, bool]], end: str) -> None:
        """Call several verbs in syncpoint, which can be backed out."""
        for verb, queue, persistent in verbs:
            if verb == "put":
                self.put_one(application, queue, 3, persistent, True)
            else:
                self.get_one(application, queue, True, False)
        if end == "commit":
            self.end(application, disconnect=False)
        elif end == "back out":
            self.undo(application)

    @rule(application=applications, disconnect=st.booleans())
    def commit(self, application: int, disconnect: bool) -> None:
        self.end(application, disconnect)

    @rule(application=applications)
    def back_out(self, application: int) -> None:
        self.undo(application)

    def end(self, application: int, disconnect: bool) -> None:
        connection = self.connections[application]
        if disconnect:
            connection.disconnect()
            self.connections[application] = EmbeddedConnection(self.manager)
            for queue in QUEUES:
                self.handles.pop((application, queue), None)
                self.cursors.pop((application, queue), None)
        else:
            connection.commit()
        self.held = [message for message in self.held if message.got_by != application]
        for message in self.held:
            message.put_by = None if message.put_by == application else message.put_by

    def undo(self, application: int) -> None:
        self.connections[application].backout()
        self.held = [message for message in self.held if message.put_by != application]
        for message in self.held:
            if message.got_by == application:
                message.got_by = None
                message.backouts += 1

    @rule()
    def kill_and_restart(self) -> None:
        """Start another queue manager on a copy of the current files, as after a kill."""
        before = self.directory
        self.directory = self.home / str(next(self.runs))
        self.directory.mkdir()
        for file in before.glob("queuemanager.*"):
            shutil.copy(file, self.directory)
        self.manager.close()
        shutil.rmtree(before)
        self.start()
        self.cursors = {}
        self.held = [message for message in self.held if message.persistent and message.put_by is None]
        for message in self.held:
            message.got_by = None
            message.backouts = 0  # HARDENBO is not kept: MQMD, "BackoutCount"

    @invariant()
    def depth_counts_uncommitted_messages(self) -> None:
        for queue in QUEUES:
            if queue in self.manager.objects.queues:
                assert self.manager.objects.queues[queue].depth == self.depth(queue), queue


QueueMachine.TestCase.settings = settings(
    stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestQueues = QueueMachine.TestCase
