"""Batches of verbs (`bridge.mq.batch`): on every connection the same as the single verbs in a row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

import pytest
from msgspec import structs

from bridge.mq import batch
from bridge.mq.embedded.verbs import pipeline
from bridge.mq.ibm.connection import IbmConnection
from bridge.mq.mqi import MQPMO, GetOptions, Got, MQError, TruncatedMessage
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, Folder, encode_chain
from tests.helpers.mq_applications import INPUT, Application, Workplace
from tests.helpers.patience import PATIENCE

Refused = Callable[[int], AbstractContextManager[None]]
FIRST, NEXT = cmqc.MQGMO_BROWSE_FIRST, cmqc.MQGMO_BROWSE_NEXT
ACCEPT = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
BODIES = [b"%d" % number * 10 for number in range(7)]


@pytest.fixture(autouse=True)
def _at_leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the embedded queue manager would end batches early, as it may."""
    monkeypatch.setattr(pipeline, "MAX_SECONDS", 60)


def filled(mq: Workplace, app: Application, bodies: Sequence[bytes] = BODIES, attributes: str = "") -> str:
    queue = mq.queue(attributes)
    for body in bodies:
        app.put(queue, body)
    return queue


def many(
    app: Application, handle: int, options: int, messages: int = 100, size: int = 1000, **more: object
) -> list[Got]:
    return batch.get_many(app.connection, handle, GetOptions(Options=options, **more), messages, size)  # type: ignore[arg-type]


def each(app: Application, handle: int, options: int, msg_ids: list[bytes], size: int = 1000) -> list[Got | None]:
    wanted = GetOptions(Options=options, MatchOptions=cmqc.MQMO_MATCH_MSG_ID)
    return batch.get_each(app.connection, handle, wanted, msg_ids, size)


def bodies(found: Sequence[Got | None]) -> list[bytes | None]:
    return [None if got is None else got.data for got in found]


@pytest.mark.parametrize("options", [0, FIRST, FIRST | ACCEPT], ids=["gets", "browses", "glances"])
def test_what_is_got_is_what_single_verbs_get(mq: Workplace, app: Application, options: int) -> None:
    """All of it: MQMD, data, lengths, warnings, properties."""
    room = 4 if options & ACCEPT else None
    queue = filled(mq, app)
    app.put(queue, b"urgent", Priority=9, CorrelId=b"c" * 24, Format=cmqc.MQFMT_STRING)
    found = many(app, app.open_queue(queue), FIRST | options, MaxLength=room)
    if not options:
        assert [got.md for got in many(app, app.open_queue(queue), 0)] == [got.md for got in found]
        return
    handle = app.open_queue(queue)
    singles = [app.get(handle, GetOptions(Options=options, MaxLength=room))]
    singles += [app.get(handle, GetOptions(Options=options & ~FIRST | NEXT, MaxLength=room)) for _ in BODIES]
    assert found == singles
    assert app.drain(handle) == [b"urgent", *BODIES]


@pytest.mark.smoke
def test_a_batch_ends_at_its_bounds_and_the_next_goes_on_at_the_cursor(
    mq: Workplace, app: Application, refused: Refused
) -> None:
    handle = app.open_queue(filled(mq, app))
    assert bodies(many(app, handle, NEXT, messages=2)) == BODIES[:2]
    # The message that reaches the size still comes.
    assert bodies(many(app, handle, NEXT, size=11)) == BODIES[2:4]
    assert bodies(many(app, handle, NEXT, size=1)) == BODIES[4:5]
    assert app.browse(handle) == BODIES[5]
    assert bodies(many(app, handle, NEXT)) == BODIES[6:]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        many(app, handle, NEXT)
    assert bodies(many(app, handle, FIRST, messages=3)) == BODIES[:3]


@pytest.mark.smoke
def test_matches_hold_for_every_message(mq: Workplace, app: Application) -> None:
    queue = mq.queue()
    for number in range(6):
        app.put(queue, b"%d" % number, CorrelId=b"%d" % (number % 2) * 24)
    found = many(app, app.open_queue(queue), FIRST, MatchOptions=cmqc.MQMO_MATCH_CORREL_ID, CorrelId=b"1" * 24)
    assert bodies(found) == [b"1", b"3", b"5"]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "is backed out"])
