"""Limits of queues and of the queue manager, and their reason codes (IBM MQ documentation, "API reason codes")."""

from __future__ import annotations

import pytest

from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused

BROWSE_FIRST, BROWSE_NEXT = cmqc.MQGMO_BROWSE_FIRST, cmqc.MQGMO_BROWSE_NEXT
UNDER_CURSOR, BROWSE_UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR, cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR


@pytest.mark.smoke
def test_maxdepth(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXDEPTH(2)")
    app.put(queue)
    app.put(queue)
    with refused(cmqc.MQRC_Q_FULL):
        app.put(queue)
    app.take(queue)
    app.put(queue)


@pytest.mark.smoke
def test_uncommitted_messages_count_towards_maxdepth(mq: Workplace, app: Application, other: Application) -> None:
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


def test_maxmsgl(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXMSGL(10)")
    app.put(queue, b"0" * 10)
    with refused(cmqc.MQRC_MSG_TOO_BIG_FOR_Q):
        app.put(queue, b"0" * 11)


def test_maxmsgl_of_the_queue_manager(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXMSGL(104857600)")
    mq.alter(MAXMSGL="32768")
    app.put(queue, b"0" * 32_768)
    with refused(cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR):
        app.put(queue, b"0" * 32_769)


def test_put_disabled_and_get_disabled(mq: Workplace, queue: str, app: Application) -> None:
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
def test_descriptor_fields_are_checked(
    mq: Workplace, app: Application, field: str, value: int, reason: int, to: str
) -> None:
    with refused(reason):
        if to == "queue":
            app.put(mq.queue(), **{field: value})
        else:
            app.publish(mq.name(), **{field: value})


def test_a_priority_above_the_maximum_becomes_the_maximum(queue: str, app: Application) -> None:
    """MQRC 2049: "the message is accepted, but is placed on the queue at the queue manager's maximum priority"."""
    app.put(queue, b"9", Priority=9)
    app.put(queue, b"10", Priority=10)
    app.put(queue, b"9 too", Priority=9)
    assert app.all(queue) == [b"9", b"10", b"9 too"]


def test_exclusive_input(queue: str, app: Application, other: Application) -> None:
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


def test_defsopt_and_share_determine_the_meaning_of_input_as_q_def(
    mq: Workplace, app: Application, other: Application
) -> None:
    exclusive = mq.queue("DEFSOPT(EXCL)")
    app.open_queue(exclusive, cmqc.MQOO_INPUT_AS_Q_DEF)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        other.open_queue(exclusive, cmqc.MQOO_INPUT_SHARED)
    for_one = mq.queue("NOSHARE")
    app.open_queue(for_one, cmqc.MQOO_INPUT_SHARED)
    with refused(cmqc.MQRC_OBJECT_IN_USE):
        other.open_queue(for_one, cmqc.MQOO_INPUT_SHARED)


def test_exclusive_input_ends_with_the_connection(queue: str, app: Application, other: Application) -> None:
    app.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)
    app.connection.disconnect()
    other.open_queue(queue, cmqc.MQOO_INPUT_EXCLUSIVE)


def test_a_handle_allows_only_the_operations_it_was_opened_for(queue: str, app: Application) -> None:
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


def test_invalid_handles(queue: str, app: Application, other: Application) -> None:
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
def test_options_of_open(mq: Workplace, app: Application, options: int) -> None:
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
def test_options_of_get(queue: str, app: Application, options: int) -> None:
    """ "Rules for validating MQI options": one browse option at most, and none with MQGMO_SYNCPOINT."""
    app.put(queue)
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.take(queue, options)


def test_options_of_put(mq: Workplace, app: Application) -> None:
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.put(mq.queue(), options=cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_NO_SYNCPOINT)


def test_object_types(mq: Workplace, app: Application) -> None:
    with refused(cmqc.MQRC_OBJECT_TYPE_ERROR):
        app.open(MQOD(ObjectType=cmqc.MQOT_CHANNEL, ObjectName=mq.queue()), cmqc.MQOO_INQUIRE)


def test_maxhands(mq: Workplace, queue: str, app: Application) -> None:
    mq.alter(MAXHANDS="3")
    handles = [app.open_queue(queue) for _ in range(3)]
    with refused(cmqc.MQRC_HANDLE_NOT_AVAILABLE):
        app.open_queue(queue)
    app.close(handles[0])
    app.open_queue(queue)
