"""Browsing, and getting the message under the cursor (IBM MQ documentation, "MQGET")."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from bridge.mq.mqi import GetOptions, MQError
from bridge.wire import cmqc
from tests.helpers.mq_applications import Application, Workplace, refused

BROWSE_FIRST = cmqc.MQGMO_BROWSE_FIRST
UNDER_CURSOR, BROWSE_UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR, cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR


@pytest.mark.whole_mqi
@pytest.mark.smoke
def test_browse_leaves_messages_on_the_queue(queue: str, app: Application) -> None:
    for body in (b"1", b"2", b"3"):
        app.put(queue, body)
    handle = app.open_queue(queue)
    assert app.browse(handle, BROWSE_FIRST) == b"1"
    assert app.browse(handle) == b"2"
    assert app.browse(handle, BROWSE_UNDER_CURSOR) == b"2"
    assert app.browse(handle) == b"3"
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle)
    assert app.browse(handle, BROWSE_FIRST) == b"1"
    assert app.drain(handle) == [b"1", b"2", b"3"]


@pytest.mark.smoke
def test_browse_next_begins_at_the_first(queue: str, app: Application) -> None:
    app.put(queue, b"low", Priority=0)
    app.put(queue, b"high", Priority=9)
    handle = app.open_queue(queue)
    assert [app.browse(handle), app.browse(handle)] == [b"high", b"low"]


def test_browse_continues_after_its_message_is_removed(queue: str, app: Application, other: Application) -> None:
    for body in (b"1", b"2", b"3", b"4"):
        app.put(queue, body)
    handle = app.open_queue(queue, cmqc.MQOO_BROWSE)
    assert app.browse(handle) == b"1"
    assert app.browse(handle) == b"2"
    assert [other.take(queue).data for _ in range(3)] == [b"1", b"2", b"3"]
    assert app.browse(handle) == b"4"


def test_browse_continues_across_priorities_after_its_message_is_removed(
    queue: str, app: Application, other: Application
) -> None:
    for body, priority in ((b"9", 9), (b"5", 5), (b"5b", 5), (b"0", 0)):
        app.put(queue, body, Priority=priority)
    handle = app.open_queue(queue, cmqc.MQOO_BROWSE)
    assert [app.browse(handle), app.browse(handle)] == [b"9", b"5"]
    other.take(queue)
    other.take(queue)
    other.put(queue, b"9 again", Priority=9)  # before the cursor: not browsed
    assert [app.browse(handle), app.browse(handle)] == [b"5b", b"0"]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle)
    other.put(queue, b"0 too", Priority=0)
    assert app.browse(handle) == b"0 too"


def test_browse_skips_messages_that_expire_meanwhile(queue: str, app: Application) -> None:
    app.put(queue, b"first")
    app.put(queue, b"short-lived", Expiry=1)
    app.put(queue, b"last")
    handle = app.open_queue(queue)
    assert app.browse(handle) == b"first"
    expired_at = time.monotonic() + 0.11
    while time.monotonic() < expired_at:
        time.sleep(0.01)
    assert app.browse(handle) == b"last"


def test_get_under_the_cursor(queue: str, app: Application) -> None:
    for body in (b"1", b"2", b"3"):
        app.put(queue, body)
    handle = app.open_queue(queue)
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, UNDER_CURSOR)
    app.browse(handle)
    app.browse(handle)
    assert app.browse(handle, UNDER_CURSOR) == b"2"
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, UNDER_CURSOR)
    assert app.browse(handle) == b"3"
    assert app.drain(handle) == [b"1", b"3"]


def test_the_message_under_the_cursor_may_be_gone(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"1")
    handle = app.open_queue(queue)
    app.browse(handle)
    other.take(queue)
    with refused(cmqc.MQRC_NO_MSG_UNDER_CURSOR):
        app.browse(handle, UNDER_CURSOR)


def test_browse_by_correl_id(queue: str, app: Application) -> None:
    key = b"key".ljust(24, b"\0")
    for body, correlation in ((b"1", key), (b"2", bytes(24)), (b"3", key)):
        app.put(queue, body, CorrelId=correlation)
    handle = app.open_queue(queue)
    assert [app.browse(handle, CorrelId=key), app.browse(handle, CorrelId=key)] == [b"1", b"3"]
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.browse(handle, CorrelId=key)


def test_each_handle_has_its_own_cursor(queue: str, app: Application) -> None:
    app.put(queue, b"1")
    app.put(queue, b"2")
    first, two = app.open_queue(queue), app.open_queue(queue)
    assert [app.browse(first), app.browse(first), app.browse(two)] == [b"1", b"2", b"1"]


@pytest.mark.parametrize("seed", range(6))
def test_a_browse_continues_after_the_messages_it_returned(
    mq: Workplace, app: Application, other: Application, seed: Any
) -> None:
    """In the order of gets, each message once, even if messages under or before the cursor are removed or backed out."""
    chance = random.Random(seed)
    name = mq.queue()
    priorities = [chance.randrange(3) for _ in range(60)]
    for number, priority in enumerate(priorities):
        other.put(name, bytes([number]), Priority=priority, MsgId=bytes([number + 1]) * 24)
    handle = app.open_queue(name)
    passed: list[int] = []
    browsed = []
    while True:
        try:
            (number,) = app.browse(handle)
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
            break
        browsed.append(number)
        act = chance.randrange(5)
        if act < 2:
            app.get(handle, GetOptions(Options=cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_SYNCPOINT))
            if act == 0:
                app.commit()
            else:
                app.backout()
                passed.append(number)
        elif act == 2 and passed:
            other.take(name, MsgId=bytes([passed.pop(chance.randrange(len(passed))) + 1]) * 24)
        else:
            passed.append(number)
    assert browsed == sorted(range(60), key=lambda number: -priorities[number])
