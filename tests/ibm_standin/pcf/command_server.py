"""The command server of the stand-in: the commands that monitoring and administration programs send to IBM MQ."""

from __future__ import annotations

from collections.abc import Callable

from bridge.mq.embedded.authority import AuthorizationService
from bridge.mq.embedded.command_server import CommandServer, Reply, Request
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.pcf.objects import NamelistCommands, QueueCommands, SubscriptionCommands, TopicCommands
from tests.ibm_standin.pcf.queue_manager import (
    AbsentCommands,
    AuthorityCommands,
    QueueManagerCommands,
    TelemetryChannelCommands,
)
from tests.ibm_standin.pcf.status import StatusCommands

#: command -> type of the object that authority is asked for, parameter with its name, authorities
_AUTHORITIES: dict[int, tuple[int, int, tuple[str, ...]]] = {
    cmqcfc.MQCMD_CHANGE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("CHG",)),
    cmqcfc.MQCMD_CLEAR_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("CLR",)),
    cmqcfc.MQCMD_DELETE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DSP",)),
    cmqcfc.MQCMD_RESET_Q_STATS: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DSP", "CHG")),
    cmqcfc.MQCMD_CHANGE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("CHG",)),
    cmqcfc.MQCMD_DELETE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("DSP",)),
    cmqcfc.MQCMD_CHANGE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("CHG",)),
    cmqcfc.MQCMD_DELETE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("DSP",)),
    cmqcfc.MQCMD_CHANGE_Q_MGR: (cmqc.MQOT_Q_MGR, 0, ("CHG",)),
    cmqcfc.MQCMD_INQUIRE_Q_MGR: (cmqc.MQOT_Q_MGR, 0, ("DSP",)),
    cmqcfc.MQCMD_INQUIRE_Q_MGR_STATUS: (cmqc.MQOT_Q_MGR, 0, ("DSP",)),
}
#: Commands that take DSP on the queue manager only.
_UNCHECKED = (
    cmqcfc.MQCMD_INQUIRE_Q_NAMES,
    cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES,
    cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES,
    cmqcfc.MQCMD_INQUIRE_CHANNEL_NAMES,
)


class StandInCommandServer(CommandServer):
    """The command server with the commands of this package."""

    @staticmethod
    def commands(queue_manager: QueueManager) -> dict[int, Callable[[Request], Reply]]:
        commands = Commands(queue_manager)
        return {
            **CommandServer.commands(queue_manager),
            **QueueManagerCommands(queue_manager, commands).commands,
            **QueueCommands(queue_manager, commands).commands,
            **NamelistCommands(queue_manager, commands).commands,
            **TopicCommands(queue_manager, commands).commands,
            **SubscriptionCommands(queue_manager, commands).commands,
            **StatusCommands(queue_manager).commands,
            **AuthorityCommands(queue_manager).commands,
            **(absent := AbsentCommands(queue_manager).commands),
            **TelemetryChannelCommands(queue_manager, commands, absent).commands,
        }

    def check(self, authorization: AuthorizationService, user: str, request: Request) -> None:
        """Check that a user may run a command. Raises MQError, PCFRefused.

        Beside DSP on the queue manager, `_AUTHORITIES` are asked for. Other commands, and inquiries of many objects, are
        for administrators.
        """
        object_type, number, words = _AUTHORITIES.get(request.command, (0, 0, ()))
        manager = self._queue_manager.name
        if request.command in _UNCHECKED:
            authorization.check(user, cmqc.MQOT_Q_MGR, manager, "DSP")
        elif object_type == cmqc.MQOT_Q_MGR:
            authorization.check(user, object_type, manager, "DSP", *words)
        elif object_type and "*" not in (name := request.text(number) or "*"):
            authorization.check(user, cmqc.MQOT_Q_MGR, manager, "DSP")
            authorization.check(user, object_type, name, *words)
        elif request.command == cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS:
            authorization.check(user, cmqc.MQOT_Q_MGR, manager, "DSP")
            authorization.check_topic(user, "", "DSP")
        else:
            super().check(authorization, user, request)
