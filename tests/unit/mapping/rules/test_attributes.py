"""The table of attributes: each template has a check, is parsed once, and determines the key of the rule cache."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.config.document import load
from bridge.config.mapping import MqDestination, TemplateText, ToMqMapping, ToMqttMapping, attributes_of, templates_of
from bridge.config.models import Configuration
from bridge.mapping import template
from bridge.mapping.attributes import PUBLICATION_NAMES
from bridge.mapping.check import loops_of, problems, warnings_of
from bridge.mapping.rendered import CHECKS
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mapping.template import MD_FIELDS, WORDS, Template
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import PROPERTIES
from bridge.telemetry.message import NO_PROPERTIES, Message, Publication, Unmappable
from bridge.wire.mq import MQMD

TO_MQ: dict[str, Any] = {"from": {"mqtt": "a/{rest...}"}, "to": {"queue": "Q"}}
TO_MQTT: dict[str, Any] = {"from": {"queue": "Q"}, "to": {"mqtt": "t"}}
PUBLICATION = Publication(topic="a/b", payload=b"1", qos=1, packet_id=1)
#: Values of each field of a publication, different from those of this one.
OTHER_VALUES: dict[str, list[Any]] = {
    "topic": ["a/c"],
    "payload": [b"2", b""],
    "qos": [0, 2],
    "retain": [True],
    "packet_id": [2, 10],
    "client_id": ["c"],
    "user": [b"u"],
    "expiry": [5.0],
    "properties": [
        PublishProperties(response_topic="r"),
        PublishProperties(correlation_data=b"c"),
        PublishProperties(content_type="text/plain"),
        PublishProperties(payload_format_indicator=1),
        PublishProperties(user_property=(("a", "1"),)),
    ],
    "hops": [("QM1/x",)],
}
PUBLICATIONS = [
    msgspec.structs.replace(PUBLICATION, **{name: value}) for name, values in OTHER_VALUES.items() for value in values
]
#: Values of fields of an MQMD, different from those of a new one.
OTHERS: dict[type, Any] = {int: lambda value: value + 1, bytes: lambda value: b"1" * (len(value) or 4)}


def templated(direction: Any, config: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """Return a mapping for each attribute that may be a template, with this template."""
    configs = []
    for (section, key), target, is_template in attributes_of(direction):
        if is_template and (section != "payload" or direction is ToMqttMapping):
            by_name = target.part in ("usr", "payload")
            to = {"queue": "Q"} if key == "queue_manager" else {}
            value = {key: {"name": text} if by_name else text} | ({"type": "json"} if section == "payload" else to)
            configs.append(config | {section: value})
    return configs


def outcome(map: Any, message: Any) -> Any:
    try:
        return map(message)
    except Unmappable as error:
        return error.reason, str(error)


def test_no_template_of_a_publication_uses_a_cached_value_of_another_one(subtests: pytest.Subtests) -> None:
    for name in sorted({*WORDS, *PUBLICATION_NAMES, "usr.a", "rest"}):
        with subtests.test(name=name):
            for config in templated(ToMqMapping, TO_MQ, f"{{{name}|default:'x'}}"):
                rule = ToMqRule("m", ToMqMapping.model_validate(config), "QM1")
                for publication in (PUBLICATION, *PUBLICATIONS, PUBLICATION):
                    assert outcome(rule.map, publication) == outcome(rule._map, publication), config


@pytest.mark.parametrize("name", sorted({*WORDS, "usr.a", *(f"md.{field}" for field in MD_FIELDS)}))
def test_no_template_of_a_message_uses_a_cached_value_of_another_one(name: str) -> None:
    fields = {field: getattr(MQMD(), field) for field in sorted(MD_FIELDS)}
    mds = [MQMD(**{field: OTHERS[type(value)](value)}) for field, value in fields.items() if field != "Version"]
    messages = [Message(MQMD(), b"1"), Message(MQMD(), b"2"), *(Message(md, b"1") for md in mds)]
    for config in templated(ToMqttMapping, TO_MQTT, f"{{{name}|default:'x'}}"):
        rule = ToMqttRule("m", ToMqttMapping.model_validate(config), "QM1")
        for message in messages:
            assert outcome(rule.map, message) == outcome(partial(rule._map, topic=None, request=None), message), config


def test_each_field_of_a_publication_is_considered() -> None:
    assert set(OTHER_VALUES) == set(Publication.__struct_fields__)
    fields = {
        field
        for properties in OTHER_VALUES["properties"]
        for field in PublishProperties.__struct_fields__
        if getattr(properties, field) != getattr(NO_PROPERTIES, field)
    }
    assert fields == {header_property.field for header_property in PROPERTIES} | {"user_property"}


@pytest.mark.parametrize("direction", [ToMqMapping, ToMqttMapping])
def test_the_table_contains_everything_that_rules_need(direction: Any) -> None:
    for attribute in attributes_of(direction):
        assert (attribute.target.check in CHECKS) is attribute.is_template


def test_a_template_without_a_check_is_rejected() -> None:
    class Destination(MqDestination):
        reply: TemplateText | None = None

    class Mapping(ToMqMapping):
        destination: Destination

    with pytest.raises(TypeError, match=r"Destination\.reply is a template without a Target that has a check"):
        attributes_of(Mapping)


def test_templates_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str) -> Template:
        parsed.append(text)
        return Template(text)

    monkeypatch.setattr(template, "Template", parse)
    template.template_of.cache_clear()
    file = tmp_path / "bridge.yaml"
    file.write_text(
        "mappings: {m: {from: {mqtt: 'a/{b}'}, to: {queue: 'Q.{b}'}, attributes: {correl_id: '{clientId}'}}}"
    )
    configuration = load(file, problems)
    assert isinstance(configuration, Configuration)
    assert [*loops_of(configuration), *warnings_of(configuration)] == []
    mapping = configuration.mappings["m"]
    rule_of("m", mapping, "QM1")
    assert sorted(parsed) == sorted(text for _, _, text in templates_of(mapping))
