"""A worker reports that its queue manager is lost, and that it is back."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.mq import worker as worker_module
from bridge.mq.mqi import Connection, MQError
from bridge.mq.worker import Worker, WorkerEvents
from bridge.wire import cmqc
from tests.helpers.patience import PATIENCE, until


class FakeConnection:
    """A connection that is not used."""

    def __init__(self) -> None:
        self.probes = 0
        #: reason of the next probe
        self.reason = 0

    def open(self, *_what: object) -> int:
        self.probes += 1
        if self.reason:
            raise MQError(self.reason, "open")
        return 1

    def close(self, *_what: object) -> None:
        """The handle of the queue manager."""

    def backout(self) -> None:
        """There is nothing to back out."""

    def disconnect(self) -> None:
        """Nothing to release."""


class Serving(Worker[None]):
    """Lose the connection in the first round, fail to get another one at once, and end in the second round."""

    def __init__(self) -> None:
        super().__init__("worker", self._connection)
        self.attempts = 0
        self.rounds = 0
        self.served = threading.Event()

    def _connection(self) -> Connection:
        self.attempts += 1
        if self.attempts == 2:
            raise MQError(cmqc.MQRC_Q_MGR_NOT_AVAILABLE, "connect")
        return FakeConnection()  # type: ignore[return-value]

    def opened(self, connection: Connection) -> None:
        """There is nothing to open."""

    def serve(self, connection: Connection) -> None:
        self.rounds += 1
        if self.rounds == 1:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "get")
        self.served.set()
        self.wait_for_jobs(10)

    def failed(self, error: MQError) -> None:
        raise AssertionError(error)


def test_the_log_reports_that_the_queue_manager_is_lost_and_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worker = Serving()
    worker.start()
    assert worker.served.wait(PATIENCE)
    worker.stop()
    assert worker.join(PATIENCE)
    lines = [record.getMessage().partition(": MQRC")[0] for record in caplog.records]
    assert lines == [
        "MQB4001I worker: lost the connection to the queue manager",
        "MQB4014I worker: not reconnected (attempt 1)",
        "MQB4004I worker: reconnected to the queue manager",
    ]


# Idle ------------------------------------------------------------------------------------------------------------------


class Idle(Worker[None]):
    """Do nothing, and report the connection."""

    def __init__(self, **settings: float) -> None:
        super().__init__("idle", self._connection, **settings)
        self.connections: queue.Queue[FakeConnection] = queue.Queue()
        self.refused = 0
        self.attempts = threading.Semaphore(0)

    def _connection(self) -> Connection:
        self.attempts.release()
        if self.refused:
            raise MQError(cmqc.MQRC_Q_MGR_NOT_AVAILABLE, "connect")
        connection = FakeConnection()
        self.connections.put(connection)
        return connection  # type: ignore[return-value]

    def opened(self, connection: Connection) -> None:
        """There is nothing to open."""

    def serve(self, connection: Connection) -> None:
        self.wait_for_jobs(PATIENCE)

    def failed(self, error: MQError) -> None:
        raise AssertionError(error)


@pytest.fixture
def idle() -> Iterator[Callable[..., Idle]]:
    workers: list[Idle] = []

    def start(**settings: float) -> Idle:
        workers.append(Idle(**settings))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()
        assert worker.join(PATIENCE)


def test_an_idle_worker_notices_that_its_connection_is_lost(idle: Callable[..., Idle]) -> None:
    worker = idle(probe_interval=0.01)
    probed = threading.Event()

    class Events(WorkerEvents):
        def connection_lost(self, worker: Worker[Any]) -> None:
            probed.set()

    worker.events = Events()
    connection = worker.connections.get(timeout=PATIENCE)
    connection.reason = cmqc.MQRC_CONNECTION_BROKEN
    worker.connections.get(timeout=PATIENCE)
    assert probed.wait(PATIENCE)


def test_a_worker_checks_its_connection_when_a_loss_is_reported(idle: Callable[..., Idle]) -> None:
    worker = idle(probe_interval=10_000.0)
    connection = worker.connections.get(timeout=PATIENCE)
    connection.reason = cmqc.MQRC_CONNECTION_BROKEN
    worker.request_probe()
    worker.connections.get(timeout=PATIENCE)


def test_any_answer_of_the_queue_manager_shows_that_it_is_alive(idle: Callable[..., Idle]) -> None:
    worker = idle(probe_interval=0.01)
    connection = worker.connections.get(timeout=PATIENCE)
    connection.reason = cmqc.MQRC_NOT_AUTHORIZED
    until(lambda: connection.probes > 3)
    assert worker.connections.empty()


def test_a_worker_waiting_to_connect_is_notified_when_another_one_reconnects(
    idle: Callable[..., Idle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "FIRST_PAUSE", 10_000.0)
    monkeypatch.setattr(worker_module, "MAX_PAUSE", 10_000.0)
    worker = idle(probe_interval=10_000.0)
    connection = worker.connections.get(timeout=PATIENCE)
    worker.refused = 1
    connection.reason = cmqc.MQRC_CONNECTION_BROKEN
    worker.request_probe()
    for _ in range(2):
        assert worker.attempts.acquire(timeout=PATIENCE)
    worker.refused = 0
    worker.request_reconnect()
    worker.connections.get(timeout=PATIENCE)
