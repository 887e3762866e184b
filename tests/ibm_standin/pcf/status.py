"""Status of connections and open handles: Inquire Connection, Inquire Queue Status."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from bridge.mq.embedded.handles import DefinitionHandle, Handle, QueueHandle, SubscriptionHandle, TopicHandle
from bridge.mq.embedded.mqsc.display import is_named, objects
from bridge.mq.embedded.queue import INPUT
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.wire.mq.pcf import MQCFBS, MQCFIL, MQCFIN, MQCFST, PCFParameter
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.pcf.commands import PCFRefused, Reply, Request
from tests.ibm_standin.pcf.request import Attributes, byte_string, ignore, inquire

_QUEUE_STATUS = (
    cmqc.MQCA_Q_NAME,
    cmqcfc.MQIACF_Q_STATUS_TYPE,
    cmqc.MQIA_CURRENT_Q_DEPTH,
    cmqc.MQIA_OPEN_INPUT_COUNT,
    cmqc.MQIA_OPEN_OUTPUT_COUNT,
    cmqcfc.MQIACF_UNCOMMITTED_MSGS,
    cmqcfc.MQIACF_OLDEST_MSG_AGE,
)
_CONNECTION = (
    cmqcfc.MQBACF_CONNECTION_ID,
    cmqcfc.MQIACF_CONN_INFO_TYPE,
    cmqcfc.MQCACF_APPL_TAG,
    cmqc.MQIA_APPL_TYPE,
    cmqcfc.MQIACF_PROCESS_ID,
    cmqcfc.MQCACF_USER_IDENTIFIER,
    cmqcfc.MQIACF_UOW_STATE,
    cmqcfc.MQCACF_OBJECT_NAME,
    cmqcfc.MQIACF_OBJECT_TYPE,
    cmqcfc.MQIACF_OPEN_OPTIONS,
)
_HANDLE = (*_CONNECTION, cmqc.MQCA_Q_NAME, cmqcfc.MQIACF_Q_STATUS_TYPE)


class StatusCommands:
    """The status commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_INQUIRE_CONNECTION: self._connections,
            cmqcfc.MQCMD_INQUIRE_Q_STATUS: self._queue_status,
            cmqcfc.MQCMD_RESET_Q_STATS: self._reset,
        }

    def _applications(self) -> list[Hconn]:
        return sorted(self._queue_manager.applications, key=lambda application: application.connection_id)

    # Queues ----------------------------------------------------------------------------------------------------------

    def _queue_status(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = request.choice(cmqcfc.MQIACF_Q_STATUS_TYPE, (cmqcfc.MQIACF_Q_STATUS, cmqcfc.MQIACF_Q_HANDLE))
        # Monitoring programs specify it, although only local queues have a status.
        request.choice(cmqc.MQIA_Q_TYPE, (cmqc.MQQT_ALL, cmqc.MQQT_LOCAL))
        types = (cmqcfc.MQQSOT_ALL, cmqcfc.MQQSOT_INPUT, cmqcfc.MQQSOT_OUTPUT)
        open_type = request.choice(cmqcfc.MQIACF_OPEN_TYPE, types)
        if not any(is_named(own, name) for own in self._queue_manager.objects.queues):
            aliases, remotes = self._queue_manager.objects.aliases, self._queue_manager.objects.remotes
            known = any(is_named(own, name) for own in (*aliases, *remotes))
            raise PCFRefused(cmqcfc.MQRCCF_Q_WRONG_TYPE if known else cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        handles = kind == cmqcfc.MQIACF_Q_HANDLE
        rows = list(self._handles_of(name, open_type) if handles else self._status_of(name, open_type))
        if not rows:
            raise PCFRefused(cmqcfc.MQRCCF_Q_STATUS_NOT_FOUND, cmqc.MQCA_Q_NAME)
        return inquire(
            request,
            rows,
            cmqcfc.MQIACF_Q_STATUS_ATTRS,
            (cmqc.MQCA_Q_NAME, cmqcfc.MQIACF_Q_STATUS_TYPE),
            known=(_HANDLE if handles else _QUEUE_STATUS).__contains__,
        )

    def _status_of(self, name: str, open_type: int) -> Iterator[Attributes]:
        for row in self._display("QSTATUS", name):
            inputs, outputs = int(row["IPPROCS"]), int(row["OPPROCS"])
            counted = {cmqcfc.MQQSOT_INPUT: inputs, cmqcfc.MQQSOT_OUTPUT: outputs}
            if open_type != cmqcfc.MQQSOT_ALL and not counted[open_type]:
                continue
            queue = self._queue_manager.objects.queues[str(row["QUEUE"])]
            depth = int(row["CURDEPTH"])
            available = sum(1 for _ in queue.messages())
            age = int(row["MSGAGE"]) if available else cmqc.MQMON_NOT_AVAILABLE
            yield _numbered(
                MQCFST(cmqc.MQCA_Q_NAME, str(row["QUEUE"]).encode().ljust(48)),
                MQCFIN(cmqcfc.MQIACF_Q_STATUS_TYPE, cmqcfc.MQIACF_Q_STATUS),
                MQCFIN(cmqc.MQIA_CURRENT_Q_DEPTH, depth),
                MQCFIN(cmqc.MQIA_OPEN_INPUT_COUNT, inputs),
                MQCFIN(cmqc.MQIA_OPEN_OUTPUT_COUNT, outputs),
                MQCFIN(cmqcfc.MQIACF_UNCOMMITTED_MSGS, depth - available),
                MQCFIN(cmqcfc.MQIACF_OLDEST_MSG_AGE, age),
                # Times of gets and puts require monitoring, which is not supported here.
                MQCFST(cmqcfc.MQCACF_LAST_GET_DATE, b" " * 12),
                MQCFST(cmqcfc.MQCACF_LAST_GET_TIME, b" " * 8),
                MQCFST(cmqcfc.MQCACF_LAST_PUT_DATE, b" " * 12),
                MQCFST(cmqcfc.MQCACF_LAST_PUT_TIME, b" " * 8),
                MQCFIL(cmqcfc.MQIACF_Q_TIME_INDICATOR, (cmqc.MQMON_NOT_AVAILABLE, cmqc.MQMON_NOT_AVAILABLE)),
                MQCFIN(cmqc.MQIA_MONITORING_Q, cmqc.MQMON_OFF),
            )

    def _reset(self, request: Request) -> Reply:
        """Run Reset Queue Statistics. Reply with the counts since the last reset, with one message for each local queue."""
        name = request.name(cmqc.MQCA_Q_NAME)
        request.finish()
        queues = [queue for own, queue in sorted(self._queue_manager.objects.queues.items()) if is_named(own, name)]
        if not queues:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        statistics = [
            (
                MQCFST(cmqc.MQCA_Q_NAME, queue.name.encode().ljust(48)),
                MQCFIN(cmqc.MQIA_HIGH_Q_DEPTH, queue.high_depth),
                MQCFIN(cmqc.MQIA_MSG_DEQ_COUNT, queue.dequeued),
                MQCFIN(cmqc.MQIA_MSG_ENQ_COUNT, queue.enqueued),
                MQCFIN(cmqc.MQIA_TIME_SINCE_RESET, int(time.monotonic() - queue.reset_at)),
            )
            for queue in queues
        ]
        for queue in queues:
            queue.reset_statistics()
        return Reply(list(statistics))

    def _handles_of(self, name: str, open_type: int) -> Iterator[Attributes]:
        for application in self._applications():
            for handle in application.handles.values():
                if not isinstance(handle, QueueHandle) or not is_named(handle.queue.name, name):
                    continue
                options = handle.options
                writes, reads = options & cmqc.MQOO_OUTPUT, options & (INPUT | cmqc.MQOO_BROWSE)
                wanted = {cmqcfc.MQQSOT_INPUT: reads, cmqcfc.MQQSOT_OUTPUT: writes}.get(open_type, 1)
                if wanted:
                    own = (
                        MQCFST(cmqc.MQCA_Q_NAME, handle.queue.name.encode().ljust(48)),
                        MQCFIN(cmqcfc.MQIACF_Q_STATUS_TYPE, cmqcfc.MQIACF_Q_HANDLE),
                        MQCFIN(cmqcfc.MQIACF_OPEN_INPUT_TYPE, _input_type(handle)),
                        MQCFIN(cmqcfc.MQIACF_OPEN_OPTIONS, options),
                    )
                    opened = (
                        MQCFIN(number, cmqcfc.MQQSO_YES if options & bit else cmqcfc.MQQSO_NO)
                        for number, bit in _OPENED.items()
                    )
                    yield _numbered(*own, *opened, *_owner(application))

    # Connections -----------------------------------------------------------------------------------------------------

    def _connections(self, request: Request) -> Reply:
        identifier = byte_string(request, cmqcfc.MQBACF_CONNECTION_ID)
        generic = byte_string(request, cmqcfc.MQBACF_GENERIC_CONNECTION_ID)
        if identifier is None and generic is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQBACF_CONNECTION_ID)
        kinds = (cmqcfc.MQIACF_CONN_INFO_CONN, cmqcfc.MQIACF_CONN_INFO_HANDLE, cmqcfc.MQIACF_CONN_INFO_ALL)
        kind = request.choice(cmqcfc.MQIACF_CONN_INFO_TYPE, kinds)
        ignore(request, cmqc.MQIA_UR_DISP)
        beginning = (generic or b"").rstrip(b"\0")
        applications = []
        for application in self._applications():
            own = application.connection_id
            if own == identifier if identifier is not None else own.startswith(beginning):
                applications.append(application)
        if not applications and identifier is not None:
            raise PCFRefused(cmqcfc.MQRCCF_CONNECTION_ID_ERROR, cmqcfc.MQBACF_CONNECTION_ID)
        described = list(self._describe(applications, kind))
        return inquire(
            request,
            described,
            cmqcfc.MQIACF_CONNECTION_ATTRS,
            (cmqcfc.MQBACF_CONNECTION_ID, cmqcfc.MQIACF_CONN_INFO_TYPE),
            known=_CONNECTION.__contains__,
            missing=cmqcfc.MQRCCF_NONE_FOUND,
        )

    @staticmethod
    def _describe(applications: Iterable[Hconn], kind: int) -> Iterator[Attributes]:
        """Yield the attributes of connections, or of their handles, or both."""
        for application in applications:
            if kind != cmqcfc.MQIACF_CONN_INFO_HANDLE:
                state = cmqcfc.MQUOWST_ACTIVE if application.in_unit_of_work else cmqcfc.MQUOWST_NONE
                yield _numbered(
                    MQCFIN(cmqcfc.MQIACF_CONN_INFO_TYPE, cmqcfc.MQIACF_CONN_INFO_CONN),
                    *_owner(application),
                    MQCFIN(cmqcfc.MQIACF_UOW_STATE, state),
                )
            if kind != cmqcfc.MQIACF_CONN_INFO_CONN:
                for handle in application.handles.values():
                    name, type_, options = _opened(handle)
                    yield _numbered(
                        MQCFBS(cmqcfc.MQBACF_CONNECTION_ID, application.connection_id),
                        MQCFIN(cmqcfc.MQIACF_CONN_INFO_TYPE, cmqcfc.MQIACF_CONN_INFO_HANDLE),
                        MQCFST(cmqcfc.MQCACF_OBJECT_NAME, name.encode()[:48].ljust(48)),
                        MQCFIN(cmqcfc.MQIACF_OBJECT_TYPE, type_),
                        MQCFIN(cmqcfc.MQIACF_OPEN_OPTIONS, options),
                        MQCFIN(cmqcfc.MQIACF_HANDLE_STATE, cmqcfc.MQHSTATE_INACTIVE),
                    )


_OPENED = {
    cmqcfc.MQIACF_OPEN_BROWSE: cmqc.MQOO_BROWSE,
    cmqcfc.MQIACF_OPEN_INQUIRE: cmqc.MQOO_INQUIRE,
    cmqcfc.MQIACF_OPEN_OUTPUT: cmqc.MQOO_OUTPUT,
    cmqcfc.MQIACF_OPEN_SET: cmqc.MQOO_SET,
}


def _input_type(handle: QueueHandle) -> int:
    if not handle.options & INPUT:
        return cmqcfc.MQQSO_NO
    return cmqcfc.MQQSO_EXCLUSIVE if handle.exclusive else cmqcfc.MQQSO_SHARED


def _opened(handle: Handle) -> tuple[str, int, int]:
    """Return name, type and options of the object of a handle."""
    if isinstance(handle, QueueHandle):
        return handle.queue.name, cmqc.MQOT_Q, handle.options
    if isinstance(handle, TopicHandle):
        return handle.topic, cmqc.MQOT_TOPIC, handle.options
    if isinstance(handle, SubscriptionHandle):
        return handle.subscription.name, cmqc.MQOT_TOPIC, 0
    assert isinstance(handle, DefinitionHandle)
    types = {"QMGR": cmqc.MQOT_Q_MGR, "NAMELIST": cmqc.MQOT_NAMELIST}
    return handle.name, types.get(handle.kind, cmqc.MQOT_Q), handle.options


def _owner(application: Hconn) -> tuple[PCFParameter, ...]:
    """Return the parameters of a connection's owner. Applications in other processes connect via this process."""
    return (
        MQCFBS(cmqcfc.MQBACF_CONNECTION_ID, application.connection_id),
        MQCFST(cmqcfc.MQCACF_APPL_TAG, application.name.encode()[:28].ljust(28)),
        MQCFIN(cmqc.MQIA_APPL_TYPE, cmqc.MQAT_USER),
        MQCFIN(cmqcfc.MQIACF_PROCESS_ID, os.getpid()),
        MQCFIN(cmqcfc.MQIACF_THREAD_ID, 0),
        MQCFST(cmqcfc.MQCACF_USER_IDENTIFIER, application.user.ljust(12)),
        MQCFST(cmqcfc.MQCACH_CHANNEL_NAME, b" " * 20),
        MQCFST(cmqcfc.MQCACH_CONNECTION_NAME, application.address.encode().ljust(264)),
    )


def _numbered(*parameters: PCFParameter) -> Attributes:
    return {parameter.Parameter: parameter for parameter in parameters}
