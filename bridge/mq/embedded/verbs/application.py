"""An application of the embedded queue manager: MQI calls on its connection handle, none of which waits.

A call whose result must not be returned before a commit also returns a unit of work. The caller submits the unit to the
recovery log and returns the result when the unit has ended. `connection` does so for threads, `server` for other processes.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.get import mqget
from bridge.mq.embedded.verbs.inquire import mqinq, mqset, mqstat
from bridge.mq.embedded.verbs.open import mqback, mqclose, mqcmit, mqconn, mqdisc, mqopen
from bridge.mq.embedded.verbs.put import mqput, mqput1
from bridge.mq.embedded.verbs.sub import mqsub, mqsubrq
from bridge.mq.mqi import MQOD, MQPMO, MQSD, MQSTS, GetOptions, Got, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class Application:
    """One connection to the embedded queue manager. Call its methods with the queue manager's lock held."""

    __slots__ = ("hconn",)

    def __init__(self, queue_manager: QueueManager, name: str, user: str = "", asked: str | None = None) -> None:
        self.hconn = mqconn(queue_manager, name, user, asked)

    def disconnect(self, *, commit: bool) -> list[Unit]:
        return mqdisc(self.hconn, commit=commit)

    # Objects ---------------------------------------------------------------------------------------------------------

    def open(self, od: MQOD, options: int) -> int:
        return mqopen(self.hconn, od, options)

    def close(self, hobj: int, options: int = cmqc.MQCO_NONE) -> Unit | None:
        return mqclose(self.hconn, hobj, options)

    def inquire(self, hobj: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        return mqinq(self.hconn, hobj, selectors)

    def set(self, hobj: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> Unit | None:
        return mqset(self.hconn, hobj, selectors, ints, chars)

    # Messages --------------------------------------------------------------------------------------------------------

    def put(
        self, hobj: int, message: Message, options: int | MQPMO, properties: Sequence[Property] = ()
    ) -> tuple[MQMD, Unit | None]:
        return mqput(self.hconn, hobj, message, options, properties)

    def put1(
        self, od: MQOD, message: Message, options: int | MQPMO, properties: Sequence[Property] = ()
    ) -> tuple[MQMD, Unit | None]:
        return mqput1(self.hconn, od, message, options, properties)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        return mqstat(self.hconn, type)

    def get(self, hobj: int, options: GetOptions) -> tuple[Got, Unit | None]:
        return mqget(self.hconn, hobj, options)

    def queue_of(self, hobj: int) -> Queue:
        """Return the queue of a handle, for a waiting get. Raises MQError."""
        return self.hconn.find_queue(hobj).queue

    # Publish/subscribe -----------------------------------------------------------------------------------------------

    def subscribe(self, sd: MQSD, hobj: int | None) -> tuple[tuple[int, int], Unit | None]:
        return mqsub(self.hconn, sd, hobj)

    def subscription_request(
        self, hobj: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> tuple[int, Unit]:
        return mqsubrq(self.hconn, hobj, action, options)

    # The unit of work ------------------------------------------------------------------------------------------------

    def commit(self) -> Unit | None:
        return mqcmit(self.hconn)

    def backout(self) -> None:
        mqback(self.hconn)

    @property
    def in_unit_of_work(self) -> bool:
        return self.hconn.in_unit_of_work

    # Commands --------------------------------------------------------------------------------------------------------

    def check_administrator(self, command: str) -> None:
        self.hconn.check_administrator(command)
