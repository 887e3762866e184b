"""Rules of mappings to MQ: the standard profile, and the effect of each attribute."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.template import RuleError
from bridge.mqtt.packets import Publish
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.headers import bridge_folder
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Destination, MappedMessage, Unmappable
from bridge.wire.mq import MQMD, decode_chain, encode_rfh2
from tests.helpers.rules_to_mq import CLIENT_ID, TEXT, TOPIC, folders, header, mapped, publication, rule


def body(message: MappedMessage) -> bytes:
    return decode_chain(b"MQHRF2", 546, 1208, message.message.data).body


def without_hops(message: MappedMessage) -> bytes:
    rfh2 = header(message)
    folders = tuple(folder for folder in rfh2.folders if folder.name != "mqbridge")
    return encode_rfh2(msgspec.structs.replace(rfh2, folders=folders)) + body(message)


# The standard profile -------------------------------------------------------------------------------------------------


@given(st.integers(0, 2), st.booleans(), CLIENT_ID, TEXT, st.binary(max_size=50), st.integers(1, 65535))
def test_without_the_hop_mark_a_message_equals_that_of_the_bridge_byte_for_byte(
    qos: int, retain: bool, client_id: str, level: str, payload: bytes, packet_id: int
) -> None:
    topic = f"plant/1/2/{level}"
    packet_id = packet_id if qos else 0
    mapped_message = rule().map(
        publication(
            topic=topic, payload=payload, qos=qos, retain=retain, client_id=client_id, packet_id=packet_id, user=b"op"
        )
    )
    seed = to_mq(Publish(topic, payload, qos, retain, False, packet_id), ClientIdentity(client_id, b"op"))
    assert mapped_message is not None
    assert mapped_message.message.md == seed.md
    assert without_hops(mapped_message) == seed.data_as(retained=retain)
    assert mapped_message.destination == Destination("Q")
    assert not mapped_message.retain and not mapped_message.clear and not mapped_message.properties


def test_the_hop_mark_is_last_and_names_all_mappings() -> None:
    mapped_message = mapped(rule(), hops=("QM0/a",))
    assert [folder.name for folder in header(mapped_message).folders] == ["mqtt", "mqps", "mqbridge"]
    assert header(mapped_message).folders[-1] == bridge_folder(("QM0/a", "QM1/m1"))
    assert folders(mapped_message)["mqbridge"] == {"hops": "QM0/a,QM1/m1"}
    assert mapped_message.hops == ("QM0/a", "QM1/m1")


def test_for_a_topic_the_queue_manager_writes_mqps_and_the_original_topic_is_in_mqtt() -> None:
    mapped_message = mapped(rule(to={"topic": "lines/{line}/{metric}"}))
    assert mapped_message.destination == Destination("lines/line1/temp/max", True)
    assert folders(mapped_message) == {
        "mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10, "topic": TOPIC},
        "mqbridge": {"hops": "QM1/m1"},
    }
    assert body(mapped_message) == b"21.5"


def test_a_rule_can_be_pickled() -> None:
    mapping_rule = rule({"correl_id": "{metric}", "properties": {"x": "{line|upper}"}}, filter={"json": "$ > 1"})
    again = pickle.loads(pickle.dumps(mapping_rule))
    assert again.map(publication()) == mapping_rule.map(publication())


def test_a_topic_that_does_not_match_the_pattern_is_ignored() -> None:
    assert rule().map(publication(topic="other/line1/x/y")) is None


def test_a_rule_has_its_source_filter() -> None:
    assert rule().source_filter == "plant/+/+/#"


# Each attribute: the fields of the MQMD that it changes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "fields", "expected"),
    [
        pytest.param({}, {"qos": 0}, {"Persistence": 0}, id="persistence: QoS 0"),
        pytest.param({}, {"qos": 2}, {"Persistence": 1}, id="persistence: QoS 2"),
        pytest.param({"persistence": "persistent"}, {"qos": 0}, {"Persistence": 1}, id="persistence: one for all"),
        pytest.param({"persistence": "not-persistent"}, {}, {"Persistence": 0}, id="persistence: none at all"),
        pytest.param({"persistence": "as-queue"}, {}, {"Persistence": 2}, id="persistence: as the queue has it"),
        pytest.param({"persistence": {"1": "not-persistent"}}, {}, {"Persistence": 0}, id="persistence: by QoS"),
        pytest.param({"persistence": {"1": "not-persistent"}}, {"qos": 2}, {"Persistence": 1}, id="persistence: the rest"),
        pytest.param({"priority": 7}, {}, {"Priority": 7}, id="priority"),
        pytest.param({"expiry": 2.5}, {"expiry": 60.0}, {"Expiry": 25}, id="expiry: in seconds"),
        pytest.param({"expiry": "unlimited"}, {"expiry": 60.0}, {}, id="expiry: unlimited"),
        pytest.param({}, {"expiry": 60.0}, {"Expiry": 600}, id="expiry: as published"),
        pytest.param({}, {"expiry": 0.0}, {"Expiry": 1}, id="expiry: at once"),
        pytest.param({}, {"expiry": 4294967295.0}, {"Expiry": 999_999_999}, id="expiry: MQ's longest"),
        pytest.param({"msg_id": "ab" * 24}, {}, {"MsgId": b"\xab" * 24}, id="MsgId: hexadecimal"),
        pytest.param({"msg_id": "{line}"}, {}, {"MsgId": b"line1".ljust(24, b"\0")}, id="MsgId: text"),
        pytest.param({"correl_id": "{usr.order}"}, {"users": {"order": "7"}}, {"CorrelId": b"7".ljust(24, b"\0")},
                     id="CorrelId: of a property"),
        pytest.param({}, {"correlation_data": b"abc"}, {"CorrelId": b"abc".ljust(24, b"\0")},
                     id="CorrelId: Correlation Data"),
        *(pytest.param({"correl_id": "{correlationData|bytes}"}, {"correlation_data": correlation_data},
                       {"CorrelId": correlation_data.ljust(24, b"\0")}, id=f"CorrelId: {len(correlation_data)} bytes")
          for correlation_data in (b"\xff", b"\0\1", b"x" * 12, b"y" * 23, b"z" * 24)),
        pytest.param({"correl_id": "{mqtt.correlationData|default:'00ff'|bytes}"}, {},
                     {"CorrelId": b"\0\xff".ljust(24, b"\0")}, id="CorrelId: bytes of a default"),
        pytest.param({"msg_id": "{text|bytes}"}, {"payload": b"2105"}, {"MsgId": b"!\5".ljust(24, b"\0")},
                     id="MsgId: bytes"),
        pytest.param({}, {"correlation_data": b"x" * 25}, {}, id="CorrelId: Correlation Data too long"),
        pytest.param({"reply_to_queue": "REPLY.{line|upper}"}, {}, {"ReplyToQ": b"REPLY.LINE1", "MsgType": 1}, id="ReplyToQ"),
        pytest.param({"reply_to_queue": "R"}, {"correlation_data": b"c"},
                     {"ReplyToQ": b"R", "MsgType": 1, "Report": 0x40, "CorrelId": b"c".ljust(24, b"\0")},
                     id="ReplyToQ: the reply keeps the CorrelId"),
        pytest.param({"reply_to_queue": "R", "reply_to_queue_manager": "QM2"}, {},
                     {"ReplyToQ": b"R", "ReplyToQMgr": b"QM2", "MsgType": 1}, id="ReplyToQMgr"),
        pytest.param({"user_identifier": "{clientId|upper}"}, {}, {"UserIdentifier": b"DEV-1"}, id="UserIdentifier"),
        pytest.param({}, {"user": b""}, {"UserIdentifier": b""}, id="UserIdentifier: the bridge's own"),
        pytest.param({"format": "string"}, {}, {}, id="format: of the body, behind the RFH2"),
        pytest.param({"rfh2": False}, {}, {"Format": b"", "CodedCharSetId": 1208}, id="rfh2: none"),
        pytest.param({"rfh2": False, "format": "string"}, {}, {"Format": b"MQSTR", "CodedCharSetId": 1208},
                     id="rfh2: none, string"),
        pytest.param({"rfh2": False, "format": "MYFMT"}, {}, {"Format": b"MYFMT", "CodedCharSetId": 1208},
                     id="rfh2: none, a format's own name"),
    ],
)  # fmt: skip
def test_attributes_change_the_descriptor(
    attributes: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    standard = MQMD(Format=b"MQHRF2", UserIdentifier=b"operator", Priority=-1, Persistence=1)
    assert mapped(rule(attributes), **fields).message.md == msgspec.structs.replace(standard, **expected)


# Each attribute: the folders that it changes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "fields", "expected"),
    [
        pytest.param({}, {"payload_format_indicator": 0},
                     {"mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10, "payloadFormatIndicator": 0}},
                     id="Payload Format Indicator 0"),
        pytest.param({}, {"users": {"site": "Ulm", "a-b": "ü <&>"}}, {"usr": {"site": "Ulm", "a_x002D_b": "ü <&>"}},
                     id="user properties"),
        pytest.param({"properties": {"line": "{line}", "site": "new"}}, {"users": {"site": "Ulm", "k": "v"}},
                     {"usr": {"site": "new", "k": "v", "line": "line1"}}, id="properties: more, and others"),
        pytest.param({}, {"response_topic": "r/t", "content_type": "text/plain"},
                     {"mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10, "responseTopic": "r/t",
                               "contentType": "text/plain"}}, id="MQTT 5"),
        pytest.param({}, {"correlation_data": b"x" * 25},
                     {"mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10, "correlationData": "78" * 25}},
                     id="Correlation Data that are too long for CorrelId"),
        pytest.param({"correl_id": "x"}, {"correlation_data": b"y"},
                     {"mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10, "correlationData": "79"}},
                     id="Correlation Data that CorrelId has no place for"),
        pytest.param({}, {"client_id": "", "qos": 0, "packet_id": 0}, {"mqtt": {"qos": 0}}, id="of an MQ application"),
    ],
)  # fmt: skip
def test_attributes_change_the_folders(
    attributes: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    standard = {
        "mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 10},
        "mqps": {"Top": TOPIC},
        "mqbridge": {"hops": "QM1/m1"},
    }
    assert folders(mapped(rule(attributes), **fields)) == standard | expected


@pytest.mark.parametrize(
    ("attributes", "payload", "format", "ccsid"),
    [
        ({}, {}, b"", 1208),
        ({"format": "string"}, {}, b"MQSTR", 1208),
        ({"format": "string"}, {"type": "text", "ccsid": 500}, b"MQSTR", 500),
        ({"format": "MYFMT"}, {"type": "json", "ccsid": 1200}, b"MYFMT", 1200),
    ],
)
def test_the_rfh2_describes_the_body(attributes: Any, payload: Any, format: bytes, ccsid: int) -> None:
    rfh2 = header(mapped(rule(attributes, payload=payload)))
    assert (rfh2.Format, rfh2.CodedCharSetId, rfh2.Encoding) == (format, ccsid, 546)


def test_the_payload_format_indicator_determines_the_format_without_an_attribute() -> None:
    """For each publication: the cache does not use the format of a publication with another indicator."""
    mapping_rule = rule()
    for indicator, format_ in ((None, b""), (1, b"MQSTR"), (0, b""), (1, b"MQSTR")):
        assert header(mapped(mapping_rule, payload_format_indicator=indicator)).Format == format_
    assert header(mapped(rule({"format": "none"}), payload_format_indicator=1)).Format == b""
    assert mapped(rule({"rfh2": False}), payload_format_indicator=1).message.md.Format == b"MQSTR"


def test_without_an_rfh2_properties_contain_the_same() -> None:
    mapped_message = mapped(
        rule({"rfh2": False, "properties": {"a-b": "{line}"}}),
        users={"site": "Ulm"},
        response_topic="r",
        hops=("QM0/a",),
        correlation_data=b"y" * 30,
    )
    assert mapped_message.message.data == b"21.5"
    assert mapped_message.properties == {
        "mqtt.clientId": "dev-1",
        "mqtt.qos": 1,
        "mqtt.msgid": 10,
        "mqtt.topic": TOPIC,
        "mqtt.responseTopic": "r",
        "mqtt.correlationData": "79" * 30,
        "usr.site": "Ulm",
        "usr.a_x002D_b": "line1",
        "mqbridge.hops": "QM0/a,QM1/m1",
    }


# Retained -------------------------------------------------------------------------------------------------------------


def test_attributes_determine_the_retained_option(subtests: pytest.Subtests) -> None:
    for payload in [b"on", b""]:
        for published in [False, True]:
            for retained, override in [("as-published", None), ("never", False), ("always", True)]:
                with subtests.test(payload=payload, published=published, retained=retained, result=override):
                    expected = published if override is None else override
                    to_topic = mapped(
                        rule({"retained": retained}, to={"topic": "t"}), retain=published, payload=payload
                    )
                    assert (to_topic.retain, to_topic.clear) == (expected, expected and not payload)
                    to_queue = mapped(rule({"retained": retained}), retain=published, payload=payload)
                    assert (to_queue.retain, to_queue.clear) == (False, False)
                    assert folders(to_queue)["mqps"] == ({"Top": TOPIC, "Ret": True} if expected else {"Top": TOPIC})


# Payload --------------------------------------------------------------------------------------------------------------


def test_attributes_convert_the_payload(subtests: pytest.Subtests) -> None:
    for payload, source_payload, expected in [
        ({}, b"\xff\0", b"\xff\0"),
        ({"type": "text"}, "ü".encode(), "ü".encode()),
        ({"type": "text", "ccsid": 500}, b"A1\n", b"\xc1\xf1\x25"),
        ({"type": "json"}, b'{ "b": 1, "a": 1e400 }', None),
        ({"type": "json"}, b'{ "b": 1,  "a": 2 }', b'{ "b": 1,  "a": 2 }'),
        ({"type": "json", "ccsid": 37}, b'"A"', b"\x7f\xc1\x7f"),
        ({"type": "json"}, b"21,5", None),
        ({"type": "text"}, b"\xff", None),
        ({"type": "text", "ccsid": 500}, "日".encode(), None),
    ]:
        with subtests.test(payload=payload, source_payload=source_payload, expected=expected):
            mapping_rule = rule(payload=payload)
            if expected is None:
                with pytest.raises(Unmappable):
                    mapping_rule.map(publication(payload=source_payload))
            else:
                assert body(mapped(mapping_rule, payload=source_payload)) == expected


@pytest.mark.parametrize("type_", ["text", "json"])
def test_an_empty_retained_publication_is_not_converted(type_: str) -> None:
    mapped_message = mapped(rule(to={"topic": "t"}, payload={"type": type_}), payload=b"", retain=True)
    assert mapped_message.clear and body(mapped_message) == b""


# Destinations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "fields", "expected"),
    [
        ({"queue": "PLANT.{line|upper}"}, {}, Destination("PLANT.LINE1")),
        ({"queue": "{topic|mqname}"}, {}, Destination("plant.line1.x.temp.max")),
        ({"queue": "Q{qos}", "queue_manager": "{usr.at|default:'QM1'}"}, {}, Destination("Q1", False, "QM1")),
        ({"topic": "/a/{text}/{usr.site}"}, {"users": {"site": "Ulm"}}, Destination("/a/21.5/Ulm", True)),
        ({"topic": "a/{retained}/{messageId}/{user}"}, {}, Destination("a/false/10/operator", True)),
        ({"topic": "a/{mqtt.clientId}/{site}"}, {"users": {"site": "x"}}, Destination("a/dev-1/x", True)),
        ({"topic": "{responseTopic}/{correlationData}/{contentType}"},
         {"response_topic": "r", "correlation_data": b"\1", "content_type": "t"}, Destination("r/01/t", True)),
    ],
)  # fmt: skip
def test_templates_determine_the_destination(to: dict[str, str], fields: dict[str, Any], expected: Destination) -> None:
    assert mapped(rule(to=to), **fields).destination == expected


@pytest.mark.parametrize(
    ("changes", "fields", "reason", "part"),
    [
        pytest.param({"to": {"queue": "{line}"}}, {"topic": "plant/a b/x/y"}, 2152, "'a b' is not a valid name for a queue",
                     id="queue"),
        pytest.param({"to": {"queue": "{metric}"}}, {"topic": "plant/1/x/" + "y" * 49}, 2152, "1 to 48", id="queue, long"),
        pytest.param({"to": {"topic": "a/{usr.x}"}}, {"users": {"x": "#"}}, 2425, "it has # in it", id="topic"),
        pytest.param({"to": {"topic": "{usr.x}"}}, {"users": {"x": ""}}, 2425, "it is empty", id="topic, empty"),
        pytest.param({"to": {"topic": "{text}"}}, {"payload": b"y" * 10241}, 2425, "10241 characters", id="topic, long"),
        pytest.param({"to": {"topic": "{usr.x}"}}, {}, 2471, "the message has no usr.x", id="no such property"),
        pytest.param({"to": {"topic": "{text}"}}, {"payload": b"\xff"}, 2119, "not text in CCSID 1208", id="no text"),
        pytest.param({"attributes": {"msg_id": "{text}"}}, {"payload": b"y" * 25}, 2206, "not a valid MsgId", id="MsgId"),
        pytest.param({"attributes": {"correl_id": "{text}"}}, {"payload": b"y" * 25}, 2207, "valid CorrelId", id="CorrelId"),
        pytest.param({"attributes": {"correl_id": "{correlationData|bytes}"}}, {"correlation_data": b"y" * 25}, 2207,
                     "25 bytes are too many", id="CorrelId of bytes"),
        pytest.param({"attributes": {"correl_id": "{correlationData|bytes}"}}, {}, 2471, "no correlationData",
                     id="CorrelId without bytes"),
        pytest.param({"attributes": {"user_identifier": "{text}"}}, {"payload": b"y" * 13}, 2026, "UserIdentifier",
                     id="user"),
        pytest.param({"attributes": {"reply_to_queue": "{text}"}}, {"payload": b"a b"}, 2027, "reply queue", id="ReplyToQ"),
        pytest.param({"attributes": {"reply_to_queue_manager": "{text}"}}, {"payload": b"a b"}, 2153, "reply",
                     id="ReplyToQMgr"),
        pytest.param({"to": {"queue": "Q", "queue_manager": "{text}"}}, {"payload": b"y" * 49}, 2153, "48",
                     id="queue manager"),
        pytest.param({"attributes": {"properties": {"x": "{text}"}}}, {"payload": b"\0"}, 2421, "RFH2",
                     id="NUL in a property"),
    ],
)  # fmt: skip
def test_unmappable_publications_have_a_reason(
    changes: dict[str, Any], fields: dict[str, Any], reason: int, part: str
) -> None:
    with pytest.raises(Unmappable, match=part) as raised:
        rule(**changes).map(publication(**fields))
    assert raised.value.reason == reason


def test_an_invalid_mapping_has_position_and_reason(subtests: pytest.Subtests) -> None:
    for changes, where, part in [
        ({"from": {"mqtt": "a/{b"}}, "from.mqtt", "no partner"),
        ({"to": {"queue": "A B"}}, "to.queue", "not a valid name for a queue"),
        ({"to": {"topic": "a/+"}}, "to.topic", "not a valid topic name"),
        ({"to": {"queue": "{Line}"}}, "to.queue", "did you mean {line}"),
        ({"to": {"queue": "{clientid}"}}, "to.queue", "did you mean {clientId}"),
        ({"to": {"queue": "{md.MsgId}"}}, "to.queue", "a publication has no MQMD"),
        ({"attributes": {"correl_id": "{x"}}, "attributes.correl_id", "missing"),
        ({"attributes": {"correl_id": "x" * 25}}, "attributes.correl_id", "not a valid CorrelId"),
        ({"attributes": {"correl_id": "x{usr.a|bytes}"}}, "attributes.correl_id", "no other text"),
        ({"to": {"queue": "{correlationData|bytes}"}}, "to.queue", "bytes is a filter for msg_id, correl_id"),
        ({"attributes": {"user_identifier": "x" * 13}}, "attributes.user_identifier", "UserIdentifier"),
        ({"attributes": {"properties": {"p": "{"}}}, "attributes.properties.p", "missing"),
        ({"payload": {"type": "text", "ccsid": 9999}}, "payload.ccsid", "9999"),
        ({"filter": {"json": "$.a >"}}, "filter.json", "RFC 9535"),
    ]:
        with subtests.test(changes=changes, where=where, part=part):
            with pytest.raises(RuleError, match=part) as raised:
                rule(**changes)
            assert raised.value.where == where
            assert str(raised.value).startswith(f"{where}: ")
