"""Queue commands: Change, Copy, Create, Delete, Clear and Inquire Queue, Inquire Queue Names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bridge.mq.embedded.attribute_selectors import QUEUE_TYPES
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.pcf.inquiry import attributes, inquire, known_of
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIL, string_list

KINDS = {number: kind for kind, number in QUEUE_TYPES.items()}
#: Queue types of which there are none here, but which can be asked for.
_NONE_OF = (cmqc.MQQT_CLUSTER,)


class QueueCommands:
    """The queue commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._queue_manager = queue_manager
        self._commands = commands
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_Q: self._create,
            cmqcfc.MQCMD_CHANGE_Q: self._change,
            cmqcfc.MQCMD_COPY_Q: self._copy,
            cmqcfc.MQCMD_DELETE_Q: self._delete,
            cmqcfc.MQCMD_CLEAR_Q: self._clear,
            cmqcfc.MQCMD_INQUIRE_Q: self._inquire,
            cmqcfc.MQCMD_INQUIRE_Q_NAMES: self._names,
        }

    def _kind(self, request: Request) -> str | None:
        """Return the kind of queue that MQIA_Q_TYPE says; None where the parameter is left out."""
        number = request.integer(cmqc.MQIA_Q_TYPE)
        if number is None:
            return None
        if number not in KINDS:
            raise PCFRefused(cmqcfc.MQRCCF_Q_TYPE_ERROR, cmqc.MQIA_Q_TYPE)
        return KINDS[number]

    def _existing_kind(self, name: str) -> str | None:
        queue_manager = self._queue_manager
        held: tuple[tuple[str, object], ...] = (
            ("QLOCAL", queue_manager.queues),
            ("QALIAS", queue_manager.aliases),
            ("QREMOTE", queue_manager.remotes),
            ("QMODEL", queue_manager.models),
        )
        return next((kind for kind, objects in held if isinstance(objects, dict) and name in objects), None)

    def _kind_of(self, request: Request, name: str) -> str:
        """Return the kind of a queue that must be there.

        Raises PCFRefused when the queue is missing, or of another kind than the request says.
        """
        said, found = self._kind(request), self._existing_kind(name)
        if found is None:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        if said is not None and said != found:
            raise PCFRefused(cmqcfc.MQRCCF_Q_WRONG_TYPE, cmqc.MQIA_Q_TYPE)
        return found

    def _create(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind(request)
        if kind is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqc.MQIA_Q_TYPE)
        operation = Operation("DEFINE", kind, name)
        replace(request, operation)
        return self._define(request, operation)

    def _copy(self, request: Request) -> Reply:
        model, name = request.name(cmqcfc.MQCACF_FROM_Q_NAME), request.name(cmqcfc.MQCACF_TO_Q_NAME)
        operation = Operation("DEFINE", self._kind_of(request, model), name)
        operation.add("LIKE", model)
        replace(request, operation)
        return self._define(request, operation)

    def _change(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind_of(request, name)
        operation = Operation("ALTER", kind, name)
        if request.choice(cmqcfc.MQIACF_FORCE, (cmqcfc.MQFC_NO, cmqcfc.MQFC_YES)) and kind != "QMODEL":
            operation.add("FORCE")
        return self._define(request, operation)

    def _define(self, request: Request, operation: Operation) -> Reply:
        operation.take(request)
        request.finish()
        return Reply(unit=operation.run(self._commands))

    def _delete(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        kind = self._kind_of(request, name)
        purge = request.choice(cmqcfc.MQIACF_PURGE, (cmqcfc.MQPO_NO, cmqcfc.MQPO_YES))
        operation = Operation("DELETE", kind, name)
        operation.take_records(request)
        request.finish()
        if purge and kind == "QLOCAL":
            operation.add("PURGE")
        return Reply(unit=operation.run(self._commands))

    def _clear(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_Q_NAME)
        request.finish()
        kind = self._existing_kind(name)
        if kind not in (None, "QLOCAL"):
            raise PCFRefused(cmqcfc.MQRCCF_Q_WRONG_TYPE, cmqc.MQCA_Q_NAME)
        try:
            return Reply(unit=Operation("CLEAR", "QLOCAL", name).run(self._commands))
        except PCFRefused as error:
            if error.reason == cmqcfc.MQRCCF_OBJECT_OPEN:
                raise PCFRefused(cmqc.MQRC_OBJECT_IN_USE) from error
            raise

    def _queues(self, request: Request) -> Iterator[dict[str, Value]]:
        """Return the queues that a name and a type, both as requested, name."""
        name = request.name(cmqc.MQCA_Q_NAME)
        allowed = (cmqc.MQQT_ALL, *KINDS, *_NONE_OF)
        number = request.integer(cmqc.MQIA_Q_TYPE, cmqc.MQQT_ALL)
        if number not in allowed:
            raise PCFRefused(cmqcfc.MQRCCF_Q_TYPE_ERROR, cmqc.MQIA_Q_TYPE)
        return (
            one
            for one in self._display.objects("QUEUE", name)
            if number == cmqc.MQQT_ALL or QUEUE_TYPES[str(one["TYPE"])] == number
        )

    def _inquire(self, request: Request) -> Reply:
        queues = self._queues(request)
        request.ignore(cmqcfc.MQIACF_CLUSTER_INFO)
        return inquire(
            request,
            (attributes(str(one["TYPE"]), one) for one in queues),
            cmqcfc.MQIACF_Q_ATTRS,
            (cmqc.MQCA_Q_NAME, cmqc.MQIA_Q_TYPE),
            known=known_of("QUEUE"),
        )

    def _names(self, request: Request) -> Reply:
        queues = list(self._queues(request))
        request.finish()
        names = string_list(cmqcfc.MQCACF_Q_NAMES, (str(one["QUEUE"]).encode() for one in queues), 48)
        types = MQCFIL(cmqcfc.MQIACF_Q_TYPES, tuple(QUEUE_TYPES[str(one["TYPE"])] for one in queues))
        return Reply([(names, types)])


def replace(request: Request, operation: Operation) -> None:
    """Add REPLACE to an operation where MQIACF_REPLACE says so."""
    if request.choice(cmqcfc.MQIACF_REPLACE, (cmqcfc.MQRP_NO, cmqcfc.MQRP_YES)) == cmqcfc.MQRP_YES:
        operation.add("REPLACE")
