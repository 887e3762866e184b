"""PCF commands about topic objects, topic strings and retained publications."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.wire.mq.pcf import MQCFIF, MQCFSF
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_TOPIC_DESC, MQCA_TOPIC_NAME, MQCA_TOPIC_STRING
from tests.helpers.pcf_administrator import Administrator

CREATE, CHANGE, DELETE, INQUIRE = (
    cmqcfc.MQCMD_CREATE_TOPIC,
    cmqcfc.MQCMD_CHANGE_TOPIC,
    cmqcfc.MQCMD_DELETE_TOPIC,
    cmqcfc.MQCMD_INQUIRE_TOPIC,
)
NEW = {MQCA_TOPIC_NAME: "NEW", MQCA_TOPIC_STRING: "new/topic"}


def test_create_change_and_delete_a_topic(admin: Administrator) -> None:
    given = NEW | {
        MQCA_TOPIC_DESC: "a topic",
        cmqc.MQIA_INHIBIT_PUB: cmqc.MQTA_PUB_INHIBITED,
        cmqc.MQIA_DEF_PRIORITY: 3,
        cmqc.MQIA_TOPIC_DEF_PERSISTENCE: cmqc.MQPER_PERSISTENT,
        cmqc.MQIA_DURABLE_SUB: cmqc.MQSUB_DURABLE_INHIBITED,
        cmqc.MQIA_NPM_DELIVERY: cmqc.MQDLV_ALL,
        cmqc.MQIA_WILDCARD_OPERATION: cmqc.MQTA_BLOCK,
    }
    admin.ask(CREATE, given)
    (made,) = admin.ask(INQUIRE, {MQCA_TOPIC_NAME: "NEW"})
    assert given.items() <= made.items()
    assert made[cmqc.MQIA_TOPIC_TYPE] == cmqc.MQTOPT_LOCAL
    expected = {"PUB": "DISABLED", "DEFPRTY": 3, "DEFPSIST": "YES", "DURSUB": "NO", "WILDCARD": "BLOCK"}
    assert {keyword: admin.shown("TOPIC(NEW)", keyword) for keyword in expected} == expected
    admin.ask(CHANGE, {MQCA_TOPIC_NAME: "NEW", cmqc.MQIA_DEF_PRIORITY: cmqc.MQPRI_PRIORITY_AS_PARENT})
    assert admin.shown("TOPIC(NEW)", "DEFPRTY") == "ASPARENT"
    admin.ask(DELETE, {MQCA_TOPIC_NAME: "NEW"})
    assert admin.refused(INQUIRE, {MQCA_TOPIC_NAME: "NEW"}) == (cmqc.MQRC_UNKNOWN_OBJECT_NAME, None)


def test_copy_takes_all_but_the_topic_string(admin: Administrator) -> None:
    copy = {cmqcfc.MQCACF_FROM_TOPIC_NAME: "PRICES", cmqcfc.MQCACF_TO_TOPIC_NAME: "COPY", MQCA_TOPIC_STRING: "copy"}
    admin.ask(cmqcfc.MQCMD_COPY_TOPIC, copy)
    assert (admin.shown("TOPIC(COPY)", "DEFPRTY"), admin.shown("TOPIC(COPY)", "TOPICSTR")) == (7, "copy")
    admin.ask(cmqcfc.MQCMD_COPY_TOPIC, copy | {MQCA_TOPIC_DESC: "again", cmqcfc.MQIACF_REPLACE: cmqcfc.MQRP_YES})
    assert admin.shown("TOPIC(COPY)", "DESCR") == "again"


@pytest.mark.parametrize(
    ("command", "given", "reason", "parameter"),
    [
        (CREATE, {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCA_TOPIC_NAME),
        (CREATE, {MQCA_TOPIC_NAME: "NEW"}, cmqc.MQRC_TOPIC_STRING_ERROR, None),
        (CREATE, NEW | {MQCA_TOPIC_NAME: "PRICES"}, cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS, None),
        (CREATE, NEW | {MQCA_TOPIC_STRING: "prices"}, cmqcfc.MQRCCF_TOPICSTR_ALREADY_EXISTS, None),
        (CREATE, NEW | {cmqc.MQIA_DEF_PRIORITY: 10}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, cmqc.MQIA_DEF_PRIORITY),
        (CREATE, NEW | {cmqc.MQIA_MAX_Q_DEPTH: 10}, cmqcfc.MQRCCF_CFIN_PARM_ID_ERROR, cmqc.MQIA_MAX_Q_DEPTH),
        (CREATE, NEW | {cmqc.MQIA_TOPIC_TYPE: 1}, cmqcfc.MQRCCF_PARM_VALUE_ERROR, cmqc.MQIA_TOPIC_TYPE),
        (CHANGE, {MQCA_TOPIC_NAME: "NEW"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (CHANGE, {MQCA_TOPIC_NAME: "PRICES", MQCA_TOPIC_STRING: "other"}, cmqc.MQRC_TOPIC_NOT_ALTERABLE, None),
        (DELETE, {MQCA_TOPIC_NAME: "NEW"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (DELETE, {MQCA_TOPIC_NAME: "SYSTEM.BASE.TOPIC"}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
        (INQUIRE, {MQCA_TOPIC_NAME: "N*"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
        (
            INQUIRE,
            {MQCA_TOPIC_NAME: "*", cmqc.MQIA_TOPIC_TYPE: cmqc.MQTOPT_CLUSTER},
            cmqc.MQRC_UNKNOWN_OBJECT_NAME,
            None,
        ),
    ],
)
def test_topic_commands_that_are_refused(
    admin: Administrator, command: int, given: dict[int, Any], reason: int, parameter: int | None
) -> None:
    before = sorted(admin.queue_manager.objects.topics.objects)
    assert admin.refused(command, given) == (reason, parameter)
    assert sorted(admin.queue_manager.objects.topics.objects) == before


def test_which_topics_are_inquired(admin: Administrator) -> None:
    every = {MQCA_TOPIC_NAME: "P*"}
    assert [one[MQCA_TOPIC_NAME] for one in admin.ask(INQUIRE, every)] == ["PRICES", "PRICES.FRUIT"]
    below = MQCFSF(MQCA_TOPIC_STRING, cmqcfc.MQCFOP_LIKE, b"prices/*")
    assert [one[MQCA_TOPIC_NAME] for one in admin.ask(INQUIRE, every, below)] == ["PRICES.FRUIT"]
    seven = MQCFIF(cmqc.MQIA_DEF_PRIORITY, cmqcfc.MQCFOP_EQUAL, 7)
    assert [one[MQCA_TOPIC_NAME] for one in admin.ask(INQUIRE, every, seven)] == ["PRICES"]
    (some,) = admin.ask(INQUIRE, {MQCA_TOPIC_NAME: "PRICES", cmqcfc.MQIACF_TOPIC_ATTRS: [MQCA_TOPIC_STRING]})
    assert some == {MQCA_TOPIC_NAME: "PRICES", cmqc.MQIA_TOPIC_TYPE: cmqc.MQTOPT_LOCAL, MQCA_TOPIC_STRING: "prices"}
    (names,) = admin.ask(cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES, every)
    assert names == {cmqcfc.MQCACF_TOPIC_NAMES: ["PRICES", "PRICES.FRUIT"]}


def test_topic_status(admin: Administrator) -> None:
    command = cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS
    admin.retain("prices/fruit")
    (status,) = admin.ask(command, {MQCA_TOPIC_STRING: "prices/fruit"})
    expected = {
        MQCA_TOPIC_STRING: "prices/fruit",
        cmqc.MQCA_ADMIN_TOPIC_NAME: "PRICES.FRUIT",
        cmqc.MQIA_INHIBIT_SUB: cmqc.MQTA_SUB_INHIBITED,
        cmqc.MQIA_DEF_PRIORITY: 7,
        cmqcfc.MQIACF_RETAINED_PUBLICATION: cmqcfc.MQQSO_YES,
        cmqc.MQIA_SUB_COUNT: 0,
    }
    assert expected.items() <= status.items()
    found = admin.ask(command, {MQCA_TOPIC_STRING: "prices/#"})
    assert [one[MQCA_TOPIC_STRING] for one in found] == ["prices", "prices/#", "prices/fruit"]
    subscribers = {cmqcfc.MQIACF_TOPIC_STATUS_TYPE: cmqcfc.MQIACF_TOPIC_SUB}
    (subscriber,) = admin.ask(command, {MQCA_TOPIC_STRING: "x"} | subscribers)
    assert subscriber[cmqcfc.MQIACF_DURABLE_SUBSCRIPTION] == cmqc.MQSUB_DURABLE_YES
    assert admin.refused(command, {MQCA_TOPIC_STRING: "prices"} | subscribers)[0] == cmqcfc.MQRCCF_NONE_FOUND
    unknown = (cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, MQCA_TOPIC_STRING)
    assert admin.refused(command, {MQCA_TOPIC_STRING: "nowhere"}) == unknown
