"""MQ applications on every queue manager and client package of the contract suite."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, MQSD, CommandResponse, Connection, GetOptions, Got, MQError
from bridge.mq.remote import RemoteConnection
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.client_packages import QUEUE_MANAGER_VARIABLE, connecting, real_queue_manager
from tests.helpers.served_queue_manager import ServedQueueManager
from tests.ibm_standin.mqi.connection import StandInConnection

Connect = Callable[[], Connection]


INPUT = cmqc.MQOO_INPUT_SHARED


#: Names are unique to this run: on a real queue manager, objects of a killed run still exist.
_RUN = f"{time.time_ns() // 1_000_000:X}"


_numbers = itertools.count(1)


@contextlib.contextmanager
def local(directory: Path) -> Iterator[Connect]:
    """The embedded queue manager, used by threads of its process."""
    queue_manager = QueueManager("MQB1", directory)
    queue_manager.enforce_authorities()
    try:
        yield lambda: EmbeddedConnection(queue_manager, "contract")
    finally:
        queue_manager.close()


@contextlib.contextmanager
def stand_in(directory: Path) -> Iterator[Connect]:
    """The verbs of the stand-in for IBM MQ, used by threads of its process."""
    queue_manager = QueueManager("MQB1", directory)
    queue_manager.enforce_authorities()
    try:
        yield lambda: StandInConnection(queue_manager, "contract")
    finally:
        queue_manager.close()


def served(directory: Path, *, stand_in: bool = False) -> ServedQueueManager:
    """The embedded queue manager, for other processes, with optional functions of the stand-in."""
    return ServedQueueManager(directory, authorities=True, objects=False, commands=stand_in, stand_in=stand_in)


@contextlib.contextmanager
def remote(directory: Path) -> Iterator[Connect]:
    """The embedded queue manager, from another process over its socket."""
    with served(directory):
        yield lambda: RemoteConnection(directory, application="contract")


@contextlib.contextmanager
def client_package(name: str, directory: Path) -> Iterator[Connect]:
    """The embedded queue manager, with the real pymqi or ibmmq on the stand-in for IBM's client library."""
    with served(directory, stand_in=True) as manager, connecting(name, manager.place) as connect:
        yield connect


QUEUE_MANAGERS: dict[str, Callable[[Path], AbstractContextManager[Connect]]] = {
    "local": local,
    "remote": remote,
    "standin": stand_in,
    "pymqi": functools.partial(client_package, "pymqi"),
    "ibmmq": functools.partial(client_package, "ibmmq"),
}


if os.environ.get(QUEUE_MANAGER_VARIABLE):
    QUEUE_MANAGERS["real"] = lambda directory: real_queue_manager()


def disconnect(connection: Connection) -> None:
    """Disconnect, also if the connection is already gone."""
    with contextlib.suppress(MQError):
        connection.disconnect()


@contextlib.contextmanager
def refused(reason: int) -> Iterator[None]:
    """Expect that the call in the block fails with a reason code."""
    try:
        yield
    except MQError as error:
        assert error.reason == reason, f"{error}, expected {cmqc.reason_name(reason)}"
    else:
        raise AssertionError(f"expected {cmqc.reason_name(reason)}")


