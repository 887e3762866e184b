"""`payload: {transform: TREE, keep: ..., drop: ...}` and `filter: {expr: ...}` in both directions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rule import ToMqttRule, rule_of
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_chain
from tests.helpers.rules_to_mq import mapped, publication, rule

PAYLOAD = b'{"device": {"id": "d7", "fw": "1.0"}, "temp": 21.50, "list": [{"v": 1}, {"v": 2}], "n": null}'


def body(payload: bytes = PAYLOAD, **options: Any) -> str:
    mapped_message = mapped(rule(payload=options), payload=payload)
    return decode_chain(b"MQHRF2", 546, 1208, mapped_message.message.data).body.decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transform": {"id": "{$.device.id}", "t": "{$.temp}"}}, '{"id":"d7","t":21.50}'),
        ({"transform": {"t": "{$.temp} C", "l": "{line|upper}"}}, '{"t":"21.50 C","l":"LINE1"}'),
        ({"transform": {"f": {"expr": "payload.temp * 1.8 + 32"}}}, '{"f":70.7}'),
        ({"transform": {"a": [1, 2.5, True, None, "x", "{$.list[-1]}"]}}, '{"a":[1,2.5,true,null,"x",{"v":2}]}'),
        ({"transform": {"n": "{$.n}", "d": "{$.missing|default:'-'}"}}, '{"n":null,"d":"-"}'),
        ({"transform": {"j": "{$.device|json}"}}, '{"j":"{\\"id\\":\\"d7\\",\\"fw\\":\\"1.0\\"}"}'),
        ({"transform": "{$.list}"}, '[{"v":1},{"v":2}]'),
        ({"transform": {"expr": "payload.list[0].v"}}, "1"),
        ({"keep": ["$.temp", "$.device.id"]}, '{"device":{"id":"d7"},"temp":21.50}'),
        ({"keep": ["$.missing"]}, "{}"),
        ({"drop": ["$.device.fw", "$.list", "$.missing.x"]}, '{"device":{"id":"d7"},"temp":21.50,"n":null}'),
        (
            {"keep": ["$.device"], "transform": {"device": {"line": "{line}"}, "t": "{$.temp}"}},
            '{"device":{"id":"d7","fw":"1.0","line":"line1"},"t":21.50}',
        ),
        ({"drop": ["$.device", "$.list", "$.n"], "transform": {"temp": 1}}, '{"temp":1}'),
        ({"type": "json", "keep": ["$.temp"]}, '{"temp":21.50}'),
    ],
)
def test_a_new_document(options: dict[str, Any], expected: str) -> None:
    assert body(**options) == expected


@pytest.mark.parametrize(
    ("options", "payload", "why"),
    [
        ({"transform": {"a": {"b": "{$.missing}"}}}, PAYLOAD, "payload.transform.a.b: the payload has no $.missing"),
        ({"transform": {"a": ["x{$.missing}"]}}, PAYLOAD, "payload.transform.a.0: 'x{$.missing}' cannot be filled"),
        ({"transform": {"a": {"expr": "payload.temp + 'x'"}}}, PAYLOAD, "payload.transform.a.expr: "),
        ({"transform": {"a": "{$.x}"}}, b"<xml/>", "the payload is not JSON"),
        ({"keep": ["$.x"]}, b"[1]", "need an object"),
        ({"drop": ["$.x"]}, b"[" * 100_000, "the payload is not JSON"),
    ],
)
def test_an_error_names_the_step_and_the_field(options: dict[str, Any], payload: bytes, why: str) -> None:
    with pytest.raises(Unmappable) as error:
        body(payload, **options)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("payload", "location", "why"),
    [
        ({"transform": {"a": {"b": "{nope"}}}, "payload.transform.a.b", "} is missing"),
        ({"transform": {"a": "{md.Priority}"}}, "payload.transform.a", "a publication has no MQMD"),
        ({"transform": {"a": {"expr": "temp > 3"}}}, "payload.transform.a.expr", "undeclared reference"),
        ({"transform": {"a": {"expr": 3}}}, "payload.transform.a.expr", "an expression is text"),
        ({"keep": ["$.a[0]"]}, "payload.keep", "not a member of an object"),
        ({"drop": ["$.a-b"]}, "payload.drop", "hint: ['a-b']"),
    ],
)
def test_a_mistake_in_the_configuration_is_reported(payload: dict[str, Any], location: str, why: str) -> None:
    with pytest.raises(RuleError) as error:
        rule(payload=payload)
    assert error.value.where == location
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"type": "text", "transform": {"a": 1}}, "no transform with payload text"),
        ({"type": "bytes", "keep": ["$.a"]}, "no keep with payload bytes"),
        ({"keep": ["$.a"], "drop": ["$.b"]}, "either keep or drop"),
        ({"keep": ["a"]}, "a member of the payload"),
        ({"drop": ["$"]}, "a member of the payload"),
        ({"transform": {"a": float("nan")}}, "text, a number"),
    ],
)
def test_options_that_exclude_each_other_are_rejected(payload: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ToMqMapping.model_validate({"from": {"mqtt": "a"}, "to": {"queue": "Q"}, "payload": payload})


def to_mqtt(**more: Any) -> ToMqttRule:
    config = {"from": {"queue": "Q"}, "to": {"mqtt": "out", "link": "plant"}} | more
    copied = pickle.loads(pickle.dumps(rule_of("m", ToMqttMapping.model_validate(config), "QM1")))
    assert isinstance(copied, ToMqttRule)
    return copied


def test_a_message_in_a_code_page_becomes_a_new_document() -> None:
    mapping_rule = to_mqtt(payload={"transform": {"id": "{$.device.id}", "p": {"expr": "md.Priority + 1"}}})
    message = Message(MQMD(CodedCharSetId=500, Format=cmqc.MQFMT_STRING, Priority=4), PAYLOAD.decode().encode("cp500"))
    output = mapping_rule.map(message)
    assert output is not None
    assert output.payload == b'{"id":"d7","p":5}'
    assert output.properties.payload_format_indicator == 1


def test_a_new_document_in_the_code_page_of_the_mapping() -> None:
    mapped_message = mapped(rule(payload={"ccsid": 500, "transform": {"id": "{$.device.id}"}}), payload=PAYLOAD)
    assert mapped_message.message.data.endswith('{"id":"d7"}'.encode("cp500"))


def test_an_empty_retained_publication_still_clears_the_topic() -> None:
    mapping_rule = rule(to={"topic": "t"}, payload={"transform": {"id": "{$.device.id}"}})
    cleared = mapping_rule.map(publication(payload=b"", retain=True))
    assert cleared is not None
    assert cleared.clear


@pytest.mark.parametrize(
    ("expr", "payload", "accepted"),
    [
        ("payload.temp > 20", PAYLOAD, True),
        ("payload.temp > 30", PAYLOAD, False),
        ("payload.missing > 30", PAYLOAD, False),
        ("payload.temp > 20", b"no json", False),
        ("line == 'line1' && size(metric) > 3", b"no json", True),
        ("clientId.startsWith('dev')", b"", True),
    ],
)
def test_a_filter_with_an_expression(expr: str, payload: bytes, accepted: bool) -> None:
    mapping_rule = rule(filter={"expr": expr})
    for _ in range(2):
        assert (mapping_rule.map(publication(payload=payload)) is not None) is accepted


def test_an_undefined_operation_is_an_error_of_the_message() -> None:
    with pytest.raises(Unmappable, match="this operation does not exist"):
        rule(filter={"expr": "payload.device.id > 3"}).map(publication(payload=PAYLOAD))


def test_a_filter_must_result_in_true_or_false() -> None:
    with pytest.raises(RuleError, match="neither true nor false") as error:
        rule(filter={"expr": "payload.temp + 1"})
    assert error.value.where == "filter.expr"


def test_both_conditions_on_the_payload_apply() -> None:
    mapping_rule = to_mqtt(filter={"json": "$.temp > 20", "expr": "payload.device.id == 'd7'", "others": "discard"})
    assert mapping_rule.map(Message(MQMD(), PAYLOAD)) is not None
    assert mapping_rule.map(Message(MQMD(), PAYLOAD.replace(b"d7", b"d8"))) is None
    assert mapping_rule.map(Message(MQMD(), PAYLOAD.replace(b"21.50", b"1"))) is None
