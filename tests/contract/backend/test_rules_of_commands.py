"""Replies of the command server that cannot be put to their queue."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.mqi import MQOD
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFH, MQCFIN, MQCFST, encode_pcf
from tests.helpers.mq_applications import Application, Workplace
from tests.ibm_standin import cmqc, cmqcfc


@pytest.fixture(autouse=True)
def command_server(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["connect"] in ("local", "remote"):
        pytest.skip("it has no command server")


def ask(app: Application, reply_queue: Any, command: Any, *parameters: Any) -> None:
    body = encode_pcf(MQCFH(Command=command), parameters)
    md = MQMD(Format=cmqc.MQFMT_ADMIN, MsgType=cmqc.MQMT_REQUEST, ReplyToQ=reply_queue.encode(), CodedCharSetId=1208)
    app.connection.put1(MQOD(ObjectName=COMMAND_QUEUE), Message(md, body), cmqc.MQPMO_NO_SYNCPOINT)


@pytest.mark.smoke
def test_replies_beyond_maxdepth_go_to_the_dead_letter_queue(mq: Workplace, app: Application) -> None:
    """MAXDEPTH is that of the model queue (IBM MQ documentation, "DeadLetterQName")."""
    dead, ping_replies = mq.queue(), mq.queue()
    mq.alter(DEADQ=dead)
    prefix = mq.name("MANY")
    for number in range(6):
        mq.queue(name=f"{prefix}.{number}")
    od = MQOD(ObjectName=mq.model_queue("MAXDEPTH(4)"), DynamicQName="RULES.*")
    replies = app.connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    every = MQCFST(cmqc.MQCA_Q_NAME, f"{prefix}.*".encode()), MQCFIN(cmqc.MQIA_Q_TYPE, cmqc.MQQT_LOCAL)
    ask(app, od.ObjectName, cmqcfc.MQCMD_INQUIRE_Q, *every)
    # Commands run in order. After this reply, all replies to the first command have been put.
    ask(app, ping_replies, cmqcfc.MQCMD_PING_Q_MGR)
    app.take(ping_replies, cmqc.MQGMO_WAIT, WaitInterval=30_000)
    assert len(app.drain(replies)) == 4
    assert len(app.all(dead)) == 2


@pytest.mark.smoke
def test_a_persistent_command_has_persistent_replies(mq: Workplace, app: Application) -> None:
    """A temporary dynamic queue does not accept them ("Retrieving replies to your commands", "Dynamic queues")."""
    dead, ping_replies = mq.queue(), mq.queue()
    mq.alter(DEADQ=dead)
    od = MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE", DynamicQName="RULES.*")
    replies = app.connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    body = encode_pcf(MQCFH(Command=cmqcfc.MQCMD_PING_Q_MGR), ())
    for queue in (od.ObjectName, ping_replies):
        md = MQMD(
            Format=cmqc.MQFMT_ADMIN,
            MsgType=cmqc.MQMT_REQUEST,
            ReplyToQ=queue.encode(),
            Persistence=cmqc.MQPER_PERSISTENT,
        )
        app.connection.put1(MQOD(ObjectName=COMMAND_QUEUE), Message(md, body), cmqc.MQPMO_NO_SYNCPOINT)
    assert app.take(ping_replies, cmqc.MQGMO_WAIT, WaitInterval=30_000).md.Persistence == cmqc.MQPER_PERSISTENT
    assert app.drain(replies) == []
    assert len(app.all(dead)) == 1
