"""The embedded queue manager, with MQOPEN and a command server that fail as a test specifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, MQError
from bridge.telemetry.message import Message
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFH, decode_pcf, encode_pcf
from tests.ibm_standin.mqi.connection import StandInConnection

COMMANDS = {
    cmqcfc.MQCMD_PING_Q_MGR: "PING",
    cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION: "INQUIRE",
    cmqcfc.MQCMD_INQUIRE_Q_STATUS: "STATUS",
    cmqcfc.MQCMD_CLEAR_TOPIC_STRING: "CLEAR",
}


class GuardedConnection(StandInConnection):
    """A connection to it."""

    def __init__(self, queue_manager: QueueManager) -> None:
        super().__init__(queue_manager)
        #: command -> reason for which it fails. None: it is not answered
        self.answers: dict[str, int | None] = {}
        #: object -> reason for which its MQOPEN fails
        self.reasons: dict[str, int] = {}
        #: string attributes that are blank, as selectors
        self.blank: set[int] = set()
        #: maximum number of bytes of a message on the channel
        self.max_message_length: int | None = None

    def open(self, od: MQOD, options: int) -> int:
        name = "QMGR" if od.ObjectType == cmqc.MQOT_Q_MGR else od.ObjectName
        if name in self.reasons:
            raise MQError(self.reasons[name])
        return super().open(od, options)

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        ints, texts = super().inquire(handle, selectors)
        named = [selector for selector in selectors if selector >= cmqc.MQCA_FIRST]
        return ints, ["" if selector in self.blank else text for selector, text in zip(named, texts, strict=True)]

    def put1(self, od: MQOD, message: Any, *arguments: Any, **more: Any) -> MQMD:
        if od.ObjectName != COMMAND_QUEUE:
            if self.max_message_length is not None and len(message.put_data) > self.max_message_length:
                raise MQError(cmqc.MQRC_DATA_LENGTH_ERROR)
            return super().put1(od, message, *arguments, **more)
        header, _ = decode_pcf(message.put_data)
        if header.Command not in COMMANDS:
            return super().put1(od, message, *arguments, **more)
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
