"""The PCF commands that the bridge itself sends to the embedded queue manager, and Escape for MQSC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.mq.embedded.attributes import values
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import Display
from bridge.mq.embedded.pcf.request import PCFRefused, Reply, Request
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import CommandResponse
from bridge.mq.mqsc import Command, MQSCSyntaxError, Parameter, Position, render
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFIN, MQCFST, PCFParameter

_NOWHERE = Position(1, 1)
#: CLRTYPE(RETAINED)
_RETAINED = (Parameter("CLRTYPE", ("RETAINED",), _NOWHERE),)


class PCFCommands:
    """The PCF commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._commands = Commands(queue_manager)
        self._display = Display(queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_PING_Q_MGR: self._ping,
            cmqcfc.MQCMD_INQUIRE_Q_STATUS: self._queue_status,
            cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION: self._subscriptions,
            cmqcfc.MQCMD_CLEAR_TOPIC_STRING: self._clear,
            cmqcfc.MQCMD_ESCAPE: self._escape,
        }

    def _ping(self, request: Request) -> Reply:
        request.finish()
        return Reply()

    def _queue_status(self, request: Request) -> Reply:
        """Return the depth of the local queues that match a name, which may end in `*`."""
        name = request.name(cmqc.MQCA_Q_NAME)
        request.finish()
        found: list[Sequence[PCFParameter]] = [
            (
                MQCFST(cmqc.MQCA_Q_NAME, str(one["QUEUE"]).encode().ljust(48)),
                MQCFIN(cmqc.MQIA_CURRENT_Q_DEPTH, int(one["CURDEPTH"])),
            )
            for one in self._display.objects("QSTATUS", name)
        ]
        if not found:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        return Reply(found)

    def _subscriptions(self, request: Request) -> Reply:
        """Return all attributes of the subscriptions that match a name, which may end in `*`."""
        name = request.name(cmqcfc.MQCACF_SUB_NAME)
        request.finish()
        found: list[Sequence[PCFParameter]] = [
            list(values("SUB", one).values()) for one in self._display.objects("SUB", name)
        ]
        if not found:
            raise PCFRefused(cmqc.MQRC_NO_SUBSCRIPTION)
        return Reply(found)

    def _clear(self, request: Request) -> Reply:
        topic = request.name(cmqc.MQCA_TOPIC_STRING)
        if cmqcfc.MQIACF_CLEAR_TYPE not in request:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_CLEAR_TYPE)
        request.choice(cmqcfc.MQIACF_CLEAR_TYPE, (cmqcfc.MQCLRT_RETAINED,))
        request.choice(cmqcfc.MQIACF_CLEAR_SCOPE, (cmqcfc.MQCLRS_LOCAL,))
        request.finish()
        command = Command(f"CLEAR TOPICSTR({topic})", 1, "CLEAR", "TOPICSTR", topic, _RETAINED, None, _NOWHERE)
        try:
            return Reply(unit=self._commands.execute(command)[1])
        except MQSCSyntaxError as error:  # an empty topic string
            raise PCFRefused(cmqcfc.MQRCCF_PARM_MISSING) from error

    def _escape(self, request: Request) -> Reply:
        """Run an MQSC command in a PCF command. Each message of the reply contains runmqsc's output for one object."""
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
    """Return the text of the response for each object separately."""
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
