"""A look at queues over a connection, as the metrics of a queue manager elsewhere have it."""

from __future__ import annotations

from bridge.mq import administration
from bridge.mq.ibm.inquiry import IbmInquiry
from bridge.wire import cmqc


def test_a_look(mq, app, monkeypatch):
    """Depth, bounds, handles and ages, also of the dead-letter queue; what is not there or not local is left out."""
    monkeypatch.setattr(administration, "REPLY_WAIT", 100)
    queue, empty = mq.queue("MAXDEPTH(7)"), mq.queue("USAGE(XMITQ)")
    alias = mq.alias(f"TARGET('{queue}')")
    app.put(queue)
    app.put(queue)
    app.open_queue(queue, cmqc.MQOO_OUTPUT)
    mq.alter(DEADQ=(dead := mq.queue()))
    inquiry = IbmInquiry(mq.connect, "")
    found = {one.name: one for one in inquiry.look([queue, empty, alias, "NO.SUCH.QUEUE", queue]).queues}
    inquiry.close()
    assert found.keys() == {queue, empty, dead}
    one = found[queue]
    assert (one.depth, one.max_depth, one.transmission, one.output_handles) == (2, 7, False, 1)
    assert found[empty].transmission
    # Where no command server runs, nobody tells it.
    assert one.oldest_message_age is None or one.oldest_message_age >= 0
    assert found[empty].oldest_message_age is None


def test_looks_share_a_connection(mq):
    """It is kept from one look to the next, and made anew where it was lost."""
    made = []

    def connect():
        made.append(mq.connect())
        return made[-1]

    inquiry = IbmInquiry(connect, "")
    inquiry.look([])
    inquiry.look([])
    assert len(made) == 1
    inquiry.close()
    inquiry.look([])
    assert len(made) == 2
    inquiry.close()
