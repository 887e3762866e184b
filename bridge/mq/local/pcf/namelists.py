"""Namelist commands: Change, Copy, Create, Delete and Inquire Namelist, Inquire Namelist Names."""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.local.commands import Commands
from bridge.mq.local.display import Display
from bridge.mq.local.pcf.inquiry import attributes, inquire, known_of
from bridge.mq.local.pcf.operation import Operation
from bridge.mq.local.pcf.queues import replace
from bridge.mq.local.pcf.request import Reply, Request
from bridge.mq.local.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import string_list


class NamelistCommands:
    """The namelist commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._commands = commands
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_NAMELIST: self._create,
            cmqcfc.MQCMD_CHANGE_NAMELIST: self._change,
            cmqcfc.MQCMD_COPY_NAMELIST: self._copy,
            cmqcfc.MQCMD_DELETE_NAMELIST: self._delete,
            cmqcfc.MQCMD_INQUIRE_NAMELIST: self._inquire,
            cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES: self._names,
        }

    def _create(self, request: Request) -> Reply:
        operation = Operation("DEFINE", "NAMELIST", request.name(cmqc.MQCA_NAMELIST_NAME))
        replace(request, operation)
        return self._define(request, operation)

    def _copy(self, request: Request) -> Reply:
        model = request.name(cmqcfc.MQCACF_FROM_NAMELIST_NAME)
        operation = Operation("DEFINE", "NAMELIST", request.name(cmqcfc.MQCACF_TO_NAMELIST_NAME))
        operation.add("LIKE", model)
        replace(request, operation)
        return self._define(request, operation)

    def _change(self, request: Request) -> Reply:
        return self._define(request, Operation("ALTER", "NAMELIST", request.name(cmqc.MQCA_NAMELIST_NAME)))

    def _define(self, request: Request, operation: Operation) -> Reply:
        operation.take(request)
        request.finish()
        return Reply(unit=operation.run(self._commands))

    def _delete(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_NAMELIST_NAME)
        request.ignore(cmqcfc.MQIACF_REMOVE_AUTHREC)
        request.finish()
        return Reply(unit=Operation("DELETE", "NAMELIST", name).run(self._commands))

    def _inquire(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_NAMELIST_NAME)
        request.ignore(cmqc.MQIA_NAMELIST_TYPE)
        return inquire(
            request,
            (attributes("NAMELIST", one) for one in self._display.objects("NAMELIST", name)),
            cmqcfc.MQIACF_NAMELIST_ATTRS,
            (cmqc.MQCA_NAMELIST_NAME,),
            known=known_of("NAMELIST"),
        )

    def _names(self, request: Request) -> Reply:
        name = request.name(cmqc.MQCA_NAMELIST_NAME)
        request.finish()
        names = [str(one["NAMELIST"]).encode() for one in self._display.objects("NAMELIST", name)]
        return Reply([(string_list(cmqcfc.MQCACF_NAMELIST_NAMES, names, 48),)])
