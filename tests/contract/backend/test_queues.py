"""Messages on queues: put, get, order, truncation, expiry (IBM MQ documentation, "MQPUT", "MQGET", "API reason codes")."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused
from tests.ibm_standin import cmqc

BROWSE_FIRST = cmqc.MQGMO_BROWSE_FIRST
BROWSE_UNDER_CURSOR = cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR


# The message that is got is the one that was put ----------------------------------------------------------------------


@pytest.mark.smoke
def test_put_and_get_preserve_data_and_descriptor(
    mq: Workplace, queue: str, app: Application, other: Application
) -> None:
    descriptor = MQMD(
        MsgType=cmqc.MQMT_REQUEST,
        Format=b"MQSTR",
        Encoding=cmqc.MQENC_REVERSED if hasattr(cmqc, "MQENC_REVERSED") else 273,
        CodedCharSetId=1208,
        Priority=7,
        Persistence=cmqc.MQPER_PERSISTENT,
        CorrelId=b"correlation".ljust(24, b"\0"),
        ReplyToQ=b"REPLIES",
        Feedback=0,
    )
    handle = app.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
    put = app.connection.put(handle, Message(descriptor, b"\x00\xff payload"))

    message = other.take(queue)

    assert message.data == b"\x00\xff payload"
    assert message.DataLength == len(message.data)
    assert message.Reason == cmqc.MQRC_NONE
    assert msgspec.structs.replace(message.md, Version=put.Version) == put
    for field in ("MsgType", "Format", "Encoding", "CodedCharSetId", "Priority", "Persistence", "CorrelId", "ReplyToQ"):
        assert getattr(message.md, field) == getattr(descriptor, field), field
    assert message.md.ReplyToQMgr == mq.manager.encode()
    assert message.md.BackoutCount == 0
    assert message.md.Expiry == cmqc.MQEI_UNLIMITED


@pytest.mark.smoke
def test_repeated_gets_with_the_same_options_get_successive_messages(queue: str, app: Application) -> None:
    """Client packages may write results into the structures of a call. The next call must not use them."""
    for number in range(3):
        app.put(queue, b"%d" % number)
    handle = app.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    options = GetOptions()
    assert [app.connection.get(handle, options).data for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.smoke
def test_the_queue_manager_completes_the_descriptor(mq: Workplace, app: Application) -> None:
    queue = mq.queue("DEFPRTY(3) DEFPSIST(YES)")
    before = time.strftime("%Y%m%d%H%M%S", time.gmtime()).encode()
    put = app.put(queue, b"x")
    after = time.strftime("%Y%m%d%H%M%S", time.gmtime(time.time())).encode()  # gmtime() uses a coarser clock

    assert (put.Priority, put.Persistence) == (3, cmqc.MQPER_PERSISTENT)
    assert put.MsgId[:16] == b"AMQ " + mq.manager[:12].ljust(12).encode()
    assert before <= put.PutDate + put.PutTime[:6] <= after
    assert put.PutApplName
    assert put.CodedCharSetId not in (cmqc.MQCCSI_Q_MGR, 0)


def test_every_message_gets_its_own_msg_id(queue: str, app: Application) -> None:
    assert len({app.put(queue).MsgId for _ in range(50)}) == 50


@pytest.mark.whole_mqi
def test_a_given_msg_id_is_kept_and_new_ones_are_generated_on_request(queue: str, app: Application) -> None:
    mine = b"mine".ljust(24, b"\1")
    assert app.put(queue, MsgId=mine).MsgId == mine
    assert app.take(queue).md.MsgId == mine

    renewed = app.put(queue, MsgId=mine, CorrelId=mine, options=cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_NEW_CORREL_ID)
    assert mine not in (renewed.MsgId, renewed.CorrelId)
    assert renewed.CorrelId != cmqc.MQCI_NONE
    assert app.take(queue).md.CorrelId == renewed.CorrelId


@pytest.mark.parametrize("length", [0, 1, 100_000])
def test_messages_of_any_length(queue: str, app: Application, length: int) -> None:
    app.put(queue, b"z" * length)
    assert app.take(queue).data == b"z" * length


def test_the_context_of_a_message_is_that_of_its_putter_unless_passed(queue: str, app: Application) -> None:
    app.put(queue, UserIdentifier=b"impostor")
    assert app.take(queue).md.UserIdentifier != b"impostor"
    app.put(queue, UserIdentifier=b"device7", options=cmqc.MQPMO_SET_IDENTITY_CONTEXT)
    assert app.take(queue).md.UserIdentifier == b"device7"


# Order ----------------------------------------------------------------------------------------------------------------


def test_messages_are_ordered_by_priority_then_by_arrival(queue: str, app: Application) -> None:
    for text, priority in (("a4", 4), ("b0", 0), ("c9", 9), ("d4", 4), ("e9", 9), ("f0", 0)):
        app.put(queue, text.encode(), Priority=priority)
    assert app.all(queue) == [b"c9", b"e9", b"a4", b"d4", b"b0", b"f0"]


def test_msgdlvsq_fifo_ignores_priority(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MSGDLVSQ(FIFO)")
    for text, priority in (("a", 0), ("b", 9), ("c", 4)):
        app.put(queue, text.encode(), Priority=priority)
    handle = app.open_queue(queue)
    assert [app.browse(handle) for _ in range(3)] == [b"a", b"b", b"c"]
    assert app.drain(handle) == [b"a", b"b", b"c"]


def test_priority_as_queue_default(mq: Workplace, app: Application) -> None:
    queue = mq.queue("DEFPRTY(5)")
    app.put(queue, b"four", Priority=4)
    app.put(queue, b"default")
    assert app.all(queue) == [b"default", b"four"]


# Getting a certain message --------------------------------------------------------------------------------------------


def test_get_by_msg_id_and_by_correl_id(queue: str, app: Application) -> None:
    first_id, second_id = (word.ljust(24, b"\0") for word in (b"one", b"two"))
    app.put(queue, b"first", MsgId=first_id, CorrelId=first_id)
    app.put(queue, b"second", MsgId=second_id, CorrelId=first_id)
    app.put(queue, b"third", CorrelId=second_id)

    assert app.take(queue, CorrelId=second_id).data == b"third"
    assert app.take(queue, MsgId=second_id).data == b"second"
    assert app.take(queue, MsgId=first_id, CorrelId=first_id).data == b"first"


def test_both_identifiers_must_match(queue: str, app: Application) -> None:
    first_id, second_id = (word.ljust(24, b"\0") for word in (b"one", b"two"))
    app.put(queue, MsgId=first_id, CorrelId=first_id)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, MsgId=first_id, CorrelId=second_id)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, MsgId=second_id)
    assert app.take(queue, MsgId=first_id, CorrelId=first_id)


# Truncation -----------------------------------------------------------------------------------------------------------


def test_a_message_longer_than_the_buffer_stays(queue: str, app: Application) -> None:
    app.put(queue, b"0123456789")
    with refused(cmqc.MQRC_TRUNCATED_MSG_FAILED):
        app.take(queue, MaxLength=9)
    assert app.take(queue, MaxLength=10).data == b"0123456789"


def test_a_truncated_message_is_accepted_on_request(queue: str, app: Application) -> None:
    app.put(queue, b"0123456789")
    message = app.take(queue, cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MaxLength=4)
    assert (message.data, message.DataLength, message.Reason) == (b"0123", 10, cmqc.MQRC_TRUNCATED_MSG_ACCEPTED)
    assert app.all(queue) == []


@pytest.mark.whole_mqi
def test_a_browse_that_fails_by_truncation_does_not_move_the_cursor(queue: str, app: Application) -> None:
    """MQRC 2080: the cursor does not move. With MQGMO_BROWSE_FIRST, it is before the first message."""
    for body in (b"1", b"22", b"3"):
        app.put(queue, body)
    handle = app.open_queue(queue)
    app.browse(handle)
    with refused(cmqc.MQRC_TRUNCATED_MSG_FAILED):
        app.browse(handle, MaxLength=1)
    assert app.browse(handle, BROWSE_UNDER_CURSOR) == b"1"
    assert app.browse(handle, cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MaxLength=0) == b""
    assert app.browse(handle, BROWSE_UNDER_CURSOR) == b"22"
    with refused(cmqc.MQRC_TRUNCATED_MSG_FAILED):
        app.browse(handle, BROWSE_FIRST, MaxLength=0)
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, BROWSE_UNDER_CURSOR)


# Expiry ---------------------------------------------------------------------------------------------------------------


def test_an_expired_message_cannot_be_got(mq: Workplace, queue: str, app: Application) -> None:
    app.put(queue, b"short", Expiry=1)
    app.put(queue, b"long", Expiry=6000)
    remaining = app.take(queue, MsgId=app.put(queue, b"x", Expiry=600).MsgId).md.Expiry
    assert 500 < remaining <= 600
    expired_at = time.monotonic() + 0.11
    while time.monotonic() < expired_at:
        time.sleep(0.01)
    assert app.all(queue) == [b"long"]
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 0


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("JMSDeliveryMode = 1", [b"persistent"]),
        ("JMSExpiration = -1", [b"persistent", b"other"]),
        ('JMSMessageID = "0x' + "41" * 24 + '"', [b"persistent"]),
    ],
)
def test_a_selector_uses_the_jms_names_of_mqmd_fields(
    queue: str, app: Application, selector: str, expected: Any
) -> None:
    """ "JMS fields and properties with corresponding MQMD fields"."""
    app.put(queue, b"persistent", Persistence=1, MsgId=b"A" * 24)
    app.put(queue, b"other", Persistence=0)
    handle = app.open(MQOD(ObjectName=queue, SelectionString=selector), cmqc.MQOO_INPUT_SHARED)
    assert app.drain(handle) == expected
