"""The back ends, each with its kind of queue manager, for the contract tests of `bridge.mq.backend.Backend`.

A `Place` is a queue manager with the objects of the bridge. MQ applications run on separate threads, each call with a
separate connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE, STATE_QUEUE, BridgeQueues, IbmQueueManagerConfig
from bridge.mq.backend import Backend, Completion, UnitOfWork
from bridge.mq.embedded import backend as session_records
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import bridge_script, prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError
from bridge.mq.mqsc import read
from bridge.telemetry.message import Message
from bridge.telemetry.record import RECORD_MARK, ReceivedRecord, SentRecord, Side, StateKey
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.client_packages import QUEUE_MANAGER_VARIABLE, connecting, real_queue_manager
from tests.helpers.patience import PATIENCE
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.mqi.connection import StandInConnection

TRANSMISSION_QUEUE = DEFAULT_TRANSMISSION_QUEUE
DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"
_QUEUES = (TRANSMISSION_QUEUE, STATE_QUEUE, DEAD_LETTER_QUEUE)
#: Names are unique to this run: on a real queue manager, objects of a killed run still exist.
_RUN = f"{time.time_ns() // 1_000_000:X}"
_names = itertools.count(1)

Result = TypeVar("Result")


def drain(connection: Connection, queue: str) -> list[Got]:
    """Get all messages of a queue."""
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    messages = []
    while True:
        try:
            messages.append(connection.get(handle, GetOptions(MatchOptions=cmqc.MQMO_NONE)))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
            connection.close(handle)
            return messages


class Place(ABC):
    """A queue manager with the objects that the bridge needs."""

    def __init__(self) -> None:
        #: prefix of topic strings of the test
        self.root = f"contract/{_RUN}/{next(_names)}"
        #: commands for the end of the test, whose failure is not an error
        self.at_end: list[str] = []

    @abstractmethod
    def connect(self) -> Connection:
        """Return a connection of an MQ application with all authorities."""

    @abstractmethod
    def backend(self) -> Backend:
        """Return a new backend, on the running loop."""

    @abstractmethod
    async def write_records(self, *written: tuple[StateKey, bytes]) -> None:
        """Put messages with these bodies to the queue of records, as a bridge would."""

    @abstractmethod
    def as_version_1(self, key: StateKey, sequence: int, record: bytes) -> bytes:
        """Return the body of a record of version 1: that of an older bridge with this backend."""

    async def restart(self) -> None:
        """Restart the queue manager if a restart of the bridge does so."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Remove all objects."""

    def enforce_authorities(self) -> None:
        """Enforce authorities."""
        return

    async def application(self, work: Callable[[Connection], Result]) -> Result:
        """Run work of an MQ application on a separate thread, with a new connection."""

        def run() -> Result:
            connection = self.connect()
            try:
                return work(connection)
            finally:
                connection.disconnect()

        return await asyncio.to_thread(run)

    async def command(self, *commands: str) -> None:
        def run(connection: Connection) -> None:
            for text in commands:
                (response,) = connection.command(text)
                assert response.ok, f"{text}: {response.message}"

        await self.application(run)

    async def topic_object(self, topic: str, attributes: str) -> str:
        name = f"T.{_RUN}.{next(_names)}"
        await self.command(f"DEFINE TOPIC('{name}') TOPICSTR('{topic}') {attributes}")
        self.at_end.append(f"DELETE TOPIC('{name}')")
        return name

    async def queue(self, kind: str) -> str:
        name = f"{kind}.{_RUN}.{next(_names)}"
        await self.command(f"DEFINE QLOCAL('{name}')")
        self.at_end.append(f"DELETE QLOCAL('{name}') PURGE")
        return name

    async def put(self, queue: str, data: bytes, *, manager: str = "", **md: Any) -> MQMD:
        od = MQOD(ObjectName=queue, ObjectQMgrName=manager)
        return await self.application(lambda connection: connection.put1(od, Message(MQMD(**md), data)))

    async def take(self, queue: str) -> Got:
        """Return the first message of a queue, which may arrive soon."""

        def get(connection: Connection) -> Got:
            handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
            options = GetOptions(Options=cmqc.MQGMO_WAIT, WaitInterval=round(PATIENCE * 1000))
            return connection.get(handle, options)

        return await self.application(get)

    async def depth(self, queue: str) -> int:
        def look(connection: Connection) -> int:
            (response,) = connection.command(f"DISPLAY QLOCAL('{queue}') CURDEPTH")
            return int(response.objects[0]["CURDEPTH"])

        return await self.application(look)


