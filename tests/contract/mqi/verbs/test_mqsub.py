"""MQSUB and MQSUBRQ: options, stored attributes, levels, selectors, groups, and ownership of subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQError, Property
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.stand_in_manager import StandInManager
from tests.ibm_standin.mqi.connection import StandInConnection
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions, MqiGot
from tests.ibm_standin.mqi.structures import MqiSubscriptionDescriptor as MQSD

CREATE, MANAGED, DURABLE = cmqc.MQSO_CREATE, cmqc.MQSO_MANAGED, cmqc.MQSO_DURABLE
RESUME, ALTER = cmqc.MQSO_RESUME, cmqc.MQSO_ALTER


def subscribe(
    connection: StandInConnection, topic: str, options: int = 0, queue: int | None = None, **sd: Any
) -> tuple[int, int]:
    options |= 0 if options & (RESUME | ALTER) else CREATE
    options |= MANAGED if queue is None else 0
    return connection.subscribe(MQSD(Options=options, ObjectString=topic, **sd), queue)


def publish(
    connection: StandInConnection,
    topic: str,
    data: bytes = b"x",
    *,
    pmo: int | MQPMO = 0,
    properties: Any = (),
    **md: Any,
) -> None:
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    connection.put1(od, Message(MQMD(**md), data), pmo, properties)


def received(connection: StandInConnection, queue: int) -> list[MqiGot]:
    messages = []
    while True:
        try:
            messages.append(connection.get(queue, MqiGetOptions(Options=cmqc.MQGMO_NO_PROPERTIES)))
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
            return messages


def bodies(connection: StandInConnection, queue: int) -> list[bytes]:
    return [message.data for message in received(connection, queue)]


def reason_of(call: Callable[..., object], *arguments: Any, **keywords: Any) -> int:
    with pytest.raises(MQError) as error:
        call(*arguments, **keywords)
    return error.value.reason


@pytest.fixture
def connection(manager: StandInManager) -> StandInConnection:
    return manager.connection


@pytest.mark.parametrize(
    ("sd", "reason"),
    [
        (MQSD(Options=MANAGED, ObjectString="a"), cmqc.MQRC_OPTIONS_ERROR),
        (
            MQSD(Options=CREATE | MANAGED | RESUME | ALTER, ObjectString="a"),
            cmqc.MQRC_OPTIONS_ERROR,
        ),
        (MQSD(Options=CREATE | MANAGED | 0x40000000, ObjectString="a"), cmqc.MQRC_OPTIONS_ERROR),
        (
            MQSD(Options=CREATE | MANAGED | cmqc.MQSO_FIXED_USERID | cmqc.MQSO_ANY_USERID, ObjectString="a"),
            cmqc.MQRC_OPTIONS_ERROR,
        ),
        (
            MQSD(Options=CREATE | MANAGED | cmqc.MQSO_GROUP_SUB, ObjectString="a"),
            cmqc.MQRC_OPTIONS_ERROR,
        ),
        (MQSD(Options=CREATE | MANAGED | DURABLE, ObjectString="a"), cmqc.MQRC_SUB_NAME_ERROR),
        (
            MQSD(Options=RESUME | MANAGED, ObjectString="a", SubName="none"),
            cmqc.MQRC_NO_SUBSCRIPTION,
        ),
        (MQSD(Options=CREATE | MANAGED), cmqc.MQRC_TOPIC_STRING_ERROR),
        (MQSD(Options=CREATE, ObjectString="a"), cmqc.MQRC_HOBJ_ERROR),
        (MQSD(Options=CREATE | MANAGED, ObjectString="a", SubLevel=10), cmqc.MQRC_SD_ERROR),
        (MQSD(Options=CREATE | MANAGED, ObjectString="a", PubPriority=10), cmqc.MQRC_SD_ERROR),
        (MQSD(Options=CREATE | MANAGED, ObjectString="a", SubExpiry=-2), cmqc.MQRC_SD_ERROR),
        (
            MQSD(Options=CREATE | MANAGED, ObjectString="a", SelectionString="a ="),
            cmqc.MQRC_SELECTOR_SYNTAX_ERROR,
        ),
        (
            MQSD(Options=CREATE | MANAGED, ObjectString="a", SubUserData="x" * 10_241),
            cmqc.MQRC_SUB_USER_DATA_ERROR,
        ),
    ],
)
def test_invalid_subscriptions(connection: StandInConnection, sd: Any, reason: int) -> None:
    assert reason_of(connection.subscribe, sd) == reason


def test_a_subscription_is_in_use_while_it_is_open(manager: StandInManager, connection: StandInConnection) -> None:
    handle, _ = subscribe(connection, "a", DURABLE, SubName="s")
    other = StandInConnection(manager.itself)
    for options in (RESUME, ALTER):
        assert reason_of(subscribe, other, "a", DURABLE | options, SubName="s") == cmqc.MQRC_SUBSCRIPTION_IN_USE
    connection.close(handle, cmqc.MQCO_KEEP_SUB)
    resumed, _ = subscribe(other, "a", DURABLE | RESUME, SubName="s")
    other.disconnect()
    resumed, _ = subscribe(connection, "a", DURABLE | RESUME, SubName="s")
    connection.close(resumed, cmqc.MQCO_REMOVE_SUB)
    assert reason_of(subscribe, connection, "a", DURABLE | RESUME, SubName="s") == cmqc.MQRC_NO_SUBSCRIPTION


@pytest.mark.parametrize(("option", "reason"), [(0, cmqc.MQRC_IDENTITY_MISMATCH), (cmqc.MQSO_ANY_USERID, 0)])
def test_ownership_of_a_subscription(manager: StandInManager, option: int, reason: int) -> None:
    alice, bob = (StandInConnection(manager.itself, "a", user) for user in ("alice", "bob"))
    alice.close(subscribe(alice, "a", DURABLE | option, SubName="s")[0])
    if reason:
        assert reason_of(subscribe, bob, "a", DURABLE | RESUME, SubName="s") == reason
        alternate = {"SubName": "s", "AlternateUserId": "alice"}
        subscribe(bob, "a", DURABLE | RESUME | cmqc.MQSO_ALTERNATE_USER_AUTHORITY, **alternate)
    else:
        subscribe(bob, "a", DURABLE | RESUME, SubName="s")


def test_attributes_that_resuming_returns(connection: StandInConnection) -> None:
    fields = {
        "SubName": "s",
        "SubUserData": "note",
        "SelectionString": "a = 1",
        "PubPriority": 7,
        "SubLevel": 3,
        "SubExpiry": 600,
    }
    first = MQSD(Options=CREATE | MANAGED | DURABLE, ObjectString="a/b", **fields)
    connection.close(connection.subscribe(first)[0])
    again = MQSD(Options=RESUME | MANAGED | DURABLE, SubName="s")
    connection.subscribe(again)
    for field in ("SubUserData", "SelectionString", "PubPriority", "SubLevel", "SubCorrelId", "ResObjectString"):
        assert getattr(again, field) == getattr(first, field), field
    assert 590 <= again.SubExpiry <= 600


def test_a_durable_subscription_keeps_all_attributes_over_a_restart(manager: StandInManager) -> None:
    identity = {"PubAccountingToken": b"t" * 32, "PubApplIdentityData": "identity"}
    options = DURABLE | cmqc.MQSO_SET_IDENTITY_CONTEXT
    handle, _ = subscribe(
        manager.connection, "a", options, SubName="s", SelectionString="size > 3", PubPriority=7, **identity
    )
    manager.connection.close(handle)
    manager.restart()
    size = [[Property(name="size", type=cmqc.MQTYPE_INT32, value=number)] for number in (3, 4)]
    for properties in size:
        publish(manager.connection, "a", b"%d" % properties[0].value, properties=properties)
    _, queue = subscribe(manager.connection, "a", DURABLE | RESUME, SubName="s")
    (message,) = received(manager.connection, queue)
    assert message.data == b"4"
    assert (message.md.Priority, message.md.AccountingToken, message.md.ApplIdentityData) == (7, b"t" * 32, b"identity")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("colour = 'red'", [b"red"]),
        ("mqps.Top = 'a/2'", [b"blue"]),
        ("Root.MQMD.Priority > 3", [b"blue"]),
        ("colour IS NULL", []),
    ],
)
def test_selectors(connection: StandInConnection, selector: str, expected: Any) -> None:
    _, queue = subscribe(connection, "a/#", SelectionString=selector)
    publish(connection, "a/1", b"red", properties=[Property(name="colour", value="red")])
    publish(connection, "a/2", b"blue", properties=[Property(name="colour", value="blue")], Priority=4)
    assert bodies(connection, queue) == expected


def test_a_selector_applies_to_retained_publications(connection: StandInConnection) -> None:
    for colour in ("red", "blue"):
        properties = [Property(name="colour", value=colour)]
        publish(connection, f"a/{colour}", colour.encode(), pmo=cmqc.MQPMO_RETAIN, properties=properties)
    _, queue = subscribe(connection, "a/#", SelectionString="colour = 'blue'")
    assert bodies(connection, queue) == [b"blue"]


def test_a_full_destination_is_treated_as_without_a_selector(
    manager: StandInManager, connection: StandInConnection
) -> None:
    manager.ok("DEFINE QLOCAL(Q) MAXDEPTH(1)")
    manager.ok("ALTER TOPIC(SYSTEM.BASE.TOPIC) NPMSGDLV(ALL) USEDLQ(NO)")
    queue = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    subscribe(connection, "a", queue=queue, SelectionString="Root.MQMD.Priority < 5")
    _, plain = subscribe(connection, "a")
    publish(connection, "a", b"1", Priority=1)
    assert reason_of(publish, connection, "a", b"2", Priority=1) == cmqc.MQRC_PUBLICATION_FAILURE
    publish(connection, "a", b"3", Priority=6)
    assert bodies(connection, plain) == [b"3", b"1"]
    assert bodies(connection, queue) == [b"1"]


@pytest.mark.parametrize(("pub_level", "reached"), [(9, "five"), (5, "five"), (4, "one"), (1, "one"), (0, "zero")])
def test_levels(connection: StandInConnection, pub_level: int, reached: str) -> None:
    queues = {
        name: subscribe(connection, "a", SubLevel=level)[1] for name, level in (("five", 5), ("one", 1), ("zero", 0))
    }
    publish(connection, "a", pmo=MQPMO(PubLevel=pub_level))
    assert [name for name, queue in queues.items() if bodies(connection, queue)] == [reached]
    assert reason_of(publish, connection, "a", pmo=MQPMO(PubLevel=10)) == cmqc.MQRC_PMO_ERROR


def test_not_own_subscriptions(manager: StandInManager, connection: StandInConnection) -> None:
    other = StandInConnection(manager.itself)
    _, mine = subscribe(connection, "a")
    _, theirs = subscribe(other, "a")
    publish(connection, "a", pmo=cmqc.MQPMO_NOT_OWN_SUBS)
    assert (bodies(connection, mine), bodies(other, theirs)) == ([], [b"x"])
    publish(connection, "a")
    assert bodies(connection, mine) == [b"x"]


def test_a_group_gets_one_copy(manager: StandInManager, connection: StandInConnection) -> None:
    manager.ok("DEFINE QLOCAL(Q)")
    queue = connection.open(MQOD(ObjectName="Q"), cmqc.MQOO_INPUT_SHARED)
    grouped = cmqc.MQSO_GROUP_SUB | cmqc.MQSO_SET_CORREL_ID
    for topic in ("a/#", "+/b"):
        subscribe(connection, topic, grouped, queue, SubCorrelId=b"g" * 24)
    publish(connection, "a/b")
    assert bodies(connection, queue) == [b"x"]
    duplicate = {"queue": queue, "SubCorrelId": b"g" * 24}
    assert reason_of(subscribe, connection, "a/#", grouped, **duplicate) == cmqc.MQRC_DUPLICATE_GROUP_SUB
    subscribe(connection, "a/b", cmqc.MQSO_SET_CORREL_ID, queue, SubCorrelId=b"g" * 24)
    publish(connection, "a/b")
    assert bodies(connection, queue) == [b"x", b"x"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (cmqc.MQCO_KEEP_SUB, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (cmqc.MQCO_DELETE, cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE),
        (cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB, cmqc.MQRC_OPTIONS_ERROR),
    ],
)
def test_options_that_cannot_close_a_non_durable_subscription(
    connection: StandInConnection, options: int, reason: int
) -> None:
    handle, _ = subscribe(connection, "a")
    assert reason_of(connection.close, handle, options) == reason
    connection.close(handle)


def test_subscriptions_of_user_nobody(connection: StandInConnection) -> None:
    pmo = MQPMO(Options=cmqc.MQPMO_WARN_IF_NO_SUBS_MATCHED)
    publish(connection, "a", pmo=pmo)
    assert pmo.Reason == cmqc.MQRC_NO_SUBS_MATCHED
    subscribe(connection, "a", SelectionString="x = 1")
    publish(connection, "a", pmo=pmo)
    assert pmo.Reason == cmqc.MQRC_NONE


def test_alter_sub_by_mqsc_keeps_the_attributes_of_mqsub(
    manager: StandInManager, connection: StandInConnection
) -> None:
    _, queue = subscribe(connection, "a", SubName="s", SelectionString="size = 1", PubPriority=6)
    manager.ok("ALTER SUB('s') USERDATA('new')")
    for number in (1, 2):
        properties = [Property(name="size", type=cmqc.MQTYPE_INT8, value=number)]
        publish(connection, "a", b"%d" % number, properties=properties)
    assert [(message.data, message.md.Priority) for message in received(connection, queue)] == [(b"1", 6)]


def test_resuming_returns_the_attributes_of_the_subscription(connection: StandInConnection) -> None:
    options = DURABLE | MANAGED | cmqc.MQSO_ANY_USERID | cmqc.MQSO_WILDCARD_CHAR
    handle, queue = subscribe(connection, "a/*", options, SubName="s")
    connection.close(handle)
    connection.close(queue)
    sd = MQSD(Options=RESUME, SubName="s")
    handle, queue = connection.subscribe(sd)
    assert sd.Options == RESUME | options
    publish(connection, "a/b/c")
    assert bodies(connection, queue) == [b"x"]
