"""`payload: {schema: FILE}`: payloads that violate a JSON Schema are errors of the message."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.values import MAX_SCHEMA_SIZE
from bridge.mapping.rule import rule_of
from bridge.mapping.schema import Schema
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.rules_to_mq import mapped, publication, rule

SCHEMA = {
    "$defs": {"id": {"type": "string", "pattern": "^d[0-9]+$"}},
    "type": "object",
    "properties": {
        "id": {"$ref": "#/$defs/id"},
        "t": {"type": "number", "maximum": 40},
        "list": {"items": {"type": "integer"}},
    },
    "required": ["id"],
}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "reading.json"
    file.write_text(json.dumps(SCHEMA))
    return file


VALID = [b'{"id": "d7", "t": 21.50}', b'{"id": "d1", "list": [1, 123456789012345678901234567890]}']
VIOLATIONS = [
    (b'{"id": "d7", "t": 40.5}', "$.t: 40.5 is greater than the maximum of 40"),
    (b'{"t": 1}', '$: "id" is a required property'),
    (b'{"id": "x"}', '$.id: "x" does not match'),
    (b'{"id": "d7", "list": [1, 1.5]}', "$.list[1]: 1.5 is not of type"),
    (b"[]", '$: [] is not of type "object"'),
    (b"no json", "the payload is not JSON"),
    (b'{"id": "' + b"x" * 10_000 + b'"}', "the payload does not match reading.json: $.id: "),
]


@pytest.mark.parametrize("times", [1, 2], ids=["first", "cached"])
def test_publications_that_violate_the_schema_are_errors(schema: Path, times: int) -> None:
    mapping_rule = rule(payload={"schema": str(schema)})
    for _ in range(times):
        for payload in VALID:
            assert mapped(mapping_rule, payload=payload).message.data.endswith(payload)
        for payload, why in VIOLATIONS:
            with pytest.raises(Unmappable) as error:
                mapping_rule.map(publication(payload=payload))
            assert error.value.reason == cmqc.MQRC_FORMAT_ERROR
            assert why in str(error.value)
            assert len(str(error.value)) <= 300


@pytest.mark.parametrize("codepage", [("cp500", 500), ("utf-8", 1208)])
def test_messages_that_violate_the_schema_are_errors(schema: Path, codepage: tuple[str, int]) -> None:
    encoding, ccsid = codepage
    config = {"from": {"queue": "Q"}, "to": {"mqtt": "t"}, "payload": {"schema": str(schema)}}
    mapping_rule = rule_of("m", ToMqttMapping.model_validate(config), "QM1")

    def publish(payload: bytes) -> Any:
        md = MQMD(CodedCharSetId=ccsid, Format=cmqc.MQFMT_STRING)
        return mapping_rule.map(Message(md, payload.decode().encode(encoding)))

    assert [publish(payload).payload for payload in VALID] == VALID
    for payload, why in VIOLATIONS:
        with pytest.raises(Unmappable) as error:
            publish(payload)
        assert why in str(error.value)


def test_the_schema_is_checked_after_the_filter_and_before_the_templates(schema: Path) -> None:
    mapping_rule = rule(payload={"schema": str(schema), "transform": {"x": "{$.missing}"}}, filter={"json": "$.t"})
    with pytest.raises(Unmappable, match=r"does not match reading\.json"):
        mapping_rule.map(publication(payload=b'{"t": 50}'))
    assert mapping_rule.map(publication(payload=b'{"id": 1}')) is None


def test_an_empty_retained_publication_still_clears_the_topic(schema: Path) -> None:
    mapping_rule = rule(to={"topic": "t"}, payload={"schema": str(schema)})
    for _ in range(2):
        cleared = mapping_rule.map(publication(payload=b"", retain=True))
        assert cleared is not None
        assert cleared.clear
    with pytest.raises(Unmappable, match="not JSON"):
        mapping_rule.map(publication(payload=b""))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "reading.json is not JSON"),
        (b'{\n  "type": "object",\n  nonsense\n}', "reading.json is not JSON: line 3: "),
        (b'{\n  "type": "object",\n  "required":\n', "reading.json is not JSON: line 3: "),
        (b'{\n  "title": "\xff"}', "reading.json is not JSON: line 2: "),
        (b'{"type": "nope"}', "reading.json is not a schema: line 1, #/type: "),
        (b'{"allOf": [{},\n{"$defs": {"a/~": {\n"type": 5}}}]}', "line 3, #/allOf/1/$defs/a~1~0/type: 5 is not"),
        (b'{"type": "object",\n"type": "array"}', "is not a schema: line 2: the name 'type' again in the same object"),
        (
            b'{"properties": {"a": {"pattern": "(ab){501}"}}}',
            "#/properties/a/pattern: with its counts written out, the",
        ),
        (b'{"patternProperties": {"^a{2000}": {}}}', "#/patternProperties/^a{2000}: with its counts written out, the"),
        (b'{"$ref": "file:///etc/passwd"}', "is another document"),
        (b'{"$ref": "http://127.0.0.1:1/x"}', "is another document"),
        (b'{"$ref": "other.json"}', "reading.json is not a schema: "),
        (b'{"properties": {"a": {"pattern": "("}}}', "reading.json is not a schema: "),
        (b"[" * 100_000, "reading.json is not JSON"),
        (b" " * (MAX_SCHEMA_SIZE + 1), "bytes, of 1,048,576 at most"),
    ],
)
def test_a_file_that_is_not_a_schema_is_reported(schema: Path, content: bytes, why: str) -> None:
    schema.write_bytes(content)
    with pytest.raises(RuleError) as error:
        rule(payload={"schema": str(schema)})
    assert error.value.where == "payload.schema"
    assert why in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"no\.json cannot be read: No such file") as error:
        rule(payload={"schema": str(tmp_path / "no.json")})
    assert error.value.where == "payload.schema"


def test_a_rule_in_another_process_does_not_need_the_file(schema: Path) -> None:
    """Workers of Spark do not have the files of the configuration."""
    mapping_rule = rule(payload={"schema": str(schema)})
    copied = pickle.dumps(mapping_rule)
    schema.unlink()
    with pytest.raises(Unmappable, match="maximum of 40"):
        pickle.loads(copied).map(publication(payload=VIOLATIONS[0][0]))


def test_a_changed_file_is_a_changed_mapping(schema: Path) -> None:
    """`reload` restarts mappings that differ."""
    config = {"from": {"mqtt": "a"}, "to": {"queue": "Q"}, "payload": {"schema": str(schema)}}
    first, same = ToMqMapping.model_validate(config), ToMqMapping.model_validate(config)
    first.resolve({}, first.names)
    same.resolve({}, same.names)
    assert first == same
    schema.write_text("{}")
    changed = ToMqMapping.model_validate(config)
    changed.resolve({}, changed.names)
    assert first != changed


def test_a_pattern_costs_linear_time(schema: Path) -> None:
    schema.write_text('{"properties": {"s": {"pattern": "^(a+)+$"}}}')
    mapping_rule = rule(payload={"schema": str(schema)})
    with pytest.raises(Unmappable, match="does not match"):
        mapping_rule.map(publication(payload=b'{"s": "' + b"a" * 1_000_000 + b'!"}'))


EXPRESSION = {
    "$ref": "#/$defs/e",
    "$defs": {
        "e": {"anyOf": [{"$ref": "#/$defs/not"}, {"$ref": "#/$defs/and"}, {"type": "boolean"}]},
        "not": {"properties": {"l": {"$ref": "#/$defs/e"}}, "required": ["l"], "type": "object"},
        "and": {
            "properties": {"l": {"$ref": "#/$defs/e"}, "r": {"$ref": "#/$defs/e"}},
            "required": ["l"],
            "type": "object",
        },
    },
}


def test_alternatives_cost_little() -> None:
    """The package describes the violations of all alternatives, of which there are 2**40. A failure uses all memory."""
    with pytest.raises(Unmappable, match=r"^the payload does not match s\.json$"):
        Schema(json.dumps(EXPRESSION).encode(), "s.json").check(json.loads('{"l":' * 40 + "1" + "}" * 40))


def test_alternatives_without_recursion_are_described() -> None:
    content = {"anyOf": [{"$ref": "#/$defs/id"}, {"type": "null"}], "$defs": {"id": {"type": "string"}}}
    with pytest.raises(Unmappable, match="1 is not valid under any of the schemas"):
        Schema(json.dumps(content).encode(), "s.json").check(1)


def test_a_long_value_does_not_hide_the_rule_that_it_violates() -> None:
    with pytest.raises(
        Unmappable, match=r"^the payload does not match s\.json: \$: .* … .* is longer than 3 characters$"
    ):
        Schema(b'{"maxLength": 3}', "s.json").check("x" * 10_000)
