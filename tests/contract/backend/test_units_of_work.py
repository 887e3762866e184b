"""Units of work: MQCMIT, MQBACK, MQDISC (IBM MQ documentation, "Committing and backing out units of work")."""

from __future__ import annotations

import pytest

from bridge.mq.mqi import GetOptions
from bridge.wire import cmqc
from tests.helpers.mq_applications import Application, Workplace, refused

PUT_SYNC, GET_SYNC = cmqc.MQPMO_SYNCPOINT, cmqc.MQGMO_SYNCPOINT


@pytest.mark.smoke
def test_a_put_in_syncpoint_is_invisible_until_the_commit(
    mq: Workplace, queue: str, app: Application, other: Application
) -> None:
    app.put(queue, b"1", options=PUT_SYNC)
    app.put(queue, b"2", options=PUT_SYNC)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        other.take(queue)
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 2
    app.commit()
    assert other.all(queue) == [b"1", b"2"]


@pytest.mark.smoke
def test_a_backed_out_put_has_no_effect(mq: Workplace, queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"1", options=PUT_SYNC)
    app.backout()
    app.commit()
    assert other.all(queue) == []
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 0


def test_a_get_in_syncpoint_hides_the_message_until_the_end(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"m")
    assert app.take(queue, GET_SYNC).data == b"m"
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        other.take(queue)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        other.browse(other.open_queue(queue, cmqc.MQOO_BROWSE))
    app.backout()
    assert other.take(queue).data == b"m"


def test_a_committed_get_is_final(mq: Workplace, queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"m")
    app.take(queue, GET_SYNC)
    app.commit()
    app.backout()
    assert other.all(queue) == []
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 0


def test_backout_counts(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"m")
    for expected in range(3):
        message = app.take(queue, GET_SYNC)
        assert message.md.BackoutCount == expected
        app.backout()
    assert other.take(queue).md.BackoutCount == 3


def test_backed_out_messages_return_to_their_positions(queue: str, app: Application, other: Application) -> None:
    for body, priority in ((b"a5", 5), (b"b5", 5), (b"c5", 5), (b"d0", 0), (b"e0", 0)):
        app.put(queue, body, Priority=priority)
    for expected in (b"a5", b"b5", b"c5", b"d0"):
        assert app.take(queue, GET_SYNC).data == expected
    other.put(queue, b"f5", Priority=5)
    app.backout()
    assert other.all(queue) == [b"a5", b"b5", b"c5", b"f5", b"d0", b"e0"]


def test_a_message_backed_out_in_the_middle_keeps_its_position(
    queue: str, app: Application, other: Application
) -> None:
    middle = b"m".ljust(24, b"\0")
    for body, identifier in ((b"1", bytes(24)), (b"2", middle), (b"3", bytes(24))):
        app.put(queue, body, MsgId=identifier)
    app.take(queue, GET_SYNC, MsgId=middle)
    app.backout()
    assert other.all(queue) == [b"1", b"2", b"3"]


def test_messages_have_the_order_of_their_puts_not_of_their_commits(
    queue: str, app: Application, other: Application
) -> None:
    """ "Physical order is the order in which messages arrive on a queue" ("Logical and physical ordering")."""
    app.put(queue, b"1", options=PUT_SYNC)
    other.put(queue, b"2")
    app.put(queue, b"3", options=PUT_SYNC)
    other.put(queue, b"4")
    app.commit()
    assert app.all(queue) == [b"1", b"2", b"3", b"4"]


def test_one_unit_of_work_spans_queues_and_topics(mq: Workplace, app: Application, other: Application) -> None:
    source, target, topic = mq.queue(), mq.queue(), mq.name("topic")
    _, publications = other.subscribe(topic)
    app.put(source, b"in")
    app.take(source, GET_SYNC)
    app.put(target, b"out", options=PUT_SYNC)
    app.publish(topic, b"news", options=PUT_SYNC)
    assert (other.all(source), other.all(target), other.drain(publications)) == ([], [], [])
    app.backout()
    assert (other.drain(publications), other.all(target), other.all(source)) == ([], [], [b"in"])

    app.put(target, b"out", options=PUT_SYNC)
    app.publish(topic, b"news", options=PUT_SYNC)
    app.commit()
    assert (other.all(target), other.drain(publications)) == ([b"out"], [b"news"])


def test_each_connection_has_its_own_unit_of_work(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"mine", options=PUT_SYNC)
    other.put(queue, b"theirs", options=PUT_SYNC)
    other.commit()
    app.backout()
    assert app.all(queue) == [b"theirs"]


def test_no_syncpoint_takes_effect_before_the_commit(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"in", options=PUT_SYNC)
    app.put(queue, b"out", options=cmqc.MQPMO_NO_SYNCPOINT)
    app.backout()
    assert other.all(queue) == [b"out"]


@pytest.mark.whole_mqi
def test_syncpoint_if_persistent(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"persistent", Persistence=1)
    app.put(queue, b"not", Persistence=0)
    handle = app.open_queue(queue)
    assert app.drain(handle, cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT) == [b"persistent", b"not"]
    app.backout()
    assert other.all(queue) == [b"persistent"]


def test_a_rejected_put_does_not_change_the_unit_of_work(mq: Workplace, app: Application, other: Application) -> None:
    queue = mq.queue("MAXDEPTH(1)")
    app.put(queue, b"1", options=PUT_SYNC)
    with refused(cmqc.MQRC_Q_FULL):
        app.put(queue, b"2", options=PUT_SYNC)
    app.commit()
    assert other.all(queue) == [b"1"]


def test_mqdisc_commits(mq: Workplace, app: Application, other: Application) -> None:
    queue, source = mq.queue(), mq.queue()
    app.put(source, b"got")
    app.put(queue, b"put", options=PUT_SYNC)
    app.take(source, GET_SYNC)
    app.connection.disconnect()
    assert (other.all(queue), other.all(source)) == ([b"put"], [])


@pytest.mark.parametrize("persistence", [0, 1])
def test_maxumsgs(mq: Workplace, queue: str, app: Application, persistence: int) -> None:
    mq.alter(MAXUMSGS="3")
    for _ in range(3):
        app.put(queue, options=PUT_SYNC, Persistence=persistence)
    with refused(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED):
        app.put(queue, options=PUT_SYNC)
    app.commit()
    handle = app.open_queue(queue)
    app.put(queue)
    for _ in range(3):
        app.get(handle, GetOptions(Options=GET_SYNC))
    with refused(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED):
        app.get(handle, GetOptions(Options=GET_SYNC))
