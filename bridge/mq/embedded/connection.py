"""MQ connections of threads in the queue manager's own process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.get import WaitingGet, mqget
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.inquire import mqinq, mqset, mqstat
from bridge.mq.embedded.verbs.open import mqback, mqclose, mqcmit, mqconn, mqdisc, mqopen
from bridge.mq.embedded.verbs.put import mqput, mqput1
from bridge.mq.embedded.verbs.sub import mqsub, mqsubrq
from bridge.mq.mqi import MQOD, MQPMO, MQSD, MQSTS, CommandResponse, GetOptions, Got, MQError, Property
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class EmbeddedConnection:
    """`bridge.mq.mqi.Connection` to an embedded queue manager in this process. Methods block like MQI calls.

    Without a user, it is a connection of the bridge itself, which has all authorities.
    """

    def __init__(self, queue_manager: QueueManager, application: str = "mqbridge", user: str = "") -> None:
        self._queue_manager = queue_manager
        self._lock = queue_manager.lock
        #: set when a message has arrived for a waiting get
        self._arrived = threading.Event()
        self._connected: Hconn | None = mqconn(queue_manager, application, user, user or None)

    @property
    def _hconn(self) -> Hconn:
        if self._connected is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "the connection has ended")
        return self._connected

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
            return mqopen(self._hconn, od, options)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        with self._lock:
            unit = mqclose(self._hconn, handle, options)
        self._end(unit)

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        with self._lock:
            md, unit = mqput(self._hconn, handle, Message(message.md, message.data), options, properties)
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
            md, unit = mqput1(self._hconn, od, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        with self._lock:
            return mqinq(self._hconn, handle, selectors)

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        with self._lock:
            unit = mqset(self._hconn, handle, selectors, ints, chars)
        self._end(unit)

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        with self._lock:
            count, unit = mqsubrq(self._hconn, handle, action, options)
        self._end(unit)
        return count

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        with self._lock:
            return mqstat(self._hconn, type)

    def get(self, handle: int, options: GetOptions) -> Got:
        hconn = self._hconn
        arrived = self._arrived
        waiting = WaitingGet(hconn, handle, options, lambda: mqget(hconn, handle, options), arrived.set)
        with self._lock:
            got: tuple[Got, Unit | None] | None = waiting.attempt()
        deadline = math.inf if options.WaitInterval < 0 else time.monotonic() + options.WaitInterval / 1000
        while got is None:
            left = deadline - time.monotonic()
            last = not arrived.wait(None if left == math.inf else max(0.0, left))
            arrived.clear()
            with self._lock:
                got = waiting.attempt(last=last)
        result, unit = got
        self._end(unit)
        return result

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        with self._lock:
            handles, unit = mqsub(self._hconn, sd, handle)
        self._end(unit)
        return handles

    def commit(self) -> None:
        with self._lock:
            unit = mqcmit(self._hconn)
        self._end(unit)

    def backout(self) -> None:
        with self._lock:
            mqback(self._hconn)

    def command(self, text: str) -> list[CommandResponse]:
        responses = []
        commands = Commands(self._queue_manager)
        for command in commands.read(text):
            with self._lock:
                self._hconn.check_administrator(command.text)
                response, unit = commands.run(command)
            self._end(unit)
            responses.append(response)
        return responses

    def disconnect(self) -> None:
        with self._lock:
            units = mqdisc(self._hconn, commit=True)
            self._connected = None
        for unit in units:
            self._end(unit)
