"""The cache of rules for results: it does not change any message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping import rule as rule_cache
from bridge.mapping.rule import ToMqRule, ToMqttRule
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.publications import publication_of_fields

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "standard to a queue": {"to": {"queue": "Q"}},
    "standard to a topic": {"to": {"topic": "b/{rest}"}},
    "captures": {"to": {"queue": "{rest|mqname}"}},
    "message id in a template": {"to": {"queue": "Q"}, "attributes": {"properties": {"n": "{messageId|default:'-'}"}}},
    "message id of the mqtt folder": {"to": {"queue": "Q"}, "attributes": {"msg_id": "{messageId|default:'0'}"}},
    "text of the payload": {"to": {"queue": "Q"}, "attributes": {"correl_id": "{text|default:'-'}"}},
    "field in the destination": {"to": {"queue": "Q{$|default:'-'}"}},
    "field in a topic": {"to": {"topic": "b/{rest}/{$|default:'-'}"}, "filter": {"qos": [0, 1]}},
    "field in a property": {"to": {"queue": "Q"}, "attributes": {"properties": {"p": "{$|default:'-'}"}}},
    "by an expression": {"to": {"queue": "Q"}, "filter": {"expr": "payload == 1 || rest == 'b'"}},
    "by JSON and an expression": {"to": {"queue": "Q"}, "filter": {"json": "$ == 1", "expr": "rest == 'b'"}},
    "new document in a code page": {"to": {"queue": "Q"}, "payload": {"ccsid": 500, "transform": ["{$}", "{topic}"]}},
    "new document": {"to": {"queue": "Q"}, "payload": {"transform": ["{$}", "{qos}"]}},
    "by size": {"to": {"queue": "Q"}, "filter": {"min_size": 2}},
    "by JSON": {"to": {"queue": "Q"}, "filter": {"json": "$ == 1"}},
    "by JSON, captures": {"to": {"queue": "{rest|mqname}"}, "filter": {"json": "$ == 1", "qos": [1, 2]}},
    "by JSON and text": {"to": {"queue": "Q{text|default:'-'}"}, "filter": {"json": "$ == 1"}},
    "JSON": {"to": {"queue": "Q"}, "payload": "json"},
    "JSON to a retained topic": {"to": {"topic": "r"}, "payload": "json", "attributes": {"retained": "always"}},
    "UTF-8 text": {"to": {"queue": "Q"}, "payload": "text"},
    "by QoS": {"to": {"queue": "Q"}, "filter": {"qos": [1, 2]}},
    "by a property": {"to": {"queue": "Q"}, "filter": {"properties": {"usr.a": "1"}}},
    "by the client": {"to": {"queue": "Q"}, "filter": {"properties": {"clientId": "c<msgid>"}}},
    "retained always": {"to": {"topic": "r"}, "attributes": {"retained": "always"}},
    "text": {"to": {"queue": "Q"}, "payload": {"type": "text", "ccsid": 500}},
    "without RFH2": {"to": {"queue": "Q"}, "attributes": {"rfh2": False}},
    "unfillable": {"to": {"queue": "{usr.a}"}},
    "a format like a message id": {"to": {"queue": "Q"}, "attributes": {"format": "<msgid"}},
}
RULES = {
    name: ToMqRule(name, ToMqMapping.model_validate({"from": {"mqtt": "a/{rest...}"}, **written}), "QM1")
    for name, written in CONFIGURATIONS.items()
}
#: Few values of each, so that keys repeat.
PUBLICATIONS = st.builds(
    publication_of_fields,
    topic=st.sampled_from(["a/b", "a/<msgid>7", "b/c"]),
    payload=st.sampled_from([b"", b"1", b'"two"', b"two", b"<msgid", b"\xff"]),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    packet_id=st.sampled_from([0, 1, 9, 10, 12345, 65535]),
    client_id=st.sampled_from(["", "c<msgid>", "d"]),
    user=st.sampled_from([b"", b"u"]),
    expiry=st.sampled_from([None, 1.5]),
    correlation_data=st.sampled_from([None, b"", b"c"]),
    response_topic=st.sampled_from([None, "", "r"]),
    content_type=st.sampled_from([None, "", "text/plain"]),
    users=st.sampled_from([{}, {"a": "1"}]),
    hops=st.sampled_from([(), ("QM1/x",)]),
)


def outcome(map: Any, publication: Publication) -> Any:
    try:
        return map(publication)
    except Unmappable as error:
        return error.reason, str(error)


@pytest.mark.parametrize("name", RULES)
@given(publications=st.lists(PUBLICATIONS, min_size=1, max_size=12))
def test_cached_publications_equal_new_ones(name: str, publications: list[Publication]) -> None:
    rule = RULES[name]
    for publication in publications:
        assert outcome(rule.map, publication) == outcome(rule._map, publication)


FROM_MQ: dict[str, dict[str, Any]] = {
    "standard": {"to": {"mqtt": "t"}},
    "a topic's": {"from": {"topic": "a/{rest...}"}, "to": {"mqtt": "b/{rest}"}},
    "field of the MQMD": {"to": {"mqtt": "t/{md.ReplyToQ|default:'-'}"}},
    "MsgId": {"to": {"mqtt": "t"}, "attributes": {"properties": {"id": "{md.MsgId}"}}},
    "text": {"to": {"mqtt": "t"}, "payload": "text"},
    "text of the payload": {"to": {"mqtt": "t"}, "payload": {"type": "json", "object": {"a": "{text}"}}},
    "by QoS": {"to": {"mqtt": "t"}, "filter": {"qos": [2]}},
    "by a field": {"to": {"mqtt": "t"}, "filter": {"properties": {"md.Priority": 4}}},
    "by size": {"to": {"mqtt": "t"}, "filter": {"max_size": 1}},
    "expiry": {"to": {"mqtt": "t"}, "attributes": {"expiry": "5 s"}},
    "retained": {"to": {"mqtt": "t"}, "attributes": {"retained": "always"}},
    "unfillable": {"to": {"mqtt": "{usr.a}"}},
}
TO_MQTT = {
    name: ToMqttRule(name, ToMqttMapping.model_validate({"from": {"queue": "Q"}, **written}), "QM1")
    for name, written in FROM_MQ.items()
}
RFH2_BEFORE = PublicationMessage(MQMD(), "dev", "a/b", b"1", 1, 7).data
MESSAGES = st.builds(
    lambda md, data: Message(MQMD(**md), RFH2_BEFORE if md["Format"] == cmqc.MQFMT_RF_HEADER_2 else data),
    st.fixed_dictionaries(
        {
            "Format": st.sampled_from([cmqc.MQFMT_NONE, cmqc.MQFMT_STRING, cmqc.MQFMT_RF_HEADER_2]),
            "Persistence": st.integers(0, 1),
            "Priority": st.sampled_from([0, 4]),
            "Expiry": st.sampled_from([-1, 15]),
            "MsgId": st.sampled_from([bytes(24), b"1" * 24]),
            "CorrelId": st.sampled_from([bytes(24), b"2" * 24]),
            "ReplyToQ": st.sampled_from([b"", b"R"]),
            "UserIdentifier": st.sampled_from([b"", b"u"]),
            "CodedCharSetId": st.sampled_from([1208, 500]),
        }
    ),
    st.sampled_from([b"", b"1", b"two"]),
)


@pytest.mark.parametrize("name", TO_MQTT)
@given(messages=st.lists(st.tuples(MESSAGES, st.sampled_from(["a/b", "a/c"])), min_size=1, max_size=12))
def test_cached_messages_equal_new_ones(name: str, messages: list[tuple[Message, str]]) -> None:
    rule = TO_MQTT[name]
    for message, topic in messages:
        first_outcome = outcome(lambda source, topic=topic: rule.map(source, topic=topic), message)
        assert first_outcome == outcome(lambda source, topic=topic: rule._map(source, topic, None), message)
        if isinstance(first_outcome, Publication):
            first_outcome.qos = 0  # for a sender that is allowed to


@pytest.mark.parametrize("name", ["captures", "by JSON, captures", "JSON", "UTF-8 text"])
def test_the_common_case_is_cached(name: str) -> None:
    """Otherwise the other tests would test nothing."""
    rule = RULES[name]
    keys = [
        rule._cache.key(Publication(topic="a/b", payload=payload, qos=1, packet_id=packet_id, client_id="d"))
        for payload, packet_id in ((b"1", 10), (b"2", 99))
    ]
    assert keys[0] is not None and keys[0] == keys[1]
    standard = TO_MQTT["standard"]._cache
    assert standard.key(Message(MQMD(MsgId=b"1" * 24), b"1"), None) == standard.key(Message(MQMD(), b"2"), None)


def test_user_properties_of_one_publication_do_not_appear_in_the_next() -> None:
    config = {"from": {"mqtt": "a/#"}, "to": {"queue": "Q"}, "attributes": {"properties": {"b": "2"}}}
    rule = ToMqRule("m", ToMqMapping.model_validate(config), "QM1")
    for user_property in ((("b", "1"), ("b", "2")), ()):
        publication = publication_of_fields(topic="a/b", payload=b"1", user_property=user_property)
        assert rule.map(publication) == rule._map(publication)


def test_a_cache_of_publications_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_cache, "MAX_BYTES", 100_000)
    rule = ToMqRule("m", ToMqMapping.model_validate({"from": {"mqtt": "a/#"}, "to": {"queue": "Q"}}), "QM1")
    entries: list[int] = []
    for number in range(30):
        publication = Publication(topic=f"a/{number}/{'x' * 10_000}", payload=bytes(1000), qos=1, packet_id=1)
        assert rule.map(publication) == rule._map(publication)
        entries.append(len(rule._cache._entries))
    assert 1 < max(entries) <= 100_000 // 20_000  # the topic is in the key and in the RFH2
    assert all(entry is not None and entry.mapped.message.data == b"" for entry in rule._cache._entries.values())


def test_a_cache_of_messages_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_cache, "MAX_BYTES", 100_000)
    rule = ToMqttRule("m", ToMqttMapping.model_validate({"from": {"topic": "a/{b...}"}, "to": {"mqtt": "{b}"}}), "QM1")
    entries: list[int] = []
    for number in range(30):
        topic = f"a/{number}/{'x' * 10_000}"
        assert rule.map(Message(MQMD(), b"1"), topic=topic) == rule._map(Message(MQMD(), b"1"), topic, None)
        entries.append(len(rule._cache._entries))
    assert 1 < max(entries) <= 100_000 // 20_000


def test_a_cached_result_rejects_a_message_for_the_same_reason() -> None:
    config = {"from": {"mqtt": "a/#"}, "to": {"queue": "{$.id}"}, "payload": {"transform": {"n": "{$.n}"}}}
    rule = ToMqRule("m", ToMqMapping.model_validate(config), "QM1")
    rule.map(Publication(topic="a/b", payload=b'{"id": "Q", "n": 1}'))
    for map_ in (rule.map, rule._map):
        with pytest.raises(Unmappable, match=r"the payload has no \$\.id"):
            map_(Publication(topic="a/b", payload=b"{}"))
