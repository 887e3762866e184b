"""Queue name resolution, and messages for other queue managers (IBM MQ documentation)."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import MQOD, Got
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqxqh
from tests.helpers.mq_applications import Application, Workplace, refused

OUTPUT = cmqc.MQOO_OUTPUT


@pytest.fixture
def transmission(mq: Workplace) -> str:
    """Return a new transmission queue."""
    return mq.queue("USAGE(XMITQ)")


def addressee(message: Got) -> Any:
    """Return (RemoteQName, RemoteQMgrName) of a message on a transmission queue."""
    header = decode_mqxqh(message.data)
    return header.RemoteQName.decode(), header.RemoteQMgrName.decode()


@pytest.mark.smoke
def test_unknown_queue(mq: Workplace, app: Application) -> None:
    for name in (mq.name(), "", "no.such.queue"):
        with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
            app.open_queue(name)
        with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
            app.put(name)


@pytest.mark.smoke
def test_names_are_case_sensitive(mq: Workplace, app: Application) -> None:
    name = mq.queue(name=mq.name("Mixed"))
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        app.open_queue(name.upper())


def test_names_that_resolve_to_a_local_queue(mq: Workplace, queue: str, app: Application) -> None:
    """The queue manager's own name, an alias of the queue manager, and a remote queue that resolves to a local queue."""
    app.put(queue, b"own name", manager=mq.manager)
    app.put(queue, b"alias", manager=mq.remote_queue(f"RNAME('') RQMNAME({mq.manager})"))
    app.put(mq.remote_queue(f"RNAME('{queue}') RQMNAME({mq.manager})"), b"remote queue")
    assert app.all(queue) == [b"own name", b"alias", b"remote queue"]


def test_alias(mq: Workplace, app: Application) -> None:
    queue = mq.queue("DEFPRTY(1)")
    alias = mq.alias(f"TARGET('{queue}') DEFPRTY(7) DEFPSIST(YES)")
    put = app.put(alias, b"through")
    assert (put.Priority, put.Persistence) == (7, cmqc.MQPER_PERSISTENT)
    message = app.take(alias)
    assert message.data == b"through"


def test_an_alias_has_its_own_put_and_get_attributes(mq: Workplace, queue: str, app: Application) -> None:
    closed = mq.alias(f"TARGET('{queue}') PUT(DISABLED) GET(DISABLED)")
    app.put(queue, b"x")
    with refused(cmqc.MQRC_PUT_INHIBITED):
        app.put(closed)
    with refused(cmqc.MQRC_GET_INHIBITED):
        app.take(closed)
    assert app.take(mq.alias(f"TARGET('{queue}')")).data == b"x"


def test_an_alias_of_a_disabled_remote_queue_is_disabled(mq: Workplace, app: Application, transmission: str) -> None:
    remote = mq.remote_queue(f"RNAME(THERE) RQMNAME(FAR) XMITQ('{transmission}') PUT(DISABLED)")
    for name in (remote, mq.alias(f"TARGET('{remote}')")):
        with refused(cmqc.MQRC_PUT_INHIBITED):
            app.put(name)


def test_an_alias_of_nothing_and_an_alias_of_an_alias(mq: Workplace, queue: str, app: Application) -> None:
    alias = mq.alias(f"TARGET('{queue}')")
    with refused(cmqc.MQRC_UNKNOWN_ALIAS_BASE_Q):
        app.open_queue(mq.alias("TARGET(NO.SUCH.QUEUE)"))
    with refused(cmqc.MQRC_ALIAS_BASE_Q_TYPE_ERROR):
        app.open_queue(mq.alias(f"TARGET('{alias}')"))