def test_in_syncpoint(mq: Workplace, app: Application, other: Application, commits: bool) -> None:
    source, target = filled(mq, app), mq.queue()
    output = app.open_queue(target, cmqc.MQOO_OUTPUT)
    found = many(app, app.open_queue(source), cmqc.MQGMO_SYNCPOINT, messages=4)
    puts = [(output, Message(MQMD(), got.data), cmqc.MQPMO_SYNCPOINT) for got in found]
    assert len(batch.put_many(app.connection, puts)) == 4
    assert other.all(target) == []
    app.commit() if commits else app.backout()
    assert (other.all(target), other.all(source)) == ((BODIES[:4], BODIES[4:]) if commits else ([], BODIES))


def test_outside_of_syncpoint_all_is_done_at_once(mq: Workplace, app: Application, other: Application) -> None:
    source, target = filled(mq, app, attributes="DEFPSIST(YES)"), mq.queue("DEFPSIST(YES)")
    output = app.open_queue(target, cmqc.MQOO_OUTPUT)
    found = many(app, app.open_queue(source), cmqc.MQGMO_NO_SYNCPOINT, messages=4)
    puts = [(output, Message(MQMD(), got.data), cmqc.MQPMO_NO_SYNCPOINT) for got in found]
    mds = batch.put_many(app.connection, puts)
    app.backout()
    handle = other.open_queue(target)
    assert [(got.md.MsgId, got.data) for got in many(other, handle, 0)] == [
        (md.MsgId, body) for md, body in zip(mds, BODIES[:4], strict=True)
    ]
    assert other.all(source) == BODIES[4:]


def test_a_truncated_message_ends_a_batch_and_fails_the_next(mq: Workplace, app: Application) -> None:
    queue = filled(mq, app, [b"1", b"22", b"4444", b"1"])
    for options in (NEXT, 0):
        handle = app.open_queue(queue)
        assert bodies(many(app, handle, options, MaxLength=2)) == [b"1", b"22"]
        with pytest.raises(TruncatedMessage) as truncated:
            many(app, handle, options, MaxLength=2)
        assert (truncated.value.got.data, truncated.value.got.DataLength) == (b"44", 4)
    assert app.all(queue) == [b"4444", b"1"]


def test_only_the_first_is_waited_for(mq: Workplace, app: Application, other: Application) -> None:
    queue = mq.queue()
    handle = app.open_queue(queue)
    found: list[Got] = []
    waits = cmqc.MQGMO_WAIT | cmqc.MQGMO_SYNCPOINT

    def get() -> None:
        found.extend(many(app, handle, waits, WaitInterval=30_000))

    if not isinstance(app.connection, IbmConnection):  # belongs to the thread that made it
        waiting = threading.Thread(target=get)
        waiting.start()
        other.put(queue, b"1")
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
    else:
        other.put(queue, b"1")
        get()
    assert bodies(found) == [b"1"]
    app.commit()
    with pytest.raises(MQError, match="MQRC_NO_MSG_AVAILABLE"):
        many(app, handle, waits, WaitInterval=10)


# By MsgIds -----------------------------------------------------------------------------------------------------------


def test_messages_by_their_ids(mq: Workplace, app: Application) -> None:
    queue = filled(mq, app)
    handle = app.open_queue(queue)
    ids = [got.md.MsgId for got in many(app, handle, FIRST)]
    unknown = b"?" * 24
    assert bodies(each(app, handle, FIRST, [ids[3], unknown, ids[0]])) == [BODIES[3], None, BODIES[0]]
    # Behind the cursor, which a message that is not there leaves where it is.
    assert bodies(each(app, handle, NEXT, [ids[2], ids[1], unknown, ids[4]])) == [BODIES[2], None, None, BODIES[4]]
    assert bodies(each(app, handle, FIRST, ids[:4], size=15)) == BODIES[:2]
    assert bodies(each(app, handle, cmqc.MQGMO_SYNCPOINT, [ids[5], ids[5], ids[1]])) == [BODIES[5], None, BODIES[1]]
    app.backout()
    waits = cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_WAIT
    assert bodies(each(app, handle, waits, [unknown, *ids[:2]])) == [None, *BODIES[:2]]
    assert app.all(queue) == BODIES[2:]
    assert each(app, handle, FIRST, []) == []


