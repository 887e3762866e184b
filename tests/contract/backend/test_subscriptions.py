"""Subscriptions (IBM MQ documentation, "MQSUB", "Administrative topic objects")."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import MQSD, GetOptions
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqxqh
from tests.helpers.mq_applications import Application, Workplace, refused
from tests.helpers.patience import until

DURABLE, RESUME, ALTER = cmqc.MQSO_DURABLE, cmqc.MQSO_RESUME, cmqc.MQSO_ALTER
FORCE = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2


# Subscriptions --------------------------------------------------------------------------------------------------------


@pytest.mark.whole_mqi
@pytest.mark.smoke
def test_a_provided_destination(queue: str, app: Application, other: Application, root: str) -> None:
    handle = app.open_queue(queue)
    subscription, destination = app.subscribe(root, handle=handle)
    assert destination == handle
    app.publish(root, b"x")
    assert other.all(queue) == [b"x"]
    app.close(subscription)
    app.publish(root, b"y")
    assert other.all(queue) == []


@pytest.mark.smoke
def test_an_expired_subscription_receives_no_publications(mq: Workplace, app: Application, root: str) -> None:
    """SubExpiry (MQLONG): "No more publications will match this subscription after this interval has passed"."""
    _, queue = app.subscribe(root, SubExpiry=5)
    app.publish(root, b"in time")
    assert app.drain(queue) == [b"in time"]

    def passed_by() -> bool:
        app.publish(root, b"x")
        return app.drain(queue) == []

    until(passed_by, lambda: "the subscription still gets publications")


@pytest.mark.whole_mqi
def test_a_destination_at_another_queue_manager(mq: Workplace, app: Application, root: str) -> None:
    """The way in which the bridge subscribes for an MQTT client (integration tables)."""
    transmission = mq.queue("USAGE(XMITQ)")
    mq.alter(DEFXMITQ=transmission)
    handle = app.open_queue("SYSTEM.MQTT.PUBLICATION.QUEUE", cmqc.MQOO_OUTPUT, manager="client-7")
    app.subscribe(root, handle=handle, SubUserData="2")
    app.publish(root, b"x")
    message = app.take(transmission)
    header = decode_mqxqh(message.data)
    assert (header.RemoteQName, header.RemoteQMgrName) == (b"SYSTEM.MQTT.PUBLICATION.QUEUE", b"client-7")
    assert message.md.Format == cmqc.MQFMT_XMIT_Q_HEADER
    assert message.md.CorrelId == header.MsgDesc.MsgId
    assert f"<Top>{root}</Top>".encode() in message.data
    assert b"<Sud>2</Sud>" in message.data


@pytest.mark.whole_mqi
def test_a_non_durable_subscription_ends_with_its_handle_or_connection(
    queue: str, app: Application, other: Application, root: str
) -> None:
    subscription, publications = app.subscribe(root)
    app.close(subscription)
    app.publish(root, b"x")
    with refused(cmqc.MQRC_NO_MSG_AVAILABLE):
        app.get(publications, GetOptions())

    other.subscribe(root, handle=other.open_queue(queue))
    app.publish(root, b"1")
    other.connection.disconnect()
    app.publish(root, b"2")
    assert app.all(queue) == [b"1"]


def test_a_durable_subscription_continues_without_its_application(
    mq: Workplace, app: Application, other: Application, root: str
) -> None:
    name = mq.name("sub")
    app.subscribe(root, options=DURABLE, SubName=name)
    app.connection.disconnect()
    other.publish(root, b"meanwhile", Persistence=1)
    subscription, publications = other.subscribe(options=DURABLE | RESUME, SubName=name)
    assert other.drain(publications) == [b"meanwhile"]
    other.close(subscription, cmqc.MQCO_REMOVE_SUB)


@pytest.mark.whole_mqi
def test_resume_alter_and_create(mq: Workplace, app: Application, other: Application, root: str) -> None:
    """MQSD, "Valid combinations of access and creation options"."""
    name = mq.name("sub")
    for options in (RESUME, ALTER):
        with refused(cmqc.MQRC_NO_SUBSCRIPTION):
            app.subscribe(root, options=DURABLE | options, SubName=name)
    first, _ = app.subscribe(root, options=DURABLE | RESUME | cmqc.MQSO_CREATE, SubName=name)
    app.close(first)
    with refused(cmqc.MQRC_SUB_ALREADY_EXISTS):
        app.subscribe(root, options=DURABLE, SubName=name)
    with refused(cmqc.MQRC_TOPIC_NOT_ALTERABLE):
        app.subscribe(root + "/other", options=DURABLE | ALTER, SubName=name)
    second, _ = app.subscribe(root, options=DURABLE | RESUME | cmqc.MQSO_CREATE, SubName=name)
    app.close(second, cmqc.MQCO_REMOVE_SUB)
    with refused(cmqc.MQRC_NO_SUBSCRIPTION):
        other.subscribe(options=DURABLE | RESUME, SubName=name)


@pytest.mark.parametrize(
    "options",
    [
        cmqc.MQSO_NON_DURABLE,
        RESUME | ALTER,
        cmqc.MQSO_CREATE | cmqc.MQSO_NEW_PUBLICATIONS_ONLY | cmqc.MQSO_PUBLICATIONS_ON_REQUEST,
    ],
)
def test_options_of_subscribe(mq: Workplace, app: Application, root: str, options: Any) -> None:
    with refused(cmqc.MQRC_OPTIONS_ERROR):
        app.connection.subscribe(MQSD(Options=options | cmqc.MQSO_MANAGED, ObjectString=root, SubName=mq.name("sub")))


@pytest.mark.whole_mqi
def test_alter_changes_the_destination_and_the_user_data(mq: Workplace, app: Application, root: str) -> None:
    first, second, name = mq.queue(), mq.queue(), mq.name("sub")
    handles = app.open_queue(first), app.open_queue(second)
    app.close(app.subscribe(root, handle=handles[0], options=DURABLE, SubName=name, SubUserData="1")[0])
    altered, _ = app.subscribe(root, handle=handles[1], options=DURABLE | ALTER, SubName=name, SubUserData="2")
    app.publish(root, b"x")
    assert app.all(first) == []
    assert b"<Sud>2</Sud>" in app.take(second, FORCE).data
    assert mq.attribute(f"SUB('{name}')", "DEST") == second
    app.close(altered, cmqc.MQCO_REMOVE_SUB)


def test_a_durable_subscription_needs_a_name(app: Application, root: str) -> None:
    with refused(cmqc.MQRC_SUB_NAME_ERROR):
        app.subscribe(root, options=DURABLE)


@pytest.mark.whole_mqi
def test_a_subscription_needs_a_destination(mq: Workplace, app: Application, root: str) -> None:
    for handle in (0, 4711):
        with refused(cmqc.MQRC_HOBJ_ERROR):
            app.subscribe(root, handle=handle)


@pytest.mark.parametrize("topic", ["", "x" * 10_241])
def test_topics_that_cannot_be_subscribed_to(app: Application, topic: str) -> None:
    with refused(cmqc.MQRC_TOPIC_STRING_ERROR):
        app.subscribe(topic)


def test_administrative_subscriptions_receive_publications(mq: Workplace, app: Application, root: str) -> None:
    queue, name = mq.queue(), mq.name("sub")
    mq.command(f"DEFINE SUB('{name}') TOPICSTR('{root}/#') DEST('{queue}') USERDATA('admin')")
    app.publish(f"{root}/x", b"1")
    mq.command(f"DELETE SUB('{name}')")
    app.publish(f"{root}/x", b"2")
    assert app.all(queue) == [b"1"]


# Administrative topic objects -----------------------------------------------------------------------------------------


def test_a_topic_string_is_combined_from_object_and_string(mq: Workplace, app: Application, root: str) -> None:
    topic_object = mq.topic_object(root)
    _, publications = app.subscribe(f"{root}/a/b")
    app.publish("a/b", b"joined", topic_object=topic_object)
    _, whole = app.subscribe("", ObjectName=topic_object)
    app.publish(root, b"object alone")
    assert (app.drain(publications), app.drain(whole)) == ([b"joined"], [b"object alone"])


def test_unknown_topic_object(mq: Workplace, app: Application) -> None:
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        app.publish("a", topic_object=mq.name("T"))
    with refused(cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        app.subscribe("a", ObjectName=mq.name("T"))


def test_publishing_disabled_below_a_topic(mq: Workplace, app: Application, root: str) -> None:
    mq.topic_object(root, "PUB(DISABLED)")
    mq.topic_object(f"{root}/open", "PUB(ENABLED)")
    for topic in (root, f"{root}/x/y"):
        with refused(cmqc.MQRC_PUT_INHIBITED):
            app.publish(topic)
    _, publications = app.subscribe(f"{root}/#")
    app.publish(f"{root}/open/x", b"1")
    app.publish(f"{root}er", b"2")
    assert app.drain(publications) == [b"1"]


def test_disabling_takes_effect_immediately(mq: Workplace, app: Application, root: str) -> None:
    handle = app.open_topic(root)
    app.publish(root)
    topic_object = mq.topic_object(root)
    mq.command(f"ALTER TOPIC('{topic_object}') PUB(DISABLED)")
    with refused(cmqc.MQRC_PUT_INHIBITED):
        app.publish(root)
    with refused(cmqc.MQRC_PUT_INHIBITED):
        app.connection.put(handle, Message(MQMD(), b""))


def test_subscribing_disabled(mq: Workplace, app: Application, root: str) -> None:
    mq.topic_object(root, "SUB(DISABLED)")
    with refused(cmqc.MQRC_SUB_INHIBITED):
        app.subscribe(f"{root}/x")


def test_durable_subscriptions_not_allowed(mq: Workplace, app: Application, root: str) -> None:
    mq.topic_object(root, "DURSUB(NO)")
    with refused(cmqc.MQRC_DURABILITY_NOT_ALLOWED):
        app.subscribe(root, options=DURABLE, SubName=mq.name("sub"))
    app.subscribe(root)


def test_default_priority_and_persistence_come_from_the_nearest_object(
    mq: Workplace, app: Application, root: str
) -> None:
    mq.topic_object(root, "DEFPSIST(YES) DEFPRTY(6)")
    mq.topic_object(f"{root}/below", "DEFPRTY(2)")
    _, publications = app.subscribe(f"{root}/#")
    app.publish(f"{root}/x")
    app.publish(f"{root}/below")
    app.publish(f"{root}/x", Persistence=0, Priority=0)
    descriptors = [app.get(publications, GetOptions()).md for _ in range(3)]
    assert [(md.Priority, md.Persistence) for md in descriptors] == [(6, 1), (2, 1), (0, 0)]
