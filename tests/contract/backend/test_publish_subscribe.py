"""Publications, retained publications and destinations (IBM MQ documentation, "Publish/subscribe messaging")."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bridge.mq.mqi import GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh, decode_rfh2
from tests.helpers.mq_applications import Application, Workplace, refused

DURABLE, RESUME = cmqc.MQSO_DURABLE, cmqc.MQSO_RESUME
FORCE = cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2
RETAIN = cmqc.MQPMO_RETAIN


# Matching -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_filter", "matching", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "a/B", "a/b/", "/a/b"]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c"]),
        ("+/b", ["a/b", "/b"], ["b", "a/b/c"]),
        ("a/#", ["a", "a/b", "a/b/c", "a/"], ["ab", "b"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/d/c"]),
        ("a/#/z", ["a/z", "a/b/z", "a/b/c/z"], ["a", "a/z/b", "az"]),
        ("a/#/m/#", ["a/m", "a/b/m/c/d"], ["a/b", "a"]),
        ("a/b+", ["a/b+"], ["a/bc"]),
    ],
)
def test_wildcards(mq: Workplace, app: Application, root: str, topic_filter: str, matching: Any, others: Any) -> None:
    _, publications = app.subscribe(f"{root}/{topic_filter}")
    for topic in [*others, *matching]:
        if "+" not in topic:
            app.publish(f"{root}/{topic}", topic.encode())
    assert app.drain(publications) == [topic.encode() for topic in matching if "+" not in topic]


@pytest.mark.smoke
def test_each_subscription_gets_one_copy(mq: Workplace, app: Application, other: Application, root: str) -> None:
    first, second = app.subscribe(f"{root}/#")[1], other.subscribe(f"{root}/a")[1]
    app.publish(f"{root}/a", b"1")
    app.publish(f"{root}/b", b"2")
    assert (app.drain(first), other.drain(second)) == ([b"1", b"2"], [b"1"])


@pytest.mark.smoke
def test_publishing_without_subscribers_is_not_an_error(app: Application, root: str) -> None:
    assert app.publish(root, b"nobody hears").MsgId != cmqc.MQMI_NONE


@pytest.mark.parametrize("topic", ["", "a/+/b", "#", "x" * 10_241])
def test_topics_that_cannot_be_published_to(app: Application, topic: str) -> None:
    with refused(cmqc.MQRC_TOPIC_STRING_ERROR):
        app.publish(topic)
    with refused(cmqc.MQRC_TOPIC_STRING_ERROR):
        app.open_topic(topic)


def test_topics_are_for_output(app: Application, root: str) -> None:
    for options in (cmqc.MQOO_INPUT_SHARED, cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT):
        with refused(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE):
            app.open_topic(root, options)


# What a subscriber gets -----------------------------------------------------------------------------------------------


def test_a_publication_has_the_topic_string_and_the_user_data(mq: Workplace, app: Application, root: str) -> None:
    _, publications = app.subscribe(f"{root}/#", SubUserData="qos=1")
    app.publish(f"{root}/x", b"data", Format=b"MQSTR", CodedCharSetId=1208)
    message = app.get(publications, GetOptions(Options=FORCE))
    assert message.md.Format == cmqc.MQFMT_RF_HEADER_2
    header = decode_rfh2(message.data)
    assert header.Format == b"MQSTR"
    assert message.data[header.StrucLength :] == b"data"
    text = message.data[: header.StrucLength].decode(errors="replace")
    assert f"<Top>{root}/x</Top>" in text
    assert "<Sud>qos=1</Sud>" in text
    assert "<Ret" not in text


def test_persistence_and_priority_come_from_the_publication(mq: Workplace, app: Application, root: str) -> None:
    _, publications = app.subscribe(root)
    app.publish(root, b"1", Persistence=1, Priority=3)
    app.publish(root, b"2", Persistence=0, Priority=7)
    first, second = (app.get(publications, GetOptions()).md for _ in range(2))
    assert (first.Priority, first.Persistence) == (7, 0)
    assert (second.Priority, second.Persistence) == (3, 1)


def test_a_subscription_may_set_the_correlation_identifier(app: Application, root: str) -> None:
    mine = b"mine".ljust(24, b"\0")
    _, publications = app.subscribe(root, options=cmqc.MQSO_SET_CORREL_ID, SubCorrelId=mine)
    app.publish(root, b"x", CorrelId=b"c" * 24)
    assert app.get(publications, GetOptions(CorrelId=mine)).data == b"x"


def test_mqci_none_leaves_the_publishers_correlation_identifier(mq: Workplace, app: Application, root: str) -> None:
    """ "If the field contains MQCI_NONE, the correlation identifier ... is [that of] the original put" (SubCorrelId)."""
    _, publications = app.subscribe(root, options=cmqc.MQSO_SET_CORREL_ID)
    app.publish(root, CorrelId=b"c" * 24)
    assert app.get(publications, GetOptions()).md.CorrelId == b"c" * 24


def test_publications_expire(app: Application, root: str) -> None:
    _, publications = app.subscribe(root)
    app.publish(root, b"short", Expiry=1)
    app.publish(root, b"long", Expiry=600)
    expired_at = time.monotonic() + 0.11
    while time.monotonic() < expired_at:
        time.sleep(0.01)
    message = app.get(publications, GetOptions())
    assert message.data == b"long"
    assert 500 < message.md.Expiry <= 600


# Retained publications ------------------------------------------------------------------------------------------------


def test_new_subscribers_receive_a_retained_publication(
    mq: Workplace, app: Application, other: Application, root: str
) -> None:
    _, present = app.subscribe(f"{root}/#")
    other.publish(f"{root}/a", b"old", options=RETAIN)
    other.publish(f"{root}/a", b"state", options=RETAIN)
    other.publish(f"{root}/a", b"event")
    other.publish(f"{root}/b", b"more", options=RETAIN)
    assert app.drain(present) == [b"old", b"state", b"event", b"more"]
    _, late = app.subscribe(f"{root}/+")
    assert sorted(app.drain(late)) == [b"more", b"state"]


def test_only_retained_publications_have_the_flag(mq: Workplace, app: Application, root: str) -> None:
    _, present = app.subscribe(root)
    app.publish(root, b"state", options=RETAIN)
    _, late = app.subscribe(root)
    live, retained = (app.get(handle, GetOptions(Options=FORCE)).data for handle in (present, late))
    assert b"<Ret" not in live
    assert b"<Ret" in retained


@pytest.mark.whole_mqi
def test_a_retained_publication_that_cannot_be_delivered_goes_to_the_dead_letter_queue(
    mq: Workplace, app: Application, root: str
) -> None:
    mq.alter(DEADQ=(dead := mq.queue()))
    app.publish(root, b"kept", options=cmqc.MQPMO_RETAIN)
    app.subscribe(root, handle=app.open_queue(mq.queue("MAXDEPTH(0)")))
    assert mq.attribute(f"QLOCAL('{dead}')", "CURDEPTH") == 1


@pytest.mark.whole_mqi
def test_a_subscription_fails_if_its_retained_publications_cannot_be_delivered(
    mq: Workplace, app: Application, root: str
) -> None:
    """IBM MQ documentation, "2526 (MQRC_RETAINED_NOT_DELIVERED)"."""
    mq.alter(DEADQ="")
    app.publish(root, b"kept", options=cmqc.MQPMO_RETAIN)
    name, handle = mq.name("S"), app.open_queue(mq.queue("MAXDEPTH(0)"))
    durable = {"options": cmqc.MQSO_DURABLE, "SubName": name, "handle": handle}
    with refused(cmqc.MQRC_RETAINED_NOT_DELIVERED):
        app.subscribe(root, **durable)
    assert mq.refuses(f"DISPLAY SUB('{name}')")


def test_new_publications_only(app: Application, root: str) -> None:
    app.publish(root, b"old", options=RETAIN)
    _, publications = app.subscribe(root, options=cmqc.MQSO_NEW_PUBLICATIONS_ONLY)
    app.publish(root, b"new")
    assert app.drain(publications) == [b"new"]


def test_a_resumed_subscription_gets_no_retained_publications(mq: Workplace, app: Application, root: str) -> None:
    app.publish(root, b"state", options=RETAIN)
    name = mq.name("sub")
    subscription, publications = app.subscribe(root, options=DURABLE, SubName=name)
    assert app.drain(publications) == [b"state"]
    app.close(subscription)
    subscription, publications = app.subscribe(root, options=DURABLE | RESUME, SubName=name)
    assert app.drain(publications) == []
    app.close(subscription, cmqc.MQCO_REMOVE_SUB)


def test_a_retained_publication_can_be_cleared(mq: Workplace, app: Application, root: str) -> None:
    app.publish(root, b"state", options=RETAIN)
    mq.command(f"CLEAR TOPICSTR('{root}') CLRTYPE(RETAINED)")
    assert app.drain(app.subscribe(root)[1]) == []


def test_a_backed_out_retained_publication_has_no_effect(app: Application, root: str) -> None:
    app.publish(root, b"before", options=RETAIN)
    app.publish(root, b"never", options=RETAIN | cmqc.MQPMO_SYNCPOINT)
    app.backout()
    assert app.drain(app.subscribe(root)[1]) == [b"before"]


# A destination that cannot take its publication -----------------------------------------------------------------------


@pytest.fixture
def full(mq: Workplace, app: Application, root: str) -> Any:
    """Make a subscriber whose queue is already full, and one whose queue is not."""
    blocked, free = mq.queue("MAXDEPTH(0)"), mq.queue()
    for queue in (blocked, free):
        app.subscribe(root, handle=app.open_queue(queue))
    return blocked, free


def durable_full(mq: Workplace, app: Application, root: str) -> Any:
    queue, name = mq.queue("MAXDEPTH(0)"), mq.name("sub")
    return app.subscribe(root, handle=app.open_queue(queue), options=DURABLE, SubName=name)[0]


@pytest.mark.whole_mqi
@pytest.mark.parametrize(
    ("delivery", "persistence", "durable", "accepted"),
    [
        ("PMSGDLV(ALL) NPMSGDLV(ALLAVAIL)", 1, False, False),
        ("PMSGDLV(ALL) NPMSGDLV(ALLAVAIL)", 0, False, True),
        ("PMSGDLV(ALLAVAIL) NPMSGDLV(ALL)", 1, False, True),
        ("PMSGDLV(ALLAVAIL) NPMSGDLV(ALL)", 0, False, False),
        ("PMSGDLV(ALLDUR) NPMSGDLV(ALLDUR)", 1, False, True),
        ("PMSGDLV(ALLDUR) NPMSGDLV(ALLDUR)", 1, True, False),
        ("PMSGDLV(ALLDUR) NPMSGDLV(ALLDUR)", 0, True, False),
    ],
)
def test_delivery_rules_without_dead_letter_queue(
    mq: Workplace,
    app: Application,
    root: str,
    full: Any,
    delivery: str,
    persistence: int,
    durable: bool,
    accepted: bool,
) -> None:
    mq.topic_object(root, f"{delivery} USEDLQ(NO)")
    mq.alter(DEADQ=mq.queue())
    extra = durable_full(mq, app, root) if durable else None
    if accepted:
        app.publish(root, b"x", Persistence=persistence)
    else:
        with refused(cmqc.MQRC_PUBLICATION_FAILURE):
            app.publish(root, b"x", Persistence=persistence, options=RETAIN)
    assert app.all(full[1]) == ([b"x"] if accepted else [])
    if not accepted:
        _, late = app.subscribe(root)
        assert app.drain(late) == [], "a refused publication is not retained"
    if extra:
        app.close(extra, cmqc.MQCO_REMOVE_SUB)


@pytest.mark.whole_mqi
def test_the_default_delivery_rules(mq: Workplace, app: Application, root: str, full: Any) -> None:
    """SYSTEM.BASE.TOPIC: PMSGDLV(ALLDUR) NPMSGDLV(ALLAVAIL), here without a dead-letter queue."""
    mq.alter(DEADQ="")
    app.publish(root, b"p", Persistence=1)
    subscription = durable_full(mq, app, root)
    app.publish(root, b"n", Persistence=0)
    with refused(cmqc.MQRC_PUBLICATION_FAILURE):
        app.publish(root, b"p", Persistence=1)
    assert app.all(full[1]) == [b"p", b"n"]
    app.close(subscription, cmqc.MQCO_REMOVE_SUB)


@pytest.mark.whole_mqi
def test_an_undeliverable_publication_goes_to_the_dead_letter_queue(
    mq: Workplace, app: Application, root: str, full: Any
) -> None:
    dead = mq.queue()
    mq.alter(DEADQ=dead)
    mq.topic_object(root, "PMSGDLV(ALL) NPMSGDLV(ALL) USEDLQ(YES)")
    app.publish(root, b"data", Persistence=1, Priority=5, Format=b"MQSTR", CodedCharSetId=1208)
    assert app.all(full[1]) == [b"data"]
    message = app.take(dead)
    assert message.md.Format == cmqc.MQFMT_DEAD_LETTER_HEADER
    assert message.md.Persistence == 1
    header = decode_mqdlh(message.data)
    assert header.Reason == cmqc.MQRC_Q_FULL
    assert (header.DestQName, header.DestQMgrName) == (full[0].encode(), mq.manager.encode())
    assert message.data[:4] == b"DLH "
    assert message.data.endswith(b"data")
    assert header.Format == cmqc.MQFMT_RF_HEADER_2
    rfh2 = decode_rfh2(message.data, 172)
    assert (rfh2.Format, rfh2.CodedCharSetId) == (b"MQSTR", 1208)
    assert len(message.data) == 172 + rfh2.StrucLength + len(b"data")
    assert f"<Top>{root}</Top>".encode() in message.data


@pytest.mark.whole_mqi
@pytest.mark.parametrize(
    ("attributes", "reason"), [("MAXMSGL(3)", cmqc.MQRC_MSG_TOO_BIG_FOR_Q), ("PUT(DISABLED)", cmqc.MQRC_PUT_INHIBITED)]
)
def test_the_dead_letter_header_contains_the_reason(
    mq: Workplace, app: Application, root: str, attributes: str, reason: int
) -> None:
    dead, queue = mq.queue(), mq.queue(attributes)
    mq.alter(DEADQ=dead)
    app.subscribe(root, handle=app.open_queue(queue))
    app.publish(root, b"data")
    assert decode_mqdlh(app.take(dead).data).Reason == reason


@pytest.mark.whole_mqi
def test_a_dead_letter_that_cannot_be_put_either_leaves_it_to_the_delivery_rules(
    mq: Workplace, app: Application, root: str, full: Any
) -> None:
    mq.alter(DEADQ=mq.queue("PUT(DISABLED)"))
    mq.topic_object(root, "PMSGDLV(ALL)")
    with refused(cmqc.MQRC_PUBLICATION_FAILURE):
        app.publish(root, b"x", Persistence=1)
    assert app.all(full[1]) == []
    assert mq.attribute(f"QLOCAL('{full[1]}')", "CURDEPTH") == 0
