"""Namelist commands: Change, Copy, Create, Delete and Inquire Namelist, Inquire Namelist Names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.pcf.defined import Defined
from bridge.mq.embedded.pcf.inquiry import attributes, inquire, known_of
from bridge.mq.embedded.pcf.request import Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import string_list

_NAMELIST = Defined(
    "NAMELIST", cmqc.MQCA_NAMELIST_NAME, cmqcfc.MQCACF_FROM_NAMELIST_NAME, cmqcfc.MQCACF_TO_NAMELIST_NAME
)


class NamelistCommands:
    """The namelist commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_CREATE_NAMELIST: partial(_NAMELIST.create, commands),
            cmqcfc.MQCMD_CHANGE_NAMELIST: partial(_NAMELIST.change, commands),
            cmqcfc.MQCMD_COPY_NAMELIST: partial(_NAMELIST.copy, commands),
            cmqcfc.MQCMD_DELETE_NAMELIST: partial(_NAMELIST.delete, commands),
            cmqcfc.MQCMD_INQUIRE_NAMELIST: self._inquire,
            cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES: self._names,
        }

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
