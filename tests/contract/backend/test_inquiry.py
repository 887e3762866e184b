"""Inspections of queues over a connection, from which the metrics of a remote queue manager are made."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq import administration
from bridge.mq.administration import CommandFailed, PcfResponse
from bridge.mq.ibm import host as inquiries
from bridge.mq.ibm.host import IbmInquiry
from bridge.mq.mqi import Connection, MQError
from bridge.wire import cmqc, cmqcfc
from tests.helpers.mq_applications import Application, Workplace


@pytest.mark.smoke
def test_an_inspection(mq: Workplace, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth, limits, handles and ages, also of the dead-letter queue. Missing and non-local queues are left out."""
    queue, empty = mq.queue("MAXDEPTH(7)"), mq.queue("USAGE(XMITQ)")
    alias = mq.alias(f"TARGET('{queue}')")
    app.put(queue)
    app.put(queue)
    app.open_queue(queue, cmqc.MQOO_OUTPUT)
    mq.alter(DEADQ=(dead := mq.queue()))
    # After the commands above, which a busy machine answers late.
    monkeypatch.setattr(administration, "REPLY_WAIT", 100)
    inquiry = IbmInquiry(mq.connect, "")
    queues = {status.name: status for status in inquiry.status([queue, empty, alias, "NO.SUCH.QUEUE", queue]).queues}
    inquiry.close()
    assert queues.keys() == {queue, empty, dead}
    status = queues[queue]
    assert (status.depth, status.max_depth, status.transmission, status.output_handles) == (2, 7, False, 1)
    assert queues[empty].transmission
    # Without a command server, the age is unknown.
    assert status.oldest_message_age is None or status.oldest_message_age >= 0
    assert queues[empty].oldest_message_age is None


@pytest.mark.smoke
def test_an_inhibited_queue_and_the_dead_letter_queue_are_named(mq: Workplace) -> None:
    open_, closed = mq.queue("USAGE(XMITQ)"), mq.queue("USAGE(XMITQ) PUT(DISABLED)")
    get_inhibited = mq.queue("USAGE(XMITQ) GET(DISABLED)")
    mq.alter(DEADQ=(dead := mq.queue()))
    own = mq.queue()
    inquiry = IbmInquiry(mq.connect, own)
    inspection = inquiry.status([open_, closed, get_inhibited], ages=False)
    inquiry.close()
    transmission = [status for status in inspection.queues if status.transmission]
    assert {status.name: status.put_inhibited for status in transmission} == {
        open_: False,
        closed: True,
        get_inhibited: False,
    }
    assert {status.name: status.get_inhibited for status in transmission} == {
        open_: False,
        closed: False,
        get_inhibited: True,
    }
    assert {status.name for status in inspection.queues} == {open_, closed, get_inhibited, own, dead}
    assert inspection.dead_letter_queue == dead, "the dead-letter queue of the queue manager, not that of the bridge"


def test_inspections_share_a_connection(mq: Workplace) -> None:
    """The connection is kept between inspections, and established again after a loss."""
    connections = []

    def connect() -> Any:
        connections.append(mq.connect())
        return connections[-1]

    inquiry = IbmInquiry(connect, "")
    inquiry.status([])
    inquiry.status([])
    assert len(connections) == 1
    inquiry.close()
    inquiry.status([])
    assert len(connections) == 2
    inquiry.close()


@pytest.mark.parametrize(
    ("failure", "ages"),
    [
        (CommandFailed(cmqc.MQRC_NOT_AUTHORIZED, "PCF command 41", []), [None, 5.0]),
        (MQError(cmqc.MQRC_NO_MSG_AVAILABLE, "none came in 30000 ms"), [None, None]),
    ],
)
def test_a_message_age_that_is_not_available(
    mq: Workplace,
    app: Application,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Any,
    ages: Any,
) -> None:
    """A rejection affects only its queue. A command server that does not answer is not asked again. Each is logged once."""
    closed, open_ = mq.queue(), mq.queue()
    queried = []

    class Server:
        def __init__(self, connection: Connection) -> None:
            pass

        def run(self, command: Any, parameter: Any) -> Any:
            queried.append(parameter.String.decode())
            if queried[-1] == closed:
                raise failure
            return [PcfResponse(0, {cmqcfc.MQIACF_OLDEST_MSG_AGE: 5})]

    monkeypatch.setattr(inquiries, "PcfAdministration", Server)
    app.put(closed)
    app.put(open_)
    inquiry = IbmInquiry(mq.connect, "")
    for _ in range(2):
        age_of = {status.name: status.oldest_message_age for status in inquiry.status([closed, open_]).queues}
        assert [age_of[closed], age_of[open_]] == ages
    inquiry.close()
    assert queried.count(closed) == 1
    assert caplog.text.count("MQB9103W") == 1


def test_idle_queues_are_inspected_in_turn(mq: Workplace, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are many queues, empty and enabled ones are inspected every fourth time, all others every time."""
    monkeypatch.setattr(inquiries, "_ALWAYS", 3)
    queues = [mq.queue() for _ in range(11)]
    disabled = mq.queue("PUT(DISABLED)")
    app.put(queues[5])
    inquiry = IbmInquiry(mq.connect, "")
    inquired: list[list[str]] = []
    monkeypatch.setattr(
        inquiry,
        "_queue",
        lambda *arguments: inquired[-1].append(arguments[1]) or IbmInquiry._queue(inquiry, *arguments),
    )

    def look() -> dict[str, int]:
        inquired.append([])
        return {status.name: status.depth for status in inquiry.status([*queues, disabled], ages=False).queues}

    assert look().keys() >= {*queues, disabled}
    app.put(queues[8])
    assert [look()[queues[8]] for _ in range(4)][-1] == 1
    assert set(inquired[0]) >= {*queues, disabled}, "the first look"
    busy = {queues[0], queues[5], disabled}
    idle = {*queues[3:]} - {queues[5], queues[8]}
    assert all(busy <= set(names) for names in inquired)
    assert sorted(name for names in inquired[1:] for name in names if name in idle) == sorted(idle)
    new = mq.queue()
    queues.append(new)
    assert new in look(), "a queue of a new mapping"
    inquiry.close()
    inquired.clear()
    assert len(look()) >= len(queues), "after a loss"
