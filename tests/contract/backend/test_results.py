"""Results of verbs other than the message: descriptors, attributes, status, retained publications on request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQPMO, MQSD, GetOptions, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_rfh2
from tests.helpers.mq_applications import Application, Workplace, refused

INPUT = cmqc.MQOO_INPUT_SHARED
DURABLE, RESUME = cmqc.MQSO_DURABLE, cmqc.MQSO_RESUME


# Objects -------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_open_resolves_a_queue(mq: Workplace, queue: str, app: Application) -> None:
    od = MQOD(ObjectName=mq.alias(f"TARGET('{queue}')"))
    app.open(od, cmqc.MQOO_OUTPUT)
    assert (od.ResolvedQName, od.ResolvedQMgrName, od.ResolvedType) == (queue, mq.manager, cmqc.MQOT_Q)


@pytest.mark.smoke
def test_open_returns_the_complete_topic_string(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectName=mq.topic_object(topic), ObjectString="a/é")
    app.open(od, cmqc.MQOO_OUTPUT)
    assert (od.ResObjectString, od.ResolvedType) == (f"{topic}/a/é", cmqc.MQOT_TOPIC)


def test_a_dynamic_queue_has_its_name_in_the_descriptor(mq: Workplace, app: Application, other: Application) -> None:
    od = MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE", DynamicQName="MQB.*")
    handle = app.open(od, INPUT)
    assert od.ObjectName.startswith("MQB.")
    assert od.ObjectName != "MQB.*"
    other.put(od.ObjectName, b"reply")
    assert app.get(handle, GetOptions()).data == b"reply"
    app.close(handle)
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        other.put(od.ObjectName)


def test_a_name_that_is_too_long_is_not_cut(mq: Workplace, app: Application) -> None:
    name = mq.name("LONG").ljust(48, "X")
    mq.queue(name=name)
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        app.open_queue(name + "X")


def test_a_close_that_is_refused_leaves_the_handle(mq: Workplace, app: Application) -> None:
    handle = app.open_queue(mq.queue())
    with refused(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE):
        app.close(handle, cmqc.MQCO_DELETE)
    app.close(handle)


def test_attributes_can_be_inquired_and_set(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXDEPTH(7) TRIGDATA('before')")
    handle = app.open_queue(queue, cmqc.MQOO_INQUIRE | cmqc.MQOO_SET)

    def inquired() -> Any:
        selectors = [cmqc.MQCA_Q_NAME, cmqc.MQIA_MAX_Q_DEPTH, cmqc.MQCA_TRIGGER_DATA, cmqc.MQIA_INHIBIT_PUT]
        ints, chars = app.connection.inquire(handle, selectors)
        return ints, [text.rstrip() for text in chars]

    assert inquired() == ([7, cmqc.MQQA_PUT_ALLOWED], [queue, "before"])
    selectors = [cmqc.MQCA_TRIGGER_DATA, cmqc.MQIA_INHIBIT_PUT]
    app.connection.set(handle, selectors, [cmqc.MQQA_PUT_INHIBITED], ["after"])
    assert inquired() == ([7, cmqc.MQQA_PUT_INHIBITED], [queue, "after"])


def test_an_attribute_that_a_queue_has_not(mq: Workplace, app: Application) -> None:
    handle = app.open_queue(mq.queue(), cmqc.MQOO_INQUIRE)
    with refused(cmqc.MQRC_SELECTOR_NOT_FOR_TYPE):
        app.connection.inquire(handle, [cmqc.MQIA_MAX_HANDLES])


def test_a_selector_string_limits_a_handle(mq: Workplace, queue: str, app: Application) -> None:
    for colour in ("red", "blue", "red"):
        put(app, queue, colour.encode(), colour)
    handle = app.open(MQOD(ObjectName=queue, SelectionString="colour = 'red'"), INPUT)
    options = cmqc.MQGMO_NO_PROPERTIES
    assert [app.get(handle, GetOptions(Options=options)).data for _ in range(2)] == [b"red", b"red"]
    assert mq.attribute(f"QLOCAL('{queue}')", "CURDEPTH") == 1


# Puts and gets -------------------------------------------------------------------------------------------------------


def put(app: Application, queue: str, data: Any, colour: Any) -> Any:
    properties = [Property(name="colour", value=colour), Property(name="size", type=cmqc.MQTYPE_INT32, value=7)]
    return app.connection.put1(MQOD(ObjectName=queue), Message(MQMD(Format=b"MQSTR"), data), 0, properties)


def test_properties_of_a_put(queue: str, app: Application) -> None:
    put(app, queue, b"data", "green")
    got = app.take(queue, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    header = decode_rfh2(got.data)
    assert (header.Format, got.data[header.StrucLength :]) == (b"MQSTR", b"data")
    assert b"<colour>green</colour>" in got.data
    assert re.search(rb"""<size dt=['"]i4['"]>7</size>""", got.data)


