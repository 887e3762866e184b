"""Fields of the JSON payload in templates, and typed properties, in both directions."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rule import rule_of
from bridge.mapping.template import RuleError, TemplateError, template_of_columns
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, Typed
from tests.helpers.rules_to_mq import folders, mapped, publication, rule

PAYLOAD = b"""{"device": {"id": "d7", "a name": "x"}, "temp": 21.50, "n": 12345678901234567890, "on": true, "off": false,
 "nothing": null, "empty": "", "list": [1.10, "b"]}"""


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{$.device.id}", "d7"),
        ("{$.device['a name']|upper}", "X"),
        ("{ $.device.id | upper }", "D7"),
        ("{$.temp}", "21.50"),
        ("{$.n}", "12345678901234567890"),
        ("{$.on}/{$.off}", "true/false"),
        ("{$.list[0]} {$.list[-1]}", "1.10 b"),
        ("{$.list|json}", '[1.10,"b"]'),
        ("{$.device|json}", '{"id":"d7","a name":"x"}'),
        ("{$.device.id|json}", '"d7"'),
        ("{$.nothing|json}", "null"),
        ("{line|json}", '"line1"'),
        ("{$.nothing|default:'none'}", "none"),
        ("{$.missing.too|default:'none'}", "none"),
        ("{$.missing|json|default:'none'}", "none"),
        ("{$.list[2]|default:'none'}", "none"),
        ("{$.empty|default:'none'}", "none"),
        ("<{$.empty}>", "<>"),
    ],
)
def test_a_field_of_the_payload_as_text(template: str, text: str) -> None:
    mapped_message = mapped(rule({"properties": {"p": template}}), payload=PAYLOAD)
    assert folders(mapped_message)["usr"] == {"p": text}


@pytest.mark.parametrize(
    ("template", "reason", "why"),
    [
        ("{$.missing}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the payload has no $.missing"),
        ("{$.nothing}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the payload has no $.nothing"),
        ("{$.temp.x}", cmqc.MQRC_PROPERTY_NOT_AVAILABLE, "the payload has no $.temp.x"),
        (
            "{$.list}",
            cmqc.MQRC_PROPERTY_TYPE_ERROR,
            "$.list of the payload is an array, not text (hint: {$.list|json}",
        ),
        ("{$.device|upper}", cmqc.MQRC_PROPERTY_TYPE_ERROR, "is an object"),
    ],
)
def test_a_field_without_text_is_an_error_of_the_message(template: str, reason: int, why: str) -> None:
    with pytest.raises(Unmappable, match=re.escape(why)) as error:
        mapped(rule({"properties": {"p": template}}), payload=PAYLOAD)
    assert error.value.reason == reason


def test_a_payload_that_is_not_json_is_an_error_of_the_message() -> None:
    with pytest.raises(Unmappable, match=r"not JSON .*'<temp/>'"):
        mapped(rule(to={"queue": "{$.device.id}"}), payload=b"<temp/>")


def test_fields_determine_queue_property_and_descriptor() -> None:
    mapped_message = mapped(
        rule(
            {"correl_id": "{$.device.id}", "user_identifier": "{$.device.id}"},
            to={"queue": "PLANT.{$.device.id|upper}"},
        ),
        payload=PAYLOAD,
    )
    assert mapped_message.destination.name == "PLANT.D7"
    assert mapped_message.message.md.CorrelId == b"d7".ljust(24, b"\0")
    assert mapped_message.message.md.UserIdentifier.rstrip() == b"d7"
    assert mapped_message.message.data.endswith(PAYLOAD)


def test_publications_with_different_payloads_have_different_destinations() -> None:
    """Results are cached by topic and client, not by payload."""
    to_queue = rule(to={"queue": "{$.id}"})
    names = [mapped(to_queue, payload=b'{"id": "%b"}' % name).destination.name for name in (b"A", b"B", b"A")]
    assert names == ["A", "B", "A"]


def test_a_field_cannot_select_system_queues() -> None:
    with pytest.raises(Unmappable, match="SYSTEM object"):
        mapped(rule(to={"queue": "{$.id}"}), payload=b'{"id": "SYSTEM.ADMIN.COMMAND.QUEUE"}')


@pytest.mark.parametrize("codepage", [("cp500", 500), ("utf-8", 1208)])
def test_a_field_of_a_message(codepage: tuple[str, int]) -> None:
    encoding, ccsid = codepage
    mapping_rule = rule_of(
        "m",
        ToMqttMapping.model_validate(
            {
                "from": {"queue": "Q"},
                "to": {"mqtt": "plant/{$.device.id}", "link": "plant"},
                "payload": "text",
                "attributes": {"properties": {"t": "{$.temp}"}, "response_topic": "answers/{$.device.id}"},
            }
        ),
        "QM1",
    )
    for _ in range(2):
        message = Message(MQMD(CodedCharSetId=ccsid, Format=cmqc.MQFMT_STRING), PAYLOAD.decode().encode(encoding))
        output = mapping_rule.map(message)
        assert output is not None
        assert (output.topic, output.properties.response_topic) == ("plant/d7", "answers/d7")
        assert output.properties.user_property == (("t", "21.50"),)


TYPES: dict[str, tuple[str, Any, int]] = {
    "string": ("{$.device.id}", Typed("d7", None), cmqc.MQTYPE_STRING),
    "boolean": ("{$.on}", Typed(True, "boolean"), cmqc.MQTYPE_BOOLEAN),
    "int8": ("-128", Typed(-128, "i1"), cmqc.MQTYPE_INT8),
    "int16": ("32767", Typed(32767, "i2"), cmqc.MQTYPE_INT16),
    "int32": ("{qos}", Typed(1, "i4"), cmqc.MQTYPE_INT32),
    "int64": ("9007199254740993", Typed(9007199254740993, "i8"), cmqc.MQTYPE_INT64),
    "float": ("{$.list[0]}", Typed(1.1, "r4"), cmqc.MQTYPE_FLOAT32),
    "double": ("{$.temp}", Typed(21.5, "r8"), cmqc.MQTYPE_FLOAT64),
    "bytes": ("00ff", Typed(b"\0\xff", "bin.hex"), cmqc.MQTYPE_BYTE_STRING),
}


@pytest.mark.parametrize("type_", TYPES)
def test_a_typed_property(type_: str) -> None:
    template, typed, _ = TYPES[type_]
    attributes = {"properties": {"p": {"value": template, "type": type_}, "text": "x"}}
    mapped_message = mapped(rule(attributes), payload=PAYLOAD)
    assert folders(mapped_message)["usr"] == {"text": "x", "p": typed.value}
    assert type(folders(mapped_message)["usr"]["p"]) is type(typed.value)
    assert mapped(rule(attributes | {"rfh2": False}), payload=PAYLOAD).properties["usr.p"] == typed


def test_a_typed_property_replaces_that_of_the_publication() -> None:
    properties = {"user_property": (("p", "text"), ("other", "y"))}
    mapped_message = mapped(
        rule({"properties": {"p": {"value": "{$.temp}", "type": "double"}}}), payload=PAYLOAD, **properties
    )
    assert folders(mapped_message)["usr"] == {"p": 21.5, "other": "y"}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int8", "128"),
        ("int32", "21.5"),
        ("boolean", "yes"),
        ("double", "warm"),
        ("bytes", "abc"),
        ("int64", str(2**63)),
        ("float", "1e39"),
        ("float", "1e999"),
        ("double", "-1e999"),
    ],
)
def test_a_value_of_another_type_is_an_error(type_: str, value: str) -> None:
    attributes = {"properties": {"p": {"value": "{$.v}", "type": type_}}}
    with pytest.raises(Unmappable, match=f"not a property of type {type_}") as error:
        mapped(rule(attributes), payload=b'{"v": "%b"}' % value.encode())
    assert error.value.reason == cmqc.MQRC_PROPERTY_TYPE_ERROR
    with pytest.raises(RuleError, match=f"not a property of type {type_}"):
        rule({"properties": {"p": {"value": value, "type": type_}}})


@pytest.mark.parametrize("value", ["{$.v}", {"value": "{$.v}", "type": "string"}])
@pytest.mark.parametrize("rfh2", [True, False])
def test_text_with_u_0000_is_an_error_of_the_message(rfh2: bool, value: object) -> None:
    with pytest.raises(Unmappable, match=r"U\+0000 cannot be written"):
        mapped(rule({"properties": {"p": value}, "rfh2": rfh2}), payload=b'{"v": "a\\u0000b"}')


def test_rules_are_copied_to_other_processes() -> None:
    config = {"from": {"mqtt": "a/{b}"}, "to": {"queue": "{$.id}"}}
    copy = pickle.loads(pickle.dumps(rule_of("m", ToMqMapping.model_validate(config), "QM1")))
    assert copy.map(publication(topic="a/b", payload=b'{"id": "X"}')).destination.name == "X"


def test_rows_have_columns_instead_of_a_payload() -> None:
    with pytest.raises(TemplateError, match=r"hint: select payload:device\.id"):
        template_of_columns("PLANT.{$.device.id}")
    assert template_of_columns("PLANT.{line}").names == {"line"}