def test_alias_of_a_topic(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    alias = mq.alias(f"TARGET('{mq.topic_object(topic)}') TARGTYPE(TOPIC)")
    _, publications = app.subscribe(topic)
    app.put(alias, b"published")
    assert app.drain(publications) == [b"published"]


def test_remote_queue(mq: Workplace, app: Application, transmission: str) -> None:
    remote = mq.remote_queue(f"RNAME(THERE) RQMNAME(FAR) XMITQ('{transmission}') DEFPRTY(6) DEFPSIST(YES)")
    put = app.put(remote, b"payload", CorrelId=b"c" * 24, Format=b"MQSTR", CodedCharSetId=1208)
    message = app.take(transmission)
    assert addressee(message) == ("THERE", "FAR")
    assert (put.Priority, put.Persistence) == (6, cmqc.MQPER_PERSISTENT)
    assert (message.md.Priority, message.md.Persistence) == (6, cmqc.MQPER_PERSISTENT)


def test_messages_on_a_transmission_queue(mq: Workplace, app: Application, transmission: str) -> None:
    """ "MQXQH": an outer MQMD, then MQXQH with the message's MQMD, then its data."""
    put = app.put("THERE", b"payload", manager=transmission, CorrelId=b"c" * 24, Format=b"MQSTR", CodedCharSetId=1208)
    message = app.take(transmission)

    assert message.md.Format == cmqc.MQFMT_XMIT_Q_HEADER
    assert message.md.CorrelId == put.MsgId
    assert message.md.MsgId != put.MsgId
    assert (message.md.Priority, message.md.Persistence, message.md.Expiry) == (
        put.Priority,
        put.Persistence,
        put.Expiry,
    )
    header = decode_mqxqh(message.data)
    assert (header.RemoteQName, header.RemoteQMgrName) == (b"THERE", transmission.encode())
    assert header.MsgDesc.MsgId == put.MsgId
    assert header.MsgDesc.CorrelId == b"c" * 24
    assert header.MsgDesc.Format == b"MQSTR"
    assert header.MsgDesc.CodedCharSetId == 1208
    assert header.MsgDesc.Priority == put.Priority
    assert message.data[:4] == b"XQH "
    assert len(message.data) == 428 + len(b"payload")
    assert message.data[428:] == b"payload"


def test_a_message_on_a_transmission_queue_is_found_by_its_own_identifiers(
    mq: Workplace, app: Application, transmission: str
) -> None:
    put = app.put("THERE", b"1", manager=transmission)
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.take(transmission, MsgId=put.MsgId)
    outer = app.take(transmission, CorrelId=put.MsgId).md
    app.put("THERE", b"2", manager=transmission)
    again = app.take(transmission)
    assert again.md.MsgId != outer.MsgId


def test_a_transmission_queue_has_the_name_of_its_queue_manager(mq: Workplace, app: Application) -> None:
    far = mq.queue("USAGE(XMITQ)", name=mq.name("FAR"))
    elsewhere = mq.queue("USAGE(XMITQ)")
    mq.alter(DEFXMITQ=elsewhere)
    app.put("THERE", manager=far)
    assert addressee(app.take(far)) == ("THERE", far)
    assert app.all(elsewhere) == []


def test_the_default_transmission_queue_serves_all_other_queue_managers(
    mq: Workplace, app: Application, transmission: str
) -> None:
    mq.alter(DEFXMITQ=transmission)
    app.put("sensors/7", b"direct", manager="client-7")
    assert addressee(app.take(transmission)) == ("sensors/7", "client-7")


def test_queue_manager_alias(mq: Workplace, app: Application, transmission: str) -> None:
    alias = mq.remote_queue(f"RNAME('') RQMNAME(REALNAME) XMITQ('{transmission}')")
    app.put("THERE", manager=alias)
    assert addressee(app.take(transmission)) == ("THERE", "REALNAME")


def test_wrong_transmission_queues(mq: Workplace, app: Application) -> None:
    normal = mq.queue()
    for name, reason in (("NO.SUCH.QUEUE", cmqc.MQRC_UNKNOWN_XMIT_Q), (normal, cmqc.MQRC_XMIT_Q_USAGE_ERROR)):
        with refused(reason):
            app.put(mq.remote_queue(f"RNAME(Q) RQMNAME(FAR) XMITQ('{name}')"))
    with refused(cmqc.MQRC_XMIT_Q_USAGE_ERROR):
        app.put("Q", manager=normal)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR),
        ("NO.SUCH.QUEUE", cmqc.MQRC_UNKNOWN_DEF_XMIT_Q),
        (None, cmqc.MQRC_DEF_XMIT_Q_USAGE_ERROR),  # a local queue without USAGE(XMITQ)
    ],
)
def test_wrong_default_transmission_queues(
    mq: Workplace, queue: str, app: Application, name: str | None, reason: int
) -> None:
    mq.alter(DEFXMITQ=queue if name is None else name)
    with refused(reason):
        app.put("THERE", manager="NOWHERE")


@pytest.mark.parametrize("options", [cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_BROWSE])
def test_remote_queues_are_for_output(mq: Workplace, app: Application, transmission: str, options: int) -> None:
    remote = mq.remote_queue(f"RNAME(THERE) RQMNAME(FAR) XMITQ('{transmission}')")
    with refused(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE):
        app.open_queue(remote, options)
    with refused(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE):
        app.open_queue("THERE", options, manager=transmission)
    app.close(app.open(MQOD(ObjectName=remote), OUTPUT))
