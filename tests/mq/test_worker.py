"""A worker whose queue manager goes away says so, and says when it is back."""

from __future__ import annotations

import logging
import threading

import pytest

from bridge.mq.errors import MQError
from bridge.mq.interface import Connection
from bridge.mq.worker import Worker
from bridge.wire import cmqc
from tests.patience import PATIENCE


class FakeConnection:
    """A connection that nothing is done with."""

    def disconnect(self) -> None:
        """The worker is done with it."""


class Serving(Worker[None]):
    """Loses its connection in the first round, does not get another at once, and is told to end in the second."""

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


def test_the_log_says_when_the_queue_manager_is_lost_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worker = Serving()
    worker.start()
    assert worker.served.wait(PATIENCE)
    worker.stop()
    assert worker.join(PATIENCE)
    said = [record.getMessage().partition(": MQRC")[0] for record in caplog.records]
    assert said == [
        "worker: the queue manager is lost",
        "worker: waiting for the queue manager (attempt 1)",
        "worker: the queue manager is back",
    ]
