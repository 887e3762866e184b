"""Batches of verbs (`bridge.mq.remote`): on each connection, a batch has the same result as single verbs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from bridge.mq import remote
from bridge.mq.embedded import server
from bridge.mq.ibm.connection import IbmConnection
from bridge.mq.mqi import GetOptions, Got, MQError, TruncatedMessage
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused
from tests.helpers.patience import PATIENCE

FIRST, NEXT = cmqc.MQGMO_BROWSE_FIRST, cmqc.MQGMO_BROWSE_NEXT
ACCEPT = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
BODIES = [b"%d" % number * 10 for number in range(7)]


@pytest.fixture(autouse=True)
def _at_leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the embedded queue manager may end batches early."""
    monkeypatch.setattr(server, "MAX_PIPELINE_SECONDS", 60)


def filled(mq: Workplace, app: Application, bodies: Sequence[bytes] = BODIES, attributes: str = "") -> str:
    queue = mq.queue(attributes)
    for body in bodies:
        app.put(queue, body)
    return queue


def many(
    app: Application, handle: int, options: int, messages: int = 100, size: int = 1000, **more: object
) -> list[Got]:
    return remote.get_many(app.connection, handle, GetOptions(Options=options, **more), messages, size)


def bodies(messages: Sequence[Got | None]) -> list[bytes | None]:
    return [None if message is None else message.data for message in messages]


@pytest.mark.parametrize("options", [0, FIRST, FIRST | ACCEPT], ids=["gets", "browses", "glances"])
def test_a_batch_gets_the_same_messages_as_single_verbs(mq: Workplace, app: Application, options: int) -> None:
    """MQMD, data, lengths, warnings and properties are the same."""
    room = 4 if options & ACCEPT else None
    queue = filled(mq, app)
    app.put(queue, b"urgent", Priority=9, CorrelId=b"c" * 24, Format=cmqc.MQFMT_STRING)
    batch = many(app, app.open_queue(queue), FIRST | options, MaxLength=room)
    if not options:
        assert [message.md for message in many(app, app.open_queue(queue), 0)] == [message.md for message in batch]
        return
    handle = app.open_queue(queue)
    singles = [app.get(handle, GetOptions(Options=options, MaxLength=room))]
    singles += [app.get(handle, GetOptions(Options=options & ~FIRST | NEXT, MaxLength=room)) for _ in BODIES]
    assert batch == singles
    assert app.drain(handle) == [b"urgent", *BODIES]


@pytest.mark.smoke
def test_a_batch_ends_at_its_limits_and_the_next_one_continues_at_the_cursor(mq: Workplace, app: Application) -> None:
    handle = app.open_queue(filled(mq, app))
    assert bodies(many(app, handle, NEXT, messages=2)) == BODIES[:2]
    # The message that reaches the size is included.
    assert bodies(many(app, handle, NEXT, size=11)) == BODIES[2:4]
    assert bodies(many(app, handle, NEXT, size=1)) == BODIES[4:5]
    assert app.browse(handle) == BODIES[5]
    assert bodies(many(app, handle, NEXT)) == BODIES[6:]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        many(app, handle, NEXT)
    assert bodies(many(app, handle, FIRST, messages=3)) == BODIES[:3]


@pytest.mark.smoke
def test_match_options_apply_to_all_messages_of_a_batch(queue: str, app: Application) -> None:
    for number in range(6):
        app.put(queue, b"%d" % number, CorrelId=b"%d" % (number % 2) * 24)
    batch = many(app, app.open_queue(queue), FIRST, MatchOptions=cmqc.MQMO_MATCH_CORREL_ID, CorrelId=b"1" * 24)
    assert bodies(batch) == [b"1", b"3", b"5"]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "is backed out"])
def test_in_syncpoint(mq: Workplace, app: Application, other: Application, commits: bool) -> None:
    source, target = filled(mq, app), mq.queue()
    output = app.open_queue(target, cmqc.MQOO_OUTPUT)
    batch = many(app, app.open_queue(source), cmqc.MQGMO_SYNCPOINT, messages=4)
    puts = [(output, Message(MQMD(), message.data), cmqc.MQPMO_SYNCPOINT) for message in batch]
    assert len(remote.put_many(app.connection, puts)) == 4
    assert other.all(target) == []
    app.commit() if commits else app.backout()
    assert (other.all(target), other.all(source)) == ((BODIES[:4], BODIES[4:]) if commits else ([], BODIES))


