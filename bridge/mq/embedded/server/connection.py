"""MQ connections of threads in the queue manager's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TypeVar

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.application import Application
from bridge.mq.mqi import MQOD, MQPMO, MQSD, MQSTS, CommandResponse, GetOptions, Got, MQError, Property
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

Result = TypeVar("Result")


class EmbeddedConnection:
    """`bridge.mq.mqi.Connection` to an embedded queue manager in this process. Methods block like MQI calls.

    Without a user, it is a connection of the bridge itself, which has all authorities.
    """

    def __init__(self, queue_manager: QueueManager, application: str = "mqbridge", user: str = "") -> None:
        self._queue_manager = queue_manager
        self._lock = queue_manager.lock
        self._application_connected: Application | None = Application(queue_manager, application, user, user or None)

    @property
    def _application(self) -> Application:
        if self._application_connected is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "the connection has ended")
        return self._application_connected

    def _end(self, unit: Unit | None) -> None:
        if unit is None:
            return
        ended = threading.Event()
        reasons: list[int] = []

        def done(reason: int) -> None:
            reasons.append(reason)
            ended.set()

        unit.done = done
        with self._lock:
            self._queue_manager.recovery_log.submit(unit)
        ended.wait()
        if reasons[0]:
            raise MQError(reasons[0], "the unit of work was backed out")

    def open(self, od: MQOD, options: int) -> int:
        with self._lock:
            return self._application.open(od, options)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        with self._lock:
            unit = self._application.close(handle, options)
        self._end(unit)

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        with self._lock:
            md, unit = self._application.put(handle, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        with self._lock:
            md, unit = self._application.put1(od, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        with self._lock:
            return self._application.inquire(handle, selectors)

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        with self._lock:
            unit = self._application.set(handle, selectors, ints, chars)
        self._end(unit)

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        with self._lock:
            count, unit = self._application.subscription_request(handle, action, options)
        self._end(unit)
        return count

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        with self._lock:
            return self._application.statistics(type)

    def get(self, handle: int, options: GetOptions) -> Got:
        deadline = None if options.WaitInterval < 0 else time.monotonic() + options.WaitInterval / 1000
        waits = bool(options.Options & cmqc.MQGMO_WAIT)
        while True:
            with self._lock:
                try:
                    got, unit = self._application.get(handle, options)
                    break
                except MQError as error:
                    if not waits or error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                        raise
                    arrived = threading.Event()
                    waiters = self._application.queue_of(handle).waiters
                    waiters.append(arrived.set)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not arrived.wait(left):
                waits = False
                with self._lock:
                    if arrived.set in waiters:
                        waiters.remove(arrived.set)
        self._end(unit)
        return got

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        with self._lock:
            handles, unit = self._application.subscribe(sd, handle)
        self._end(unit)
        return handles

    def commit(self) -> None:
        with self._lock:
            unit = self._application.commit()
        self._end(unit)

    def backout(self) -> None:
        with self._lock:
            self._application.backout()

    def command(self, text: str) -> list[CommandResponse]:
        responses = []
        commands = Commands(self._queue_manager)
        for command in commands.read(text):
            with self._lock:
                self._application.check_administrator(command.text)
                response, unit = commands.run(command)
            self._end(unit)
            responses.append(response)
        return responses

    def disconnect(self) -> None:
        with self._lock:
            units = self._application.disconnect(commit=True)
            self._application_connected = None
        for unit in units:
            self._end(unit)
