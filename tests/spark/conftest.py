"""Spark and an embedded queue manager for the tests of pipelines. All tests share them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, MQSD, Connection, GetOptions, Got, MQError
from bridge.mq.remote import RemoteConnection, get_many
from bridge.spark.session import session
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import served
from tests.helpers.patience import PATIENCE
from tests.helpers.spark import SETTINGS

ROOT = str(Path(__file__).resolve().parents[2])
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the tests, with the data sources registered."""
    new_session = session("tests", master="local[2]", settings=SETTINGS)
    yield new_session
    new_session.stop()


class Queues:
    """An embedded queue manager with its socket in `directory`, and an MQ application connected to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.connection: Connection = RemoteConnection(directory, application="tests")
        self.define_state_queue()

    def define_state_queue(self) -> None:
        """Define the objects of deploy/mq/bridge.mqsc that writers need."""
        self.mqsc(f"DEFINE QLOCAL('{MAPPING_STATE_QUEUE}') NOREPLACE SHARE MAXDEPTH(1000000) DEFPSIST(YES)")

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the source `mq` for this queue manager."""
        return {"dataDirectory": str(self.directory)}

    def mqsc(self, command: str) -> list[dict[str, Any]]:
        (response,) = self.connection.command(command)
        assert response.ok or "already exists" in response.message, response.message
        return response.objects

    def queue(self, attributes: str = "") -> str:
        """A new queue."""
        name = f"PIPELINE.{next(_numbers)}"
        self.mqsc(f"DEFINE QLOCAL('{name}') MAXDEPTH(1000000) {attributes}")
        return name

    def put(self, queue: str, *bodies: bytes, **md: Any) -> None:
        """Put messages in one unit of work. Keywords are fields of their MQMD."""
        handle = self.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
        for body in bodies:
            self.connection.put(handle, Message(MQMD(**md), body), cmqc.MQPMO_SYNCPOINT)
        self.connection.commit()
        self.connection.close(handle)

    def publish(self, topic: str, body: bytes, **md: Any) -> None:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        self.connection.put1(od, Message(MQMD(**md), body))

    def subscribe(self, topic: str, options: int = 0) -> tuple[int, int]:
        """Return the handles of a subscription and of the queue with its messages."""
        options |= cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_MANAGED
        return self.connection.subscribe(MQSD(Options=options, ObjectString=topic))

    def open(self, queue: str, options: int) -> int:
        """Call MQOPEN as soon as the process with the lease of the queue has ended. Spark does not wait for its workers."""
        before = time.monotonic() + PATIENCE
        while True:
            try:
                return self.connection.open(MQOD(ObjectName=queue), options)
            except MQError as error:
                if error.reason != cmqc.MQRC_OBJECT_IN_USE or time.monotonic() > before:
                    raise
            time.sleep(0.01)

    def take(self, queue: str) -> list[Got]:
        """Get all messages of a queue, with properties as MQRFH2."""
        return self.take_from(self.open(queue, cmqc.MQOO_INPUT_SHARED))

    def take_from(self, handle: int) -> list[Got]:
        """Get all messages of an open queue, and close it."""
        messages: list[Got] = []
        try:
            while True:
                messages += get_many(self.connection, handle, GetOptions(Options=cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
        finally:
            self.connection.close(handle)
        return messages

    def bodies(self, queue: str) -> list[bytes]:
        """Get all messages of a queue. Return their data."""
        return [message.data for message in self.take(queue)]

    def depth(self, queue: str) -> int:
        (attributes,) = self.mqsc(f"DISPLAY QLOCAL('{queue}') CURDEPTH")
        return int(attributes["CURDEPTH"])


@pytest.fixture(scope="session")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    """The queue manager of the tests. Tests create their own queues: `queues.queue()`."""
    directory = tmp_path_factory.mktemp("queue-manager")
    with served(directory, stand_in=True):
        yield Queues(directory)


@pytest.fixture
def read(spark: SparkSession, queues: Queues, tmp_path: Path) -> Any:
    """`read(queue="Q")`: a batch read of the source `mq`; `read(..., stream=True)` a streaming one."""

    def frame(*, stream: bool = False, **options: Any) -> DataFrame:
        if stream:
            options.setdefault("spool", str(tmp_path / "spool"))
        reader = (spark.readStream if stream else spark.read).format("mq").options(**queues.options)
        return reader.options(**options).load()

    return frame


def column(frame: DataFrame, name: str) -> Sequence[Any]:
    """The values of one column."""
    return [row[0] for row in frame.select(name).collect()]
