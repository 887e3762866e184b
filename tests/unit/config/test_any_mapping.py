"""Whatever is written in the place of a mapping, what is wrong with it is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.config.document import load
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import problems
from tests.helpers.configuration_mistakes import ONE, mistakes_of


def test_names_that_are_also_steps_of_pydantic(tmp_path: Path) -> None:
    text = """\
mappings:
  to-mq: {from: {mqtt: t}, to: {queue: Q}, attributes: {properties: {"[key]": 5, to-mqtt: 6}, persistence: {one: 1}}}
  "[key]": {from: {mqtt: t}, to: {queue: Q}}
links: {b: {host: h, "[key]": 3}, c: {host: h, type: 5}}
"""
    assert [line.split(" expected")[0] for line in mistakes_of(tmp_path, text)] == [
        "2:79: mappings.to-mq.attributes.properties.'[key]':",
        "2:91: mappings.to-mq.attributes.properties.to-mqtt:",
        "2:109: mappings.to-mq.attributes.persistence.one:",
        "2:114: mappings.to-mq.attributes.persistence.one:",
        "3:3: mappings.'[key]':",
        "4:22: links.b.'[key]':",
        "4:48: links.c.type:",
    ]


def test_mistakes_of_all_mappings_are_told_at_once(tmp_path: Path) -> None:
    text = f"limits: 5\nlinks: {{l: {{host: h, port: 0}}}}\nmappings:\n  a: {{{ONE}, bakouts: 1}}\n"
    text += f"  b: {{{ONE.replace('l}', 'x}')}}}\n"
    assert [line.split(" expected")[0] for line in mistakes_of(tmp_path, text)] == [
        "1:9: limits:",
        "2:28: links.l.port:",
        "4:49: mappings.a.bakouts:",
        "5:29: mappings.b.from.link:",
    ]


WRITTEN_KEYS = ["from", "to", "mqtt", "queue", "topic", "link", "payload", "type", "attributes", "qos", "persistence", "0"]
WRITTEN_KEYS += ["filter", "properties", "json", "object", "persistent", "host", "tls", "to-mq", "[key]", "each", "a"]
SCALARS = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["a", "text", "persistent", "{b}", ""])
TREES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(WRITTEN_KEYS), below, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(mappings=TREES, links=TREES)
def test_whatever_is_written_is_told_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, mappings: object, links: object
) -> None:
    file = tmp_path_factory.mktemp("tree") / "bridge.yaml"
    file.write_text(json.dumps({"mappings": mappings, "links": links}))  # JSON is YAML
    try:
        load(file, problems)
    except ConfigurationError as error:
        for problem in error.problems:
            assert (problem.line, problem.file) == (1, file)
            assert problem.column is not None
            assert problem.expected != "another value"
