"""Connection and queue handles of the stand-in, and its records of queues: locks, marks and creators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from bridge.mq.embedded.handles import QueueHandle
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn, alternate_user
from bridge.mq.mqi import MQOD, MQSTS, MQError
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.ibm_standin import attributes as attributes  # adds PROPCTL and others
from tests.ibm_standin.mqi.logical_messages import GroupPosition


@dataclass
class QueueRecord:
    """The stand-in's record of a queue."""

    #: message number -> the handle that has locked the message (MQGMO_LOCK)
    locks: dict[int, MqiQueueHandle] = field(default_factory=dict)
    #: message number -> time.monotonic() until which the message is marked for cooperating browsers
    marks: dict[int, float] = field(default_factory=dict)
    #: the creator of a dynamic queue, who has all authorities for it, or None for the bridge and for other queues
    owner: str | None = None


_records: dict[QueueManager, dict[Queue, QueueRecord]] = {}


def record_of(queue_manager: QueueManager, queue: Queue) -> QueueRecord:
    """Return the record of a queue."""
    if queue_manager not in _records:
        _records[queue_manager] = {}
        queue_manager.on_close.append(lambda: _records.__delitem__(queue_manager))
    return _records[queue_manager].setdefault(queue, QueueRecord())


class MqiQueueHandle(QueueHandle, eq=False):
    """An open queue."""

    #: MQOPEN created the temporary dynamic queue, which is deleted with the handle
    creator: bool = False
    #: delete the dynamic queue with the handle (MQCO_DELETE)
    deletes: bool = False
    #: MQGMO_LOCK: the locked message
    locked: StoredMessage | None = None
    #: MQOO_SAVE_ALL_CONTEXT: the MQMD of the last message got
    context: MQMD | None = None
    #: MQPMO_LOGICAL_ORDER: the position after the last message put
    put_place: GroupPosition = msgspec.field(default_factory=GroupPosition)
    #: MQGMO_LOGICAL_ORDER: the position after the last message got or browsed
    got_place: GroupPosition = msgspec.field(default_factory=GroupPosition)

    def release(self, queue_manager: QueueManager) -> Unit | None:
        super().release(queue_manager)
        self.release_lock(queue_manager)
        if (self.creator or self.deletes) and not self.queue.deleted:
            return delete(queue_manager, self.queue)
        return None

    def release_lock(self, queue_manager: QueueManager) -> None:
        """Release the lock of the previous get, as every get does."""
        if self.locked is not None:
            record_of(queue_manager, self.queue).locks.pop(self.locked.msg_number, None)
            self.locked = None


def delete(queue_manager: QueueManager, queue: Queue) -> Unit:
    """Delete a dynamic queue and its messages. Other handles for it allow only MQCLOSE."""
    unit = Unit()
    queue.deleted = True
    queue_manager.objects.queues.pop(queue.name, None)
    for stored in list(queue.messages()):
        queue.take(stored)
        unit.gets.append(stored)
    if not queue.temporary:
        unit.define("QLOCAL", queue.name, None)
        queue_manager.objects.authority_records.remove_profile(unit, cmqc.MQOT_Q, queue.name)
    queue.announce()
    return unit


class Outcomes:
    """The outcomes of the asynchronous puts of one connection since the last MQSTAT."""

    __slots__ = ("_queue_manager_name", "_status")

    def __init__(self, queue_manager_name: str) -> None:
        self._queue_manager_name = queue_manager_name
        self._status = MQSTS()

    def put(self, target: str | ResolvedDestination, warning: int) -> None:
        """Record a successful put, with MQRC_NONE or the reason code of a warning."""
        status = self._status
        if not warning:
            status.PutSuccessCount += 1
            return
        status.PutWarningCount += 1
        if status.CompCode == cmqc.MQCC_OK:
            status.CompCode, status.Reason = cmqc.MQCC_WARNING, warning
            self._name(target)

    def failed(self, reason: int, target: str | ResolvedDestination | None = None) -> None:
        """Record a failed put. It has no target if it failed before resolving one, or in its commit."""
        status = self._status
        status.PutFailureCount += 1
        if status.CompCode != cmqc.MQCC_FAILED:
            status.CompCode, status.Reason = cmqc.MQCC_FAILED, reason
            if target is not None:
                self._name(target)

    def _name(self, target: str | ResolvedDestination) -> None:
        status = self._status
        if isinstance(target, str):
            status.ObjectType, status.ObjectString = cmqc.MQOT_TOPIC, target
            return
        assert target.queue is not None
        status.ObjectType, status.ObjectName = cmqc.MQOT_Q, target.name
        status.ObjectQMgrName = target.client_id or self._queue_manager_name
        status.ResolvedObjectName = target.remote_queue or target.queue.name
        status.ResolvedQMgrName = target.client_id or self._queue_manager_name

    def take_status(self) -> MQSTS:
        """Return the outcomes and reset them."""
        status, self._status = self._status, MQSTS()
        return status


class MqiHconn(Hconn):
    """One connection of the stand-in."""

    QUEUE_HANDLE: ClassVar[type[QueueHandle]] = MqiQueueHandle

    def __init__(self, queue_manager: QueueManager, name: str, user: str, principal: str | None) -> None:
        super().__init__(queue_manager, name, user, principal)
        #: STOP CHANNEL has stopped the connection's server-connection channel
        self.channel_quiescing = False
        #: outcomes of asynchronous puts
        self.outcomes = Outcomes(queue_manager.name)

    def find_mqi_queue(self, hobj: int) -> MqiQueueHandle:
        """Return the queue handle of an Hobj. Raises MQError."""
        handle = self.find_queue(hobj)
        assert isinstance(handle, MqiQueueHandle)
        return handle

    def check_quiescing(self, options: int) -> None:
        super().check_quiescing(options)
        if self.channel_quiescing and options & cmqc.MQOO_FAIL_IF_QUIESCING:
            raise MQError(cmqc.MQRC_CONNECTION_QUIESCING, "the channel is stopped")

    def acting(self, od: MQOD, options: int) -> str | None:
        """Return the user that opens an object: the alternate user, or the connection's user."""
        alternate = alternate_user(od, options)
        return self.principal if alternate is None else alternate

    def ask_queue(self, od: MQOD, options: int, name: str, destination: ResolvedDestination | None = None) -> str:
        queue_manager = self.queue_manager
        queue = queue_manager.objects.queues.get(name)
        owner = None if queue is None else record_of(queue_manager, queue).owner
        if owner is None or owner != self.acting(od, options) or queue_manager.authorization is None:
            return super().ask_queue(od, options, name, destination)
        queue_manager.authorization.opening_own(self.principal, options)
        return name
