"""Results of verbs other than messages: descriptors, attributes, status, retained publications on request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQSD, GetOptions, Property
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


@pytest.mark.whole_mqi
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


def test_a_name_that_is_too_long_is_not_truncated(mq: Workplace, app: Application) -> None:
    name = mq.name("LONG").ljust(48, "X")
    mq.queue(name=name)
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        app.open_queue(name + "X")


@pytest.mark.whole_mqi
def test_a_rejected_close_leaves_the_handle_open(mq: Workplace, app: Application) -> None:
    handle = app.open_queue(mq.queue())
    with refused(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE):
        app.close(handle, cmqc.MQCO_DELETE)
    app.close(handle)


def test_an_attribute_that_a_queue_does_not_have(mq: Workplace, app: Application) -> None:
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
    message = app.take(queue, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    header = decode_rfh2(message.data)
    assert (header.Format, message.data[header.StrucLength :]) == (b"MQSTR", b"data")
    assert b"<colour>green</colour>" in message.data
    assert re.search(rb"""<size dt=['"]i4['"]>7</size>""", message.data)


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
    property_ = Property(name="one", type=kind, value=value)
    app.connection.put1(MQOD(ObjectName=queue), Message(MQMD(), b""), 0, [property_])
    message = app.take(queue, cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    assert re.search(f"<one[^>]*>{as_text}</one>".encode(), message.data, re.IGNORECASE), message.data


def test_a_long_message_is_browsed_like_a_short_one(mq: Workplace, app: Application) -> None:
    queue = mq.queue("MAXMSGL(4194304)")
    messages = [b"short", b"L" * 300_000, b"last"]
    for body in messages:
        app.put(queue, body)
    handle = app.open_queue(queue)
    options = cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    assert [app.browse(handle, options) for _ in messages] == messages
    assert app.browse(handle, cmqc.MQGMO_BROWSE_FIRST) == b"short"
    assert app.drain(handle) == messages


# Subscriptions -------------------------------------------------------------------------------------------------------


def test_the_name_and_destination_of_a_subscription(mq: Workplace, app: Application) -> None:
    topic = mq.name("topic")
    sd = MQSD(Options=cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED, ObjectName=mq.topic_object(topic), ObjectString="#")
    _, publications = app.connection.subscribe(sd)
    assert sd.ResObjectString == f"{topic}/#"
    assert sd.SubCorrelId != cmqc.MQCI_NONE
    app.publish(topic, Priority=8)
    message = app.get(publications, GetOptions())
    assert (message.md.Priority, message.md.CorrelId) == (8, sd.SubCorrelId)


@pytest.mark.whole_mqi
def test_resuming_a_subscription_returns_its_attributes(mq: Workplace, app: Application, other: Application) -> None:
    topic, name = mq.name("topic"), mq.name("sub")
    app.subscribe(topic, options=DURABLE, SubName=name, SubUserData="qos=1", SubLevel=4)
    app.connection.disconnect()
    sd = MQSD(Options=RESUME | DURABLE | cmqc.MQSO_MANAGED, SubName=name)
    subscription, _ = other.connection.subscribe(sd)
    assert (sd.ResObjectString, sd.SubUserData, sd.SubLevel) == (topic, "qos=1", 4)
    assert sd.SubCorrelId != cmqc.MQCI_NONE
    other.close(subscription, cmqc.MQCO_REMOVE_SUB)


def test_verbs_after_mqdisc(queue: str, app: Application) -> None:
    connection = app.connection
    connection.disconnect()
    for verb in (app.commit, app.backout, connection.disconnect, lambda: app.open_queue(queue)):
        with refused(cmqc.MQRC_HCONN_ERROR):
            verb()
