"""Rules of mappings to MQTT: the standard profile, and the effect of each attribute."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.mapping import ToMqttMapping
from bridge.mapping.rule import ToMqttRule, rule_of
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Folder, encode_chain
from tests.helpers.publications import publication_fields


def rule(attributes: dict[str, Any] | None = None, **more: Any) -> ToMqttRule:
    config = {"from": {"queue": "Q"}, "to": {"mqtt": "out", "link": "plant"}, "attributes": attributes or {}} | more
    mapping_rule = rule_of("m2", ToMqttMapping.model_validate(config), "QM1")
    assert isinstance(mapping_rule, ToMqttRule)
    return mapping_rule


def message(body: bytes = b"21.5", folders: dict[str, dict[str, Any]] | None = None, **fields: Any) -> Message:
    """Return a message. With folders, it has an RFH2, and CodedCharSetId and Format are those of the body."""
    md = MQMD(**({"Persistence": 0, "UserIdentifier": b"app"} | fields))
    if folders is None:
        return Message(md, body)
    header = RFH2(
        Format=md.Format,
        CodedCharSetId=md.CodedCharSetId or 1208,
        folders=tuple(Folder.build(name, content) for name, content in folders.items()),
    )
    chain = encode_chain((header,), body)
    return Message(msgspec.structs.replace(md, Format=b"MQHRF2", CodedCharSetId=1208), chain.data)


def published(mapping_rule: ToMqttRule, source: Message, topic: str | None = None) -> Publication:
    output = mapping_rule.map(source, topic=topic)
    assert output is not None
    return output


PUBLISHED = {"mqtt": {"clientId": "dev-1", "qos": 1, "msgid": 9}, "mqps": {"Top": "plant/1/speed", "Ret": True}}


@pytest.mark.parametrize(
    ("attributes", "source", "expected"),
    [
        pytest.param({}, message(), {}, id="qos: not persistent"),
        pytest.param({}, message(Persistence=1), {"qos": 2}, id="qos: persistent"),
        pytest.param({}, message(Persistence=2), {}, id="qos: not resolved"),
        pytest.param({}, message(folders={"mqtt": {"qos": 1}}), {"qos": 1}, id="qos: a client's own"),
        pytest.param({}, message(folders={"mqtt": {"qos": "1"}}), {"qos": 1}, id="qos: a client's own, as text"),
        pytest.param({"qos": {"persistent": 1}}, message(Persistence=1), {"qos": 1}, id="qos: by persistence"),
        pytest.param({"qos": {"persistent": 1}}, message(), {}, id="qos: by persistence, the rest"),
        pytest.param({"qos": {"not-persistent": 2}}, message(folders={"mqtt": {"qos": 1}}), {"qos": 1},
                     id="qos: by persistence, a client's own"),
        pytest.param({"qos": 0}, message(Persistence=1, folders={"mqtt": {"qos": 2}}), {"qos": 0}, id="qos: one for all"),
        pytest.param({}, message(Expiry=25), {"expiry": 2.5}, id="expiry: as published"),
        pytest.param({"expiry": 60}, message(Expiry=25), {"expiry": 60.0}, id="expiry: in seconds"),
        pytest.param({"expiry": "unlimited"}, message(Expiry=25), {}, id="expiry: unlimited"),
        pytest.param({}, message(CorrelId=b"c-7".ljust(24, b"\0")), {"correlation_data": b"c-7"},
                     id="Correlation Data: CorrelId"),
        pytest.param({}, message(folders={"mqtt": {"correlationData": "00ff"}}), {"correlation_data": b"\0\xff"},
                     id="Correlation Data: that CorrelId did not hold"),
        pytest.param({"correlation_data": "{md.MsgId}"}, message(MsgId=b"\xab" * 24), {"correlation_data": b"\xab" * 24},
                     id="Correlation Data: hexadecimal"),
        pytest.param({"correlation_data": "{md.CorrelId|text}!"}, message(CorrelId=b"c".ljust(24, b"\0")),
                     {"correlation_data": b"c!"}, id="Correlation Data: text"),
        pytest.param({"correlation_data": "{mqtt.correlationData|bytes}"},
                     message(folders={"mqtt": {"correlationData": "00ff" * 20}}), {"correlation_data": b"\0\xff" * 20},
                     id="Correlation Data: bytes"),
        pytest.param({"response_topic": "reply/{md.ReplyToQ}"}, message(ReplyToQ=b"R"), {"response_topic": "reply/R"},
                     id="Response Topic"),
        pytest.param({}, message(folders={"mqtt": {"responseTopic": "r", "contentType": "t"}}),
                     {"response_topic": "r", "content_type": "t"}, id="Response Topic and Content Type, as published"),
        pytest.param({"content_type": "x/{md.Format|trim}"}, message(Format=b"MQFMT1"), {"content_type": "x/MQFMT1"},
                     id="Content Type"),
        pytest.param({}, message(Format=b"MQSTR", CodedCharSetId=1208), {"payload_format_indicator": 1},
                     id="Payload Format Indicator"),
        pytest.param({}, message(Format=b"MQSTR", CodedCharSetId=500), {}, id="Payload Format Indicator, another CCSID"),
        pytest.param({}, message(folders={"mqtt": {"payloadFormatIndicator": 0}}), {"payload_format_indicator": 0},
                     id="Payload Format Indicator 0"),
        pytest.param({}, message(folders={"usr": {"a": "1", "n": 5, "b": True, "x": b"\1", "g": {"h": 1.5}, "nil": None,
                                                  "a_x002D_b": "z"}}),
                     {"users": {"a": "1", "n": "5", "b": "true", "x": "01", "g.h": "1.5", "a-b": "z"}},
                     id="properties: the usr folder"),
        pytest.param({"properties": {"dst": "{jms.Dst}", "n": "{usr.n}{n}"}},
                     message(folders={"usr": {"n": 5}, "jms": {"Dst": "queue://Q"}}),
                     {"users": {"n": "55", "dst": "queue://Q"}}, id="properties: more, and others"),
        pytest.param({}, message(UserIdentifier=b"someone"), {"user": b"someone"}, id="user"),
        pytest.param({}, message(folders={"mqtt": {"clientId": "dev-1"}}), {"client_id": "dev-1"}, id="client id"),
        pytest.param({}, message(folders={"mqbridge": {"hops": "QM0/a,QM9/b"}}), {"hops": ("QM0/a", "QM9/b", "QM1/m2")},
                     id="hop mark"),
    ],
)  # fmt: skip
def test_attributes_change_the_publication(
    attributes: dict[str, Any], source: Message, expected: dict[str, Any]
) -> None:
    standard = Publication(topic="out", payload=b"21.5", qos=0, user=b"app", hops=("QM1/m2",))
    assert published(rule(attributes), source) == msgspec.structs.replace(standard, **publication_fields(expected))


def test_attributes_determine_the_retain_flag(subtests: pytest.Subtests) -> None:
    for body in [b"on", b""]:
        for source_retained in [False, True]:
            for retained, override in [("as-published", None), ("never", False), ("always", True)]:
                with subtests.test(body=body, came=source_retained, retained=retained, result=override):
                    source = message(body, {"mqps": {"Top": "t"} | ({"Ret": True} if source_retained else {})})
                    output = published(rule({"retained": retained}), source)
                    assert (output.retain, output.payload) == (source_retained if override is None else override, body)


@pytest.mark.parametrize(
    ("payload", "source", "expected"),
    [
        pytest.param({}, message(b"\xff", CodedCharSetId=500), b"\xff", id="bytes"),
        pytest.param({"type": "text"}, message(b"\xc1", CodedCharSetId=500), b"A", id="text: as in the MQMD"),
        pytest.param({"type": "text"}, message(b"\xc1", {}, CodedCharSetId=1047), b"A", id="text: as in the RFH2"),
        pytest.param({"type": "text", "ccsid": 37}, message(b"\xc1", CodedCharSetId=1208), b"A",
                     id="text: as in the mapping"),
        pytest.param({"type": "text"}, message("ü".encode()), "ü".encode(), id="text: the queue manager's own"),
        pytest.param({"type": "text"}, message("日".encode("utf-16-be"), CodedCharSetId=1200, Encoding=273), "日".encode(),
                     id="text: in the byte order of the MQMD"),
        pytest.param({"type": "json"}, message(b'{ "b":1, "a":2}'), b'{ "b":1, "a":2}', id="json: as it is"),
        pytest.param({"type": "json"}, message('{"a":"ü"}'.encode("cp500"), CodedCharSetId=500), '{"a":"ü"}'.encode(),
                     id="json: from EBCDIC"),
        pytest.param({"type": "json", "object": {"v": "{text|trim}", "from": "{md.UserIdentifier}"}},
                     message(b"\x40\xf1\xf2\x40", CodedCharSetId=37), b'{"v":"12","from":"app"}', id="json: an object"),
    ],
)  # fmt: skip
def test_attributes_convert_the_payload(payload: dict[str, Any], source: Message, expected: bytes) -> None:
    assert published(rule(payload=payload), source).payload == expected


@pytest.mark.parametrize("payload", [{"type": "text"}, {"type": "json"}, {"type": "json", "object": {"v": "{text}"}}])
def test_an_empty_retained_message_is_not_converted(payload: dict[str, Any]) -> None:
    output = published(rule({"retained": "always"}, payload=payload), message(b"", CodedCharSetId=500))
    assert output.retain and output.payload == b""


def test_templates_determine_the_topic(subtests: pytest.Subtests) -> None:
    for source, to, source_message, topic, expected in [
        ({"queue": "Q"}, "{topic}", message(folders=PUBLISHED), None, "plant/1/speed"),
        ({"queue": "Q"}, "{clientId}/{messageId}/{qos}/{retained}", message(folders=PUBLISHED), None, "dev-1/9/1/true"),
        ({"topic": "plant/{rest...}"}, "p/{rest}", message(folders=PUBLISHED), None, "p/1/speed"),
        ({"topic": "plant/{rest...}"}, "p/{rest}", message(), "plant/2", "p/2"),
        ({"topic": "other/{rest...}"}, "p/{rest}", message(folders=PUBLISHED), None, None),
        ({"queue": "Q"}, "{md.CorrelId|text|default:'none'}/{md.Priority}", message(Priority=4), None, "none/4"),
        ({"queue": "Q"}, "{md.GroupId}", message(), None, "00" * 24),
        ({"queue": "Q"}, "{user|lower}/{text}", message(UserIdentifier=b"APP  "), None, "app/21.5"),
    ]:
        with subtests.test(source=source, to=to, source_message=source_message, topic=topic, expected=expected):
            output = rule(**{"from": source, "to": {"mqtt": to, "link": "plant"}}).map(source_message, topic=topic)
            assert (output.topic if output is not None else None) == expected


def test_a_rule_has_its_source() -> None:
    assert (rule().queue, rule().source_filter) == ("Q", None)
    of_topic = rule(**{"from": {"topic": "plant/{rest...}"}})
    assert (of_topic.queue, of_topic.source_filter) == (None, "plant/#")


def test_a_rule_can_be_pickled() -> None:
    mapping_rule = rule({"properties": {"x": "{md.MsgId|text}"}}, filter={"json": "$ > 1"})
    assert pickle.loads(pickle.dumps(mapping_rule)).map(message()) == mapping_rule.map(message())


def test_headers_before_the_payload_are_skipped() -> None:
    inner = MQMD(Format=b"MQHRF2", CodedCharSetId=1208, CorrelId=b"c".ljust(24, b"\0"), Persistence=1, Version=1)
    rfh2 = RFH2(Format=b"MQSTR", CodedCharSetId=500, folders=(Folder.build("mqps", {"Top": "t"}),))
    chain = encode_chain((MQDLH(Encoding=546), MQXQH(MsgDesc=inner), rfh2), b"\xc1")
    outer = MQMD(Format=chain.Format, Encoding=chain.Encoding, CodedCharSetId=chain.CodedCharSetId, Expiry=50)
    output = published(
        rule(payload={"type": "text"}, to={"mqtt": "x/{topic}", "link": "l"}), Message(outer, chain.data)
    )
    assert (output.topic, output.payload, output.qos, output.expiry) == ("x/t", b"A", 2, 5.0)
    assert output.properties.correlation_data == b"c"


@pytest.mark.parametrize(
    ("changes", "source", "reason", "part"),
    [
        pytest.param({"to": {"mqtt": "{md.ReplyToQ}", "link": "l"}}, message(), 2471, "no md.ReplyToQ", id="blank field"),
        pytest.param({"to": {"mqtt": "a/{text}", "link": "l"}}, message(b"#"), 2425, "it has # in it", id="wildcard"),
        pytest.param({"to": {"mqtt": "{text}", "link": "l"}}, message(b"x" * 65536), 2425, "65535 bytes",
                     id="too long for MQTT"),
        pytest.param({"to": {"mqtt": "{text}"}}, message(b"x" * 10241), 2425, "10241 characters", id="too long for MQ"),
        pytest.param({"from": {"topic": "a/#"}}, message(), 2425, "no topic", id="no topic"),
        pytest.param({"payload": {"type": "text"}}, message(b"\xff"), 2119, "CCSID 1208", id="no text"),
        pytest.param({"payload": {"type": "text"}}, message(CodedCharSetId=9999), 2111, "CCSID 9999", id="CCSID unknown"),
        pytest.param({"payload": {"type": "json"}}, message(b"x"), 2110, "not JSON", id="no JSON"),
        pytest.param({"attributes": {"properties": {"p": "{text}"}}}, message(b"x" * 65536), 2119, "65535", id="property"),
        pytest.param({}, message(folders={"mqtt": {"qos": 3}}), 2421, "mqtt.qos is 0, 1 or 2", id="QoS 3"),
        pytest.param({}, Message(MQMD(Format=b"MQHRF2"), b"RFH?"), 2334, "cannot be read", id="broken RFH2"),
    ],
)  # fmt: skip
def test_unmappable_messages_have_a_reason(changes: dict[str, Any], source: Message, reason: int, part: str) -> None:
    with pytest.raises(Unmappable, match=part) as raised:
        rule(**changes).map(source)
    assert raised.value.reason == reason


def test_an_unreadable_folder_is_an_error_only_if_it_is_needed() -> None:
    rfh2 = RFH2(folders=(Folder(b"<jms><Dst>x</jms> "),))
    chain = encode_chain((rfh2,), b"1")
    source = Message(MQMD(Format=chain.Format, Persistence=0), chain.data)
    assert published(rule(), source).payload == b"1"
    with pytest.raises(Unmappable, match="folder jms"):
        rule({"properties": {"dst": "{jms.Dst}"}}).map(source)


@pytest.mark.parametrize(
    ("changes", "where", "part"),
    [
        ({"from": {"topic": "a/{b"}}, "from.topic", "no partner"),
        ({"to": {"mqtt": "a/#", "link": "l"}}, "to.mqtt", "not a valid topic name"),
        ({"to": {"mqtt": "{md.Msgid}", "link": "l"}}, "to.mqtt", "did you mean md.MsgId"),
        ({"payload": {"type": "json", "object": {"v": "{"}}}, "payload.object.v", "missing"),
        ({"attributes": {"response_topic": "+"}}, "attributes.response_topic", "not a valid topic name"),
        ({"filter": {"properties": {"md.X": 1}}}, "filter.properties.md.X", "no field 'X'"),
    ],
)
def test_an_invalid_mapping_has_position_and_reason(changes: dict[str, Any], where: str, part: str) -> None:
    with pytest.raises(RuleError, match=part) as raised:
        rule(**changes)
    assert raised.value.where == where


PROPERTY = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
VALUE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)


@given(st.dictionaries(PROPERTY, VALUE | st.integers(-(2**31), 2**31 - 1) | st.booleans(), max_size=4), VALUE)
def test_any_usr_folder_is_converted_to_text(properties: dict[str, Any], top: str) -> None:
    output = published(rule(), message(folders={"mqps": {"Top": top}, "usr": properties}))
    words = {True: "true", False: "false"}
    assert output.user_properties == {
        name: words[value] if isinstance(value, bool) else str(value) for name, value in properties.items()
    }


def test_an_answer_goes_to_the_response_topic_of_its_request() -> None:
    answers = rule(
        to={"mqtt": "{responseTopic}", "link": "plant"}, attributes={"properties": {"to": "{correlationData}"}}
    )
    request = message(b"", {"mqtt": {"responseTopic": "clients/1", "correlationData": "3700"}})
    answer = message(b"42", CorrelId=b"x" * 24)
    output = answers.map(answer, request=request)
    assert output is not None
    assert (output.topic, output.properties.correlation_data, output.payload) == ("clients/1", b"7\0", b"42")
    assert (output.properties.response_topic, output.user_properties) == (
        None,
        {"to": "3700"},
    )  # the answer is not a request
    without = message(b"", {"mqtt": {"responseTopic": "clients/1"}})
    output = rule(to={"mqtt": "{responseTopic}", "link": "plant"}).map(answer, request=without)
    assert output is not None and output.properties.correlation_data is None
    with pytest.raises(Unmappable, match="has no responseTopic"):
        answers.map(answer)
