"""Commands about the queue manager itself: Ping, Inquire and Change Queue Manager, its status, and Escape."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.mqsc.printed import render
from bridge.mq.embedded.pcf.inquiry import attributes, inquire, known_of
from bridge.mq.embedded.pcf.operation import Operation
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import CommandResponse
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIN, MQCFST, PCFParameter


class QueueManagerCommands:
    """The commands about one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager, commands: Commands) -> None:
        self._queue_manager = queue_manager
        self._commands = commands
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_PING_Q_MGR: self._ping,
            cmqcfc.MQCMD_INQUIRE_Q_MGR: self._inquire,
            cmqcfc.MQCMD_CHANGE_Q_MGR: self._change,
            cmqcfc.MQCMD_INQUIRE_Q_MGR_STATUS: self._status,
            cmqcfc.MQCMD_ESCAPE: self._escape,
        }

    def _ping(self, request: Request) -> Reply:
        request.finish()
        return Reply()

    def _inquire(self, request: Request) -> Reply:
        return inquire(
            request,
            (attributes("QMGR", one) for one in self._display.objects("QMGR", "*")),
            cmqcfc.MQIACF_Q_MGR_ATTRS,
            (cmqc.MQCA_Q_MGR_NAME,),
            known=known_of("QMGR"),
        )

    def _change(self, request: Request) -> Reply:
        operation = Operation("ALTER", "QMGR")
        if request.choice(cmqcfc.MQIACF_FORCE, (cmqcfc.MQFC_NO, cmqcfc.MQFC_YES)):
            operation.add("FORCE")
        operation.take(request, without=("QMNAME", "QMID", "CRDATE", "CRTIME", "ALTDATE", "ALTTIME"))
        request.finish()
        return Reply(unit=operation.run(self._commands))

    def _status(self, request: Request) -> Reply:
        queue_manager = self._queue_manager
        started = time.localtime(queue_manager.started)
        parameters: tuple[PCFParameter, ...] = (
            MQCFST(cmqc.MQCA_Q_MGR_NAME, queue_manager.name.encode().ljust(48)),
            MQCFIN(cmqcfc.MQIACF_Q_MGR_STATUS, cmqcfc.MQQMSTA_RUNNING),
            MQCFIN(cmqcfc.MQIACF_CHINIT_STATUS, cmqcfc.MQSVC_STATUS_STOPPED),
            MQCFIN(cmqcfc.MQIACF_CMD_SERVER_STATUS, cmqcfc.MQSVC_STATUS_RUNNING),
            MQCFIN(cmqcfc.MQIACF_CONNECTION_COUNT, len(queue_manager.applications)),
            MQCFST(cmqcfc.MQCACF_Q_MGR_START_DATE, time.strftime("%Y-%m-%d", started).encode().ljust(12)),
            MQCFST(cmqcfc.MQCACF_Q_MGR_START_TIME, time.strftime("%H.%M.%S", started).encode()),
        )
        found = {one.Parameter: one for one in parameters}
        return inquire(
            request,
            [found],
            cmqcfc.MQIACF_Q_MGR_STATUS_ATTRS,
            (cmqc.MQCA_Q_MGR_NAME, cmqcfc.MQIACF_Q_MGR_STATUS),
            known=found.__contains__,
        )

    def _escape(self, request: Request) -> Reply:
        """Run an MQSC command within a PCF command; each message of the reply has what runmqsc prints of one object."""
        if request.integer(cmqcfc.MQIACF_ESCAPE_TYPE) != cmqcfc.MQET_MQSC:
            raise PCFRefused(cmqcfc.MQRCCF_ESCAPE_TYPE_ERROR, cmqcfc.MQIACF_ESCAPE_TYPE)
        text = request.name(cmqcfc.MQCACF_ESCAPE_TEXT)
        request.finish()
        read = self._commands.read(text)
        if len(read) != 1:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_SYNTAX_ERROR, cmqcfc.MQCACF_ESCAPE_TEXT)
        response, unit = self._commands.run(read[0])
        messages = [_escaped(line) for line in _texts(response)]
        return Reply(messages, unit, cmqc.MQRC_NONE if response.ok else cmqcfc.MQRCCF_COMMAND_FAILED)


def _texts(response: CommandResponse) -> list[str]:
    """Return the text of the response to each object on its own."""
    shown = [
        CommandResponse(command=response.command, message=response.message, ok=response.ok, objects=[one])
        for one in response.objects
    ]
    return [render(one) for one in shown or [response]]


def _escaped(text: str) -> Sequence[PCFParameter]:
    return (
        MQCFIN(cmqcfc.MQIACF_ESCAPE_TYPE, cmqcfc.MQET_MQSC),
        MQCFST(cmqcfc.MQCACF_ESCAPE_TEXT, text.encode(errors="replace")),
    )
