"""The log of persistent messages against a model: its accounts, the rows on disk, and the result of a restart.

Units of work are submitted in bursts, so that several share a write. Writes fail. Rows are deleted and messages moved after a
few commits. In all cases, replaying the rows on disk results in the persistent messages that were committed and not removed,
also after all obsolete rows have been deleted.
"""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.objects import RETAINED_QUEUE
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage import recovery_log as recovery_log_module
from bridge.mq.embedded.storage.batch import LoggedBatch
from bridge.mq.embedded.unit import Unit, undo
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE

QUEUES = ("A", "B", "C")
TOPICS = ("t/1", "t/2")

puts = st.tuples(st.just("put"), st.sampled_from(QUEUES), st.booleans())
gets = st.tuples(st.just("get"), st.sampled_from(QUEUES), st.integers(0, 3))
series = st.tuples(st.just("series"), st.sampled_from(QUEUES), st.integers(4, 12))
thinnings = st.tuples(st.just("thin"), st.sampled_from(QUEUES), st.integers(0, 11))
publications = st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.sampled_from(["", "retain", "clear"]))
units = st.lists(st.one_of(puts, gets, gets, series, thinnings, publications), min_size=1, max_size=6)
bursts = st.lists(units, min_size=1, max_size=4)


class Done:
    """A unit of work of the test, and its effect on the model."""

    def __init__(self) -> None:
        self.unit = Unit()
        self.reason: int | None = None
        self.puts: list[tuple[str, bytes, bool]] = []
        self.gets: list[tuple[str, bytes]] = []
        self.retained: list[tuple[str, bytes | None, bool]] = []


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="recovery_log"))
        self.runs = itertools.count()
        self.bodies = itertools.count()
        self.patches = [
            mock.patch.object(recovery_log_module, "DEAD_ROWS", 2),
            mock.patch.object(recovery_log_module, "COMPACTION_FLOOR", 0),
        ]
        for patch in self.patches:
            patch.start()
        #: queue -> data -> persistent
        self.messages: dict[str, dict[bytes, bool]] = {name: {} for name in QUEUES}
        self.retained: dict[str, tuple[bytes, bool]] = {}
        self.directory = self.home / str(next(self.runs))
        self.manager = QueueManager("MQB1", self.directory)
        connection = EmbeddedConnection(self.manager)
        for name in QUEUES:
            assert connection.command(f"DEFINE QLOCAL({name})")[0].ok
        assert connection.command("DEFINE SUB(S) TOPICSTR('t/#') DEST(A)")[0].ok

    def teardown(self) -> None:
        self.manager.close()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.home)

    # Actions ---------------------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        return str(next(self.bodies)).encode()

    def begin(self, actions: list[tuple[Any, ...]]) -> Done:
        """A unit of work: puts, gets (of one message, or of all except one, which leaves rows nearly empty), publications."""
        work = Done()
        for kind, where, how in actions:
            if kind in ("get", "thin"):
                waiting = list(self.manager.objects.queues[where].messages())
                if waiting:
                    chosen = waiting.pop(how % len(waiting))
                    for stored in [chosen] if kind == "get" else waiting:
                        stored.queue.take(stored)
                        work.unit.gets.append(stored)
                        work.gets.append((where, stored.message.data))
                continue
            if kind == "series":
                for _ in range(how):
                    body = self.body()
                    self.manager.put(work.unit, self.manager.objects.resolve(where), Message(MQMD(Persistence=1), body))
                    work.puts.append((where, body, True))
                continue
            body = self.body()
            persistent = how if kind == "put" else True
            message = Message(MQMD(Persistence=int(persistent)), body)
            if kind == "put":
                self.manager.put(work.unit, self.manager.objects.resolve(where), message)
                work.puts.append((where, body, persistent))
                continue
            retain, clear = how == "retain", how == "clear"
            route = self.manager.objects.topics.route(where)
            self.manager.publish(work.unit, route, message, time.time(), retain=retain, clear_retained=clear)
            work.puts.append(("A", body, persistent))
            if retain or clear:
                work.retained.append((where, body if retain else None, persistent))
        return work

    @rule(burst=bursts, failing=st.sets(st.integers(1, 3), max_size=1))
    def commit(self, burst: list[list[tuple[Any, ...]]], failing: set[int]) -> None:
        """Submit units together. The writes whose number is in `failing` fail."""
        store = self.manager.recovery_log._store
        real, calls = store.write, itertools.count(1)

        def write(*arguments: Any) -> Any:
            if next(calls) in failing:
                raise sqlite3.OperationalError("database or disk is full")
            return real(*arguments)

        store.write = write  # type: ignore[assignment]
        ended = threading.Semaphore(0)
        submitted = []
        with self.manager.lock:
            for actions in burst:
                work = self.begin(actions)

                def end(reason: int, work: Done = work) -> None:
                    work.reason = reason
                    ended.release()

                work.unit.done = end
                submitted.append(work)
                self.manager.recovery_log.submit(work.unit)
        for _ in submitted:
            assert ended.acquire(timeout=PATIENCE)
        self.idle()
        store.write = real
        for work in submitted:
            assert work.reason in (cmqc.MQRC_NONE, cmqc.MQRC_RESOURCE_PROBLEM)
            if work.reason == cmqc.MQRC_NONE:
                for queue, body in work.gets:
                    del self.messages[queue][body]
                for queue, body, persistent in work.puts:
                    self.messages[queue][body] = persistent
                for topic, body, persistent in work.retained:  # type: ignore[assignment]
                    if body is None:
                        self.retained.pop(topic, None)
                    else:
                        self.retained[topic] = (body, persistent)

    @rule(actions=units)
    def back_out(self, actions: list[tuple[Any, ...]]) -> None:
        with self.manager.lock:
            undo(self.begin(actions).unit)

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
        self.manager = QueueManager("MQB1", self.directory)
        self.messages = {
            queue: {body: True for body, persistent in held.items() if persistent}
            for queue, held in self.messages.items()
        }
        self.retained = {topic: held for topic, held in self.retained.items() if held[1]}

    @precondition(lambda self: "C" in self.manager.objects.queues)
    @rule(again=st.booleans())
    def delete_and_define_queue(self, again: bool) -> None:
        connection = EmbeddedConnection(self.manager)
        assert connection.command("DELETE QLOCAL(C) PURGE")[0].ok
        self.messages["C"] = {}
        if again:
            self.kill_and_restart()
        assert EmbeddedConnection(self.manager).command("DEFINE QLOCAL(C)")[0].ok

    # Invariants ------------------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Wait until the recovery log has nothing to do."""
        ended = threading.Event()
        with self.manager.lock:
            last = Unit()
            last.done = lambda _reason: ended.set()
            self.manager.recovery_log.submit(last)
        assert ended.wait(PATIENCE)
        while True:
            with self.manager.lock:
                if not self.manager.recovery_log._busy:
                    return

    @invariant()
    def queues_hold_what_was_committed(self) -> None:
        for name in QUEUES:
            queue = self.manager.objects.queues[name]
            messages = {stored.message.data: stored.persistent for stored in queue.messages()}
            assert messages == self.messages[name], name
            assert queue.depth == len(messages), name
            numbers = [stored.msg_number for stored in queue.messages()]
            assert numbers == sorted(numbers), "the order of the puts, also after backouts and restarts"

    @invariant()
    def retained_publications_are_the_latest(self) -> None:
        contents = {
            topic: (publication.message.data, publication.persistent)
            for topic, publication in self.manager.retained.items()
        }
        assert contents == self.retained
        queue = self.manager.objects.queues[RETAINED_QUEUE]
        assert {stored.topic: stored for stored in queue.messages()} == self.manager.retained
        assert queue.depth == len(self.retained)

    @invariant()
    def accounts_agree_with_the_disk(self) -> None:
        recovery_log = self.manager.recovery_log
        self.idle()
        with self.manager.lock:
            database = sqlite3.connect(self.directory / "queuemanager.db")
            rows = database.execute("SELECT id, body FROM batch ORDER BY id").fetchall()
            database.close()
            live = [
                message
                for queue in self.manager.objects.queues.values()
                for message in queue.messages()
                if message.durable
            ]
            assert all(stored.row is not None for stored in live)
            assert [row_id for row_id, _ in rows] == sorted(recovery_log._rows)
            assert recovery_log._size == sum(len(body) for _, body in rows)
            assert recovery_log._live == len(live) == sum(row.live for row in recovery_log._rows.values())
            assert recovery_log._logged == sum(row.logged for row in recovery_log._rows.values())
            for row in recovery_log._rows.values():
                assert row.live == sum(stored.row is row for stored in live)
            dead = [row.id for row in recovery_log._dead]
            assert sorted(dead) == sorted(
                row.id for row in recovery_log._rows.values() if not row.live and not row.tombstones
            )
            numbers = sorted(stored.msg_number for stored in live)
            assert replayed(rows) == numbers
            assert replayed([row for row in rows if row[0] not in dead]) == numbers, "dead rows were needed"


def replayed(rows: list[tuple[int, bytes]]) -> list[int]:
    """Return the numbers of the messages in rows of the log."""
    numbers: set[int] = set()
    for _, body in rows:
        batch = msgspec.msgpack.decode(body, type=LoggedBatch)
        numbers |= {delivery.msg_number for put in batch.puts for delivery in put.deliveries}
        numbers -= set(batch.removed)
    return sorted(numbers)


JournalMachine.TestCase.settings = settings(
    stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJournal = JournalMachine.TestCase
