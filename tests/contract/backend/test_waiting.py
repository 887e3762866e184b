"""MQGET with a wait interval, and events that end the wait (IBM MQ documentation, "MQGET")."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bridge.mq.mqi import GetOptions
from bridge.wire import cmqc
from tests.helpers.mq_applications import Application, Workplace, refused
from tests.helpers.patience import PATIENCE

BROWSE_NEXT = cmqc.MQGMO_BROWSE_NEXT


@pytest.mark.smoke
def test_a_wait_ends_with_its_interval(queue: str, app: Application) -> None:
    start = time.monotonic()
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(queue, cmqc.MQGMO_WAIT, WaitInterval=50)
    assert time.monotonic() - start >= 0.045


def waiting_get(application: Application, queue: str, **options: Any) -> Any:
    """Start a get that waits, in a thread. Return the thread and its results."""
    results = []
    handle = application.open_queue(queue)

    def get() -> None:
        try:
            results.append(application.get(handle, GetOptions(Options=cmqc.MQGMO_WAIT, **options)).data)
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    return thread, results


def test_a_waiting_get_is_woken_by_a_put(queue: str, app: Application, other: Application) -> None:
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    other.put(queue, b"at last")
    thread.join(PATIENCE)
    assert results == [b"at last"]


def test_a_waiting_get_is_woken_by_the_commit_and_not_by_the_put(
    queue: str, app: Application, other: Application
) -> None:
    thread, results = waiting_get(app, queue, WaitInterval=cmqc.MQWI_UNLIMITED)
    other.put(queue, b"uncommitted", options=cmqc.MQPMO_SYNCPOINT)
    thread.join(0.05)
    assert results == []
    other.commit()
    thread.join(PATIENCE)
    assert results == [b"uncommitted"]


def test_a_waiting_get_is_woken_by_a_backout(queue: str, app: Application, other: Application) -> None:
    app.put(queue, b"m")
    other.take(queue, cmqc.MQGMO_SYNCPOINT)
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    other.backout()
    thread.join(PATIENCE)
    assert results == [b"m"]


def test_a_get_that_waits_for_one_message_ignores_others(queue: str, app: Application, other: Application) -> None:
    """After a wake-up for another message, it must not miss the next one."""
    wanted = b"wanted".ljust(24, b"\0")
    thread, results = waiting_get(app, queue, WaitInterval=20_000, CorrelId=wanted)
    for number in range(5):
        other.put(queue, str(number).encode())
    other.put(queue, b"the one", CorrelId=wanted)
    thread.join(PATIENCE)
    assert results == [b"the one"]
    assert other.all(queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_each_message_goes_to_one_of_several_waiting_gets(mq: Workplace, queue: str, other: Application) -> None:
    waiting = [waiting_get(mq.application(), queue, WaitInterval=20_000) for _ in range(4)]
    for number in range(4):
        other.put(queue, str(number).encode())
    for thread, _ in waiting:
        thread.join(PATIENCE)
    assert sorted(body for _, results in waiting for body in results) == [b"0", b"1", b"2", b"3"]


def test_a_browse_can_wait(queue: str, app: Application, other: Application) -> None:
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


def test_get_disabled_ends_a_wait(mq: Workplace, queue: str, app: Application) -> None:
    """MQRC 2016: "... or MQGET with MQGMO_WAIT, and the queue was inhibited while the call was waiting"."""
    thread, results = waiting_get(app, queue, WaitInterval=20_000)
    mq.command(f"ALTER QLOCAL('{queue}') GET(DISABLED)")
    thread.join(PATIENCE)
    assert [error.reason for error in results] == [cmqc.MQRC_GET_INHIBITED]
