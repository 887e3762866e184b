"""Limits of a server-connection channel for the applications that use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused


@pytest.mark.smoke
def test_a_message_longer_than_the_channel_allows_cannot_be_put(
    mq: Workplace, queue: str, connect_by: Callable[[str], Application]
) -> None:
    """IBM MQ documentation, "2010 (MQRC_DATA_LENGTH_ERROR)"."""
    app = connect_by(mq.server_channel("MAXMSGL(5000)"))
    app.put(queue, bytes(5000))
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        app.put(queue, bytes(5001))
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        app.connection.put(handle, Message(MQMD(), bytes(5001)))
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 1


@pytest.mark.smoke
def test_a_message_longer_than_the_channel_allows_can_only_be_got_truncated(
    mq: Workplace, queue: str, app: Application, connect_by: Callable[[str], Application]
) -> None:
    """IBM MQ documentation, "Limiting the size of a message in a client application"."""
    app.put(queue, bytes(100_000))
    limited = connect_by(mq.server_channel("MAXMSGL(70000)"))
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        limited.take(queue)
    message = limited.take(queue, cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MaxLength=70_000)
    assert (message.Reason, len(message.data), message.DataLength) == (
        cmqc.MQRC_TRUNCATED_MSG_ACCEPTED,
        70_000,
        100_000,
    )


@pytest.mark.parametrize("limit", ["MAXINST", "MAXINSTC"])
def test_a_channel_has_a_limited_number_of_instances(
    mq: Workplace, connect_by: Callable[[str], Application], limit: str
) -> None:
    """IBM MQ documentation, "Server-connection channel limits", "2537 (MQRC_CHANNEL_NOT_AVAILABLE)"."""
    channel = mq.server_channel(f"{limit}(2) SHARECNV(1)")
    connect_by(channel), connect_by(channel)
    with refused(cmqc.MQRC_CHANNEL_NOT_AVAILABLE):
        connect_by(channel)


def test_conversations_of_a_process_share_an_instance(mq: Workplace, connect_by: Callable[[str], Application]) -> None:
    """IBM MQ documentation, "Using sharing conversations in a client application"."""
    channel = mq.server_channel("MAXINST(1) SHARECNV(3)")
    for _ in range(3):
        connect_by(channel)
    with refused(cmqc.MQRC_CHANNEL_NOT_AVAILABLE):
        connect_by(channel)


def test_a_channel_without_instances_rejects_all_connections(
    mq: Workplace, connect_by: Callable[[str], Application]
) -> None:
    with refused(cmqc.MQRC_CHANNEL_NOT_AVAILABLE):
        connect_by(mq.server_channel("MAXINST(0)"))


def test_lowering_the_limit_ends_no_instance(mq: Workplace, connect_by: Callable[[str], Application]) -> None:
    channel = mq.server_channel("SHARECNV(1)")
    running = connect_by(channel)
    mq.command(f"ALTER CHANNEL('{channel}') CHLTYPE(SVRCONN) MAXINST(1)")
    with refused(cmqc.MQRC_CHANNEL_NOT_AVAILABLE):
        connect_by(channel)
    assert running.all(mq.queue()) == []
