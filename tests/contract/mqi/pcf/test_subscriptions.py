"""PCF commands about subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.mqi import MQOD, MQSD
from bridge.wire.mq.pcf import MQCFBF, MQCFIF, MQCFSF, PCFParameter
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_TOPIC_NAME, MQCA_TOPIC_STRING
from testing.ibm_standin.cmqcfc import MQBACF_SUB_ID, MQCACF_DESTINATION, MQCACF_SUB_NAME, MQCACF_SUB_USER_DATA
from tests.helpers.pcf_administrator import Administrator

CREATE, CHANGE, DELETE, INQUIRE = (
    cmqcfc.MQCMD_CREATE_SUBSCRIPTION,
    cmqcfc.MQCMD_CHANGE_SUBSCRIPTION,
    cmqcfc.MQCMD_DELETE_SUBSCRIPTION,
    cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION,
)
NEW = {MQCACF_SUB_NAME: "new", MQCA_TOPIC_STRING: "a/#", MQCACF_DESTINATION: "APP.IN"}


def test_create_change_and_delete_a_subscription(admin: Administrator) -> None:
    given = NEW | {
        MQCACF_SUB_USER_DATA: "qos=1",
        cmqcfc.MQIACF_SUB_LEVEL: 3,
        cmqcfc.MQBACF_DESTINATION_CORREL_ID: b"c" * 24,
        cmqcfc.MQIACF_WILDCARD_SCHEMA: cmqc.MQWS_TOPIC,
        cmqcfc.MQIACF_DESTINATION_CLASS: cmqc.MQDC_PROVIDED,
        cmqcfc.MQIACF_VARIABLE_USER_ID: cmqc.MQVU_ANY_USER,
    }
    admin.ask(CREATE, given)
    (made,) = admin.ask(INQUIRE, {MQCACF_SUB_NAME: "new"})
    assert given.items() <= made.items()
    assert made[cmqcfc.MQIACF_DURABLE_SUBSCRIPTION] == cmqc.MQSUB_DURABLE_YES
    assert (made[cmqcfc.MQIACF_SUB_TYPE], made[cmqcfc.MQIACF_EXPIRY]) == (cmqcfc.MQSUBTYPE_ADMIN, -1)
    admin.ask(CHANGE, {MQCACF_SUB_NAME: "new", MQCACF_SUB_USER_DATA: "qos=2", cmqcfc.MQIACF_EXPIRY: 6000})
    (changed,) = admin.ask(INQUIRE, {MQBACF_SUB_ID: made[MQBACF_SUB_ID]})
    assert changed[MQCACF_SUB_NAME] == "new"
    assert (changed[MQCACF_SUB_USER_DATA], changed[MQCACF_DESTINATION]) == ("qos=2", "APP.IN")
    assert 5900 < changed[cmqcfc.MQIACF_EXPIRY] <= 6000
    admin.ask(DELETE, {MQBACF_SUB_ID: made[MQBACF_SUB_ID]})
    assert "new" not in admin.queue_manager.objects.topics.subscriptions


def test_destinations_and_topic_objects(admin: Administrator) -> None:
    managed = {MQCACF_SUB_NAME: "managed", cmqcfc.MQIACF_DESTINATION_CLASS: cmqc.MQDC_MANAGED}
    admin.ask(CREATE, managed | {MQCA_TOPIC_NAME: "PRICES", MQCA_TOPIC_STRING: "apples"})
    (made,) = admin.ask(INQUIRE, {MQCACF_SUB_NAME: "managed"})
    assert (made[MQCA_TOPIC_STRING], made[MQCA_TOPIC_NAME]) == ("prices/apples", "PRICES")
    assert made[cmqcfc.MQIACF_DESTINATION_CLASS] == cmqc.MQDC_MANAGED
    assert made[MQCACF_DESTINATION].startswith("SYSTEM.MANAGED.DURABLE.")
    remote = NEW | {cmqcfc.MQCACF_DESTINATION_Q_MGR: "QM2"}
    assert admin.refused(CREATE, remote)[0] == cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR


def test_copy(admin: Administrator) -> None:
    copy = {cmqcfc.MQCACF_FROM_SUB_NAME: "s1", cmqcfc.MQCACF_TO_SUB_NAME: "copy"}
    admin.ask(cmqcfc.MQCMD_COPY_SUBSCRIPTION, copy | {MQCA_TOPIC_STRING: "copied"})
    (made,) = admin.ask(INQUIRE, {MQCACF_SUB_NAME: "copy"})
    assert (made[MQCACF_SUB_USER_DATA], made[MQCA_TOPIC_STRING]) == ("u", "copied")


@pytest.mark.parametrize(
    ("command", "given", "reason", "parameter"),
    [
        (CREATE, {MQCA_TOPIC_STRING: "a"}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCACF_SUB_NAME),
        (CREATE, {MQCACF_SUB_NAME: "new", MQCACF_DESTINATION: "APP.IN"}, cmqcfc.MQRCCF_PARM_MISSING, None),
        (CREATE, {MQCACF_SUB_NAME: "new", MQCA_TOPIC_STRING: "a"}, cmqcfc.MQRCCF_PARM_MISSING, None),
        (CREATE, NEW | {MQCACF_SUB_NAME: "s1"}, cmqcfc.MQRCCF_SUB_ALREADY_EXISTS, None),
        (CREATE, NEW | {MQCACF_DESTINATION: "NONE"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (CREATE, NEW | {MQCA_TOPIC_NAME: "NONE"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (CREATE, NEW | {MQCA_TOPIC_STRING: "prices/fruit"}, cmqc.MQRC_SUB_INHIBITED, None),
        (CREATE, NEW | {cmqcfc.MQIACF_SUB_LEVEL: 10}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, cmqcfc.MQIACF_SUB_LEVEL),
        (
            CREATE,
            NEW | {cmqcfc.MQIACF_REQUEST_ONLY: cmqc.MQRU_PUBLISH_ON_REQUEST},
            cmqcfc.MQRCCF_ATTR_VALUE_FIXED,
            cmqcfc.MQIACF_REQUEST_ONLY,
        ),
        (
            CREATE,
            NEW | {cmqcfc.MQBACF_DESTINATION_CORREL_ID: bytes(25)},
            cmqcfc.MQRCCF_CFBS_STRING_LENGTH_ERR,
            cmqcfc.MQBACF_DESTINATION_CORREL_ID,
        ),
        (CHANGE, {MQCACF_SUB_NAME: "new"}, cmqc.MQRC_NO_SUBSCRIPTION, None),
        (
            CHANGE,
            {MQCACF_SUB_NAME: "s1", MQCA_TOPIC_STRING: "other"},
            cmqcfc.MQRCCF_ATTR_VALUE_FIXED,
            MQCA_TOPIC_STRING,
        ),
        (DELETE, {MQCACF_SUB_NAME: "new"}, cmqc.MQRC_NO_SUBSCRIPTION, None),
        (DELETE, {MQBACF_SUB_ID: bytes(24)}, cmqc.MQRC_NO_SUBSCRIPTION, None),
        (DELETE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCACF_SUB_NAME),
        (INQUIRE, {MQCACF_SUB_NAME: "new"}, cmqc.MQRC_NO_SUBSCRIPTION, None),
        (INQUIRE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCACF_SUB_NAME),
        (cmqcfc.MQCMD_INQUIRE_SUB_STATUS, {MQCACF_SUB_NAME: "n*"}, cmqc.MQRC_NO_SUBSCRIPTION, None),
    ],
)
def test_subscription_commands_that_are_refused(
    admin: Administrator, command: int, given: dict[int, Any], reason: int, parameter: int | None
) -> None:
    before = sorted(admin.queue_manager.objects.topics.subscriptions)
    assert admin.refused(command, given) == (reason, parameter)
    assert sorted(admin.queue_manager.objects.topics.subscriptions) == before


@pytest.mark.parametrize(
    ("given", "filters", "names"),
    [
        ({}, (), ["api", "s1", "s2"]),
        ({MQCACF_SUB_NAME: "s*"}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_DURABLE_SUBSCRIPTION: cmqc.MQSUB_DURABLE_NO}, (), ["api"]),
        ({cmqcfc.MQIACF_DURABLE_SUBSCRIPTION: cmqc.MQSUB_DURABLE_YES}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_DURABLE_SUBSCRIPTION: cmqc.MQSUB_DURABLE_ALL}, (), ["api", "s1", "s2"]),
        ({cmqcfc.MQIACF_SUB_TYPE: cmqcfc.MQSUBTYPE_ADMIN}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_SUB_TYPE: cmqcfc.MQSUBTYPE_API}, (), ["api"]),
        ({cmqcfc.MQIACF_SUB_TYPE: cmqcfc.MQSUBTYPE_USER}, (), ["api", "s1", "s2"]),
        ({}, (MQCFSF(MQCA_TOPIC_STRING, cmqcfc.MQCFOP_LIKE, b"prices*"),), ["s1"]),
        ({}, (MQCFSF(MQCACF_SUB_USER_DATA, cmqcfc.MQCFOP_EQUAL, b""),), ["s2"]),
        ({}, (MQCFIF(cmqcfc.MQIACF_SUB_LEVEL, cmqcfc.MQCFOP_GREATER, 1),), ["api"]),
        ({}, (MQCFBF(cmqcfc.MQBACF_DESTINATION_CORREL_ID, cmqcfc.MQCFOP_EQUAL, b"id"),), ["api"]),
    ],
)
def test_which_subscriptions_are_inquired(
    admin: Administrator, given: dict[int, Any], filters: tuple[PCFParameter, ...], names: list[str]
) -> None:
    queue = admin.connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_INPUT_SHARED)
    options = cmqc.MQSO_CREATE | cmqc.MQSO_SET_CORREL_ID
    admin.connection.subscribe(
        MQSD(
            Options=options,
            SubName="api",
            ObjectString="t",
            SubLevel=2,
            SubUserData="data",
            SubCorrelId=b"id".ljust(24, b"\0"),
        ),
        queue,
    )
    found = admin.ask(INQUIRE, {MQCACF_SUB_NAME: "*"} | given, *filters)
    assert [one[MQCACF_SUB_NAME] for one in found] == names


def test_attributes_and_status(admin: Administrator) -> None:
    (some,) = admin.ask(INQUIRE, {MQCACF_SUB_NAME: "s1", cmqcfc.MQIACF_SUB_ATTRS: [MQCA_TOPIC_STRING]})
    assert set(some) == {MQCACF_SUB_NAME, MQBACF_SUB_ID, MQCA_TOPIC_STRING}
    assert len(some[MQBACF_SUB_ID]) == 24
    (status,) = admin.ask(cmqcfc.MQCMD_INQUIRE_SUB_STATUS, {MQBACF_SUB_ID: some[MQBACF_SUB_ID]})
    assert (status[MQCACF_SUB_NAME], status[MQCA_TOPIC_STRING]) == ("s1", "prices/#")
    assert MQCACF_DESTINATION not in status
