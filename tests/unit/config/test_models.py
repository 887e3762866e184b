"""The models without a file: their defaults, and values that they reject."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge.config.channel import ChannelConfig
from bridge.config.document import load
from bridge.config.effective import effective
from bridge.config.models import Configuration, default_configuration
from bridge.config.problems import ConfigurationError
from bridge.config.queue_manager import EmbeddedQueueManagerConfig
from bridge.mapping.check import problems
from tests.helpers.configuration_mistakes import ONE, mistakes_of


def test_paths_from_a_program_are_relative_to_the_working_directory() -> None:
    config = EmbeddedQueueManagerConfig(data_directory=Path("store"), scripts=[Path("a.mqsc")])
    assert (config.data_directory, config.scripts) == (Path("store"), [Path("a.mqsc")])


def test_models_are_immutable() -> None:
    configuration = default_configuration()
    with pytest.raises(ValidationError):
        configuration.control_socket = Path("OTHER")
    with pytest.raises(ValidationError):
        configuration.channels[0].port = 1


def test_defaults_are_not_shared() -> None:
    default_configuration().queue_manager.scripts.append(Path("a"))
    default_configuration().channels[0].protocols.clear()
    assert default_configuration() == Configuration()
    assert default_configuration().channels[0].protocols == ["MQTTV5", "MQTTV311", "MQTTV3"]
    assert default_configuration().queue_manager.scripts == []


def test_two_channels_may_use_any_free_port() -> None:
    Configuration(channels=[ChannelConfig(name="A", port=0), ChannelConfig(name="B", port=0)])


def test_two_channels_may_use_the_same_port_of_different_addresses() -> None:
    Configuration(channels=[ChannelConfig(name="A"), ChannelConfig(name="B", address="127.0.0.2")])


ANONYMOUS = {"allow_anonymous_remote": True}
#: options of a channel -> seconds until the sessions of its clients expire
SESSION_EXPIRY: list[tuple[dict[str, object], float | None]] = [
    ({}, None),
    ({"address": "127.0.0.2"}, None),
    ({"address": "::1"}, None),
    ({"address": "localhost"}, None),
    ({"socket": "/run/mqtt.sock"}, None),
    ({"socket": "/run/mqtt.sock", "address": "0.0.0.0", **ANONYMOUS}, None),
    ({"address": "0.0.0.0", **ANONYMOUS}, 2_592_000),
    ({"address": "::", **ANONYMOUS}, 2_592_000),
    ({"address": "mq.example.com", "authentication": [{"method": "password", "file": "f"}]}, 2_592_000),
    ({"address": "0.0.0.0", "session_expiry": None, **ANONYMOUS}, None),
    ({"address": "0.0.0.0", "session_expiry": "1 h", **ANONYMOUS}, 3600),
    ({"session_expiry": "1 h"}, 3600),
]


def test_sessions_of_channels_that_other_machines_reach_expire_by_default(subtests: pytest.Subtests) -> None:
    for channel, expiry in SESSION_EXPIRY:
        with subtests.test(channel=channel, expiry=expiry):
            config = ChannelConfig.model_validate(channel)
            assert config.session_expiry == expiry
            assert effective(config).get("session_expiry") == expiry


def test_names_that_pydantic_uses_in_locations_do_not_confuse_keys(tmp_path: Path) -> None:
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


def test_all_mistakes_of_all_mappings_are_reported(tmp_path: Path) -> None:
    text = f"limits: 5\nlinks: {{l: {{host: h, port: 0}}}}\nmappings:\n  a: {{{ONE}, bakouts: 1}}\n"
    text += f"  b: {{{ONE.replace('l}', 'x}')}}}\n"
    assert [line.split(" expected")[0] for line in mistakes_of(tmp_path, text)] == [
        "1:9: limits:",
        "2:28: links.l.port:",
        "4:49: mappings.a.bakouts:",
        "5:29: mappings.b.from.link:",
    ]


WRITTEN_KEYS = [
    "from",
    "to",
    "mqtt",
    "queue",
    "topic",
    "link",
    "payload",
    "type",
    "attributes",
    "qos",
    "persistence",
    "0",
]
WRITTEN_KEYS += ["filter", "properties", "json", "object", "persistent", "host", "tls", "to-mq", "[key]", "each", "a"]
SCALARS = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["a", "text", "persistent", "{b}", ""])
TREES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(WRITTEN_KEYS), below, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(mappings=TREES, links=TREES)
def test_any_value_is_reported_with_its_position(
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