class Application:
    """An MQ application: one connection, and verbs with the usual defaults of tests."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.open = connection.open
        self.close = connection.close
        self.get = connection.get
        self.commit = connection.commit
        self.backout = connection.backout

    def open_queue(self, name: str, options: int = INPUT | cmqc.MQOO_BROWSE, manager: str = "") -> int:
        return self.connection.open(MQOD(ObjectName=name, ObjectQMgrName=manager), options)

    def open_topic(self, topic: str, options: int = cmqc.MQOO_OUTPUT, topic_object: str = "") -> int:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectName=topic_object, ObjectString=topic)
        return self.connection.open(od, options)

    def put(self, name: str, data: bytes = b"", *, options: Any = 0, manager: str = "", **md: Any) -> MQMD:
        """Call MQPUT1 for a queue. Keywords are fields of the MQMD."""
        od = MQOD(ObjectName=name, ObjectQMgrName=manager)
        return self.connection.put1(od, Message(MQMD(**md), data), options)

    def publish(self, topic: str, data: bytes = b"", *, options: Any = 0, topic_object: str = "", **md: Any) -> MQMD:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectName=topic_object, ObjectString=topic)
        return self.connection.put1(od, Message(MQMD(**md), data), options)

    def take(self, name: str, options: int = 0, **get_options: Any) -> Got:
        """MQOPEN, MQGET, MQCLOSE."""
        handle = self.open_queue(name)
        try:
            return self.get(handle, GetOptions(Options=options, **get_options))
        finally:
            self.close(handle)

    def browse(self, handle: int, options: int = cmqc.MQGMO_BROWSE_NEXT, **get_options: Any) -> bytes:
        return self.get(handle, GetOptions(Options=options, **get_options)).data

    def drain(self, handle: int, options: int = 0) -> list[bytes]:
        """Return the data of all available messages, in order."""
        bodies = []
        while True:
            try:
                bodies.append(self.get(handle, GetOptions(Options=options)).data)
            except MQError as error:
                assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE, error
                return bodies

    def all(self, name: str) -> list[bytes]:
        handle = self.open_queue(name, INPUT)
        try:
            return self.drain(handle)
        finally:
            self.close(handle)

    def open_as(self, user: str, options: int, **od: Any) -> int:
        """MQOPEN as an alternate user."""
        return self.connection.open(MQOD(AlternateUserId=user, **od), options | cmqc.MQOO_ALTERNATE_USER_AUTHORITY)

    def subscribe(self, topic: str = "", *, options: int = 0, handle: int | None = None, **sd: Any) -> tuple[int, int]:
        """Call MQSUB with MQSO_CREATE, managed without a destination. Return (subscription, destination)."""
        options |= 0 if options & (cmqc.MQSO_RESUME | cmqc.MQSO_ALTER) else cmqc.MQSO_CREATE
        options |= cmqc.MQSO_MANAGED if handle is None else 0
        return self.connection.subscribe(MQSD(Options=options, ObjectString=topic, **sd), handle)


class Workplace:
    """A queue manager to test, with objects that only this test uses and that are deleted at its end."""

    def __init__(self, connect: Connect, stack: ExitStack) -> None:
        self._connect = connect
        self._stack = stack
        self._administrator = self.connect()
        self._last: set[str] = set()
        #: name of the queue manager
        self.manager = str(self.attribute("QMGR", "QMNAME"))

    def connect(self) -> Connection:
        connection = self._connect()
        self._stack.callback(disconnect, connection)
        return connection

    def application(self) -> Application:
        return Application(self.connect())

    def command(self, text: str) -> CommandResponse:
        (response,) = self._administrator.command(text)
        assert response.ok, response.message
        return response

    def refuses(self, text: str) -> bool:
        """Return whether a command fails."""
        (response,) = self._administrator.command(text)
        return not response.ok

    def attribute(self, selection: str, keyword: str) -> str | int:
        """Return one attribute of an object: `mq.attribute("QMGR", "DEADQ")`."""
        (attributes,) = self.command(f"DISPLAY {selection} {keyword}").objects
        return attributes[keyword]

    def name(self, prefix: str = "T") -> str:
        """Return an unused name."""
        return f"{prefix}.{_RUN}.{next(_numbers)}"

    def queue(self, attributes: str = "", name: str = "") -> str:
        return self._define("QLOCAL", name or self.name("Q"), attributes, " PURGE")

    def alias(self, attributes: str) -> str:
        return self._define("QALIAS", self.name("A"), attributes)

    def remote_queue(self, attributes: str, name: str = "") -> str:
        return self._define("QREMOTE", name or self.name("R"), attributes)

    def server_channel(self, attributes: str = "") -> str:
        """Return a server-connection channel. Its name has at most 20 characters."""
        name = f"C{_RUN}{next(_numbers)}"
        self.command(f"DEFINE CHANNEL('{name}') CHLTYPE(SVRCONN) TRPTYPE(TCP) {attributes}")
        if user := os.environ.get("MQBRIDGE_TEST_USER"):
            # The default rules of a queue manager reject administrators.
            profile = f"SET CHLAUTH('{name}')"
            self.command(f"{profile} TYPE(BLOCKUSER) USERLIST('nobody')")
            self.command(f"{profile} TYPE(USERMAP) CLNTUSER('{user}') USERSRC(MAP) MCAUSER('{user}')")
            self.at_end(f"{profile} TYPE(USERMAP) CLNTUSER('{user}') ACTION(REMOVE)")
            self.at_end(f"{profile} TYPE(BLOCKUSER) ACTION(REMOVEALL)")
        self.at_end(f"DELETE CHANNEL('{name}') CHLTYPE(SVRCONN)")
        return name

    def topic_object(self, topic: str, attributes: str = "") -> str:
        return self._define("TOPIC", self.name("T"), f"TOPICSTR('{topic}') {attributes}")

    def _define(self, kind: str, name: str, attributes: str, deletion: str = "") -> str:
        self.command(f"DEFINE {kind}('{name}') {attributes}")
        self._stack.callback(lambda: self._administrator.command(f"DELETE {kind}('{name}'){deletion}"))
        return name

    def model_queue(self, attributes: str) -> str:
        return self._define("QMODEL", self.name("M"), attributes)

    def at_end(self, command: str) -> None:
        """Run a command at the end of the test, once."""
        if command not in self._last:
            self._last.add(command)
            self._stack.callback(self._administrator.command, command)

    def alter(self, **attributes: str) -> None:
        """Run ALTER QMGR, and undo it at the end of the test."""
        for keyword, value in attributes.items():
            before = self.attribute("QMGR", keyword)
            self._stack.callback(self._administrator.command, f"ALTER QMGR {keyword}('{before}') FORCE")
            self.command(f"ALTER QMGR {keyword}('{value}') FORCE")