def test_an_error_by_id_comes_at_the_message_that_has_it(mq: Workplace, app: Application, refused: Refused) -> None:
    handle = app.open_queue(filled(mq, app), cmqc.MQOO_BROWSE)
    (first, *_) = many(app, handle, FIRST)
    with refused(cmqc.MQRC_NOT_OPEN_FOR_INPUT):
        each(app, handle, 0, [first.md.MsgId])


# Without data --------------------------------------------------------------------------------------------------------

GLANCE = GetOptions(Options=ACCEPT | cmqc.MQGMO_NO_PROPERTIES, MaxLength=0)


def various(mq: Workplace, app: Application, other: Application, attributes: str = "") -> str:
    """A queue with messages of many kinds, some of which nobody else sees."""
    queue = filled(mq, app, attributes=attributes)
    app.put(queue, b"urgent", Priority=9)
    app.put(queue, b"until later", Expiry=6000)
    app.put(queue, b"has an id", MsgId=b"m" * 24)
    app.put(queue, b"of a group", Version=2, GroupId=b"g" * 24, MsgSeqNumber=2, MsgFlags=cmqc.MQMF_MSG_IN_GROUP)
    with_properties = encode_chain([RFH2(folders=(Folder.build("usr", {"a": 1}),))], b"body")
    app.put(queue, with_properties.data, Format=with_properties.Format)
    with_header = encode_chain([RFH2(folders=(Folder.build("own", {"a": 1}),))], b"body")
    app.put(queue, with_header.data, Format=with_header.Format, Expiry=6000)
    other.put(queue, b"uncommitted", options=cmqc.MQPMO_SYNCPOINT)
    handle = other.open_queue(queue)
    other.get(handle, GetOptions(Options=cmqc.MQGMO_SYNCPOINT))
    other.get(handle, GetOptions(Options=FIRST | cmqc.MQGMO_LOCK))
    return queue


def looked_singly(app: Application, handle: int, options: int, **more: object) -> list[batch.Seen]:
    found = []
    wanted = structs.replace(GLANCE, Options=options | GLANCE.Options, **more)
    with suppress(MQError):
        while True:
            got = app.get(handle, wanted)
            fingerprint = batch.fingerprint_by(app.connection)(got)
            found.append(batch.Seen(got.md.MsgId, fingerprint, got.md.Expiry != cmqc.MQEI_UNLIMITED, got.DataLength))
            wanted.Options = wanted.Options & ~FIRST | NEXT
    return found


