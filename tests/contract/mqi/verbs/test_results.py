"""Results of verbs other than messages: descriptors, attributes, status, retained publications on request."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import MQOD, GetOptions, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import INPUT, Workplace, refused
from tests.helpers.stand_in_manager import StandInApplication
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions, MqiGot, MqiSubscriptionDescriptor


def test_a_priority_above_the_maximum_is_a_warning(queue: str, app: StandInApplication) -> None:
    options = MQPMO()
    app.put(queue, b"10", Priority=10, options=options)
    assert options.Reason == cmqc.MQRC_PRIORITY_EXCEEDS_MAXIMUM


def test_attributes_can_be_inquired_and_set(mq: Workplace, app: StandInApplication) -> None:
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


def test_put_resolves_its_queue(mq: Workplace, app: StandInApplication) -> None:
    queue, options = mq.queue(), MQPMO()
    app.put(mq.alias(f"TARGET('{queue}')"), options=options)
    assert (options.ResolvedQName, options.ResolvedQMgrName) == (queue, mq.manager)
    assert (options.KnownDestCount, options.InvalidDestCount) == (1, 0)


def test_context_is_passed_on(mq: Workplace, app: StandInApplication) -> None:
    source, target = mq.queue(), mq.queue()
    first = app.put(source, UserIdentifier=b"device7", options=cmqc.MQPMO_SET_IDENTITY_CONTEXT)
    handle = app.open_queue(source, INPUT | cmqc.MQOO_SAVE_ALL_CONTEXT)
    app.get(handle, GetOptions())
    app.put(target, options=MQPMO(Options=cmqc.MQPMO_PASS_ALL_CONTEXT, Context=handle))
    passed = app.take(target).md
    assert (passed.UserIdentifier, passed.PutTime) == (b"device7", first.PutTime)


def take(app: StandInApplication, queue: str, **options: Any) -> MqiGot:
    handle = app.open_queue(queue)
    message = app.connection.get(handle, MqiGetOptions(Options=0, **options))
    app.close(handle)
    return message


def test_groups(mq: Workplace, app: StandInApplication) -> None:
    queue, group = mq.queue(), b"g" * 24
    for number, flags in ((1, cmqc.MQMF_MSG_IN_GROUP), (2, cmqc.MQMF_LAST_MSG_IN_GROUP)):
        app.put(queue, Version=2, GroupId=group, MsgSeqNumber=number, MsgFlags=flags)
    match = cmqc.MQMO_MATCH_GROUP_ID | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER
    message = take(app, queue, GroupId=group, MsgSeqNumber=2, MatchOptions=match)
    assert (message.md.GroupId, message.md.MsgSeqNumber) == (group, 2)
    assert message.GroupStatus == cmqc.MQGS_LAST_MSG_IN_GROUP
    assert take(app, queue).GroupStatus == cmqc.MQGS_MSG_IN_GROUP


def test_the_status_of_asynchronous_puts(mq: Workplace, app: StandInApplication) -> None:
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


def test_the_status_of_an_asynchronous_mqput1_to_a_topic(mq: Workplace, app: StandInApplication) -> None:
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


def test_retained_publications_on_request(mq: Workplace, app: StandInApplication) -> None:
    topic = mq.name("topic")
    for level in ("a", "b"):
        app.publish(f"{topic}/{level}", level.encode(), options=cmqc.MQPMO_RETAIN)
    subscription, publications = app.subscribe(f"{topic}/+", options=cmqc.MQSO_PUBLICATIONS_ON_REQUEST)
    assert app.drain(publications) == []
    assert app.connection.subscription_request(subscription) == 2
    assert sorted(app.drain(publications)) == [b"a", b"b"]


@pytest.mark.parametrize("options", [0, cmqc.MQSO_DURABLE], ids=["not durable", "durable"])
def test_a_subscription_without_publications_on_request_rejects_requests(
    mq: Workplace, app: StandInApplication, options: int
) -> None:
    """IBM MQ documentation, "MQSUBRQ - Subscription request". It specifies no reason for this."""
    topic, name = mq.name("topic"), mq.name("S") if options else ""
    app.publish(topic, b"kept", options=cmqc.MQPMO_RETAIN)
    subscription, publications = app.subscribe(topic, options=options, SubName=name)
    assert app.drain(publications) == [b"kept"]
    with pytest.raises(MQError):
        app.connection.subscription_request(subscription)
    assert app.drain(publications) == []
    app.close(subscription, cmqc.MQCO_REMOVE_SUB)


def test_requests_for_missing_resources(mq: Workplace, app: StandInApplication) -> None:
    subscription, publications = app.subscribe(mq.name("topic"), options=cmqc.MQSO_PUBLICATIONS_ON_REQUEST)
    with refused(cmqc.MQRC_NO_RETAINED_MSG):
        app.connection.subscription_request(subscription)
    with refused(cmqc.MQRC_HOBJ_ERROR):
        app.connection.subscription_request(publications)


def test_only_the_highest_sublevel_receives_publications(mq: Workplace, app: StandInApplication, root: str) -> None:
    """ "Intercepting publications": the subscribers with the highest SubLevel that PubLevel reaches."""
    low, high, highest = (app.subscribe(root, SubLevel=level)[1] for level in (1, 5, 9))
    app.publish(root, b"9")
    app.publish(root, b"8", options=MQPMO(PubLevel=8))
    app.publish(root, b"1", options=MQPMO(PubLevel=1))
    assert (app.drain(low), app.drain(high), app.drain(highest)) == ([b"1"], [b"8"], [b"9"])


def test_a_subscription_selects(mq: Workplace, app: StandInApplication) -> None:
    topic = mq.name("topic")
    options, selector = cmqc.MQSO_CREATE | cmqc.MQSO_MANAGED, "colour = 'red'"
    sd = MqiSubscriptionDescriptor(Options=options, ObjectString=topic, SelectionString=selector, PubPriority=3)
    _, publications = app.connection.subscribe(sd)
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    for colour in ("red", "blue"):
        message = Message(MQMD(), colour.encode())
        app.connection.put1(od, message, 0, [Property(name="colour", value=colour)])
    assert app.drain(publications, cmqc.MQGMO_NO_PROPERTIES) == [b"red"]
