"""Messages on queues: put, get, browse, order, limits (IBM MQ documentation, "MQPUT", "MQGET", "API reason codes")."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from bridge.mapping.message import Message
from bridge.mq.mqi import MQOD, MQPMO, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.support.patience import PATIENCE

BROWSE_FIRST, BROWSE_NEXT = cmqc.MQGMO_BROWSE_FIRST, cmqc.MQGMO_BROWSE_NEXT
UNDER_CURSOR, BROWSE_UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR, cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR


# The message that is got is the one that was put -----------------------------------------------------------------------


def test_put_and_get_keep_data_and_descriptor(mq, app, other):
    queue = mq.queue()
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

    got = other.take(queue)

    assert got.data == b"\x00\xff payload"
    assert got.DataLength == len(got.data)
    assert got.Reason == cmqc.MQRC_NONE
    assert got.ResolvedQName == queue
    assert msgspec.structs.replace(got.md, Version=put.Version) == put
    for field in ("MsgType", "Format", "Encoding", "CodedCharSetId", "Priority", "Persistence", "CorrelId", "ReplyToQ"):
        assert getattr(got.md, field) == getattr(descriptor, field), field
    assert got.md.ReplyToQMgr == mq.manager.encode()
    assert got.md.BackoutCount == 0
    assert got.md.Expiry == cmqc.MQEI_UNLIMITED


def test_the_queue_manager_completes_the_descriptor(mq, app):
    queue = mq.queue("DEFPRTY(3) DEFPSIST(YES)")
    before = time.strftime("%Y%m%d%H%M%S", time.gmtime()).encode()
    put = app.put(queue, b"x")
    after = time.strftime("%Y%m%d%H%M%S", time.gmtime()).encode()

    assert (put.Priority, put.Persistence) == (3, cmqc.MQPER_PERSISTENT)
    assert put.MsgId[:16] == b"AMQ " + mq.manager[:12].ljust(12).encode()
    assert before <= put.PutDate + put.PutTime[:6] <= after
    assert put.PutApplName
    assert put.CodedCharSetId not in (cmqc.MQCCSI_Q_MGR, 0)


def test_every_message_gets_its_own_msg_id(mq, app):
    queue = mq.queue()
    assert len({app.put(queue).MsgId for _ in range(50)}) == 50


def test_a_given_msg_id_is_kept_and_new_ones_are_made_on_request(mq, app):
    queue = mq.queue()
    mine = b"mine".ljust(24, b"\1")
    assert app.put(queue, MsgId=mine).MsgId == mine
    assert app.take(queue).md.MsgId == mine

    renewed = app.put(queue, MsgId=mine, CorrelId=mine, options=cmqc.MQPMO_NEW_MSG_ID | cmqc.MQPMO_NEW_CORREL_ID)
    assert mine not in (renewed.MsgId, renewed.CorrelId)
    assert renewed.CorrelId != cmqc.MQCI_NONE
    assert app.take(queue).md.CorrelId == renewed.CorrelId


@pytest.mark.parametrize("length", [0, 1, 100_000])
def test_any_length_of_data(mq, app, length):
    queue = mq.queue()
    app.put(queue, b"z" * length)
    assert app.take(queue).data == b"z" * length


def test_the_context_of_a_message_is_its_putters_unless_passed(mq, app):
    queue = mq.queue()
    app.put(queue, UserIdentifier=b"impostor")
    assert app.take(queue).md.UserIdentifier != b"impostor"
    app.put(queue, UserIdentifier=b"device7", options=cmqc.MQPMO_SET_IDENTITY_CONTEXT)
    assert app.take(queue).md.UserIdentifier == b"device7"


# Order ---------------------------------------------------------------------------------------------------------------


def test_higher_priority_first_and_first_in_first_out_within(mq, app):
    queue = mq.queue()
    for text, priority in (("a4", 4), ("b0", 0), ("c9", 9), ("d4", 4), ("e9", 9), ("f0", 0)):
        app.put(queue, text.encode(), Priority=priority)
    assert app.all(queue) == [b"c9", b"e9", b"a4", b"d4", b"b0", b"f0"]


def test_msgdlvsq_fifo_disregards_priority(mq, app):
    queue = mq.queue("MSGDLVSQ(FIFO)")
    for text, priority in (("a", 0), ("b", 9), ("c", 4)):
        app.put(queue, text.encode(), Priority=priority)
    handle = app.open_queue(queue)
    assert [app.browse(handle) for _ in range(3)] == [b"a", b"b", b"c"]
    assert app.drain(handle) == [b"a", b"b", b"c"]


def test_priority_as_queue_default(mq, app):
    queue = mq.queue("DEFPRTY(5)")
    app.put(queue, b"four", Priority=4)
    app.put(queue, b"default")
    assert app.all(queue) == [b"default", b"four"]


# Getting a certain message -------------------------------------------------------------------------------------------


def test_get_by_msg_id_and_by_correl_id(mq, app):
    queue = mq.queue()
    one, two = (word.ljust(24, b"\0") for word in (b"one", b"two"))
    app.put(queue, b"first", MsgId=one, CorrelId=one)
    app.put(queue, b"second", MsgId=two, CorrelId=one)
    app.put(queue, b"third", CorrelId=two)

    assert app.take(queue, CorrelId=two).data == b"third"
    assert app.take(queue, MsgId=two).data == b"second"
    assert app.take(queue, MsgId=one, CorrelId=one).data == b"first"


def test_both_identifiers_must_match(mq, app, refused):
    queue = mq.queue()
    one, two = (word.ljust(24, b"\0") for word in (b"one", b"two"))
    app.put(queue, MsgId=one, CorrelId=one)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, MsgId=one, CorrelId=two)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, MsgId=two)
    assert app.take(queue, MsgId=one, CorrelId=one)


def test_get_by_a_generated_msg_id(mq, app):
    queue = mq.queue()
    made = [app.put(queue, str(number).encode()).MsgId for number in range(3)]
    assert app.take(queue, MsgId=made[1]).data == b"1"
    assert app.all(queue) == [b"0", b"2"]


# Waiting -------------------------------------------------------------------------------------------------------------


def test_an_empty_queue(mq, app, refused):
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(mq.queue())


def test_a_wait_ends_with_its_interval(mq, app, refused):
    queue = mq.queue()
    start = time.monotonic()
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, cmqc.MQGMO_WAIT, WaitInterval=50)
    assert time.monotonic() - start >= 0.045


def waiting_get(application, queue, **options):
    """A get that waits in a thread; (thread, results)."""
    results = []
    handle = application.open_queue(queue)

    def get():
        try:
            results.append(application.get(handle, GetOptions(Options=cmqc.MQGMO_WAIT, **options)).data)
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    return thread, results


def test_a_waiting_get_is_woken_by_a_put(mq, app, other):
    queue = mq.queue()
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    other.put(queue, b"at last")
    thread.join(PATIENCE)
    assert results == [b"at last"]


def test_a_waiting_get_is_woken_by_the_commit_not_by_the_put(mq, app, other):
    queue = mq.queue()
    thread, results = waiting_get(app, queue, WaitInterval=cmqc.MQWI_UNLIMITED)
    other.put(queue, b"uncommitted", options=cmqc.MQPMO_SYNCPOINT)
    thread.join(0.05)
    assert results == []
    other.commit()
    thread.join(PATIENCE)
    assert results == [b"uncommitted"]


def test_a_waiting_get_is_woken_by_a_backout(mq, app, other):
    queue = mq.queue()
    app.put(queue, b"m")
    other.take(queue, cmqc.MQGMO_SYNCPOINT)
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    other.backout()
    thread.join(PATIENCE)
    assert results == [b"m"]


def test_a_get_that_waits_for_one_message_waits_on_when_others_come(mq, app, other):
    """Woken in vain, it must not miss the next one."""
    queue = mq.queue()
    wanted = b"wanted".ljust(24, b"\0")
    thread, results = waiting_get(app, queue, WaitInterval=20_000, CorrelId=wanted)
    for number in range(5):
        other.put(queue, str(number).encode())
    other.put(queue, b"the one", CorrelId=wanted)
    thread.join(PATIENCE)
    assert results == [b"the one"]
    assert other.all(queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_each_message_goes_to_one_of_several_that_wait(mq, other):
    queue = mq.queue()
    waiting = [waiting_get(mq.application(), queue, WaitInterval=20_000) for _ in range(4)]
    for number in range(4):
        other.put(queue, str(number).encode())
    for thread, _ in waiting:
        thread.join(PATIENCE)
    assert sorted(result for _, results in waiting for result in results) == [b"0", b"1", b"2", b"3"]


def test_a_browse_waits_too(mq, app, other):
    queue = mq.queue()
    results = []
    handle = app.open_queue(queue, cmqc.MQOO_BROWSE)
    thread = threading.Thread(
        target=lambda: results.append(app.browse(handle, BROWSE_NEXT | cmqc.MQGMO_WAIT, WaitInterval=20_000)),
        daemon=True,
    )
    thread.start()
    other.put(queue, b"seen")
    thread.join(PATIENCE)
    assert results == [b"seen"]


def test_get_disabled_ends_a_wait(mq, app):
    """MQRC 2016: "... or MQGET with MQGMO_WAIT, and the queue was inhibited while the call was waiting"."""
    queue = mq.queue()
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    mq.command(f"ALTER QLOCAL('{queue}') GET(DISABLED)")
    thread.join(PATIENCE)
    assert [error.reason for error in results] == [cmqc.MQRC_GET_INHIBITED]


# Browsing ------------------------------------------------------------------------------------------------------------


def test_browse_leaves_messages_where_they_are(mq, app, refused):
    queue = mq.queue()
    for data in (b"1", b"2", b"3"):
        app.put(queue, data)
    handle = app.open_queue(queue)
    assert app.browse(handle, BROWSE_FIRST) == b"1"
    assert app.browse(handle) == b"2"
    assert app.browse(handle, BROWSE_UNDER_CURSOR) == b"2"
    assert app.browse(handle) == b"3"
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle)
    assert app.browse(handle, BROWSE_FIRST) == b"1"
    assert app.drain(handle) == [b"1", b"2", b"3"]


def test_browse_next_begins_at_the_first(mq, app):
    queue = mq.queue()
    app.put(queue, b"low", Priority=0)
    app.put(queue, b"high", Priority=9)
    handle = app.open_queue(queue)
    assert [app.browse(handle), app.browse(handle)] == [b"high", b"low"]


def test_browse_goes_on_where_it_was_when_its_message_is_taken(mq, app, other):
    queue = mq.queue()
    for data in (b"1", b"2", b"3", b"4"):
        app.put(queue, data)
    handle = app.open_queue(queue, cmqc.MQOO_BROWSE)
    assert app.browse(handle) == b"1"
    assert app.browse(handle) == b"2"
    assert [other.take(queue).data for _ in range(3)] == [b"1", b"2", b"3"]
    assert app.browse(handle) == b"4"


def test_browse_goes_on_across_priorities_when_its_message_is_taken(mq, app, other, refused):
    queue = mq.queue()
    for data, priority in ((b"9", 9), (b"5", 5), (b"5b", 5), (b"0", 0)):
        app.put(queue, data, Priority=priority)
    handle = app.open_queue(queue, cmqc.MQOO_BROWSE)
    assert [app.browse(handle), app.browse(handle)] == [b"9", b"5"]
    other.take(queue)
    other.take(queue)
    other.put(queue, b"9 again", Priority=9)  # behind the cursor: not seen
    assert [app.browse(handle), app.browse(handle)] == [b"5b", b"0"]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle)
    other.put(queue, b"0 too", Priority=0)
    assert app.browse(handle) == b"0 too"


def test_browse_goes_past_messages_that_expire_meanwhile(mq, app):
    queue = mq.queue()
    app.put(queue, b"first")
    app.put(queue, b"short-lived", Expiry=1)
    app.put(queue, b"last")
    handle = app.open_queue(queue)
    assert app.browse(handle) == b"first"
    expired_at = time.monotonic() + 0.11
    while time.monotonic() < expired_at:
        time.sleep(0.01)
    assert app.browse(handle) == b"last"


def test_get_under_the_cursor(mq, app, refused):
    queue = mq.queue()
    for data in (b"1", b"2", b"3"):
        app.put(queue, data)
    handle = app.open_queue(queue)
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, UNDER_CURSOR)
    app.browse(handle)
    app.browse(handle)
    assert app.browse(handle, UNDER_CURSOR) == b"2"
    for options in (UNDER_CURSOR, BROWSE_UNDER_CURSOR):
        with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
            app.browse(handle, options)
    assert app.browse(handle) == b"3"
    assert app.drain(handle) == [b"1", b"3"]


def test_the_message_under_the_cursor_may_be_gone(mq, app, other, refused):
    queue = mq.queue()
    app.put(queue, b"1")
    handle = app.open_queue(queue)
    app.browse(handle)
    other.take(queue)
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, UNDER_CURSOR)


def test_browse_by_correl_id(mq, app, refused):
    queue = mq.queue()
    key = b"key".ljust(24, b"\0")
    for data, correlation in ((b"1", key), (b"2", bytes(24)), (b"3", key)):
        app.put(queue, data, CorrelId=correlation)
    handle = app.open_queue(queue)
    assert [app.browse(handle, CorrelId=key), app.browse(handle, CorrelId=key)] == [b"1", b"3"]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle, CorrelId=key)


def test_each_handle_has_its_own_cursor(mq, app):
    queue = mq.queue()
    app.put(queue, b"1")
    app.put(queue, b"2")
    one, two = app.open_queue(queue), app.open_queue(queue)
    assert [app.browse(one), app.browse(one), app.browse(two)] == [b"1", b"2", b"1"]


# Truncation ----------------------------------------------------------------------------------------------------------


def test_a_message_longer_than_the_buffer_stays(mq, app, refused):
    queue = mq.queue()
    app.put(queue, b"0123456789")
    with refused(cmqc.MQRC_TRUNCATED_MSG_FAILED):
        app.take(queue, MaxLength=9)
    assert app.take(queue, MaxLength=10).data == b"0123456789"


def test_a_truncated_message_is_accepted_on_request(mq, app):
    queue = mq.queue()
    app.put(queue, b"0123456789")
    got = app.take(queue, cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MaxLength=4)
    assert (got.data, got.DataLength, got.Reason) == (b"0123", 10, cmqc.MQRC_TRUNCATED_MSG_ACCEPTED)
    assert app.all(queue) == []


def test_a_browse_that_fails_by_truncation_leaves_the_cursor(mq, app, refused):
    """MQRC 2080: the cursor remains where it was; with MQGMO_BROWSE_FIRST it is before the first message."""
    queue = mq.queue()
    for data in (b"1", b"22", b"3"):
        app.put(queue, data)
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


# Expiry --------------------------------------------------------------------------------------------------------------


def test_an_expired_message_cannot_be_got(mq, app, refused):
    queue = mq.queue()
    app.put(queue, b"short", Expiry=1)
    app.put(queue, b"long", Expiry=6000)
    left = app.take(queue, MsgId=app.put(queue, b"x", Expiry=600).MsgId).md.Expiry
    assert 500 < left <= 600
    expired_at = time.monotonic() + 0.11
    while time.monotonic() < expired_at:
        time.sleep(0.01)
    assert app.all(queue) == [b"long"]
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 0


# Limits and refusals -------------------------------------------------------------------------------------------------


def test_maxdepth(mq, app, refused):
    queue = mq.queue("MAXDEPTH(2)")
    app.put(queue)
    app.put(queue)
    with refused(cmqc.MQRC_Q_FULL):
        app.put(queue)
    app.take(queue)
    app.put(queue)


def test_uncommitted_messages_count_for_maxdepth(mq, app, other, refused):
    queue = mq.queue("MAXDEPTH(1)")
    app.put(queue, options=cmqc.MQPMO_SYNCPOINT)
    with refused(cmqc.MQRC_Q_FULL):
        other.put(queue)
    app.backout()
    other.put(queue)
    app.take(queue, cmqc.MQGMO_SYNCPOINT)
    with refused(cmqc.MQRC_Q_FULL):
        other.put(queue)
    app.commit()
    other.put(queue)


def test_maxmsgl(mq, app, refused):
    queue = mq.queue("MAXMSGL(10)")
    app.put(queue, b"0" * 10)
    with refused(cmqc.MQRC_MSG_TOO_BIG_FOR_Q):
        app.put(queue, b"0" * 11)


def test_maxmsgl_of_the_queue_manager(mq, app, refused):
    queue = mq.queue("MAXMSGL(104857600)")
    mq.alter(MAXMSGL="32768")
    app.put(queue, b"0" * 32_768)
    with refused(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR):
        app.put(queue, b"0" * 32_769)


def test_put_disabled_and_get_disabled(mq, app, refused):
    queue = mq.queue()
    handle = app.open_queue(queue, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT)
    app.put(queue, b"1")
    mq.command(f"ALTER QLOCAL('{queue}') PUT(DISABLED) GET(DISABLED)")
    with refused(cmqc.MQRC_PUT_INHIBITED):
        app.connection.put(handle, Message(MQMD(), b""))
    with refused(cmqc.MQRC_PUT_INHIBITED):
        app.put(queue)
    for options in (0, BROWSE_FIRST):
        with refused(cmqc.MQRC_GET_INHIBITED):
            app.browse(handle, options)
    mq.command(f"ALTER QLOCAL('{queue}') PUT(ENABLED) GET(ENABLED)")
    app.connection.put(handle, Message(MQMD(), b"2"))
    assert app.drain(handle) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("Priority", -2, cmqc.MQRC_PRIORITY_ERROR),
        ("Persistence", 3, cmqc.MQRC_PERSISTENCE_ERROR),
        ("Expiry", 0, cmqc.MQRC_EXPIRY_ERROR),
        ("Expiry", -2, cmqc.MQRC_EXPIRY_ERROR),
    ],
)
@pytest.mark.parametrize("to", ["queue", "topic"])
def test_descriptor_fields_are_checked(mq, app, refused, field, value, reason, to):
    with refused(reason):
        if to == "queue":
            app.put(mq.queue(), **{field: value})
        else:
            app.publish(mq.name(), **{field: value})


def test_a_priority_above_the_maximum_counts_as_the_maximum(mq, app):
    """MQRC 2049: "the message is accepted, but is placed on the queue at the queue manager's maximum priority"."""
    queue = mq.queue()
    app.put(queue, b"9", Priority=9)
    options = MQPMO()
    app.put(queue, b"10", Priority=10, options=options)
    assert options.Reason == cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM
    app.put(queue, b"9 too", Priority=9)
    assert app.all(queue) == [b"9", b"10", b"9 too"]


def test_exclusive_input(mq, app, other, refused):
    queue = mq.queue()
    handle = app.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)
    for options in (cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_INPUT_EXCLUSIVE, cmqc.MQOO_INPUT_AS_Q_DEF):
        with refused(cmqc.MQRC_OBJECT_IN_USE):
            other.open_queue(queue, options)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        app.open_queue(queue, cmqc.MQOO_INPUT_SHARED)
    other.open_queue(queue, cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT)
    app.close(handle)
    shared = other.open_queue(queue, cmqc.MQOO_INPUT_SHARED)
    app.open_queue(queue, cmqc.MQOO_INPUT_SHARED)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        app.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)
    other.close(shared)


def test_defsopt_and_share_decide_what_input_as_q_def_is(mq, app, other, refused):
    exclusive = mq.queue("DEFSOPT(EXCL)")
    app.open_queue(exclusive, cmqc.MQOO_INPUT_AS_Q_DEF)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        other.open_queue(exclusive, cmqc.MQOO_INPUT_SHARED)
    for_one = mq.queue("NOSHARE")
    app.open_queue(for_one, cmqc.MQOO_INPUT_SHARED)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        other.open_queue(for_one, cmqc.MQOO_INPUT_SHARED)


def test_exclusive_input_ends_with_the_connection(mq, app, other):
    queue = mq.queue()
    app.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)
    app.connection.disconnect()
    other.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)


def test_a_handle_is_good_for_what_it_was_opened_for(mq, app, refused):
    queue = mq.queue()
    app.put(queue)
    output = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    browse = app.open_queue(queue, cmqc.MQOO_BROWSE)
    get = app.open_queue(queue, cmqc.MQOO_INPUT_SHARED)
    with refused(cmqc.MQRC_NOT_OPEN_FOR_INPUT):
        app.browse(output, 0)
    with refused(cmqc.MQRC_NOT_OPEN_FOR_INPUT):
        app.browse(browse, 0)
    with refused(cmqc.MQRC_NOT_OPEN_FOR_BROWSE):
        app.browse(get, BROWSE_FIRST)
    with refused(cmqc.MQRC_NOT_OPEN_FOR_OUTPUT):
        app.connection.put(get, Message(MQMD(), b""))


def test_wrong_handles(mq, app, other, refused):
    queue = mq.queue()
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT | cmqc.MQOO_INPUT_SHARED)
    foreign = max(handle, other.open_queue(queue)) + 1000
    app.close(handle)
    for wrong in (handle, foreign, 0, -1):
        with refused(cmqc.MQRC_HOBJ_ERROR):
            app.get(wrong, GetOptions())
        with refused(cmqc.MQRC_HOBJ_ERROR):
            app.connection.put(wrong, Message(MQMD(), b""))
        with refused(cmqc.MQRC_HOBJ_ERROR):
            app.close(wrong)


@pytest.mark.parametrize(
    "options", [0, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE, cmqc.MQOO_FAIL_IF_QUIESCING]
)
def test_options_of_open(mq, app, refused, options):
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.open_queue(mq.queue(), options)


@pytest.mark.parametrize(
    "options",
    [
        cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_NO_SYNCPOINT,
        BROWSE_FIRST | BROWSE_NEXT,
        BROWSE_NEXT | BROWSE_UNDER_CURSOR,
        BROWSE_FIRST | UNDER_CURSOR,
        BROWSE_FIRST | cmqc.MQGMO_SYNCPOINT,
    ],
)
def test_options_of_get(mq, app, refused, options):
    """ "Rules for validating MQI options": one of the browse options, and not with MQGMO_SYNCPOINT."""
    queue = mq.queue()
    app.put(queue)
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.take(queue, options)


def test_options_of_put(mq, app, refused):
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.put(mq.queue(), options=cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT)


def test_object_types(mq, app, refused):
    with refused(cmqc.MQRC_OBJECT_TYPE_ERROR):
        app.open(MQOD(ObjectType=cmqc.MQOT_CHANNEL, ObjectName=mq.queue()), cmqc.MQOO_INQUIRE)


def test_maxhands(mq, app, refused):
    queue = mq.queue()
    mq.alter(MAXHANDS="3")
    handles = [app.open_queue(queue) for _ in range(3)]
    with refused(cmqc.MQRC_HANDLE_NOT_AVAILABLE):
        app.open_queue(queue)
    app.close(handles[0])
    app.open_queue(queue)


def test_after_mqdisc_the_connection_handle_is_wrong(mq, app, refused):
    queue = mq.queue()
    app.connection.disconnect()
    with refused(cmqc.MQRC_HCONN_ERROR):
        app.open_queue(queue)
    with refused(cmqc.MQRC_HCONN_ERROR):
        app.commit()
