"""Open handles after changes of definitions: MQRC_OBJECT_CHANGED (2041).

Source: IBM MQ documentation, "MQOPEN - Open object" (attributes that affect handles), "Some cases where the put calls fail",
"ALTER queues" and "ALTER QMGR" (FORCE).
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused

CHANGED = cmqc.MQRC_OBJECT_CHANGED


def put(app: Application, handle: Any) -> None:
    app.connection.put(handle, Message(MQMD(), b"x"))


@pytest.mark.smoke
def test_the_target_of_an_open_alias_changes_with_force_only(mq: Workplace, app: Application) -> None:
    first, second = mq.queue(), mq.queue()
    alias = mq.alias(f"TARGET('{first}')")
    handle = app.open_queue(alias, cmqc.MQOO_OUTPUT)
    target = f"ALTER QALIAS('{alias}') TARGET('{second}')"
    assert mq.refuses(target)
    put(app, handle)
    mq.command(f"{target} FORCE")
    for _ in range(2):
        with refused(CHANGED):
            put(app, handle)
    app.close(handle)
    put(app, app.open_queue(alias, cmqc.MQOO_OUTPUT))
    assert (app.all(first), app.all(second)) == ([b"x"], [b"x"])


@pytest.mark.smoke
def test_a_handle_of_the_target_stays_valid(mq: Workplace, queue: str, app: Application) -> None:
    alias = mq.alias(f"TARGET('{queue}')")
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    mq.command(f"ALTER QALIAS('{alias}') TARGET('{mq.queue()}')")
    put(app, handle)


def test_attributes_without_effect_on_resolution_change_without_force(
    mq: Workplace, queue: str, app: Application
) -> None:
    alias = mq.alias(f"TARGET('{queue}')")
    handles = [app.open_queue(name, cmqc.MQOO_OUTPUT) for name in (queue, alias)]
    mq.command(f"ALTER QALIAS('{alias}') DESCR('another')")
    mq.command(f"ALTER QLOCAL('{queue}') MAXDEPTH(10) PUT(ENABLED)")
    for handle in handles:
        put(app, handle)


def test_an_open_remote_queue_changes_with_force_only(mq: Workplace, app: Application) -> None:
    transmission = mq.queue("USAGE(XMITQ)")
    remote = mq.remote_queue(f"RNAME(A) RQMNAME(ELSEWHERE) XMITQ('{transmission}')")
    handle = app.open_queue(remote, cmqc.MQOO_OUTPUT)
    assert mq.refuses(f"ALTER QREMOTE('{remote}') RNAME(B)")
    mq.command(f"ALTER QREMOTE('{remote}') RNAME(B) FORCE")
    with refused(CHANGED):
        put(app, handle)


def test_the_default_transmission_queue_changes_with_force_only(mq: Workplace, app: Application) -> None:
    """Handles that resolve to it become invalid, others do not."""
    first, second, queue = mq.queue("USAGE(XMITQ)"), mq.queue("USAGE(XMITQ)"), mq.queue()
    mq.alter(DEFXMITQ=first)
    by_default = app.open_queue("A", cmqc.MQOO_OUTPUT, manager="ELSEWHERE")
    local = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    assert mq.refuses(f"ALTER QMGR DEFXMITQ('{second}')")
    put(app, by_default)
    mq.command(f"ALTER QMGR DEFXMITQ('{second}') FORCE")
    with refused(CHANGED):
        put(app, by_default)
    put(app, local)
    app.close(by_default)
    put(app, app.open_queue("A", cmqc.MQOO_OUTPUT, manager="ELSEWHERE"))
    assert [mq.attribute(f"QLOCAL('{name}')", "CURDEPTH") for name in (first, second)] == [1, 1]


def test_noshare_with_two_readers_needs_force(mq: Workplace, queue: str, app: Application, other: Application) -> None:
    handles = [(reader, reader.open_queue(queue)) for reader in (app, other)]
    assert mq.refuses(f"ALTER QLOCAL('{queue}') NOSHARE")
    mq.command(f"ALTER QLOCAL('{queue}') NOSHARE FORCE")
    for reader, handle in handles:
        with refused(CHANGED):
            reader.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))


def test_usage_of_an_open_queue_changes_with_force_only(mq: Workplace, queue: str, app: Application) -> None:
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    assert mq.refuses(f"ALTER QLOCAL('{queue}') USAGE(XMITQ)")
    mq.command(f"ALTER QLOCAL('{queue}') USAGE(XMITQ) FORCE")
    with refused(CHANGED):
        put(app, handle)


def test_puts_through_an_invalidated_handle_can_be_committed(mq: Workplace, app: Application) -> None:
    first = mq.queue()
    alias = mq.alias(f"TARGET('{first}')")
    handle = app.open_queue(alias, cmqc.MQOO_OUTPUT)
    app.connection.put(handle, Message(MQMD(), b"before"), cmqc.MQPMO_SYNCPOINT)
    mq.command(f"ALTER QALIAS('{alias}') TARGET('{mq.queue()}') FORCE")
    with refused(CHANGED):
        app.connection.put(handle, Message(MQMD(), b"after"), cmqc.MQPMO_SYNCPOINT)
    app.commit()
    assert app.all(first) == [b"before"]


@pytest.mark.parametrize("verb", ["inquire", "get", "close"])
def test_verbs_with_an_invalid_handle(mq: Workplace, app: Application, verb: str) -> None:
    """MQCLOSE succeeds."""
    alias = mq.alias(f"TARGET('{mq.queue()}')")
    handle = app.open_queue(alias, cmqc.MQOO_INQUIRE | cmqc.MQOO_INPUT_SHARED)
    mq.command(f"ALTER QALIAS('{alias}') TARGET('{mq.queue()}') FORCE")
    if verb == "close":
        app.close(handle)
        return
    with refused(CHANGED):
        app.get(handle, GetOptions()) if verb == "get" else app.connection.inquire(handle, [cmqc.MQIA_INHIBIT_PUT])
