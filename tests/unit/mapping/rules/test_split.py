"""`split`: a message for each element of an array of the payload, in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.models import Configuration
from bridge.mapping import split
from bridge.mapping.check import problems
from bridge.mapping.rates import LeftOut
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.rules_to_mq import folders, publication

PAYLOAD = b'{"id": "d7", "readings": [{"t": "a", "v": 1.50}, {"t": "b", "v": 2}]}'


def to_mq(**keys: Any) -> ToMqRule:
    config = {"from": {"mqtt": "plant/{line}/+/{metric...}"}, "to": {"queue": "Q"}, "split": "$.readings", **keys}
    rule = rule_of("m1", ToMqMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqRule)
    return rule


def bodies(rule: ToMqRule, payload: bytes = PAYLOAD) -> list[bytes]:
    messages = rule.messages(publication(payload=payload))
    assert messages is not None and not isinstance(messages, LeftOut)
    return [mapped.message.data[int.from_bytes(mapped.message.data[8:12], "little") :] for mapped in messages]


def test_each_part_is_a_message_with_its_number_and_the_number_of_parts() -> None:
    messages = to_mq(to={"queue": "Q.{@.t|upper}.{$.id}.{partIndex}"}).messages(publication(payload=PAYLOAD))
    assert messages is not None and not isinstance(messages, LeftOut)
    assert [mapped.destination.name for mapped in messages] == ["Q.A.d7.0", "Q.B.d7.1"]
    assert [folders(mapped)["usr"] for mapped in messages] == [
        {"partIndex": "0", "partCount": "2"},
        {"partIndex": "1", "partCount": "2"},
    ]
    assert bodies(to_mq()) == [b'{"t":"a","v":1.50}', b'{"t":"b","v":2}']


@pytest.mark.parametrize(
    ("payload", "parts"),
    [
        ({"transform": {"id": "{$.id}", "v": "{@.v}", "n": "{partIndex}"}}, b'{"id":"d7","v":1.50,"n":"0"}'),
        ({"transform": {"twice": {"expr": "part.v * 2.0"}, "of": {"expr": "payload.id"}}}, b'{"twice":3.0,"of":"d7"}'),
        ({"transform": {"same": {"expr": "part.v"}}}, b'{"same":1.50}'),
        ({"keep": ["@.v"], "transform": {"id": "{$.id}"}}, b'{"v":1.50,"id":"d7"}'),
        ({"drop": ["@.v"]}, b'{"t":"a"}'),
        ({"transform": "{@}"}, b'{"t":"a","v":1.50}'),
    ],
    ids=str,
)
def test_a_new_document_is_made_from_the_part_and_the_payload(payload: dict[str, Any], parts: bytes) -> None:
    assert bodies(to_mq(payload=payload))[0] == parts


def test_a_payload_can_be_an_array() -> None:
    assert bodies(to_mq(split="$"), b'[1, "x", null, [2]]') == [b"1", b'"x"', b"null", b"[2]"]


def test_properties_of_the_mapping_replace_those_of_parts() -> None:
    rule = to_mq(attributes={"properties": {"partIndex": "{partIndex}/{partCount}"}})
    messages = rule.messages(publication(payload=PAYLOAD))
    assert messages is not None and not isinstance(messages, LeftOut)
    assert folders(messages[0])["usr"]["partIndex"] == "0/2"


@pytest.mark.parametrize(
    ("payload", "reason", "why"),
    [
        (b"{}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "split: the payload has no $.readings"),
        (b'{"readings": {}}', cmqc.MQRC_FORMAT_ERROR, "split: $.readings of the payload is not an array"),
        (b"no JSON", cmqc.MQRC_FORMAT_ERROR, "not JSON"),
        (
            b'{"readings": [1, 2, 3, 4]}',
            cmqc.MQRC_DATA_LENGTH_ERROR,
            "split: $.readings of the payload has 4 elements, of 3 at most (split.max_parts)",
        ),
        (
            b'{"readings": [{"t": "a"}, {}]}',
            cmqc.MQRC_PROPERTY_NOT_AVAILABLE,
            "part 1 of 2: to.queue: 'Q.{@.t}' cannot be filled: the payload has no @.t",
        ),
    ],
)
def test_a_payload_that_cannot_be_split_is_rejected_as_a_whole(payload: bytes, reason: int, why: str) -> None:
    rule = to_mq(split={"path": "$.readings", "max_parts": 3}, to={"queue": "Q.{@.t}"})
    with pytest.raises(Unmappable) as raised:
        rule.messages(publication(payload=payload))
    assert raised.value.reason == reason and why in str(raised.value)


def test_an_empty_array_results_in_no_messages() -> None:
    assert to_mq().messages(publication(payload=b'{"readings": []}')) is LeftOut.NO_PARTS


def test_an_empty_retained_publication_has_no_parts() -> None:
    assert to_mq().messages(publication(payload=b"", retain=True)) is LeftOut.NO_PARTS


def test_a_message_that_the_filter_rejects_is_not_split() -> None:
    assert to_mq(filter={"expr": "payload.id == 'other'"}).messages(publication(payload=PAYLOAD)) is None


def test_parts_have_a_common_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "MAX_BYTES", 2_000)
    rule = to_mq(split="$", payload={"transform": {"all": "{$|json}"}})
    with pytest.raises(Unmappable, match="parts have more than 2,000 bytes together") as raised:
        rule.messages(publication(payload=b"[" + b",".join([b"1"] * 500) + b"]"))
    assert raised.value.reason == cmqc.MQRC_DATA_LENGTH_ERROR


def test_parts_have_a_common_maximum_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "MAX_SECONDS", 0.0)
    with pytest.raises(Unmappable, match="1 of 2 parts took 0 s of the processor"):
        to_mq().messages(publication(payload=PAYLOAD))


def test_messages_to_mqtt() -> None:
    config = {
        "from": {"queue": "IN"},
        "to": {"mqtt": "d/{$.id}/{@.t}"},
        "split": "$.readings",
        "payload": {"transform": {"v": "{@.v}"}},
    }
    rule = rule_of("m1", ToMqttMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqttRule)
    publications = rule.publications(Message(MQMD(Format=b"MQSTR   ", CodedCharSetId=1208), PAYLOAD))
    assert publications is not None and not isinstance(publications, LeftOut)
    assert [(part.topic, part.payload) for part in publications] == [("d/d7/a", b'{"v":1.50}'), ("d/d7/b", b'{"v":2}')]
    assert publications[1].user_properties == {"partIndex": "1", "partCount": "2"}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"split": None, "to": {"queue": "{@.t}"}}, "to.queue: {@.t}: @ is a part of the payload, in mappings with split"),
        ({"split": None, "payload": {"transform": {"a": "{@.t}"}}}, "@ is a part of the payload"),
        ({"split": None, "payload": {"transform": {"a": {"expr": "part.t"}}}}, "undeclared reference to 'part."),
        ({"payload": {"keep": ["$.t"]}}, "payload.keep: '$.t': '$.t' is not a query of a part of the payload"),
        ({"split": None, "payload": {"keep": ["@.t"]}}, "is not a query of the payload"),
        ({"split": "$.readings[*]"}, "split: a query has names and indexes only"),
        ({"from": {"mqtt": "a/{partIndex}"}}, "split: {partIndex} is a name of split"),
        ({"filter": {"expr": "part.v > 1"}}, "undeclared reference to 'part."),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_of_rules(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(RuleError) as raised:
        to_mq(**keys)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("direction", "keys", "why"),
    [
        (ToMqMapping, {"payload": "bytes"}, "json with split, not bytes"),
        (ToMqMapping, {"order": "destination"}, "strict, because all parts of a message are put in one unit of work"),
        (ToMqMapping, {"split": {"path": "$.x", "max_parts": 0}}, "an integer from 1 to 5000"),
        (ToMqMapping, {"split": "readings"}, r"an array of the payload such as \$.readings"),
        (ToMqttMapping, {"to": {"mqtt": "t", "link": "L"}}, "no split in a mapping to a link"),
        (ToMqttMapping, {"payload": {"type": "json", "object": {"a": "b"}}}, "transform instead of object with split"),
    ],
    ids=str,
)
def test_mistakes_of_configurations(
    direction: type[ToMqMapping] | type[ToMqttMapping], keys: dict[str, Any], why: str
) -> None:
    sides: dict[str, Any] = {"from": {"queue": "IN"}, "to": {"mqtt": "t"}}
    if direction is ToMqMapping:
        sides = {"from": {"mqtt": "t"}, "to": {"queue": "Q"}}
    with pytest.raises(ValidationError, match=why):
        direction.model_validate({**sides, "split": "$.x", **keys})


def test_check_knows_the_names_of_parts() -> None:
    mappings = {
        name: ToMqMapping.model_validate(
            {"from": {"mqtt": topic}, "to": {"queue": "Q{partIndex}{@.to}"}, "split": "$.x"}
        )
        for name, topic in (("a", "t"), ("b", "t/{partCount}"))
    }
    (clash,) = problems(Configuration(mappings=mappings))
    assert clash.location == ("mappings", "b", "split")
