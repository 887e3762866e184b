"""What became of puts that did not wait for their response (IBM MQ, "Putting messages asynchronously")."""

from __future__ import annotations

from bridge.mq.embedded.objects import Destination
from bridge.mq.mqi import MQSTS
from bridge.wire import cmqc


class Outcomes:
    """The outcomes of the asynchronous puts of one connection since the last MQSTAT."""

    __slots__ = ("_queue_manager_name", "_status")

    def __init__(self, queue_manager_name: str) -> None:
        self._queue_manager_name = queue_manager_name
        self._status = MQSTS()

    def put(self, target: str | Destination, warning: int) -> None:
        """Note that a put succeeded, with MQRC_NONE or the reason of a warning."""
        status = self._status
        if not warning:
            status.PutSuccessCount += 1
            return
        status.PutWarningCount += 1
        if status.CompCode == cmqc.MQCC_OK:
            status.CompCode, status.Reason = cmqc.MQCC_WARNING, warning
            self._name(target)

    def failed(self, reason: int, target: str | Destination | None = None) -> None:
        """Note that a put failed.

        Without a target, it did so before it came to one, or with the unit of work that it was.
        """
        status = self._status
        status.PutFailureCount += 1
        if status.CompCode != cmqc.MQCC_FAILED:
            status.CompCode, status.Reason = cmqc.MQCC_FAILED, reason
            if target is not None:
                self._name(target)

    def _name(self, target: str | Destination) -> None:
        status = self._status
        if isinstance(target, str):
            status.ObjectType, status.ObjectString = cmqc.MQOT_TOPIC, target
            return
        assert target.queue is not None
        status.ObjectType, status.ObjectName = cmqc.MQOT_Q, target.name
        status.ObjectQMgrName = target.client_id or self._queue_manager_name
        status.ResolvedObjectName = target.remote_queue or target.queue.name
        status.ResolvedQMgrName = target.client_id or self._queue_manager_name

    def taken(self) -> MQSTS:
        """Return the outcomes, and begin anew."""
        status, self._status = self._status, MQSTS()
        return status
