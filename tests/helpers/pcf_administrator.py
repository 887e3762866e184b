"""An administrator: an application that sends PCF commands to the embedded queue manager and reads the replies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import (
    MQCFBS,
    MQCFGR,
    MQCFH,
    MQCFIL,
    MQCFIN,
    MQCFST,
    PCFParameter,
    decode_pcf,
    encode_pcf,
    string_list,
)
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.mqi.connection import StandInConnection

REPLIES = "REPLIES"
OBJECTS = """
DEFINE QLOCAL(REPLIES) MAXDEPTH(1000)
DEFINE QLOCAL(APP.IN) DESCR('goes in') MAXDEPTH(10)
DEFINE QLOCAL(APP.OUT) DESCR('goes out') MAXDEPTH(20) PUT(DISABLED) USAGE(XMITQ)
DEFINE QALIAS(APP.ALIAS) TARGET(APP.IN)
DEFINE QREMOTE(APP.FAR) RNAME(Q) RQMNAME(QM2) XMITQ(APP.OUT)
DEFINE TOPIC(PRICES) TOPICSTR('prices') DESCR('all prices') DEFPRTY(7)
DEFINE TOPIC(PRICES.FRUIT) TOPICSTR('prices/fruit') SUB(DISABLED)
DEFINE SUB('s1') TOPICSTR('prices/#') DEST(APP.IN) USERDATA('u')
DEFINE SUB('s2') TOPICSTR('x') DEST(APP.IN)
"""


def parameters(values: dict[int, Any]) -> list[PCFParameter]:
    """Encode parameters by number, as pymqi does: bytes and text, integers, lists of either."""
    structures: list[PCFParameter] = []
    for number, value in values.items():
        if isinstance(value, int):
            structures.append(MQCFIN(number, value))
        elif isinstance(value, str):
            structures.append(MQCFST(number, value.encode()))
        elif isinstance(value, bytes):
            structures.append(MQCFBS(number, value))
        elif value and isinstance(value[0], str):
            structures.append(string_list(number, [text.encode() for text in value]))
        else:
            structures.append(MQCFIL(number, tuple(value)))
    return structures


class Administrator:
    """An application that sends commands and reads the replies."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.connection = StandInConnection(queue_manager, "administrator", "admin")
        for response in self.connection.command(OBJECTS):
            assert response.ok, response.message
        self.replies = self.connection.open(MQOD(ObjectName=REPLIES), cmqc.MQOO_INPUT_SHARED)

    def send(self, data: bytes, **fields: Any) -> MQMD:
        md = MQMD(Format=cmqc.MQFMT_ADMIN, MsgType=cmqc.MQMT_REQUEST, ReplyToQ=REPLIES.encode())
        md = msgspec.structs.replace(md, **fields)
        return self.connection.put1(MQOD(ObjectName=COMMAND_QUEUE), Message(md, data))

    def receive(self, wait: int = 5000) -> tuple[MQMD, MQCFH, tuple[PCFParameter, ...]]:
        message = self.connection.get(self.replies, GetOptions(Options=cmqc.MQGMO_WAIT, WaitInterval=wait))
        return message.md, *decode_pcf(message.data)

    def replied(self) -> list[tuple[MQCFH, tuple[PCFParameter, ...]]]:
        """Return the messages of one reply, each checked for its position."""
        messages: list[tuple[MQCFH, tuple[PCFParameter, ...]]] = []
        while True:
            _, header, reply_parameters = self.receive()
            messages.append((header, reply_parameters))
            assert (header.Type, header.MsgSeqNumber) == (cmqcfc.MQCFT_RESPONSE, len(messages))
            if header.Control == cmqcfc.MQCFC_LAST:
                with pytest.raises(MQError):
                    self.receive(0)
                return messages

    def ask(self, command: int, values: dict[int, Any], *filters: PCFParameter) -> list[dict[int, Any]]:
        """Return the objects in the answer to a command, which must not fail: value by number."""
        self.send(encode_pcf(MQCFH(Command=command), [*parameters(values), *filters]))
        objects = []
        for header, reply_parameters in self.replied():
            assert (header.CompCode, header.Reason) == (cmqc.MQCC_OK, cmqc.MQRC_NONE), cmqc.reason_name(header.Reason)
            assert header.Command == command
            objects.append({parameter.Parameter: value(parameter) for parameter in reply_parameters})
        return objects

    def refused(self, command: int, values: dict[int, Any], *filters: PCFParameter) -> tuple[int, int | None]:
        """Return the reason for which a command fails, and the parameter in the error response."""
        self.send(encode_pcf(MQCFH(Command=command), [*parameters(values), *filters]))
        (first, error), (last, nothing) = self.replied()
        assert first.CompCode == last.CompCode == cmqc.MQCC_FAILED
        assert (last.Reason, nothing) == (cmqcfc.MQRCCF_COMMAND_FAILED, ())
        if not error:
            return first.Reason, None
        (detail,) = error
        assert isinstance(detail, MQCFIN) and detail.Parameter in (cmqcfc.MQIACF_PARAMETER_ID, cmqcfc.MQIACF_SELECTOR)
        return first.Reason, detail.Value

    def displayed(self, selection: str, keyword: str) -> str | int:
        (response,) = self.connection.command(f"DISPLAY {selection} {keyword}")
        assert response.ok, response.message
        return response.objects[0][keyword]

    def put(self, queue: str, *, options: int = cmqc.MQPMO_NO_SYNCPOINT) -> None:
        self.connection.put1(MQOD(ObjectName=queue), Message(MQMD(), b"x"), options)

    def retain(self, topic: str) -> None:
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
        self.connection.put1(od, Message(MQMD(), b"x"), cmqc.MQPMO_RETAIN)


def value(parameter: PCFParameter) -> Any:
    if isinstance(parameter, MQCFST):
        return parameter.String.rstrip(b" ").decode()
    if isinstance(parameter, MQCFIN):
        return parameter.Value
    if isinstance(parameter, MQCFBS):
        return parameter.String
    assert not isinstance(parameter, MQCFGR)
    return (
        [text.rstrip().decode() for text in parameter.Strings]
        if hasattr(parameter, "Strings")
        else list(parameter.Values)
    )
