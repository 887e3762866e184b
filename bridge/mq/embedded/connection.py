"""MQ connections of threads in the queue manager's own process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.administration import clear_retained, subscriptions
from bridge.mq.embedded.verbs.get import WaitingGet, mqget
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.inquire import mqinq
from bridge.mq.embedded.verbs.open import mqback, mqclose, mqcmit, mqconn, mqdisc, mqopen
from bridge.mq.embedded.verbs.put import mqput, mqput1
from bridge.mq.embedded.verbs.sub import mqsub
from bridge.mq.mqi import (
    MQOD,
    MQSD,
    CommandResponse,
    GetOptions,
    Got,
    MQError,
    Property,
    SubscriptionEntry,
)
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

P = ParamSpec("P")
T = TypeVar("T")
GO = TypeVar("GO", bound=GetOptions)
G = TypeVar("G", bound=Got)


class EmbeddedConnection:
    """`bridge.mq.mqi.Connection` to an embedded queue manager in this process. Methods block like MQI calls.

    Without a user, it is a connection of the bridge itself, which has all authorities.
    """

    HCONN: ClassVar[type[Hconn]] = Hconn

    def __init__(self, queue_manager: QueueManager, application: str = "mqbridge", user: str = "") -> None:
        self._queue_manager = queue_manager
        self._lock = queue_manager.lock
        #: set when a message has arrived for a waiting get
        self._arrived = threading.Event()
        #: the callbacks that `announce` has added to queues
        self._announced: list[tuple[Queue, Callable[[], None]]] = []
        self._connected: Hconn | None = mqconn(self.HCONN, queue_manager, application, user, user or None)

    @property
    def _hconn(self) -> Hconn:
        if self._connected is None:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "the connection has ended")
        return self._connected

    def _call(self, verb: Callable[Concatenate[Hconn, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        with self._lock:
            return verb(self._hconn, *arguments, **options)

    def _end(self, unit: Unit | None) -> None:
        """Wait until a unit of work has ended. Raises MQError if it was backed out."""
        if unit is not None and (reason := self._queue_manager.recovery_log.commit(unit)):
            raise MQError(reason, "the unit of work was backed out")

    def open(self, od: MQOD, options: int) -> int:
        return self._call(mqopen, od, options)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        self._end(self._call(mqclose, handle, options))

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        md, unit = self._call(mqput, handle, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        md, unit = self._call(mqput1, od, Message(message.md, message.data), options, properties)
        self._end(unit)
        return md

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        return self._call(mqinq, handle, selectors)

    def get(self, handle: int, options: GetOptions) -> Got:
        return self._get(handle, options, mqget)

    def _get(self, handle: int, options: GO, verb: Callable[[Hconn, int, GO], tuple[G, Unit | None]]) -> G:
        hconn = self._hconn
        arrived = self._arrived
        waiting = WaitingGet(hconn, handle, options, lambda: verb(hconn, handle, options), arrived.set)
        with self._lock:
            outcome = waiting.attempt()
        deadline = math.inf if options.WaitInterval < 0 else time.monotonic() + options.WaitInterval / 1000
        while outcome is None:
            remaining = deadline - time.monotonic()
            last = not arrived.wait(None if remaining == math.inf else max(0.0, remaining))
            arrived.clear()
            with self._lock:
                outcome = waiting.attempt(last=last)
        result, unit = outcome
        self._end(unit)
        return result

    def announce(self, handle: int, arrived: Callable[[], None]) -> None:
        """Implement `bridge.mq.mqi.AnnouncingConnection`."""
        with self._lock:
            self._withdraw(arrived)
            queue = self._hconn.find_queue(handle).queue
            queue.waiters.append(arrived)
            self._announced.append((queue, arrived))

    def _withdraw(self, arrived: Callable[[], None] | None = None) -> None:
        """Undo calls of `announce` with a callback, or all of them."""
        for queue, waiter in self._announced[:]:
            if arrived in (None, waiter):
                self._announced.remove((queue, waiter))
                if waiter in queue.waiters:
                    queue.waiters.remove(waiter)

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        handles, unit = self._call(mqsub, sd)
        self._end(unit)
        return handles

    def commit(self) -> None:
        self._end(self._call(mqcmit))

    def backout(self) -> None:
        self._call(mqback)

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

    def clear_retained(self, topic: str) -> None:
        self._end(self._call(clear_retained, topic))

    def subscriptions(self, name: str = "*") -> list[SubscriptionEntry]:
        return self._call(subscriptions, name)

    def disconnect(self) -> None:
        with self._lock:
            self._withdraw()
            units = mqdisc(self._hconn, commit=True)
            self._connected = None
        for unit in units:
            self._end(unit)