class Embedded(Place):
    """The embedded queue manager, and its backend."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.itself = QueueManager("MQB1", directory)
        prepare(self.itself)

    def connect(self) -> Connection:
        return EmbeddedConnection(self.itself, "contract")

    def backend(self) -> Backend:
        return EmbeddedBackend(self.itself, TRANSMISSION_QUEUE, asyncio.get_running_loop())

    async def write_records(self, *written: tuple[StateKey, bytes]) -> None:
        bodies = dict(written)
        unit = UnitOfWork()
        for key in bodies:
            unit.records[key] = (ReceivedRecord if key.side is Side.RECEIVED else SentRecord)(key.client_id)
        completed: asyncio.Future[Sequence[Completion]] = asyncio.get_running_loop().create_future()
        backend = self.backend()
        backend.on_completed = completed.set_result
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_records, "encode", lambda record, *_sequence: bodies[record.key])
            backend.submit(unit)
        (completion,) = await asyncio.wait_for(completed, PATIENCE)
        assert not completion.failure

    def as_version_1(self, key: StateKey, sequence: int, record: bytes) -> bytes:
        return record

    async def restart(self) -> None:
        await asyncio.to_thread(self.itself.close)
        self.itself = QueueManager("MQB1", self._directory)

    async def close(self) -> None:
        await asyncio.to_thread(self.itself.close)

    def enforce_authorities(self) -> None:
        self.itself.enforce_authorities()


class Elsewhere(Place):
    """A queue manager with connections, and the backend of threads that own them."""

    def __init__(self, connect: Callable[[], Connection], *, asynchronous: bool = True) -> None:
        super().__init__()
        self._connect = connect
        self._asynchronous = asynchronous
        connection = connect()
        definitions = [command.text for command in read(bridge_script()) if command.verb == "DEFINE"]
        for text in (*definitions, f"ALTER QMGR DEFXMITQ('{TRANSMISSION_QUEUE}')"):
            (response,) = connection.command(text)
            assert response.ok or response.message.startswith("AMQ8150"), response.message
        for queue in _QUEUES:
            (response,) = connection.command(f"DISPLAY QLOCAL('{queue}') CURDEPTH IPPROCS")
            (attributes,) = response.objects
            assert not attributes["CURDEPTH"] and not attributes["IPPROCS"], (
                f"{queue} is in use: the tests need it for themselves"
            )
        connection.disconnect()

    def connect(self) -> Connection:
        return self._connect()

    def backend(self) -> Backend:
        settings = IbmQueueManagerConfig(
            name="MQB1",
            mode="bindings",
            outage_timeout=0,
            publishers=2,
            removers=1,
            asynchronous_puts=self._asynchronous,
        )
        loop = asyncio.get_running_loop()
        return IbmBackend(lambda _purpose: self._connect(), loop, settings, queues=BridgeQueues())

    async def write_records(self, *written: tuple[StateKey, bytes]) -> None:
        for _, body in written:
            await self.put(STATE_QUEUE, body, CorrelId=RECORD_MARK, Persistence=cmqc.MQPER_PERSISTENT)

    def as_version_1(self, key: StateKey, sequence: int, record: bytes) -> bytes:
        return msgspec.msgpack.encode([key.side, key.client_id, sequence, record])

    async def close(self) -> None:
        def clean(connection: Connection) -> None:
            for text in reversed(self.at_end):
                connection.command(text)
            for queue in _QUEUES:
                drain(connection, queue)

        await self.application(clean)


@contextlib.contextmanager
def embedded(directory: Path) -> Iterator[Place]:
    """The embedded queue manager with its own backend."""
    yield Embedded(directory)


@contextlib.contextmanager
def local(directory: Path) -> Iterator[Place]:
    """The backend of threads in the stand-in's process, with synchronous puts."""
    with ServedQueueManager(directory, objects=False) as manager:
        place = Elsewhere(lambda: StandInConnection(manager.itself, "contract"), asynchronous=False)
        # Authorities are enforced later, because this place has no command server that changes them.
        place.enforce_authorities = manager.itself.enforce_authorities
        yield place


@contextlib.contextmanager
def client_package(name: str, directory: Path) -> Iterator[Place]:
    """The backend of threads with the real pymqi or ibmmq on the stand-in for IBM's client library."""
    with (
        ServedQueueManager(directory, authorities=True, objects=False, stand_in=True) as manager,
        connecting(name, manager.place) as connect,
    ):
        yield Elsewhere(connect)


@contextlib.contextmanager
def real() -> Iterator[Place]:
    """The backend of threads on the named queue manager, where no bridge is running."""
    with real_queue_manager() as connect:
        connection = connect()
        (attributes,) = connection.command("DISPLAY QMGR DEFXMITQ")[0].objects
        try:
            yield Elsewhere(connect)
        finally:
            connection.command(f"ALTER QMGR DEFXMITQ('{attributes['DEFXMITQ']}')")
            connection.disconnect()


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "embedded": embedded,
    "local": local,
    "pymqi": functools.partial(client_package, "pymqi"),
    "ibmmq": functools.partial(client_package, "ibmmq"),
}
if os.environ.get(QUEUE_MANAGER_VARIABLE):
    PLACES["real"] = lambda _directory: real()
