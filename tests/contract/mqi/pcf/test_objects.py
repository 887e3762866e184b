"""PCF commands that create, change, copy, delete and inquire queues, topics, namelists and subscriptions."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.mqi import MQOD, MQSD
from bridge.wire.mq.pcf import MQCFBF, MQCFH, MQCFIF, MQCFSF, MQCFST, PCFParameter, encode_pcf
from tests.helpers.pcf_administrator import Administrator, parameters
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.cmqc import (
    MQCA_NAMELIST_NAME,
    MQCA_NAMES,
    MQCA_Q_DESC,
    MQCA_Q_NAME,
    MQCA_TOPIC_DESC,
    MQCA_TOPIC_NAME,
    MQCA_TOPIC_STRING,
    MQIA_CURRENT_Q_DEPTH,
    MQIA_MAX_Q_DEPTH,
    MQIA_Q_TYPE,
)
from tests.ibm_standin.cmqcfc import MQBACF_SUB_ID, MQCACF_DESTINATION, MQCACF_SUB_NAME, MQCACF_SUB_USER_DATA

NAMED = {"Q": MQCA_Q_NAME, "TOPIC": MQCA_TOPIC_NAME, "NAMELIST": MQCA_NAMELIST_NAME, "SUBSCRIPTION": MQCACF_SUB_NAME}


def command(verb: str, word: str) -> int:
    number: int = getattr(cmqcfc, f"MQCMD_{verb}_{word}")
    return number


class Kind(NamedTuple):
    """An object named NEW: its attributes in MQSC, a change of it, and additional attributes of a copy."""

    word: str
    attributes: dict[int, Any]
    noun: str
    displayed: dict[str, str | int]
    changed: dict[int, Any]
    copied: dict[int, Any] = {}  # noqa: RUF012
    missing: int = cmqc.MQRC_UNKNOWN_OBJECT_NAME


def queue(noun: str, number: int, attributes: dict[int, Any], displayed: dict[str, str | int]) -> Kind:
    type_ = {MQIA_Q_TYPE: number}
    return Kind("Q", type_ | attributes, noun, displayed, type_ | {MQCA_Q_DESC: "changed"}, type_)


KINDS = {
    "local queue": queue(
        "QLOCAL", cmqc.MQQT_LOCAL,
        {
            MQCA_Q_DESC: "a new one", MQIA_MAX_Q_DEPTH: 123, cmqc.MQIA_INHIBIT_PUT: cmqc.MQQA_PUT_INHIBITED,
            cmqc.MQIA_DEF_PERSISTENCE: cmqc.MQPER_PERSISTENT, cmqc.MQIA_MSG_DELIVERY_SEQUENCE: cmqc.MQMDS_FIFO,
            cmqc.MQIA_TRIGGER_TYPE: cmqc.MQTT_EVERY, cmqc.MQIA_Q_DEPTH_HIGH_LIMIT: 90, cmqc.MQCA_CLUSTER_NAME: "",
        },
        {"DESCR": "a new one", "MAXDEPTH": 123, "PUT": "DISABLED", "DEFPSIST": "YES", "MSGDLVSQ": "FIFO"},
    ),
    "alias": queue(
        "QALIAS", cmqc.MQQT_ALIAS, {cmqc.MQCA_BASE_OBJECT_NAME: "PRICES", cmqc.MQIA_BASE_TYPE: cmqc.MQOT_TOPIC},
        {"TARGET": "PRICES", "TARGTYPE": "TOPIC"},
    ),
    "remote queue": queue(
        "QREMOTE", cmqc.MQQT_REMOTE, {cmqc.MQCA_REMOTE_Q_NAME: "Q", cmqc.MQCA_XMIT_Q_NAME: "APP.OUT"}, {"XMITQ": "APP.OUT"}
    ),
    "model queue": queue(
        "QMODEL", cmqc.MQQT_MODEL,
        {cmqc.MQIA_DEFINITION_TYPE: cmqc.MQQDT_PERMANENT_DYNAMIC, MQIA_MAX_Q_DEPTH: 7}, {"DEFTYPE": "PERMDYN"},
    ),
    "topic": Kind(
        "TOPIC",
        {
            MQCA_TOPIC_STRING: "new/topic", MQCA_TOPIC_DESC: "a topic", cmqc.MQIA_INHIBIT_PUB: cmqc.MQTA_PUB_INHIBITED,
            cmqc.MQIA_DEF_PRIORITY: 3, cmqc.MQIA_TOPIC_DEF_PERSISTENCE: cmqc.MQPER_PERSISTENT,
            cmqc.MQIA_DURABLE_SUB: cmqc.MQSUB_DURABLE_INHIBITED, cmqc.MQIA_NPM_DELIVERY: cmqc.MQDLV_ALL,
            cmqc.MQIA_WILDCARD_OPERATION: cmqc.MQTA_BLOCK,
        },
        "TOPIC", {"PUB": "DISABLED", "DEFPRTY": 3, "DEFPSIST": "YES", "DURSUB": "NO", "WILDCARD": "BLOCK"},
        {cmqc.MQIA_DEF_PRIORITY: cmqc.MQPRI_PRIORITY_AS_PARENT}, {MQCA_TOPIC_STRING: "copy"},
    ),
    "namelist": Kind(
        "NAMELIST", {MQCA_NAMES: ["APP.IN", "APP.OUT"], cmqc.MQCA_NAMELIST_DESC: "two"},
        "NAMELIST", {"NAMES": "APP.IN,APP.OUT"}, {MQCA_NAMES: ["ONE"]},
    ),
    "subscription": Kind(
        "SUBSCRIPTION",
        {
            MQCA_TOPIC_STRING: "a/#", MQCACF_DESTINATION: "APP.IN", MQCACF_SUB_USER_DATA: "qos=1",
            cmqcfc.MQIACF_SUB_LEVEL: 3, cmqcfc.MQBACF_DESTINATION_CORREL_ID: b"c" * 24,
            cmqcfc.MQIACF_WILDCARD_SCHEMA: cmqc.MQWS_TOPIC, cmqcfc.MQIACF_DESTINATION_CLASS: cmqc.MQDC_PROVIDED,
            cmqcfc.MQIACF_VARIABLE_USER_ID: cmqc.MQVU_ANY_USER,
        },
        "SUB", {"USERDATA": "qos=1", "SUBTYPE": "ADMIN", "DURABLE": "YES", "EXPIRY": "UNLIMITED"},
        {MQCACF_SUB_USER_DATA: "qos=2"}, {MQCA_TOPIC_STRING: "copied"}, cmqc.MQRC_NO_SUBSCRIPTION,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_object_from_creation_to_deletion(admin: Administrator, kind: Kind) -> None:
    new = {NAMED[kind.word]: "NEW"}
    admin.ask(command("CREATE", kind.word), new | kind.attributes)
    (attributes,) = admin.ask(command("INQUIRE", kind.word), new)
    assert (new | kind.attributes).items() <= attributes.items()
    assert {keyword: admin.displayed(f"{kind.noun}('NEW')", keyword) for keyword in kind.displayed} == kind.displayed
    again = admin.refused(command("CREATE", kind.word), new | kind.attributes)[0]
    assert again in (cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS, cmqcfc.MQRCCF_SUB_ALREADY_EXISTS)
    admin.ask(command("CREATE", kind.word), new | kind.attributes | {cmqcfc.MQIACF_REPLACE: cmqcfc.MQRP_YES})
    admin.ask(command("CHANGE", kind.word), new | kind.changed)
    word = "SUB" if kind.word == "SUBSCRIPTION" else kind.word
    names = {getattr(cmqcfc, f"MQCACF_{end}_{word}_NAME"): name for end, name in (("FROM", "NEW"), ("TO", "COPY"))}
    admin.ask(command("COPY", kind.word), names | kind.copied)
    changed = kind.attributes | kind.changed
    for name, expected in (("NEW", changed), ("COPY", changed | kind.copied)):
        (attributes,) = admin.ask(command("INQUIRE", kind.word), {NAMED[kind.word]: name})
        assert expected.items() <= attributes.items()
    for name in ("NEW", "COPY"):
        admin.ask(command("DELETE", kind.word), {NAMED[kind.word]: name})
    assert admin.refused(command("INQUIRE", kind.word), new)[0] == kind.missing


LOCAL = {MQCA_Q_NAME: "NEW", MQIA_Q_TYPE: cmqc.MQQT_LOCAL}
TOPIC = {MQCA_TOPIC_NAME: "NEW", MQCA_TOPIC_STRING: "new/topic"}
SUB = {MQCACF_SUB_NAME: "new", MQCA_TOPIC_STRING: "a/#", MQCACF_DESTINATION: "APP.IN"}
#: One command for each rule that rejects it: reason code, and the parameter that the reply contains.
REFUSED: list[tuple[str, dict[int, Any], int, int | None]] = [
    ("CREATE_Q", {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCA_Q_NAME),
    ("CREATE_Q", {MQCA_Q_NAME: "NEW"}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQIA_Q_TYPE),
    ("CREATE_Q", LOCAL | {MQIA_Q_TYPE: 99}, cmqcfc.MQRCCF_Q_TYPE_ERROR, MQIA_Q_TYPE),
    ("CREATE_Q", LOCAL | {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS, None),
    ("CREATE_Q", LOCAL | {MQCA_Q_NAME: "NOT GOOD"}, cmqcfc.MQRCCF_OBJECT_NAME_ERROR, None),
    ("CREATE_Q", LOCAL | {MQCA_Q_DESC: "D" * 65}, cmqcfc.MQRCCF_CFST_STRING_LENGTH_ERR, MQCA_Q_DESC),
    ("CREATE_Q", LOCAL | {MQIA_MAX_Q_DEPTH: -1}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQIA_MAX_Q_DEPTH),
    ("CREATE_Q", LOCAL | {MQIA_CURRENT_Q_DEPTH: 5}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQIA_CURRENT_Q_DEPTH),
    ("CREATE_Q", LOCAL | {cmqc.MQCA_CLUSTER_NAME: "C"}, cmqcfc.MQRCCF_ATTR_VALUE_FIXED, cmqc.MQCA_CLUSTER_NAME),
    ("CREATE_Q", LOCAL | {cmqc.MQCA_REMOTE_Q_NAME: "Q"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, cmqc.MQCA_REMOTE_Q_NAME),
    ("CREATE_Q", LOCAL | {MQCA_Q_DESC: 5}, cmqcfc.MQRCCF_CFIN_PARM_ID_ERROR, MQCA_Q_DESC),
    ("CREATE_Q", LOCAL | {cmqcfc.MQIACF_REPLACE: 7}, cmqcfc.MQRCCF_PARM_VALUE_ERROR, cmqcfc.MQIACF_REPLACE),
    ("CHANGE_Q", LOCAL, cmqc.MQRC_UNKNOWN_OBJECT_NAME, MQCA_Q_NAME),
    ("CHANGE_Q", LOCAL | {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_Q_WRONG_TYPE, MQIA_Q_TYPE),
    ("DELETE_Q", {MQCA_Q_NAME: "REPLIES"}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
    ("DELETE_Q", {MQCA_Q_NAME: COMMAND_QUEUE}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
    ("CLEAR_Q", {MQCA_Q_NAME: "APP.ALIAS"}, cmqcfc.MQRCCF_Q_WRONG_TYPE, MQCA_Q_NAME),
    ("CLEAR_Q", {MQCA_Q_NAME: "REPLIES"}, cmqc.MQRC_OBJECT_IN_USE, None),
    ("INQUIRE_Q", {MQCA_Q_NAME: "N*"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
    ("INQUIRE_Q", {MQCA_Q_NAME: "*", MQIA_Q_TYPE: cmqc.MQQT_CLUSTER}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
    ("INQUIRE_Q", {MQCA_Q_NAME: "*", cmqcfc.MQIACF_Q_ATTRS: [5, 999_999]}, cmqc.MQRC_SELECTOR_ERROR, 999_999),
    ("INQUIRE_Q", {MQCA_Q_NAME: "*", MQCA_TOPIC_NAME: "T"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, MQCA_TOPIC_NAME),
    ("CREATE_TOPIC", {MQCA_TOPIC_NAME: "NEW"}, cmqc.MQRC_TOPIC_STRING_ERROR, None),
    ("CREATE_TOPIC", TOPIC | {MQCA_TOPIC_STRING: "prices"}, cmqcfc.MQRCCF_TOPICSTR_ALREADY_EXISTS, None),
    ("CHANGE_TOPIC", {MQCA_TOPIC_NAME: "PRICES", MQCA_TOPIC_STRING: "x"}, cmqc.MQRC_TOPIC_NOT_ALTERABLE, None),
    ("DELETE_TOPIC", {MQCA_TOPIC_NAME: "SYSTEM.BASE.TOPIC"}, cmqcfc.MQRCCF_OBJECT_OPEN, None),
    ("CREATE_NAMELIST", {MQCA_NAMELIST_NAME: "N", MQCA_NAMES: ["NOT GOOD"]}, cmqcfc.MQRCCF_ATTR_VALUE_ERROR, MQCA_NAMES),
    ("CREATE_NAMELIST", {MQCA_NAMELIST_NAME: "N", MQCA_NAMES: "N"}, cmqcfc.MQRCCF_CFST_PARM_ID_ERROR, MQCA_NAMES),
    ("CREATE_SUBSCRIPTION", {MQCACF_SUB_NAME: "new", MQCA_TOPIC_STRING: "a"}, cmqcfc.MQRCCF_PARM_MISSING, None),
    ("CREATE_SUBSCRIPTION", SUB | {MQCACF_DESTINATION: "NONE"}, cmqc.MQRC_UNKNOWN_OBJECT_NAME, None),
    ("CREATE_SUBSCRIPTION", SUB | {MQCA_TOPIC_STRING: "prices/fruit"}, cmqc.MQRC_SUB_INHIBITED, None),
    ("CREATE_SUBSCRIPTION", SUB | {cmqcfc.MQCACF_DESTINATION_Q_MGR: "QM2"}, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR, None),
    (
        "CREATE_SUBSCRIPTION", SUB | {cmqcfc.MQBACF_DESTINATION_CORREL_ID: bytes(25)},
        cmqcfc.MQRCCF_CFBS_STRING_LENGTH_ERR, cmqcfc.MQBACF_DESTINATION_CORREL_ID,
    ),
    (
        "CHANGE_SUBSCRIPTION", {MQCACF_SUB_NAME: "s1", MQCA_TOPIC_STRING: "x"},
        cmqcfc.MQRCCF_ATTR_VALUE_FIXED, MQCA_TOPIC_STRING,
    ),
    ("DELETE_SUBSCRIPTION", {}, cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, MQCACF_SUB_NAME),
]  # fmt: skip


def test_rejected_commands_change_nothing(admin: Administrator) -> None:
    objects = admin.queue_manager.objects
    before = sorted((*objects.queues, *objects.topics.objects, *objects.namelists, *objects.topics.subscriptions))
    for name, request, reason, parameter in REFUSED:
        assert admin.refused(getattr(cmqcfc, f"MQCMD_{name}"), request) == (reason, parameter), (name, request)
    assert (
        sorted((*objects.queues, *objects.topics.objects, *objects.namelists, *objects.topics.subscriptions)) == before
    )


def test_delete_and_clear_queue(admin: Administrator) -> None:
    admin.ask(cmqcfc.MQCMD_CREATE_Q, LOCAL)
    admin.put("NEW")
    assert admin.refused(cmqcfc.MQCMD_DELETE_Q, {MQCA_Q_NAME: "NEW"}) == (cmqc.MQRC_Q_NOT_EMPTY, None)
    admin.put("NEW", options=cmqc.MQPMO_SYNCPOINT)
    assert admin.refused(cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "NEW"}) == (cmqc.MQRC_Q_NOT_EMPTY, None)
    admin.connection.commit()
    admin.ask(cmqcfc.MQCMD_CLEAR_Q, {MQCA_Q_NAME: "NEW"})
    assert admin.displayed("QLOCAL(NEW)", "CURDEPTH") == 0
    admin.put("NEW")
    admin.ask(cmqcfc.MQCMD_DELETE_Q, {MQCA_Q_NAME: "NEW", cmqcfc.MQIACF_PURGE: cmqcfc.MQPO_YES})
    assert "NEW" not in admin.queue_manager.objects.queues


def test_managed_destinations_and_topic_objects(admin: Administrator) -> None:
    managed = {MQCACF_SUB_NAME: "managed", cmqcfc.MQIACF_DESTINATION_CLASS: cmqc.MQDC_MANAGED}
    admin.ask(cmqcfc.MQCMD_CREATE_SUBSCRIPTION, managed | {MQCA_TOPIC_NAME: "PRICES", MQCA_TOPIC_STRING: "apples"})
    (subscription,) = admin.ask(cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, {MQCACF_SUB_NAME: "managed"})
    assert (subscription[MQCA_TOPIC_STRING], subscription[MQCA_TOPIC_NAME]) == ("prices/apples", "PRICES")
    assert subscription[cmqcfc.MQIACF_DESTINATION_CLASS] == cmqc.MQDC_MANAGED
    assert subscription[MQCACF_DESTINATION].startswith("SYSTEM.MANAGED.DURABLE.")
    admin.ask(cmqcfc.MQCMD_DELETE_SUBSCRIPTION, {MQBACF_SUB_ID: subscription[MQBACF_SUB_ID]})


# Inquiries -----------------------------------------------------------------------------------------------------------


def text(operator: str, value: bytes, parameter: int = MQCA_Q_DESC) -> MQCFSF:
    return MQCFSF(parameter, getattr(cmqcfc, f"MQCFOP_{operator}"), value)


def number(operator: str, value: int, parameter: int = MQIA_MAX_Q_DEPTH) -> MQCFIF:
    return MQCFIF(parameter, getattr(cmqcfc, f"MQCFOP_{operator}"), value)


INQUIRED: list[tuple[str, int | None, tuple[PCFParameter, ...], list[str]]] = [
    ("APP.IN", None, (), ["APP.IN"]),
    ("APP.*", None, (), ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]),
    ("APP.*", cmqc.MQQT_LOCAL, (), ["APP.IN", "APP.OUT"]),
    ("APP.*", cmqc.MQQT_ALL, (), ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]),
    ("*", None, (text("LIKE", b"goes*"),), ["APP.IN", "APP.OUT"]),
    ("APP.*", None, (text("NOT_LIKE", b"goes*"),), ["APP.ALIAS", "APP.FAR"]),
    ("APP.*", None, (text("EQUAL", b"APP.OUT", cmqc.MQCA_XMIT_Q_NAME),), ["APP.FAR"]),
    ("APP.*", None, (number("GREATER", 10),), ["APP.OUT"]),
    ("APP.*", None, (number("NOT_LESS", 10),), ["APP.IN", "APP.OUT"]),
    ("APP.*", None, (number("LESS", 20),), ["APP.IN"]),
    ("APP.*", None, (number("NOT_GREATER", 10),), ["APP.IN"]),
    ("APP.*", None, (number("NOT_EQUAL", 10),), ["APP.OUT"]),
    ("*", None, (text("LIKE", b"goes*"), number("EQUAL", 0, MQIA_CURRENT_Q_DEPTH)), ["APP.OUT"]),
]
BAD_FILTERS: list[tuple[PCFParameter, int]] = [
    (text("EQUAL", b"nothing like it"), cmqcfc.MQRCCF_NONE_FOUND),
    (text("EQUAL", b"x", MQCA_TOPIC_STRING), cmqcfc.MQRCCF_CFSF_PARM_ID_ERROR),
    (MQCFSF(MQCA_Q_DESC, 99, b"x"), cmqcfc.MQRCCF_CFSF_OPERATOR_ERROR),
    (number("EQUAL", 1, cmqc.MQIA_SUB_COUNT), cmqcfc.MQRCCF_CFIF_PARM_ID_ERROR),
    (number("LIKE", 1), cmqcfc.MQRCCF_CFIF_OPERATOR_ERROR),
    (MQCFBF(MQBACF_SUB_ID, cmqcfc.MQCFOP_EQUAL, b"x"), cmqcfc.MQRCCF_CFBF_PARM_ID_ERROR),
]


def test_selection_of_inquired_queues(admin: Administrator) -> None:
    admin.put("APP.IN")
    for name, type_, filters, names in INQUIRED:
        request: dict[int, Any] = {MQCA_Q_NAME: name} | ({MQIA_Q_TYPE: type_} if type_ is not None else {})
        queues = admin.ask(cmqcfc.MQCMD_INQUIRE_Q, request, *filters)
        assert [queue_attributes[MQCA_Q_NAME] for queue_attributes in queues] == names, (request, filters)
    for bad_filter, reason in BAD_FILTERS:
        assert admin.refused(cmqcfc.MQCMD_INQUIRE_Q, {MQCA_Q_NAME: "APP.*"}, bad_filter)[0] == reason


def test_inquire_queue_returns_the_requested_attributes(admin: Administrator) -> None:
    inquire = cmqcfc.MQCMD_INQUIRE_Q
    request = {MQCA_Q_NAME: "APP.*", cmqcfc.MQIACF_Q_ATTRS: [MQIA_MAX_Q_DEPTH, cmqc.MQCA_STORAGE_CLASS]}
    attributes = {
        queue_attributes.pop(MQCA_Q_NAME): queue_attributes for queue_attributes in admin.ask(inquire, request)
    }
    assert attributes["APP.IN"] == {MQIA_Q_TYPE: cmqc.MQQT_LOCAL, MQIA_MAX_Q_DEPTH: 10}
    assert attributes["APP.ALIAS"] == {MQIA_Q_TYPE: cmqc.MQQT_ALIAS}
    (whole,) = admin.ask(inquire, {MQCA_Q_NAME: "APP.IN", cmqcfc.MQIACF_Q_ATTRS: [cmqcfc.MQIACF_ALL]})
    assert len(whole) > 40
    (filtered,) = admin.ask(inquire, request, number("EQUAL", 0, MQIA_CURRENT_Q_DEPTH), text("LIKE", b"goes in*"))
    assert set(filtered) == {MQCA_Q_NAME, MQIA_Q_TYPE, MQIA_MAX_Q_DEPTH, MQIA_CURRENT_Q_DEPTH, MQCA_Q_DESC}
    admin.send(encode_pcf(MQCFH(Command=inquire), parameters({MQCA_Q_NAME: "APP.IN"})))
    ((_, sent),) = admin.replied()
    texts = {parameter.Parameter: parameter.String for parameter in sent if isinstance(parameter, MQCFST)}
    assert (texts[MQCA_Q_NAME], texts[MQCA_Q_DESC]) == (b"APP.IN".ljust(48), b"goes in".ljust(64))
    assert (len(texts[cmqc.MQCA_CREATION_DATE]), len(texts[cmqc.MQCA_CREATION_TIME])) == (12, 8)


def test_names(admin: Administrator) -> None:
    (queues,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_NAMES, {MQCA_Q_NAME: "APP.*"})
    assert queues[cmqcfc.MQCACF_Q_NAMES] == ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]
    assert queues[cmqcfc.MQIACF_Q_TYPES] == [3, 6, 1, 1]
    (none,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_NAMES, {MQCA_Q_NAME: "NONE*"})
    assert none == {cmqcfc.MQCACF_Q_NAMES: [], cmqcfc.MQIACF_Q_TYPES: []}
    (names,) = admin.ask(cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES, {MQCA_TOPIC_NAME: "P*"})
    assert names == {cmqcfc.MQCACF_TOPIC_NAMES: ["PRICES", "PRICES.FRUIT"]}


def test_topic_status(admin: Administrator) -> None:
    inquire = cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS
    admin.retain("prices/fruit")
    (status,) = admin.ask(inquire, {MQCA_TOPIC_STRING: "prices/fruit"})
    expected = {
        MQCA_TOPIC_STRING: "prices/fruit", cmqc.MQCA_ADMIN_TOPIC_NAME: "PRICES.FRUIT", cmqc.MQIA_SUB_COUNT: 0,
        cmqc.MQIA_INHIBIT_SUB: cmqc.MQTA_SUB_INHIBITED, cmqc.MQIA_DEF_PRIORITY: 7,
        cmqcfc.MQIACF_RETAINED_PUBLICATION: cmqcfc.MQQSO_YES,
    }  # fmt: skip
    assert expected.items() <= status.items()
    statuses = admin.ask(inquire, {MQCA_TOPIC_STRING: "prices/#"})
    assert [status[MQCA_TOPIC_STRING] for status in statuses] == ["prices", "prices/#", "prices/fruit"]
    subscribers = {cmqcfc.MQIACF_TOPIC_STATUS_TYPE: cmqcfc.MQIACF_TOPIC_SUB}
    (subscriber,) = admin.ask(inquire, {MQCA_TOPIC_STRING: "x"} | subscribers)
    assert subscriber[cmqcfc.MQIACF_DURABLE_SUBSCRIPTION] == cmqc.MQSUB_DURABLE_YES
    assert admin.refused(inquire, {MQCA_TOPIC_STRING: "prices"} | subscribers)[0] == cmqcfc.MQRCCF_NONE_FOUND
    unknown = (cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND, MQCA_TOPIC_STRING)
    assert admin.refused(inquire, {MQCA_TOPIC_STRING: "nowhere"}) == unknown


def test_selection_of_inquired_subscriptions(admin: Administrator) -> None:
    sd = MQSD(
        Options=cmqc.MQSO_CREATE | cmqc.MQSO_SET_CORREL_ID,
        SubName="api",
        ObjectString="t",
        SubLevel=2,
        SubUserData="data",
        SubCorrelId=b"id".ljust(24, b"\0"),
    )
    admin.connection.subscribe(sd, admin.connection.open(MQOD(ObjectName="APP.IN"), cmqc.MQOO_INPUT_SHARED))
    cases: list[tuple[dict[int, Any], tuple[PCFParameter, ...], list[str]]] = [
        ({MQCACF_SUB_NAME: "s*"}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_DURABLE_SUBSCRIPTION: cmqc.MQSUB_DURABLE_NO}, (), ["api"]),
        ({cmqcfc.MQIACF_DURABLE_SUBSCRIPTION: cmqc.MQSUB_DURABLE_YES}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_SUB_TYPE: cmqcfc.MQSUBTYPE_ADMIN}, (), ["s1", "s2"]),
        ({cmqcfc.MQIACF_SUB_TYPE: cmqcfc.MQSUBTYPE_USER}, (), ["api", "s1", "s2"]),
        ({}, (MQCFBF(cmqcfc.MQBACF_DESTINATION_CORREL_ID, cmqcfc.MQCFOP_EQUAL, b"id"),), ["api"]),
    ]
    for selection, filters, names in cases:
        subscriptions = admin.ask(cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, {MQCACF_SUB_NAME: "*"} | selection, *filters)
        assert [subscription[MQCACF_SUB_NAME] for subscription in subscriptions] == names
    (status,) = admin.ask(cmqcfc.MQCMD_INQUIRE_SUB_STATUS, {MQBACF_SUB_ID: subscriptions[0][MQBACF_SUB_ID]})
    assert status[MQCACF_SUB_NAME] == "api" and MQCACF_DESTINATION not in status
