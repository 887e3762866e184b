"""The table "Properties of MQTT 5 in MQ" (docs/reference/mqtt-5.md), row by row: a publication and its message in MQ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.mq.embedded.storage.batch import Lane, LoggedBatch, LoggedDelivery, Put, decode, encode
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.telemetry.conversion import from_mq, publisher_of, to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.request import ClientRequest, is_object_name
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire.mq import MQMD, RFH2, Folder, decode_rfh2, encode_chain


def published(client_id: str = "dev.1", payload: bytes = b"21.5", **properties: Any) -> PublicationMessage:
    publication = Publish("a/b", payload, 1, False, False, 7, PublishProperties(**properties))
    return to_mq(publication, ClientIdentity(client_id, b"op"))


def as_bytes(message: PublicationMessage, **how: Any) -> Message:
    """Return the message as an MQ application, or a bridge on IBM MQ, receives it."""
    return Message(message.md, message.data_as(**how))


def given_to_client(message: AnyMessage) -> PublishProperties | None:
    properties = from_mq(message, topic="t", with_properties=True).properties
    return None if properties == PublishProperties() else properties


def header(message: PublicationMessage) -> RFH2:
    return decode_rfh2(message.data)


def folder(message: PublicationMessage, name: str) -> dict[str, Any] | None:
    part = header(message).folder(name)
    return None if part is None else dict(part.content)


def of_application(mqtt: dict[str, Any] | None = None, usr: Folder | None = None, **fields: Any) -> Message:
    """Return a message of an MQ application. `Format` and `CodedCharSetId` are those of its body."""
    body = {name: fields.pop(name) for name in ("Format", "CodedCharSetId") if name in fields}
    folders = (Folder.build("mqtt", mqtt or {}), *(() if usr is None else (usr,)))
    chain = encode_chain((RFH2(folders=folders, **body),), b"body")
    return Message(MQMD(Format=chain.Format, CodedCharSetId=chain.CodedCharSetId, **fields), chain.data)


# To MQ, a row each ------------------------------------------------------------------------------------------------------


def kept_request(topic: str, correlation_data: bytes | None = None) -> dict[str, Any]:
    """Return the fields of a request, which are stored separately from the session."""
    return {"ReplyToQ": ClientRequest(topic, correlation_data).queue.encode(), "ReplyToQMgr": b"dev.1", "MsgType": 1}


PLAIN = {"clientId": "dev.1", "qos": 1, "msgid": 7}
LONG = bytes(range(1, 101))


@pytest.mark.parametrize(
    ("properties", "md", "mqtt", "usr", "format_"),
    [
        pytest.param({}, {}, {}, None, b"", id="none"),
        pytest.param({"payload_format_indicator": 1}, {}, {}, None, b"MQSTR", id="Payload Format Indicator 1"),
        pytest.param(
            {"payload_format_indicator": 0}, {}, {"payloadFormatIndicator": 0}, None, b"", id="Payload Format Indicator 0"
        ),
        pytest.param({"message_expiry_interval": 60}, {"Expiry": 600}, {}, None, b"", id="Message Expiry Interval"),
        pytest.param({"message_expiry_interval": 0}, {"Expiry": 1}, {}, None, b"", id="Message Expiry Interval 0"),
        pytest.param(
            {"message_expiry_interval": 0xFFFFFFFF}, {"Expiry": 999_999_999}, {}, None, b"",
            id="longest Message Expiry Interval",
        ),
        pytest.param({"content_type": "text/plain"}, {}, {"contentType": "text/plain"}, None, b"", id="Content Type"),
        pytest.param({"content_type": ""}, {}, {"contentType": ""}, None, b"", id="Content Type, empty"),
        pytest.param(
            {"response_topic": "answers/dev.1"},
            {"ReplyToQ": b"answers/dev.1", "ReplyToQMgr": b"dev.1", "MsgType": 1},
            {"responseTopic": "answers/dev.1"}, None, b"", id="Response Topic that is an object name",
        ),
        pytest.param(
            {"response_topic": "answers", "correlation_data": b"c"},
            {"ReplyToQ": b"answers", "ReplyToQMgr": b"dev.1", "MsgType": 1, "CorrelId": b"c".ljust(24, b"\0"),
             "Report": 0x40},
            {"responseTopic": "answers"}, None, b"", id="Response Topic with Correlation Data: MQRO_PASS_CORREL_ID",
        ),
        pytest.param(
            {"response_topic": "a/" + "x" * 47}, kept_request("a/" + "x" * 47), {"responseTopic": "a/" + "x" * 47}, None, b"",
            id="Response Topic of 49 bytes",
        ),
        pytest.param(
            {"response_topic": "a b"}, kept_request("a b"), {"responseTopic": "a b"}, None, b"",
            id="Response Topic with another character",
        ),
        pytest.param(
            {"response_topic": "a", "correlation_data": LONG[:25]}, kept_request("a", LONG[:25]),
            {"responseTopic": "a", "correlationData": LONG[:25].hex().upper()}, None, b"",
            id="Response Topic with Correlation Data of 25 bytes",
        ),
        pytest.param(
            {"correlation_data": b"c-1"}, {"CorrelId": b"c-1".ljust(24, b"\0")}, {}, None, b"", id="Correlation Data"
        ),
        pytest.param(
            {"correlation_data": LONG[:25]}, {}, {"correlationData": LONG[:25].hex().upper()}, None, b"",
            id="Correlation Data of 25 bytes",
        ),
        pytest.param(
            {"correlation_data": b"c\0"}, {"CorrelId": b"c".ljust(24, b"\0")}, {"correlationData": "6300"}, None, b"",
            id="Correlation Data with a NUL at the end",
        ),
        pytest.param({"correlation_data": b""}, {}, {"correlationData": ""}, None, b"", id="Correlation Data, empty"),
        pytest.param(
            {"user_property": (("site", "HH"), ("line-1", "<&>"))}, {}, {}, {"site": "HH", "line_x002D_1": "<&>"}, b"",
            id="User Property",
        ),
        pytest.param(
            {"user_property": (("a", "1"), ("b", "2"), ("a", "3"))}, {},
            {"userProperties": '[["a","1"],["b","2"],["a","3"]]'}, {"a": "3", "b": "2"}, b"",
            id="User Property, a name twice",
        ),
        pytest.param(
            {"user_property": (("x" * 4096, "1"),)}, {}, {"userProperties": f'[["{"x" * 4096}","1"]]'}, None, b"",
            id="User Property, a name longer than a message property's",
        ),
        pytest.param({"topic_alias": 3, "subscription_identifier": (5,)}, {}, {}, None, b"", id="what ends with the packet"),
    ],
)  # fmt: skip
def test_to_mq(
    properties: dict[str, Any], md: dict[str, Any], mqtt: dict[str, Any], usr: dict[str, Any] | None, format_: bytes
) -> None:
    message = published(**properties)
    usual = to_mq(Publish("a/b", b"21.5", 1, False, False, 7), ClientIdentity("dev.1", b"op"))
    assert message.md == msgspec.structs.replace(usual.md, **md)
    assert folder(message, "mqtt") == PLAIN | mqtt
    assert folder(message, "usr") == usr
    assert (header(message).Format, header(message).CodedCharSetId) == (format_, 1208)


def test_a_message_without_properties_is_unchanged() -> None:
    """It has the MQMD that all messages of a client share, and the same bytes."""
    identity = ClientIdentity("dev.1", b"op")
    usual = to_mq(Publish("a/b", b"21.5", 1, False, False, 7), identity)
    empty = to_mq(Publish("a/b", b"21.5", 1, False, False, 7, PublishProperties(topic_alias=4)), identity)
    assert empty.md is usual.md is identity.descriptors[1]
    assert empty.properties is usual.properties is None
    assert empty.data == usual.data


@given(st.text(min_size=1), st.none() | st.binary(max_size=30))
@example("MQTT.REQUEST.A", None)
@example("a", b"\0")
def test_reply_to_identifies_the_response_topic_and_correlation_data(
    topic: str, correlation_data: bytes | None
) -> None:
    """A name for the topic and a CorrelId with the data, or a name for both."""
    md = published("dev-1", response_topic=topic, correlation_data=correlation_data).md
    queue = md.ReplyToQ.decode()
    assert (md.MsgType, md.ReplyToQMgr, is_object_name(queue)) == (1, b"dev-1", True)
    if not queue.startswith("MQTT.REQUEST."):
        assert (queue, md.CorrelId.rstrip(b"\0")) == (topic, correlation_data or b"")
    else:
        assert queue == ClientRequest(topic, correlation_data).queue


def test_messages_that_are_put_always_contain_the_correlation_data() -> None:
    """Most subscriptions have a CorrelId, which replaces that of the publisher."""
    message = published(correlation_data=b"c-1")
    mqtt_folder = decode_rfh2(message.put_data).folder("mqtt")
    assert mqtt_folder is not None and mqtt_folder.content["correlationData"] == "632D31"


def test_correlation_data_with_another_correl_id() -> None:
    message = published(correlation_data=b"c-1")
    other = as_bytes(message, correl_id=b"S" * 24)
    mq_message = Message(msgspec.structs.replace(other.md, CorrelId=b"S" * 24), other.data)
    assert given_to_client(mq_message) == PublishProperties(correlation_data=b"c-1")


# From MQ, a row each ----------------------------------------------------------------------------------------------------


PROPERTY = PublishProperties


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(Message(MQMD(), b"b"), None, id="none"),
        pytest.param(Message(MQMD(Format=b"MQSTR", CodedCharSetId=1208), b"b"), PROPERTY(payload_format_indicator=1),
                     id="Payload Format Indicator, MQSTR in UTF-8"),
        pytest.param(Message(MQMD(Format=b"MQSTR"), b"b"), PROPERTY(payload_format_indicator=1),
                     id="Payload Format Indicator, MQSTR in the CCSID of the queue manager"),
        pytest.param(Message(MQMD(Format=b"MQSTR", CodedCharSetId=500), b"b"), None,
                     id="Payload Format Indicator, MQSTR in another CCSID"),
        pytest.param(of_application(Format=b"MQSTR", CodedCharSetId=1208), PROPERTY(payload_format_indicator=1),
                     id="Payload Format Indicator, behind an RFH2"),
        pytest.param(of_application({"payloadFormatIndicator": "0"}), PROPERTY(payload_format_indicator=0),
                     id="Payload Format Indicator 0"),
        pytest.param(of_application({"payloadFormatIndicator": 2}), None, id="Payload Format Indicator, odd"),
        pytest.param(of_application({"contentType": "text/plain"}), PROPERTY(content_type="text/plain"), id="Content Type"),
        pytest.param(of_application({"contentType": ["x", "y"]}), PROPERTY(content_type="y"), id="Content Type twice"),
        pytest.param(of_application({"contentType": {"a": "x"}}), None, id="Content Type, a group"),
        pytest.param(of_application({"contentType": "x" * 65_536}), None, id="Content Type, too long"),
        pytest.param(of_application({"responseTopic": "a/b"}), PROPERTY(response_topic="a/b"), id="Response Topic"),
        pytest.param(of_application({"responseTopic": "a/+"}), None, id="Response Topic with a wildcard"),
        pytest.param(of_application({"responseTopic": ""}), None, id="empty Response Topic"),
        pytest.param(of_application(CorrelId=b"c-1".ljust(24, b"\0")), PROPERTY(correlation_data=b"c-1"), id="CorrelId"),
        pytest.param(of_application({"correlationData": "6300"}, CorrelId=b"c".ljust(24, b"\0")),
                     PROPERTY(correlation_data=b"c\0"), id="Correlation Data before CorrelId"),
        pytest.param(of_application({"correlationData": b"c"}), PROPERTY(correlation_data=b"c"),
                     id="Correlation Data, bin.hex"),
        pytest.param(of_application({"correlationData": "no hex"}), None, id="Correlation Data, odd"),
        pytest.param(of_application({"correlationData": "00" * 65_536}), None, id="Correlation Data, too long"),
        pytest.param(of_application(usr=Folder.build("usr", {"b": "1", "a_x002D_1": 2, "c": True})),
                     PROPERTY(user_property=(("b", "1"), ("a-1", "2"), ("c", "true"))), id="User Property"),
        pytest.param(of_application(usr=Folder.build("usr", {"a": None, "b": "x" * 65_536, "c": "1"})),
                     PROPERTY(user_property=(("c", "1"),)), id="User Property, nil and too long"),
        pytest.param(of_application(usr=Folder(b"<usr><a>1</usr>")), None, id="User Property, folder that cannot be read"),
        pytest.param(of_application({"userProperties": '[["a","1"],["a","2"]]'}, Folder.build("usr", {"a": "2"})),
                     PROPERTY(user_property=(("a", "1"), ("a", "2"))), id="User Property, a name twice"),
        pytest.param(of_application({"userProperties": '[["a","1"],["a","2"]]'}, Folder.build("usr", {"a": "3", "b": "4"})),
                     PROPERTY(user_property=(("a", "3"), ("b", "4"))), id="User Property, changed by an application"),
        *[
            pytest.param(of_application({"userProperties": odd}, Folder.build("usr", {"a": "2"})),
                         PROPERTY(user_property=(("a", "2"),)), id=f"User Property, {odd[:9]} for the pairs")
            for odd in ("[[", "{}", '[["a"]]', '[["a", 1]]', "[" * 100_000, '[["\\ud800","2"]]')
        ],
        pytest.param(of_application({"userProperties": '[["a","1"],["\\u0000","2"]]'}), PROPERTY(user_property=(("a", "1"),)),
                     id="User Property with U+0000"),
    ],
)  # fmt: skip
def test_from_mq(message: Message, expected: PublishProperties | None) -> None:
    assert given_to_client(message) == expected
    assert from_mq(message, topic="t").properties == PublishProperties()


def test_properties_are_converted_on_request() -> None:
    message = published(content_type="text/plain")
    assert from_mq(message).properties == PublishProperties()
    assert from_mq(message, with_properties=True).properties is message.properties


@pytest.mark.parametrize(
    ("message", "publisher"),
    [
        (published("dev-1"), "dev-1"),
        (as_bytes(published("dev-1")), "dev-1"),
        (Message(MQMD(), b""), ""),
        (of_application({"clientId": {"a": "b"}}), ""),
        (Message(MQMD(Format=b"MQHRF2"), b"RFH"), ""),
    ],
)
def test_publisher(message: AnyMessage, publisher: str) -> None:
    assert publisher_of(message) == publisher


# There and back ---------------------------------------------------------------------------------------------------------


#: Text that a decoder accepts: no U+0000, no surrogates.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40) | st.sampled_from(
    ["", " ", "\r\n", "<&'\">", "_x0041_", "_x0000_", "a b", "1", "$", "\x01", "\U0001f600", "x" * 65_535]
)
NAMES = st.sampled_from(["a", "b", "site-id", "", "x" * 4096, "ä" * 600]) | TEXT
PROPERTIES = st.builds(
    PublishProperties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    content_type=st.none() | TEXT,
    response_topic=st.none() | TEXT.map(lambda text: text.replace("+", "").replace("#", "")).filter(bool),
    correlation_data=st.none() | st.binary(max_size=100) | st.binary(max_size=23).map(lambda data: data + b"\0"),
    user_property=st.lists(st.tuples(NAMES, TEXT), max_size=8).map(tuple),
)


@given(PROPERTIES, st.binary(max_size=9), st.sampled_from([None, b"\x01" * 24]))
def test_a_published_message_is_received_unchanged(
    properties: PublishProperties, payload: bytes, correl_id: bytes | None
) -> None:
    message = to_mq(Publish("a/b", payload, 2, False, False, 1, properties), ClientIdentity("dev", b""))
    expected = None if properties == PublishProperties() else properties
    assert given_to_client(message) == expected
    if properties.correlation_data is None:
        correl_id = None  # (one that a subscription has set counts as Correlation Data)
    received_message = as_bytes(message, retained=True, user_data="1 NL", correl_id=correl_id)
    if correl_id is not None:
        received_message = Message(
            msgspec.structs.replace(received_message.md, CorrelId=correl_id), received_message.data
        )
    outgoing = from_mq(received_message, requested_qos=1, with_properties=True)
    assert (outgoing.topic, outgoing.payload, outgoing.qos) == ("a/b", payload, 1)
    assert outgoing.properties == properties


# On disk ----------------------------------------------------------------------------------------------------------------


def batch(message: PublicationMessage) -> LoggedBatch:
    return LoggedBatch([Put(message, [LoggedDelivery(1, 0)], 0, 1.5)], [], [Lane("Q")])


@given(PROPERTIES)
def test_the_log_of_messages_stores_them(properties: PublishProperties) -> None:
    message = to_mq(Publish("a/b", b"p", 1, False, False, 1, properties), ClientIdentity("dev", b""))
    assert decode(encode(batch(message))).puts[0].message == message


def test_a_row_of_an_older_log_is_read() -> None:
    """Its publications end with the message id."""
    message = to_mq(Publish("a/b", b"p", 1, False, False, 9), ClientIdentity("dev", b""))
    rows = msgspec.msgpack.decode(encode(batch(message)))
    publication = rows[0][0][0]
    assert publication[0] == "p" and publication[-3:] == [9, None, None]
    del publication[-2:]
    assert decode(msgspec.msgpack.encode(rows)).puts[0].message == message
