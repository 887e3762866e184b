"""What a server-connection channel limits for the applications that connect by it."""

from __future__ import annotations

from bridge.mapping.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


def test_a_message_longer_than_the_channel_allows_cannot_be_put(mq, connect_by, refused):
    """IBM MQ documentation, "2010 (MQRC_DATA_LENGTH_ERROR)"."""
    queue = mq.queue()
    app = connect_by(mq.server_channel("MAXMSGL(5000)"))
    app.put(queue, bytes(5000))
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        app.put(queue, bytes(5001))
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        app.connection.put(handle, Message(MQMD(), bytes(5001)))
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 1


def test_a_message_longer_than_the_channel_allows_is_got_truncated_only(mq, app, connect_by, refused):
    """IBM MQ documentation, "Limiting the size of a message in a client application"."""
    queue = mq.queue()
    app.put(queue, bytes(100_000))
    limited = connect_by(mq.server_channel("MAXMSGL(70000)"))
    with refused(cmqc.MQRC_DATA_LENGTH_ERROR):
        limited.take(queue)
    got = limited.take(queue, cmqc.MQGMO_ACCEPT_TRUNCATED_MSG, MaxLength=70_000)
    assert (got.Reason, len(got.data), got.DataLength) == (cmqc.MQRC_TRUNCATED_MSG_ACCEPTED, 70_000, 100_000)
