"""The schemas of channels: publications that violate them are rejected and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.config.channel import ChannelConfig
from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.config.values import MAX_SCHEMA_SIZE
from bridge.mapping.check import problems
from bridge.mapping.schema import SchemaError
from bridge.mq.backend import UnitOfWork
from bridge.mqtt.packets import Publish
from bridge.service.payload_schemas import MANY_INVALID, PayloadSchemas, schemas_of
from bridge.telemetry.conversion import to_mq
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.session import Session
from bridge.wire import cmqc

NUMBER = {"type": "object", "properties": {"t": {"type": "number"}}, "required": ["t"]}
VALID, INVALID = b'{"t": 1}', b'{"t": "1"}'


@pytest.fixture
def channel(tmp_path: Path) -> ChannelConfig:
    (tmp_path / "number.json").write_text(json.dumps(NUMBER))
    (tmp_path / "small.json").write_text('{"properties": {"t": {"maximum": 10}}}')
    files = {"n/#": tmp_path / "number.json", "n/small": tmp_path / "small.json"}
    return ChannelConfig.model_validate({"schemas": {name: str(file) for name, file in files.items()}})


@pytest.fixture
def schemas(channel: ChannelConfig) -> PayloadSchemas:
    return PayloadSchemas(schemas_of([channel, ChannelConfig(name="OTHER")]))


def session_of(channel: str = "PLAIN.MQTT", level: int = 4) -> Session:
    session = Session(ClientIdentity("c", b""), durable=False, window=1)
    session.channel, session.level = channel, level
    return session


def unit_of(*payloads: bytes, topic: str = "n/1", qos: int = 1, retain: bool = False) -> UnitOfWork:
    identity = ClientIdentity("c", b"")
    return UnitOfWork(
        [(to_mq(Publish(topic, payload, qos, retain, False, 1), identity), retain) for payload in payloads]
    )


def test_a_bridge_without_schemas_has_none() -> None:
    schemas = PayloadSchemas(schemas_of([ChannelConfig()]))
    assert not schemas.active
    unit = unit_of(INVALID)
    assert schemas.refuse(unit, session_of()) == {} and unit.forbidden == {}


def test_invalid_publications_are_rejected(schemas: PayloadSchemas) -> None:
    session, unit = session_of(level=5), unit_of(VALID, INVALID, b"", b"1e999")
    violations = schemas.refuse(unit, session)
    assert list(violations) == [1, 2, 3]
    assert violations[1] == 'the payload does not match number.json: $.t: "1" is not of type "number"'
    assert unit.forbidden == dict.fromkeys((1, 2, 3), cmqc.MQRC_FORMAT_ERROR)
    assert unit.unreportable == frozenset()
    assert session.invalid_publications == 3
    assert schemas.counts == {("PLAIN.MQTT", "n/#", "number.json"): 3, ("PLAIN.MQTT", "n/small", "small.json"): 0}


@pytest.mark.parametrize(
    ("level", "qos", "will", "unreportable"),
    [
        (5, 1, False, False),
        (5, 2, False, False),
        (5, 0, False, True),
        (5, 1, True, True),
        (4, 1, False, True),
        (3, 2, False, True),
    ],
)
def test_a_client_that_cannot_get_a_reason(
    schemas: PayloadSchemas, level: int, qos: int, will: bool, unreportable: bool
) -> None:
    unit = unit_of(INVALID, qos=qos)
    schemas.refuse(unit, session_of(level=level), will=will)
    assert (0 in unit.unreportable) is unreportable


def test_all_filters_apply_and_the_first_violation_counts(schemas: PayloadSchemas) -> None:
    for payload, number in ((b'{"t": 11}', 1), (b'{"t": 9}', 0), (b'{"x": 9}', 1), (b"11", 1)):
        assert len(schemas.refuse(unit_of(payload, topic="n/small"), session_of())) == number
    assert sum(schemas.counts.values()) == 3


@pytest.mark.parametrize("topic", ["m", "m/n/1", "$SYS/n"])
def test_publications_to_other_topics_are_accepted(schemas: PayloadSchemas, topic: str) -> None:
    assert schemas.refuse(unit_of(INVALID, topic=topic), session_of()) == {}


def test_other_channels_and_rejected_publications(schemas: PayloadSchemas) -> None:
    assert schemas.refuse(unit_of(INVALID), session_of("OTHER")) == {}
    unit = unit_of(INVALID)
    unit.forbidden = {0: cmqc.MQRC_NOT_AUTHORIZED}
    assert schemas.refuse(unit, session_of()) == {}
    assert unit.forbidden == {0: cmqc.MQRC_NOT_AUTHORIZED}


def test_an_empty_retained_publication_clears_its_topic(schemas: PayloadSchemas) -> None:
    assert schemas.refuse(unit_of(b"", retain=True), session_of()) == {}
    assert list(schemas.refuse(unit_of(b"", INVALID, retain=False), session_of())) == [0, 1]


def test_violations_contain_no_control_characters(schemas: PayloadSchemas, tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"additionalProperties": {"type": "null"}}')
    channel = ChannelConfig.model_validate({"schemas": {"#": str(tmp_path / "names.json")}})
    schemas.use(schemas_of([channel]))
    (violation,) = schemas.refuse(unit_of(b'{"a\\u0000\\n\\u202e": "\\u0000\\u202e"}'), session_of()).values()
    assert violation.isprintable()
    (violation,) = schemas.refuse(
        unit_of(b'{"' + b"a" * 100_000 + b'": "' + b"b" * 100_000 + b'"}'), session_of()
    ).values()
    assert len(violation) < 1_000


def test_reloaded_schemas_replace_the_previous_ones(schemas: PayloadSchemas, channel: ChannelConfig) -> None:
    schemas.refuse(unit_of(INVALID), session_of())
    schemas.use([])
    assert not schemas.active and schemas.refuse(unit_of(INVALID), session_of()) == {}
    schemas.use(schemas_of([channel]))
    assert schemas.counts["PLAIN.MQTT", "n/#", "number.json"] == 1


def test_many_invalid_publications_are_a_problem(schemas: PayloadSchemas) -> None:
    for _ in range(MANY_INVALID - 1):
        schemas.refuse(unit_of(INVALID), session_of())
    assert list(schemas.recent()) == []
    schemas.refuse(unit_of(INVALID, topic="n/last"), session_of())
    ((name, recent),) = schemas.recent()
    assert (name, len(recent), recent[-1].topic) == ("PLAIN.MQTT", MANY_INVALID, "n/last")


# Configuration ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"type": 5}', "expected a file with a JSON Schema: s.json is not a schema: "),
        (b"{", "expected a file with a JSON Schema: s.json is not JSON: "),
        (b'{"$ref": "http://example.com/s"}', "'http://example.com/s' is another document"),
        (b" " * (MAX_SCHEMA_SIZE + 1), "s.json has 1,048,577 bytes, of 1,048,576 at most"),
        (None, "s.json cannot be read: No such file or directory"),
    ],
)
def test_check_reports_the_place_of_an_invalid_schema(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text('channels:\n- name: A\n  schemas:\n    "n/#": s.json\n')
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(ConfigurationError) as error:
        load(file, problems)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{file}:4:12: channels[0].schemas.n/#: ")
    assert sentence in line


@pytest.mark.parametrize("topic_filter", ["a/#/b", "a+", ""])
def test_invalid_topic_filters_are_rejected(tmp_path: Path, topic_filter: str) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(f'channels:\n- schemas:\n    "{topic_filter}": s.json\n')
    with pytest.raises(
        ConfigurationError, match=r"bridge.yaml:3:5: .*expected a topic filter such as plant/\+/reading"
    ):
        load(file)


def test_a_changed_file_is_a_changed_channel(channel: ChannelConfig, tmp_path: Path) -> None:
    def read() -> Configuration:
        return Configuration.model_validate({"channels": [channel.model_dump(include={"schemas"})]})

    former = read()
    assert former == read()
    (tmp_path / "small.json").write_text("{}")
    changed = read()
    assert changed != former and changed.channels[0].schemas_differ(former.channels[0])
    (tmp_path / "small.json").unlink()
    with pytest.raises(SchemaError, match="cannot be read"):
        schemas_of(read().channels)


def test_the_cost_of_deep_payloads_is_limited(schemas: PayloadSchemas) -> None:
    payloads: list[Any] = [b"[" * 100_000, b'{"t":' * 50_000 + b"1" + b"}" * 50_000, b"[" * 500 + b"]" * 500]
    assert len(schemas.refuse(unit_of(*payloads), session_of())) == 3


def test_a_shared_subscription_is_not_a_filter_for_schemas() -> None:
    with pytest.raises(ValueError, match=r"a topic filter without \$share/, which no publication has"):
        ChannelConfig(name="A", port=0, schemas={"$share/g/a": "x.json"})