def test_without_syncpoint_everything_takes_effect_at_once(mq: Workplace, app: Application, other: Application) -> None:
    source, target = filled(mq, app, attributes="DEFPSIST(YES)"), mq.queue("DEFPSIST(YES)")
    output = app.open_queue(target, cmqc.MQOO_OUTPUT)
    batch = many(app, app.open_queue(source), cmqc.MQGMO_NO_SYNCPOINT, messages=4)
    puts = [(output, Message(MQMD(), message.data), cmqc.MQPMO_NO_SYNCPOINT) for message in batch]
    mds = remote.put_many(app.connection, puts)
    app.backout()
    handle = other.open_queue(target)
    assert [(message.md.MsgId, message.data) for message in many(other, handle, 0)] == [
        (md.MsgId, body) for md, body in zip(mds, BODIES[:4], strict=True)
    ]
    assert other.all(source) == BODIES[4:]


def test_a_truncated_message_ends_a_batch_and_fails_the_next_one(mq: Workplace, app: Application) -> None:
    queue = filled(mq, app, [b"1", b"22", b"4444", b"1"])
    for options in (NEXT, 0):
        handle = app.open_queue(queue)
        assert bodies(many(app, handle, options, MaxLength=2)) == [b"1", b"22"]
        with pytest.raises(TruncatedMessage) as truncated:
            many(app, handle, options, MaxLength=2)
        assert (truncated.value.got.data, truncated.value.got.DataLength) == (b"44", 4)
    assert app.all(queue) == [b"4444", b"1"]


def test_a_batch_waits_for_the_first_message_only(queue: str, app: Application, other: Application) -> None:
    handle = app.open_queue(queue)
    batch: list[Got] = []
    waits = cmqc.MQGMO_WAIT | cmqc.MQGMO_SYNCPOINT

    def get() -> None:
        batch.extend(many(app, handle, waits, WaitInterval=30_000))

    if not isinstance(app.connection, IbmConnection):  # belongs to the thread that created it
        waiting = threading.Thread(target=get)
        waiting.start()
        other.put(queue, b"1")
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
    else:
        other.put(queue, b"1")
        get()
    assert bodies(batch) == [b"1"]
    app.commit()
    with pytest.raises(MQError, match="MQRC_NO_MSG_AVAILABLE"):
        many(app, handle, waits, WaitInterval=10)


def test_puts_to_several_queues_in_order(mq: Workplace, app: Application) -> None:
    queues = [mq.queue(), mq.queue()]
    handles = [app.open_queue(queue, cmqc.MQOO_OUTPUT) for queue in queues]
    puts = [(handles[number % 2], Message(MQMD(Priority=number), body), 0) for number, body in enumerate(BODIES)]
    mds = remote.put_many(app.connection, puts)
    assert [md.Priority for md in mds] == list(range(7))
    assert [app.all(queue) for queue in queues] == [BODIES[::-2], BODIES[-2::-2]]
    assert remote.put_many(app.connection, []) == []


def test_more_puts_than_fit_into_one_request(queue: str, app: Application) -> None:
    output = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    sent = [b"%d" % number for number in range(remote.MESSAGES + 10)] + [bytes(remote.SIZE // 2)] * 3
    puts = [(output, Message(MQMD(), body), cmqc.MQPMO_SYNCPOINT) for body in sent]
    while puts:
        puts = puts[len(remote.put_many(app.connection, puts)) :]
    app.commit()
    assert app.all(queue) == sent


def test_a_rejected_put_ends_a_batch_and_fails_the_next_one(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXDEPTH(3)")
    output = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    puts = [(output, Message(MQMD(), body), cmqc.MQPMO_NO_SYNCPOINT) for body in BODIES]
    assert len(remote.put_many(app.connection, puts)) == 3
    with refused(cmqc.MQRC_Q_FULL):
        remote.put_many(app.connection, puts[3:])
    assert app.all(queue) == BODIES[:3]
