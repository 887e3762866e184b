"""Answers of clients to requests from MQ: permitted destinations, and the CorrelId that identifies them to the
application.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.conversion import from_mq, to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.request import ReplyAddresses, is_request, with_request
from bridge.wire.mq import MQMD
from tests.ibm_standin import cmqc

names = st.text("ABCabc019./_%", min_size=1, max_size=48)
client_ids = st.text(min_size=1, max_size=12)


def addresses(key: bytes = b"k" * 32) -> ReplyAddresses:
    return ReplyAddresses(key, lambda key: None)


def request(queue: str = "ANSWERS", manager: str = "QM1", **fields: object) -> MQMD:
    return MQMD(MsgType=cmqc.MQMT_REQUEST, ReplyToQ=queue.encode(), ReplyToQMgr=manager.encode(), **fields)


@given(client_ids, names, names)
def test_a_client_answers_to_the_queue_of_the_request(client_id: str, queue: str, manager: str) -> None:
    replies = addresses()
    topic = replies.topic(client_id, request(queue, manager))
    assert replies.queue(client_id, topic) == (queue, manager)
    assert not set("#+\0") & set(topic)


@given(client_ids, client_ids, names, st.integers(0, 31), st.integers(1, 15))
def test_clients_cannot_forge_addresses(client_id: str, other: str, queue: str, place: int, change: int) -> None:
    replies = addresses()
    topic = replies.topic(client_id, request())
    if other != client_id:
        assert replies.queue(other, topic) == ("", "")
    if queue != "ANSWERS":
        assert replies.queue(client_id, topic.replace("ANSWERS", queue)) == ("", "")
    start = len("$MQ/reply/") + place
    changed = f"{int(topic[start], 16) ^ change:X}"
    assert replies.queue(client_id, topic[:start] + changed + topic[start + 1 :]) == ("", "")
    assert addresses(b"o" * 32).queue(client_id, topic) == ("", "")


@given(client_ids, st.text())
def test_an_invalid_reply_topic_has_no_queue(client_id: str, rest: str) -> None:
    assert addresses().queue(client_id, f"$MQ/reply/{rest}") == ("", "")


def test_the_key_is_recorded_at_its_first_use() -> None:
    recorded: list[bytes] = []
    replies = ReplyAddresses(b"k" * 32, recorded.append)
    topic = replies.topic("dev", request())
    replies.topic("dev", request("OTHER"))
    assert recorded == [b"k" * 32]
    after = ReplyAddresses(b"n" * 32, recorded.append)
    after.restore(recorded[0])
    assert after.queue("dev", topic) == ("ANSWERS", "QM1")
    assert (after.topic("dev", request()), len(recorded)) == (topic, 1)


@pytest.mark.parametrize(
    ("report", "correl_id"),
    [
        (cmqc.MQRO_NONE, b"m" * 24),
        (cmqc.MQRO_COPY_MSG_ID_TO_CORREL_ID, b"m" * 24),
        (cmqc.MQRO_PASS_CORREL_ID, b"c" * 24),
        (cmqc.MQRO_PASS_CORREL_ID | cmqc.MQRO_COD, b"c" * 24),
    ],
)
def test_the_answer_has_the_correl_id_of_the_request(report: int, correl_id: bytes) -> None:
    """The client returns its Correlation Data, and does not know MQ."""
    md = request(MsgId=b"m" * 24, CorrelId=b"c" * 24, Report=report)
    publication = from_mq(Message(md, b"?"), topic="cmd", with_properties=True)
    properties = with_request(publication.properties, md, "$MQ/reply/x")
    assert properties.response_topic == "$MQ/reply/x"
    replies = addresses()
    answer = Publish(
        replies.topic("dev", md),
        b"!",
        1,
        False,
        False,
        3,
        PublishProperties(correlation_data=properties.correlation_data),
    )
    message = to_mq(answer, ClientIdentity("dev", b"user", replies))
    assert (message.reply_to, message.md.MsgType, message.md.CorrelId) == (
        ("ANSWERS", "QM1"),
        cmqc.MQMT_REPLY,
        correl_id,
    )
    assert (message.payload, message.md.Persistence, message.md.UserIdentifier) == (
        b"!",
        cmqc.MQPER_PERSISTENT,
        b"user",
    )


def test_an_answer_with_a_response_topic_is_a_request() -> None:
    replies = addresses()
    answer = Publish(replies.topic("dev", request()), b"!", properties=PublishProperties(response_topic="more"))
    message = to_mq(answer, ClientIdentity("dev", b"", replies))
    assert (message.reply_to, message.md.MsgType, message.md.ReplyToQ) == (("ANSWERS", "QM1"), 1, b"more")


def test_a_response_topic_of_the_application_is_kept() -> None:
    own = PublishProperties(response_topic="own", correlation_data=b"id")
    assert with_request(own, request(MsgId=b"m" * 24), "$MQ/reply/x") == own


@pytest.mark.parametrize(
    ("md", "asks"),
    [
        (request(), True),
        (request("  "), False),
        (MQMD(MsgType=cmqc.MQMT_DATAGRAM, ReplyToQ=b"ANSWERS"), False),
        (MQMD(MsgType=cmqc.MQMT_REPLY, ReplyToQ=b"ANSWERS"), False),
    ],
)
def test_requests_are_recognized(md: MQMD, asks: bool) -> None:
    assert is_request(md) is asks
