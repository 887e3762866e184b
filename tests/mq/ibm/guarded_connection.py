"""The embedded queue manager with an object authority manager and a command server that do as they are told."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.config.queues import COMMAND_QUEUE
from bridge.mapping.message import Message
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, MQSD
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFH, decode_pcf, encode_pcf

#: MQOPEN option -> authority asked of the OAM for it
AUTHORITIES = {
    cmqc.MQOO_INPUT_SHARED: "GET",
    cmqc.MQOO_INPUT_EXCLUSIVE: "GET",
    cmqc.MQOO_BROWSE: "BROWSE",
    cmqc.MQOO_OUTPUT: "PUT",
    cmqc.MQOO_INQUIRE: "INQ",
}
COMMANDS = {
    cmqcfc.MQCMD_PING_Q_MGR: "PING",
    cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION: "INQUIRE",
    cmqcfc.MQCMD_CLEAR_TOPIC_STRING: "CLEAR",
}


class GuardedConnection(EmbeddedConnection):
    """A connection to it."""

    def __init__(self, queue_manager: QueueManager) -> None:
        super().__init__(queue_manager)
        #: (user, object, authority); user "" is the connection's own
        self.denied: set[tuple[str, str, str]] = set()
        #: command -> reason that it fails for; None: it is not answered
        self.answers: dict[str, int | None] = {}
        #: object -> reason that its MQOPEN fails for
        self.reasons: dict[str, int] = {}

    def open(self, od: MQOD, options: int) -> int:
        user = od.AlternateUserId if options & cmqc.MQOO_ALTERNATE_USER_AUTHORITY else ""
        if user and ("", "QMGR", "ALTUSR") in self.denied:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED)
        name = "QMGR" if od.ObjectType == cmqc.MQOT_Q_MGR else od.ObjectName
        if od.ObjectQMgrName:
            name = str(self._queue_manager.attributes["DEFXMITQ"])
        if od.ObjectType == cmqc.MQOT_TOPIC:
            self._ask(user, "TOPIC", "PUB")
            if options & cmqc.MQOO_SET_IDENTITY_CONTEXT:
                self._ask("", "QMGR", "SETID")
                self._ask("", "TOPIC", "SETID")
        else:
            for option, authority in AUTHORITIES.items():
                if options & option:
                    self._ask(user, name, authority)
        if name in self.reasons:
            raise MQError(self.reasons[name])
        return super().open(od, options)

    def _ask(self, user: str, name: str, authority: str) -> None:
        if (user, name, authority) in self.denied:
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED)

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        self._ask(sd.AlternateUserId, "TOPIC", "SUB")
        return super().subscribe(sd, handle)

    def put1(self, od: MQOD, message: Any, *arguments: Any, **more: Any) -> MQMD:
        if od.ObjectName != COMMAND_QUEUE:
            return super().put1(od, message, *arguments, **more)
        header, _ = decode_pcf(message.put_data)
        reason = self.answers.get(COMMANDS[header.Command], cmqc.MQRC_NONE)
        request = b"request".ljust(24, b"\0")
        if reason is not None:
            answer = MQCFH(
                Type=cmqcfc.MQCFT_RESPONSE,
                Command=header.Command,
                CompCode=cmqc.MQCC_FAILED if reason else cmqc.MQCC_OK,
                Reason=reason,
                Control=cmqcfc.MQCFC_LAST,
            )
            md = MQMD(CorrelId=request, Format=cmqc.MQFMT_ADMIN)
            super().put1(MQOD(ObjectName=message.md.ReplyToQ.decode().strip()), Message(md, encode_pcf(answer, [])))
        return msgspec.structs.replace(message.md, MsgId=request)
