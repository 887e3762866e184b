"""Inquire Queue: generic names, types, filters, attributes."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.wire.mq.pcf import (
    MQCFBF,
    MQCFH,
    MQCFIF,
    MQCFSF,
    MQCFST,
    PCFParameter,
    encode_pcf,
)
from testing.ibm_standin import cmqc, cmqcfc
from testing.ibm_standin.cmqc import MQCA_Q_DESC, MQCA_Q_NAME, MQIA_CURRENT_Q_DEPTH, MQIA_MAX_Q_DEPTH, MQIA_Q_TYPE
from tests.helpers.pcf_administrator import Administrator, parameters

INQUIRE = cmqcfc.MQCMD_INQUIRE_Q
LESS, EQUAL, GREATER, NOT_LESS, NOT_EQUAL, NOT_GREATER, LIKE, NOT_LIKE = (
    cmqcfc.MQCFOP_LESS,
    cmqcfc.MQCFOP_EQUAL,
    cmqcfc.MQCFOP_GREATER,
    cmqcfc.MQCFOP_NOT_LESS,
    cmqcfc.MQCFOP_NOT_EQUAL,
    cmqcfc.MQCFOP_NOT_GREATER,
    cmqcfc.MQCFOP_LIKE,
    cmqcfc.MQCFOP_NOT_LIKE,
)


@pytest.mark.parametrize(
    ("name", "type_", "filters", "names"),
    [
        ("APP.IN", None, (), ["APP.IN"]),
        ("APP.I*", None, (), ["APP.IN"]),
        ("APP.*", None, (), ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]),
        ("APP.*", cmqc.MQQT_LOCAL, (), ["APP.IN", "APP.OUT"]),
        ("APP.*", cmqc.MQQT_ALIAS, (), ["APP.ALIAS"]),
        ("APP.*", cmqc.MQQT_REMOTE, (), ["APP.FAR"]),
        ("APP.*", cmqc.MQQT_ALL, (), ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]),
        ("*", None, (MQCFSF(MQCA_Q_DESC, LIKE, b"goes*"),), ["APP.IN", "APP.OUT"]),
        ("APP.*", None, (MQCFSF(MQCA_Q_DESC, NOT_LIKE, b"goes*"),), ["APP.ALIAS", "APP.FAR"]),
        ("APP.*", None, (MQCFSF(MQCA_Q_DESC, EQUAL, b"goes in"),), ["APP.IN"]),
        ("APP.*", None, (MQCFSF(MQCA_Q_DESC, GREATER, b"goes in"),), ["APP.OUT"]),
        ("APP.*", None, (MQCFSF(cmqc.MQCA_XMIT_Q_NAME, EQUAL, b"APP.OUT"),), ["APP.FAR"]),
        ("APP.*", None, (MQCFIF(MQIA_MAX_Q_DEPTH, GREATER, 10),), ["APP.OUT"]),
        ("APP.*", None, (MQCFIF(MQIA_MAX_Q_DEPTH, NOT_LESS, 10),), ["APP.IN", "APP.OUT"]),
        ("APP.*", None, (MQCFIF(MQIA_MAX_Q_DEPTH, LESS, 20),), ["APP.IN"]),
        ("APP.*", None, (MQCFIF(MQIA_MAX_Q_DEPTH, NOT_GREATER, 10),), ["APP.IN"]),
        ("APP.*", None, (MQCFIF(MQIA_MAX_Q_DEPTH, NOT_EQUAL, 10),), ["APP.OUT"]),
        ("APP.*", None, (MQCFIF(cmqc.MQIA_USAGE, EQUAL, cmqc.MQUS_TRANSMISSION),), ["APP.OUT"]),
        ("APP.*", None, (MQCFIF(MQIA_CURRENT_Q_DEPTH, GREATER, 0),), ["APP.IN"]),
        ("*", None, (MQCFSF(MQCA_Q_DESC, LIKE, b"goes*"), MQCFIF(MQIA_CURRENT_Q_DEPTH, EQUAL, 0)), ["APP.OUT"]),
    ],
)
def test_which_queues_are_inquired(
    admin: Administrator, name: str, type_: int | None, filters: tuple[PCFParameter, ...], names: list[str]
) -> None:
    admin.put("APP.IN")
    given: dict[int, Any] = {MQCA_Q_NAME: name} | ({MQIA_Q_TYPE: type_} if type_ is not None else {})
    found = admin.ask(INQUIRE, given, *filters)
    assert [one[MQCA_Q_NAME] for one in found] == names


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (MQCFSF(MQCA_Q_DESC, EQUAL, b"nothing like it"), cmqcfc.MQRCCF_NONE_FOUND),
        (MQCFSF(cmqc.MQCA_TOPIC_STRING, EQUAL, b"x"), cmqcfc.MQRCCF_CFSF_PARM_ID_ERROR),
        (MQCFSF(MQCA_Q_DESC, 99, b"x"), cmqcfc.MQRCCF_CFSF_OPERATOR_ERROR),
        (MQCFIF(cmqc.MQIA_SUB_COUNT, EQUAL, 1), cmqcfc.MQRCCF_CFIF_PARM_ID_ERROR),
        (MQCFIF(MQIA_MAX_Q_DEPTH, LIKE, 1), cmqcfc.MQRCCF_CFIF_OPERATOR_ERROR),
        (MQCFBF(cmqcfc.MQBACF_SUB_ID, EQUAL, b"x"), cmqcfc.MQRCCF_CFBF_PARM_ID_ERROR),
    ],
)
def test_filters_without_matches_and_invalid_filters(admin: Administrator, one: PCFParameter, reason: int) -> None:
    assert admin.refused(INQUIRE, {MQCA_Q_NAME: "APP.*"}, one)[0] == reason


def test_inquire_queue_returns_the_requested_attributes(admin: Administrator) -> None:
    given = {MQCA_Q_NAME: "APP.*", cmqcfc.MQIACF_Q_ATTRS: [MQIA_MAX_Q_DEPTH, cmqc.MQCA_STORAGE_CLASS]}
    found = {one.pop(MQCA_Q_NAME): one for one in admin.ask(INQUIRE, given)}
    assert found["APP.IN"] == {MQIA_Q_TYPE: cmqc.MQQT_LOCAL, MQIA_MAX_Q_DEPTH: 10}
    assert found["APP.ALIAS"] == {MQIA_Q_TYPE: cmqc.MQQT_ALIAS}
    (whole,) = admin.ask(INQUIRE, {MQCA_Q_NAME: "APP.IN", cmqcfc.MQIACF_Q_ATTRS: [cmqcfc.MQIACF_ALL]})
    (one,) = admin.ask(INQUIRE, {MQCA_Q_NAME: "APP.IN", cmqcfc.MQIACF_Q_ATTRS: MQIA_MAX_Q_DEPTH})
    (filtered,) = admin.ask(
        INQUIRE, given, MQCFIF(MQIA_CURRENT_Q_DEPTH, EQUAL, 0), MQCFSF(MQCA_Q_DESC, LIKE, b"goes in*")
    )
    assert set(filtered) == {MQCA_Q_NAME, MQIA_Q_TYPE, MQIA_MAX_Q_DEPTH, MQIA_CURRENT_Q_DEPTH, MQCA_Q_DESC}
    assert len(whole) > 40 and set(one) == {MQCA_Q_NAME, MQIA_Q_TYPE, MQIA_MAX_Q_DEPTH}


def test_texts_have_the_length_that_ibm_gives_them(admin: Administrator) -> None:
    admin.send(encode_pcf(MQCFH(Command=INQUIRE), parameters({MQCA_Q_NAME: "APP.IN"})))
    ((_, found),) = admin.replied()
    texts = {one.Parameter: one.String for one in found if isinstance(one, MQCFST)}
    assert texts[MQCA_Q_NAME] == b"APP.IN".ljust(48)
    assert texts[MQCA_Q_DESC] == b"goes in".ljust(64)
    assert (len(texts[cmqc.MQCA_CREATION_DATE]), len(texts[cmqc.MQCA_CREATION_TIME])) == (12, 8)


def test_inquire_queue_names(admin: Administrator) -> None:
    (found,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_NAMES, {MQCA_Q_NAME: "APP.*"})
    assert found[cmqcfc.MQCACF_Q_NAMES] == ["APP.ALIAS", "APP.FAR", "APP.IN", "APP.OUT"]
    assert found[cmqcfc.MQIACF_Q_TYPES] == [3, 6, 1, 1]
    (none,) = admin.ask(cmqcfc.MQCMD_INQUIRE_Q_NAMES, {MQCA_Q_NAME: "NONE*"})
    assert none == {cmqcfc.MQCACF_Q_NAMES: [], cmqcfc.MQIACF_Q_TYPES: []}