@pytest.mark.parametrize(
    ("kind", "value", "as_text"),
    [
        (cmqc.MQTYPE_STRING, "Grüße", "Grüße"),
        (cmqc.MQTYPE_BYTE_STRING, b"\x00\xff", "00ff"),
        (cmqc.MQTYPE_BOOLEAN, True, "1"),
        (cmqc.MQTYPE_INT8, -7, "-7"),
        (cmqc.MQTYPE_INT16, -700, "-700"),
        (cmqc.MQTYPE_INT64, 1 << 40, "1099511627776"),
        (cmqc.MQTYPE_FLOAT64, 1.5, "1.5"),
    ],
)
def test_types_of_properties(queue: str, app: Application, kind: int, value: int, as_text: str) -> None:
    one = Property(name="one", type=kind, value=value)
    app.connection.put1(MQOD(ObjectName=queue), Message(MQMD(), b""), 0, [one])
    got = app.take(queue, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    assert re.search(f"<one[^>]*>{as_text}</one>".encode(), got.data, re.IGNORECASE), got.data


def test_put_resolves_its_queue(mq: Workplace, app: Application) -> None:
    queue, options = mq.queue(), MQPMO()
    app.put(mq.alias(f"TARGET('{queue}')"), options=options)
    assert (options.ResolvedQName, options.ResolvedQMgrName) == (queue, mq.manager)
    assert (options.KnownDestCount, options.InvalidDestCount) == (1, 0)


def test_context_is_passed_on(mq: Workplace, app: Application) -> None:
    source, target = mq.queue(), mq.queue()
    first = app.put(source, UserIdentifier=b"device7", options=cmqc.MQPMO_SET_IDENTITY_CONTEXT)
    handle = app.open_queue(source, INPUT | cmqc.MQOO_SAVE_ALL_CONTEXT)
    app.get(handle, GetOptions())
    app.put(target, options=MQPMO(Options=cmqc.MQPMO_PASS_ALL_CONTEXT, Context=handle))
    passed = app.take(target).md
    assert (passed.UserIdentifier, passed.PutTime) == (b"device7", first.PutTime)


def test_a_long_message_is_browsed_like_a_short_one(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXMSGL(4194304)")
    messages = [b"short", b"L" * 300_000, b"last"]
    for data in messages:
        app.put(queue, data)
    handle = app.open_queue(queue)
    options = cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    assert [app.browse(handle, options) for _ in messages] == messages
    assert app.browse(handle, cmqc.MQGMO_BROWSE_FIRST) == b"short"
    assert app.drain(handle) == messages


def test_groups(mq: Workplace, app: Application) -> None:
    queue, group = mq.queue(), b"g" * 24
    for number, flags in ((1, cmqc.MQMF_MSG_IN_GROUP), (2, cmqc.MQMF_LAST_MSG_IN_GROUP)):
        app.put(queue, Version=2, GroupId=group, MsgSeqNumber=number, MsgFlags=flags)
    match = cmqc.MQMO_MATCH_GROUP_ID | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER
    got = app.take(queue, GroupId=group, MsgSeqNumber=2, MatchOptions=match)
    assert (got.md.GroupId, got.md.MsgSeqNumber) == (group, 2)
    assert got.GroupStatus == cmqc.MQGS_LAST_MSG_IN_GROUP
    assert app.take(queue).GroupStatus == cmqc.MQGS_MSG_IN_GROUP


def test_the_status_of_asynchronous_puts(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXDEPTH(2)")
    handle = app.open_queue(queue, cmqc.MQOO_OUTPUT)
    for _ in range(3):
        app.connection.put(handle, Message(MQMD(), b""), cmqc.MQPMO_ASYNC_RESPONSE | cmqc.MQPMO_NEW_MSG_ID)
    status = app.connection.statistics()
    assert (status.CompCode, status.Reason) == (cmqc.MQCC_FAILED, cmqc.MQRC_Q_FULL)
    assert (status.PutSuccessCount, status.PutWarningCount, status.PutFailureCount) == (2, 0, 1)
    assert status.ObjectName == queue
    again = app.connection.statistics()
    assert (again.Reason, again.PutSuccessCount, again.PutFailureCount) == (cmqc.MQRC_NONE, 0, 0)


def test_the_status_of_an_asynchronous_mqput1_to_a_topic(mq: Workplace, app: Application) -> None:
    topic, shut = mq.name("topic"), mq.name("shut")
    mq.topic_object(shut, "PUB(DISABLED)")
    _, publications = app.subscribe(topic)
    options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_ASYNC_RESPONSE | cmqc.MQPMO_NEW_MSG_ID
    for string in (topic, shut, topic):
        app.connection.put1(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=string), Message(MQMD(), b"1"), options)
    status = app.connection.statistics()
    assert (status.CompCode, status.Reason) == (cmqc.MQCC_FAILED, cmqc.MQRC_PUT_INHIBITED)
    assert (status.PutSuccessCount, status.PutFailureCount) == (2, 1)
    app.connection.commit()
    assert app.drain(publications) == [b"1", b"1"]


# Subscriptions -------------------------------------------------------------------------------------------------------


def test_the_name_and_destination_of_a_subscription(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    sd = MQSD(
        Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED, ObjectName=mq.topic_object(topic), ObjectString="#", PubPriority=3
    )
    _, publications = app.connection.subscribe(sd)
    assert sd.ResObjectString == f"{topic}/#"
    assert sd.SubCorrelId != cmqc.MQCI_NONE
    app.publish(topic, Priority=8)
    got = app.get(publications, GetOptions())
    assert (got.md.Priority, got.md.CorrelId) == (3, sd.SubCorrelId)


def test_resuming_a_subscription_returns_its_attributes(mq: Workplace, app: Application, other: Application) -> None:
    topic, name = mq.name("topic"), mq.name("sub")
    app.subscribe(topic, options=DURABLE, SubName=name, SubUserData="qos=1", SubLevel=4)
    app.connection.disconnect()
    sd = MQSD(Options=RESUME | DURABLE | cmqc.MQSO_MANAGED, SubName=name)
    subscription, _ = other.connection.subscribe(sd)
    assert (sd.ResObjectString, sd.SubUserData, sd.SubLevel) == (topic, "qos=1", 4)
    assert sd.SubCorrelId != cmqc.MQCI_NONE
    other.close(subscription, cmqc.MQCO_REMOVE_SUB)


def test_a_subscription_selects(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    _, publications = app.subscribe(topic, SelectionString="colour = 'red'")
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    for colour in ("red", "blue"):
        message = Message(MQMD(), colour.encode())
        app.connection.put1(od, message, 0, [Property(name="colour", value=colour)])
    assert app.drain(publications, cmqc.MQGMO_NO_PROPERTIES) == [b"red"]


def test_retained_publications_on_request(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    for level in ("a", "b"):
        app.publish(f"{topic}/{level}", level.encode(), options=cmqc.MQPMO_RETAIN)
    subscription, publications = app.subscribe(f"{topic}/+", options=cmqc.MQSO_PUBLICATIONS_ON_REQUEST)
    assert app.drain(publications) == []
    assert app.connection.subscription_request(subscription) == 2
    assert sorted(app.drain(publications)) == [b"a", b"b"]


@pytest.mark.parametrize("options", [0, cmqc.MQSO_DURABLE], ids=["not durable", "durable"])
def test_a_subscription_made_without_publications_on_request_makes_no_requests(
    mq: Workplace, app: Application, options: int
) -> None:
    """IBM MQ documentation, "MQSUBRQ - Subscription request"; it names no reason for this."""
    topic, name = mq.name("topic"), mq.name("S") if options else ""
    app.publish(topic, b"kept", options=cmqc.MQPMO_RETAIN)
    subscription, publications = app.subscribe(topic, options=options, SubName=name)
    assert app.drain(publications) == [b"kept"]
    with pytest.raises(MQError):
        app.connection.subscription_request(subscription)
    assert app.drain(publications) == []
    app.close(subscription, cmqc.MQCO_REMOVE_SUB)


def test_requests_for_missing_resources(mq: Workplace, app: Application) -> None:
    subscription, publications = app.subscribe(mq.name("topic"), options=cmqc.MQSO_PUBLICATIONS_ON_REQUEST)
    with refused(cmqc.MQRC_NO_RETAINED_MSG):
        app.connection.subscription_request(subscription)
    with refused(cmqc.MQRC_HOBJ_ERROR):
        app.connection.subscription_request(publications)


def test_verbs_after_mqdisc(queue: str, app: Application) -> None:
    connection = app.connection
    connection.disconnect()
    for verb in (app.commit, app.backout, connection.disconnect, connection.statistics, lambda: app.open_queue(queue)):
        with refused(cmqc.MQRC_HCONN_ERROR):
            verb()