def looked(app: Application, handle: int, options: int, messages: int = 100, **more: object) -> list[batch.Seen]:
    return batch.look_many(app.connection, handle, GetOptions(Options=options, **more), messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("attributes", ["", "MSGDLVSQ(FIFO)", "USAGE(XMITQ)"])
@pytest.mark.parametrize(
    "options, more",
    [
        (0, {}),
        (cmqc.MQGMO_CONVERT, {}),
        (cmqc.MQGMO_LOGICAL_ORDER, {}),
        (cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_UNMARKED_BROWSE_MSG, {}),
        (0, {"MatchOptions": cmqc.MQMO_MATCH_MSG_ID, "MsgId": b"m" * 24}),
        (0, {"MatchOptions": cmqc.MQMO_MATCH_GROUP_ID, "GroupId": b"g" * 24}),
    ],
    ids=["browses", "converts", "logical order", "marks", "by MsgId", "by GroupId"],
)
def test_what_is_seen_is_what_single_verbs_see(
    mq: Workplace, app: Application, other: Application, options: int, more: dict[str, object], attributes: str
) -> None:
    queue = various(mq, app, other, attributes)
    singles = looked_singly(app, app.open_queue(queue), FIRST | options, **more)
    assert singles
    assert looked(app, app.open_queue(queue), FIRST | options, **more) == singles


def test_publications_are_seen_without_their_properties(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    _, handle = app.subscribe(topic)
    app.publish(topic, b"12345")
    assert [one.length for one in looked(app, handle, FIRST)] == [5]
    assert [one.length for one in looked_singly(app, handle, FIRST)] == [5]


def test_looks_move_the_cursor_and_end_at_their_bound(mq: Workplace, app: Application, refused: Refused) -> None:
    handle = app.open_queue(filled(mq, app))
    whole = looked(app, handle, FIRST)
    assert [one.length for one in whole] == [len(body) for body in BODIES]
    assert looked(app, handle, FIRST, messages=3) == whole[:3]
    assert app.browse(handle) == BODIES[3]
    assert looked(app, handle, NEXT) == whole[4:]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        looked(app, handle, NEXT)
    assert looked(app, handle, FIRST, messages=1) == whole[:1]


def test_an_expired_message_is_not_seen_and_not_taken(mq: Workplace, app: Application, refused: Refused) -> None:
    queue = mq.queue()
    short, long = (app.put(queue, b"x", Expiry=expiry) for expiry in (1, 6000))
    handle = app.open_queue(queue)
    while len(found := looked(app, handle, FIRST)) > 1:
        pass
    assert [(one.msg_id, one.expires, one.length) for one in found] == [(long.MsgId, True, 1)]
    assert took(app, handle, cmqc.MQGMO_SYNCPOINT, [short.MsgId, long.MsgId]) == [False, True]


def took(app: Application, handle: int, options: int, msg_ids: list[bytes]) -> list[bool]:
    wanted = GetOptions(Options=options, MatchOptions=cmqc.MQMO_MATCH_MSG_ID)
    return batch.take_each(app.connection, handle, wanted, [(msg_id, b"") for msg_id in msg_ids])


@pytest.mark.parametrize("attributes", ["", "MSGDLVSQ(FIFO)", "USAGE(XMITQ)"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 1, 0, 3, 2], [0, 0, 2, 1, 2, 3]])
def test_what_is_taken_is_what_single_verbs_take(
    mq: Workplace, app: Application, other: Application, order: list[int], attributes: str
) -> None:
    queue = various(mq, app, other, attributes)
    handle = app.open_queue(queue)
    ids = [one.msg_id for one in looked(app, handle, FIRST)]
    wanted = [*(ids[number] for number in order), b"?" * 24, bytes(24), b"m" * 24]
    singly = [got is not None for got in each(app, handle, cmqc.MQGMO_SYNCPOINT | ACCEPT, wanted)]
    left = looked(app, handle, FIRST)
    app.backout()
    assert took(app, handle, cmqc.MQGMO_SYNCPOINT, wanted) == singly
    assert looked(app, handle, FIRST) == left
    app.backout()
    assert [one.msg_id for one in looked(app, handle, FIRST)] == ids
    assert took(app, handle, cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_WAIT, wanted) == singly
    app.backout()
    assert looked(app, handle, FIRST) == left
    assert took(app, handle, 0, []) == []


def test_more_than_a_unit_of_work_has_room_for_is_not_taken(
    mq: Workplace, app: Application, refused: Refused
) -> None:
    mq.alter(MAXUMSGS=3)
    handle = app.open_queue(filled(mq, app))
    ids = [one.msg_id for one in looked(app, handle, FIRST)]
    assert took(app, handle, cmqc.MQGMO_SYNCPOINT, ids) == [True] * 3
    with refused(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED):
        took(app, handle, cmqc.MQGMO_SYNCPOINT, ids[3:])
    app.commit()
    assert [one.msg_id for one in looked(app, handle, FIRST)] == ids[3:]


def test_what_asks_for_more_than_the_message_is_done_as_well(mq: Workplace, app: Application) -> None:
    """A report on delivery, and the context of the message that was got last."""
    queue, reports, target = mq.queue(), mq.queue(), mq.queue()
    put = app.put(queue, b"x", Report=cmqc.MQRO_COD, ReplyToQ=reports.encode())
    handle = app.open_queue(queue, cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_SAVE_ALL_CONTEXT)
    output = app.open_queue(target, cmqc.MQOO_OUTPUT | cmqc.MQOO_PASS_ALL_CONTEXT)
    assert took(app, handle, cmqc.MQGMO_SYNCPOINT, [put.MsgId]) == [True]
    pmo = MQPMO(Options=cmqc.MQPMO_PASS_ALL_CONTEXT, Context=handle)
    assert app.connection.put(output, Message(MQMD(), b"y"), pmo).PutTime == put.PutTime
    app.commit()
    assert app.take(reports).md.CorrelId == put.MsgId


def test_errors_of_looks_and_removals(mq: Workplace, app: Application, refused: Refused) -> None:
    queue = filled(mq, app)
    browse, take = app.open_queue(queue, cmqc.MQOO_BROWSE), app.open_queue(queue, INPUT)
    for reason, call in {
        cmqc.MQRC_NOT_OPEN_FOR_BROWSE: lambda: looked(app, take, FIRST),
        cmqc.MQRC_NOT_OPEN_FOR_INPUT: lambda: took(app, browse, 0, [bytes(24)]),
        cmqc.MQRC_OPTIONS_ERROR: lambda: looked(app, browse, FIRST | NEXT),
        cmqc.MQRC_HOBJ_ERROR: lambda: took(app, 99, 0, [bytes(24)]),
    }.items():
        with refused(reason):
            call()
    mq.command(f"ALTER QLOCAL('{queue}') GET(DISABLED)")
    for call in (lambda: looked(app, browse, FIRST), lambda: took(app, take, 0, [bytes(24)])):
        with refused(cmqc.MQRC_GET_INHIBITED):
            call()


# Puts ----------------------------------------------------------------------------------------------------------------


def test_puts_to_several_queues_in_order(mq: Workplace, app: Application) -> None:
    queues = [mq.queue(), mq.queue()]
    handles = [app.open_queue(queue, cmqc.MQOO_OUTPUT) for queue in queues]
    puts = [(handles[number % 2], Message(MQMD(Priority=number), body), 0) for number, body in enumerate(BODIES)]
    mds = batch.put_many(app.connection, puts)
    assert [md.Priority for md in mds] == list(range(7))
    assert [app.all(queue) for queue in queues] == [BODIES[::-2], BODIES[-2::-2]]
    assert batch.put_many(app.connection, []) == []


def test_more_puts_than_go_at_once(mq: Workplace, app: Application) -> None:
    queue = mq.queue()
    output = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    sent = [b"%d" % number for number in range(batch.MESSAGES + 10)] + [bytes(batch.SIZE // 2)] * 3
    puts = [(output, Message(MQMD(), body), cmqc.MQPMO_SYNCPOINT) for body in sent]
    while puts:
        puts = puts[len(batch.put_many(app.connection, puts)) :]
    app.commit()
    assert app.all(queue) == sent


def test_a_put_that_is_refused_ends_a_batch_and_fails_the_next(
    mq: Workplace, app: Application, refused: Refused
) -> None:
    queue = mq.queue("MAXDEPTH(3)")
    output = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    puts = [(output, Message(MQMD(), body), cmqc.MQPMO_NO_SYNCPOINT) for body in BODIES]
    assert len(batch.put_many(app.connection, puts)) == 3
    with refused(cmqc.MQRC_Q_FULL):
        batch.put_many(app.connection, puts[3:])
    assert app.all(queue) == BODIES[:3]


def test_messages_of_one_msg_id_are_seen_apart_and_the_one_that_is_meant_is_taken(mq: Workplace, app: Application) -> None:
    """Or none: where the queue manager cannot be asked for it, the caller is told that it was another."""
    queue = mq.queue()
    for number in range(3):
        app.put(queue, b"%d" % number, MsgId=b"M" * 24, CorrelId=bytes([number + 1]) * 24)
    handle = app.open_queue(queue)
    seen = looked(app, handle, FIRST)
    assert len({one.fingerprint for one in seen}) == 3
    wanted = GetOptions(Options=cmqc.MQGMO_SYNCPOINT, MatchOptions=cmqc.MQMO_MATCH_MSG_ID)
    _, second, _ = [[(one.msg_id, one.fingerprint)] for one in seen]
    try:
        assert batch.take_each(app.connection, handle, wanted, second) == [True]
    except batch.OtherMessage:
        app.backout()
        assert looked(app, handle, FIRST) == seen
    else:
        assert batch.take_each(app.connection, handle, wanted, second) == [False]
        app.commit()
        assert looked(app, handle, FIRST) == [seen[0], seen[2]]
    assert batch.take_each(app.connection, handle, wanted, [(seen[0].msg_id, seen[0].fingerprint)]) == [True]
