"""Shared subscriptions with members on several bridges: the shards with members, and the queue of the subscription."""

from __future__ import annotations

import pytest

from bridge.config.queue_manager import SHARE_MEMBERS_QUEUE
from bridge.mq.ibm.share_members import remove_share, resume_share, share_members
from bridge.mq.ibm.share_receiver import opened_queue
from bridge.mq.mqi import MQOD, GetOptions
from bridge.telemetry.message import Message
from bridge.telemetry.subscription import shared_subscription
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.mq_applications import Application, Workplace, refused

SHARE, OTHER = shared_subscription("$share/g/t/#"), shared_subscription("$share/g/u")


@pytest.fixture(autouse=True)
def _members_queue(mq: Workplace) -> None:
    mq.command(f"DEFINE QLOCAL('{SHARE_MEMBERS_QUEUE}') MAXDEPTH(100000) DEFPSIST(YES)")
    mq.at_end(f"DELETE QLOCAL('{SHARE_MEMBERS_QUEUE}') PURGE")


@pytest.mark.smoke
def test_the_last_shard_to_leave_is_known(mq: Workplace) -> None:
    connection = mq.connect()
    for shard in (0, 1, 10):
        with share_members(connection, shard) as members:
            members.add(SHARE)
            members.add(SHARE)  # for another member
    with share_members(connection, 1) as members:
        members.add(OTHER)
        assert members.remove(SHARE)
    # The result is the remaining shards, and a removal is repeated after a failure.
    with share_members(connection, 1) as members:
        assert members.remove(SHARE)
    with share_members(connection, 10) as members:
        assert members.remove(SHARE)
    with share_members(connection, 0) as members:
        assert not members.remove(SHARE)
        assert members.remove(OTHER)


@pytest.mark.smoke
def test_one_shard_at_a_time_changes_the_members(mq: Workplace) -> None:
    first, second = mq.connect(), mq.connect()
    with share_members(first, 0), refused(cmqc.MQRC_OBJECT_IN_USE), share_members(second, 1):
        raise AssertionError
    with share_members(second, 1) as members:
        members.add(SHARE)


@pytest.mark.smoke
def test_shards_compete_for_the_messages_of_a_subscription(mq: Workplace, app: Application) -> None:
    options = cmqc.MQSO_DURABLE | cmqc.MQSO_WILDCARD_TOPIC | cmqc.MQSO_ANY_USERID | cmqc.MQSO_SET_CORREL_ID
    subscription, destination = app.subscribe(SHARE.topic_filter, options=options, SubName=SHARE.subscription_name)
    with refused(cmqc.MQRC_SUBSCRIPTION_IN_USE):
        resume_share(mq.connect(), SHARE)
    app.close(destination)
    app.close(subscription)
    shards = [Application(mq.connect()) for _ in range(2)]
    queues = [opened_queue(shard.connection, SHARE) for shard in shards]
    topic = app.connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t/1"), cmqc.MQOO_OUTPUT)
    for payload in (b"1", b"2", b"3"):
        app.connection.put(topic, Message(MQMD(), payload))
    bodies = [shards[turn].get(queues[turn], GetOptions()).data for turn in (0, 1)]
    assert bodies == [b"1", b"2"]
    # Another shard gets the messages that one shard returns.
    shards[0].connection.put(queues[0], Message(MQMD(), bodies[0]))
    assert shards[1].drain(queues[1]) == [b"3", b"1"]
    for shard, queue in zip(shards, queues, strict=True):
        shard.close(queue)
    remove_share(app.connection, SHARE)
    remove_share(app.connection, SHARE)
    with refused(cmqc.MQRC_NO_SUBSCRIPTION):
        opened_queue(app.connection, SHARE)
