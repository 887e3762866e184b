"""MQSTAT: the outcomes of puts that did not wait for their response (IBM MQ, "Putting messages asynchronously")."""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.verbs.handles import Handles
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQPMO, MQSTS
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class Outcomes(Handles):
    """What became of asynchronous puts since the last MQSTAT."""

    def _unanswered(self, put: Callable[[], MQMD], md: MQMD, target: str | Destination, pmo: MQPMO) -> MQMD:
        """Do a put whose failure the application learns by MQSTAT."""
        statistics = self._statistics
        try:
            md = put()
        except MQError as error:
            statistics.PutFailureCount += 1
            if statistics.CompCode != cmqc.MQCC_FAILED:
                self._first(statistics, cmqc.MQCC_FAILED, error.reason, target)
            return md
        if pmo.Reason:
            statistics.PutWarningCount += 1
            if statistics.CompCode == cmqc.MQCC_OK:
                self._first(statistics, cmqc.MQCC_WARNING, pmo.Reason, target)
        else:
            statistics.PutSuccessCount += 1
        return md

    def _first(self, statistics: MQSTS, comp_code: int, reason: int, target: str | Destination) -> None:
        statistics.CompCode, statistics.Reason = comp_code, reason
        if isinstance(target, str):
            statistics.ObjectType, statistics.ObjectString = cmqc.MQOT_TOPIC, target
            return
        assert target.queue is not None
        statistics.ObjectType, statistics.ObjectName = cmqc.MQOT_Q, target.name
        statistics.ObjectQMgrName = target.client_id or self.queue_manager.name
        statistics.ResolvedObjectName = target.remote_queue or target.queue.name
        statistics.ResolvedQMgrName = target.client_id or self.queue_manager.name

    def put_failed(self, reason: int) -> None:
        """Note that an asynchronous put failed before it came to its target, or with the unit of work that it was."""
        statistics = self._statistics
        statistics.PutFailureCount += 1
        if statistics.CompCode != cmqc.MQCC_FAILED:
            statistics.CompCode, statistics.Reason = cmqc.MQCC_FAILED, reason

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        """Do MQSTAT: return the outcome of the asynchronous puts since the last MQSTAT."""
        if type in (cmqc.MQSTAT_TYPE_RECONNECTION, cmqc.MQSTAT_TYPE_RECONNECTION_ERROR):
            return MQSTS()
        if type != cmqc.MQSTAT_TYPE_ASYNC_ERROR:
            raise MQError(cmqc.MQRC_STAT_TYPE_ERROR, f"MQSTAT type {type}")
        statistics, self._statistics = self._statistics, MQSTS()
        return statistics
