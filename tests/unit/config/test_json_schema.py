"""`mqbridge schema`: the schema accepts shipped files and rejects typical mistakes."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bridge.config.document import SourceFile, load
from bridge.config.json_schema import json_schema, mapping_file_schema
from bridge.config.problems import ConfigurationError

ROOT = Path(__file__).parents[3]


# In the process that runs these tests, not in each one that imports this module.
@functools.cache
def configuration() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


@functools.cache
def mapping_file() -> Draft202012Validator:
    return Draft202012Validator(mapping_file_schema())


RIGHT = [
    "{}",
    "queue_manager: {name: QM1}",
    "queue_manager: {type: ibm, name: QM1, channel: C, connections: 'a(1414),b(1414)'}",
    "queue_manager: {type: ibm, name: QM1, channel: C, connections: [a(1414)]}",
    "queue_manager: {type: ibm, name: QM1, mode: bindings, probe_interval: 100 ms}",  # the shortest one
    "queue_manager: {type: ibm, name: Q, mode: bindings, shard: {number: 0, of: 2}}",
    "queue_manager: {type: ibm, name: Q, mode: bindings, standby_delay: 10 s,"
    " shard: {number: 1023, of: 1024, server_reference: 'mqtt-{shard}.example.com:8883'}}",
    "queue_manager:\nchannels:\nlimits:\nlog:\nlinks:\nmappings:\n",
    "spark:",
    "spark: {master: yarn, conf: {spark.executor.cores: 2}, packages: ['a:b:1'], jars: [a.jar], shared: [/mnt]}",
    "channels: []\nlimits: {pending_bytes: 1 mib, retry_interval: 500 ms, shutdown_timeout: 2.5}",
    "links: {a: {host: b}, c: {host: d, tls: , version: 3.1.1, keep_alive: 1 min}, e: {host: f, version: 5}}",
    "mappings: [maps/, {a: {from: {mqtt: x}, to: {queue: X}}}]",
    "mappings: {a: {from: {mqtt: x}, to: {queue: X}, payload: text, filter: {qos: 1, min_size: 1 KiB}}}",
    "mappings: {a: {from: {mqtt: x}, to: {topic: X}, payload: {type: text, ccsid: 500}, filter: {qos: [0, 2]}}}",
    "mappings: {a: {from: {mqtt: x}, to: {queue: X}, attributes: {persistence: {0: persistent}, priority: 4}}}",
    "mappings: {a: {from: {mqtt: x}, to: {queue: X}, attributes: {persistence: as-queue, expiry: 5 min}}}",
    "mappings: {a: {from: {queue: X}, to: {mqtt: x, link: l}, attributes: {qos: {persistent: 1}, expiry: unlimited}}}"
    "\nlinks: {l: {host: x}}",
    "mappings: {a: {from: {topic: X}, to: {mqtt: x}, attributes: , filter: {properties: {a: 1, b: [x, y], c: }}}}",
]

MISTAKES = [
    ("prot: 1", ()),
    ("log: {level: loud}", ("log", "level")),
    ("spark: {master: here}", ("spark", "master")),
    ("spark: {conf: {a: b}}", ("spark", "conf")),
    ("queue_manager: {type: ibm, name: Q 1}", ("queue_manager", "name")),
    *(
        (f"queue_manager: {{type: ibm, name: Q, mode: bindings, shard: {shard}}}", ("queue_manager", "shard", *place))
        for shard, place in (
            ("2", ()),
            ("{of: 2}", ()),
            ("{number: 0}", ()),
            ("{number: 0, of: 2, off: 2}", ()),
            ("{number: -1, of: 2}", ("number",)),
            ("{number: '1', of: 2}", ("number",)),
            ("{number: 0, of: 1}", ("of",)),
            ("{number: 0, of: 1025}", ("of",)),
            ("{number: 0, of: 2, server_reference: a b}", ("server_reference",)),
        )
    ),
    ("channels: [{port: mqtt}]", ("channels", 0, "port")),
    ("limits: {pending_bytes: 1 TiB}", ("limits", "pending_bytes")),
    ("limits: {retry_interval: 1 day}", ("limits", "retry_interval")),
    ("links: {a: {}}", ("links", "a")),
    ("links: {local: {host: a}}", ("links",)),
    ("links: {a: {host: a, password: secret}}", ("links", "a")),
    ("links: {a: {host: a, version: 4}}", ("links", "a", "version")),
    ("mappings: mappings/", ("mappings",)),
    ("mappings: {a b: {from: {mqtt: x}, to: {queue: X}}}", ("mappings",)),
    ("mappings: {a: {from: {mqtt: x}}}", ("mappings", "a")),
    ("mappings: {a: {from: {queue: x}, to: {queue: x}}}", ("mappings", "a", "to")),
    ("mappings: {a: {from: {mqtt: x}, to: {mqtt: x}}}", ("mappings", "a", "to")),
    ("mappings: {a: {from: {mqtt: x}, to: {queue: X, topic: x}}}", ("mappings", "a", "to")),
    ("mappings: {a: {from: {mqtt: x}, to: {queue: X}, attributes: {qos: 1}}}", ("mappings", "a", "attributes")),
    (
        "mappings: {a: {from: {mqtt: x}, to: {queue: X}, attributes: {persistence: {3: persistent}}}}",
        ("mappings", "a", "attributes", "persistence"),
    ),
    ("mappings: {a: {from: {queue: X}, to: {mqtt: x}, attributes: {qos: 3}}}", ("mappings", "a", "attributes", "qos")),
    ("mappings: {a: {from: {queue: X}, to: {mqtt: x}, payload: txt}}", ("mappings", "a", "payload")),
    ("mappings: {a: {from: {queue: X}, to: {mqtt: x}, guarantee: once}}", ("mappings", "a", "guarantee")),
]


def values(directory: Path, text: str) -> dict[str, Any]:
    """Return the values that the bridge reads from a text."""
    file = directory / "bridge.yaml"
    file.write_text(text)
    return SourceFile(file).values


def test_the_schemas_are_valid() -> None:
    for validator in (configuration(), mapping_file()):
        Draft202012Validator.check_schema(validator.schema)
        assert validator.schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("text", RIGHT)
def test_valid_configurations_are_accepted(text: str, tmp_path: Path) -> None:
    document = values(tmp_path, text)
    (tmp_path / "maps").mkdir()
    load(tmp_path / "bridge.yaml")
    assert [error.message for error in configuration().iter_errors(document)] == []


@pytest.mark.parametrize(("text", "place"), MISTAKES)
def test_a_mistake_is_rejected(text: str, place: tuple[str | int, ...], tmp_path: Path) -> None:
    document = values(tmp_path, text)
    with pytest.raises(ConfigurationError):
        load(tmp_path / "bridge.yaml")

    def deepest(error: Any) -> Any:
        return max([tuple(error.absolute_path), *map(deepest, error.context)], key=len)

    assert place in [deepest(error)[: len(place)] for error in configuration().iter_errors(document)]


@pytest.mark.parametrize("file", sorted(ROOT.glob("mappings/**/*.y*ml")), ids=lambda file: file.name)
def test_shipped_mapping_files_are_accepted(file: Path) -> None:
    values_of_file = SourceFile(file).values
    schema = configuration() if set(values_of_file) - set(mapping_file().schema["properties"]) else mapping_file()
    assert [error.message for error in schema.iter_errors(values_of_file)] == []


def test_the_shipped_configuration_is_accepted(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "bridge.yaml").read_text(encoding="utf-8")
    for variant in (text, re.sub(r"^#(?!#)", "", text, flags=re.MULTILINE)):
        assert [error.message for error in configuration().iter_errors(values(tmp_path, variant))] == []


def test_each_key_has_a_description_for_editors() -> None:
    def undescribed(name: str, schema: dict[str, Any]) -> list[str]:
        parts = [schema, *schema.get("anyOf", [])]
        properties = {key: value for part in parts for key, value in part.get("properties", {}).items()}
        return [f"{name}.{key}" for key, value in properties.items() if not value.get("description")]

    for validator in (configuration(), mapping_file()):
        schema = validator.schema
        assert undescribed("", schema) == []
        assert [key for name, part in schema["$defs"].items() for key in undescribed(name, part)] == []
        assert "None" not in json.dumps(schema)  # YAML has null
