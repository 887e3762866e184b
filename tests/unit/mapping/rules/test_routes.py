"""A mapping with `otherwise` accepts the messages that none of the named mappings accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import problems, warnings_of
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.telemetry.message import Message, Publication
from bridge.wire.mq import MQMD

ROUTES = """\
links: {hub: {host: h}}
mappings:
  hot: {from: {mqtt: "plant/{line}"}, to: {queue: HOT}, filter: {json: "$.temp > 30"}}
  site: {from: {mqtt: "plant/+"}, to: {queue: SITE}, filter: {properties: {line: a}}}
  rest: {from: {mqtt: "plant/#"}, to: {queue: REST}, otherwise: [hot, site]}
"""
QUEUES = """\
mappings:
  large: {from: {topic: "t/{x}"}, to: {mqtt: large}, filter: {min_size: 3}}
  rest: {from: {topic: "t/#"}, to: {mqtt: rest}, otherwise: [large]}
"""


def configuration(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "bridge.yaml"
    file.write_text(text)
    return load(file, problems)


@pytest.mark.parametrize(
    ("topic", "payload", "is_mapped"),
    [
        ("plant/b", b'{"temp": 20}', True),
        ("plant/b", b'{"temp": 40}', False),
        ("plant/b/deep", b'{"temp": 40}', True),  # hot does not match this topic
        ("plant/b", b"no JSON", True),
    ],
)
def test_a_publication_is_accepted_if_no_named_filter_accepts_it(
    tmp_path: Path, topic: str, payload: bytes, is_mapped: bool
) -> None:
    rule = rule_of("rest", configuration(tmp_path, ROUTES).mappings["rest"], "QM1")
    assert isinstance(rule, ToMqRule)
    # Twice, because a cache must not use the result for another payload.
    rule.map(Publication(topic=topic, payload=b'{"temp": 1}'))
    assert (rule.map(Publication(topic=topic, payload=payload)) is not None) == is_mapped


def test_a_message_of_a_topic_is_accepted_if_no_named_filter_accepts_it(tmp_path: Path) -> None:
    rule = rule_of("rest", configuration(tmp_path, QUEUES).mappings["rest"], "QM1")
    assert isinstance(rule, ToMqttRule)
    assert rule.map(Message(MQMD(), b"1"), topic="t/a") is not None
    assert rule.map(Message(MQMD(), b"1234"), topic="t/a") is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[hot, site]", "[hut]", "expected the name of a mapping (did you mean hot?)"),
        ("[hot, site]", "[rest]", "expected a mapping without otherwise"),
        ('site: {from: {mqtt: "plant/+"}', 'site: {from: {mqtt: "plant/+", link: hub}', "a mapping of the same source"),
        (
            'rest: {from: {mqtt: "plant/#"}, to: {queue: REST}',
            "rest: {from: {queue: Q}, to: {mqtt: a}",
            "no otherwise, because",
        ),
    ],
)
def test_an_invalid_name_is_reported(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        configuration(tmp_path, ROUTES.replace(before, after))
    assert message in str(error.value)


def test_a_changed_route_changes_the_mapping_that_names_it(tmp_path: Path) -> None:
    before = configuration(tmp_path, ROUTES).mappings["rest"]
    assert configuration(tmp_path, ROUTES).mappings["rest"] == before
    assert configuration(tmp_path, ROUTES.replace("> 30", "> 31")).mappings["rest"] != before


def test_routes_without_otherwise_are_noted(tmp_path: Path) -> None:
    def warnings(text: str) -> list[str]:
        return [warning for warning in warnings_of(configuration(tmp_path, text)) if "no filter" in warning]

    assert warnings(ROUTES) == []
    (warning,) = warnings("\n".join(line for line in ROUTES.splitlines() if "rest:" not in line))
    assert warning == (
        "a message of plant/+ that no filter of the mappings hot and site accepts is discarded"
        " (hint: a mapping with otherwise: [hot, site])"
    )


def test_a_disabled_route_is_noted(tmp_path: Path) -> None:
    text = ROUTES.replace("hot: {from", "hot: {enabled: false, from")
    (warning,) = [warning for warning in warnings_of(configuration(tmp_path, text)) if "not enabled" in warning]
    assert warning.startswith("mapping rest: its otherwise names mapping hot, which is not enabled")


def test_routes_with_a_different_qos_are_noted(tmp_path: Path) -> None:
    text = ROUTES.replace('"}, to', '", link: hub}, to')
    text = text.replace('{json: "$.temp > 30"}', "{qos: 1}").replace(
        "otherwise:", "guarantee: at-most-once, otherwise:"
    )
    warnings = [warning for warning in warnings_of(configuration(tmp_path, text)) if "looks at the QoS" in warning]
    assert len(warnings) == 1 and "hint: guarantee: at-least-once for both" in warnings[0]
