"""A connection to the embedded queue manager that breaks before or after a chosen verb."""

from __future__ import annotations

import threading
from typing import Any

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.verbs.open import mqdisc
from bridge.mq.mqi import MQError
from bridge.wire import cmqc
from tests.helpers.patience import PATIENCE
from tests.ibm_standin.mqi.connection import StandInConnection

VERBS = ("open", "close", "put", "put1", "get", "subscribe", "commit", "backout")


class Fault:
    """Break one connection of one purpose, at the n-th verb called for that purpose."""

    def __init__(self, purpose: str, number: int, *, after: bool) -> None:
        self.purpose, self.number, self.after = purpose, number, after
        self.calls = 0
        self.struck = ""
        self._lock = threading.Lock()

    def strikes(self, purpose: str, verb: str) -> bool:
        with self._lock:
            if purpose != self.purpose:
                return False
            self.calls += 1
            if self.calls == self.number:
                self.struck = verb
                return True
            return False


class BreakableConnection:
    """A connection that fails with MQRC_CONNECTION_BROKEN at its fault, and is broken from then on."""

    def __init__(self, queue_manager: QueueManager, purpose: str, fault: Fault) -> None:
        self._queue_manager = queue_manager
        #: actions before a verb is called, by name
        self.gates: dict[str, threading.Event] = {}
        # With enforced authorities, it needs those of any application (see `enforced`).
        user = "bridge" if queue_manager.authorization is not None else ""
        self._inner = StandInConnection(queue_manager, "mqbridge", user)
        self._purpose, self._fault = purpose, fault
        self._dead = False

    def cut(self) -> None:
        """Break it on this side only: the queue manager still has the connection."""
        self._dead = True

    def die(self) -> None:
        """Break it on both sides."""
        self._dead = True
        with self._queue_manager.lock:
            for unit in mqdisc(self._inner._hconn, commit=False):
                self._queue_manager.recovery_log.submit(unit)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name not in VERBS:
            return verb

        def call(*arguments: Any, **options: Any) -> Any:
            if self._dead:
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)
            if name in self.gates:
                assert self.gates[name].wait(PATIENCE)
            struck = self._fault.strikes(self._purpose, name)
            if struck and not self._fault.after:
                self.die()
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)
            try:
                return verb(*arguments, **options)
            finally:
                if struck:
                    self.die()
                    raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)

        return call

    def disconnect(self) -> None:
        if self._dead:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "disconnect")
        self._inner.disconnect()
