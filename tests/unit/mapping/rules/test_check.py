"""Semantic checks of mappings: templates, topic filters, filters and loops, reported with their position."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import loops_of, problems

TO_MQ = "mappings:\n  a:\n    from: {mqtt: 'plant/{line}/{metric...}'}\n    to: {queue: Q}\n    "
TO_MQTT = "mappings:\n  a:\n    from: {topic: 'prices/{symbol}'}\n    to: {mqtt: t}\n    "

MISTAKES = [
    (
        "mappings: {a: {from: {mqtt: 'a/{b'}, to: {queue: Q}}}",
        "1:29: mappings.a.from.mqtt: expected a topic filter without this mistake at its character 3: { has no partner",
    ),
    (
        "mappings: {a: {from: {topic: 'a/#/b'}, to: {mqtt: t}}}",
        "1:30: mappings.a.from.topic: expected a topic filter without this mistake at its character 3: #",
    ),
    (
        "mappings: {a: {from: {mqtt: '{b}'}, to: {queue: '{b|uppr}'}}}",
        "1:49: mappings.a.to.queue: expected a template without this mistake at its character 4: 'uppr' is not a filter",
    ),
    (
        "mappings: {a: {from: {mqtt: '{b}'}, to: {queue: Q, queue_manager: '{'}}}",
        "1:67: mappings.a.to.queue_manager: expected a template without this mistake at its character 2: a name is missing",
    ),
    (
        "mappings: {a: {from: {mqtt: '{b}'}, to: {topic: 'a}'}}}",
        "1:49: mappings.a.to.topic: expected a template without this mistake at its character 2: } has no partner",
    ),
    (
        "mappings: {a: {from: {mqtt: t}, to: {queue: A B}}}",
        "1:45: mappings.a.to.queue: expected a template without this mistake: ",
    ),
    (
        "mappings: {a: {from: {queue: Q}, to: {mqtt: a/+}}}",
        "1:45: mappings.a.to.mqtt: expected a template without this mistake: ",
    ),
    (TO_MQ + "attributes: {msg_id: '{md.MsgId}'}", "5:26: mappings.a.attributes.msg_id: expected a template without"),
    (
        TO_MQTT + "attributes: {content_type: '{md.Foo}'}",
        "5:32: mappings.a.attributes.content_type: expected a template",
    ),
    (
        TO_MQTT + "attributes: {properties: {a.b: '{md.Foo}'}}",
        "5:36: mappings.a.attributes.properties.'a.b': expected a template without",
    ),
    (
        TO_MQTT + "payload: {type: json, object: {a.b: '{'}}",
        "5:41: mappings.a.payload.object.'a.b': expected a template without",
    ),
    (TO_MQTT + "payload: {type: text, ccsid: 65000}", "5:34: mappings.a.payload.ccsid: expected a value without this"),
    (TO_MQ + "filter: {json: '$.a >'}", "5:20: mappings.a.filter.json: expected a filter without this mistake"),
    (
        TO_MQ.replace("Q}", "'{$.plant-1}'}"),
        "4:17: mappings.a.to.queue: expected a template without this mistake at its character 3: {$: 'plant-1' is not a name",
    ),
    (
        TO_MQTT.replace("t}", "'{payload.plant}'}"),
        "4:16: mappings.a.to.mqtt: expected a template without this mistake: {payload.plant}: a field of the payload is",
    ),
    (
        TO_MQ + "attributes: {msg_id: '{user.plant}'}",
        "5:26: mappings.a.attributes.msg_id: expected a template without this mistake: {user.plant}: a publication has no",
    ),
    (TO_MQ + "attributes: {msg_id: '{usr.plant}{mqtt.clientId}{mqps.Top}{mqbridge.hops}'}", ""),
    (TO_MQ.replace("Q}", "'{$.plant}'}"), ""),
    (TO_MQ + "filter: {properties: {$.plant: x}}", "5:36: mappings.a.filter.properties.'$.plant': expected "),
    (
        TO_MQ + "attributes: {properties: {t: {value: '{$.t', type: double}}}",
        "5:42: mappings.a.attributes.properties.t.value: expected a template without this mistake",
    ),
    (
        TO_MQ + "attributes: {properties: {t: {value: '{$.t}', type: decimal}}}",
        "5:57: mappings.a.attributes.properties.t.type: expected string, boolean, int8",
    ),
    (
        TO_MQTT + "attributes: {properties: {t: {value: '{$.t}', type: double}}}",
        "5:34: mappings.a.attributes.properties.t: expected text, or a template",
    ),
    (TO_MQ + "filter: {properties: {md.Foo: x}}", "5:35: mappings.a.filter.properties.'md.Foo': expected "),
    (
        "mappings: {a: {from: {mqtt: 'm/#'}, to: {topic: m/x}}}",
        "1:49: mappings.a.to.topic: expected a destination that the mapping does not take from itself, found 'm/x'",
    ),
    (
        "mappings: {a: {from: {mqtt: 'm/#', link: l}, to: {topic: 'x'}},"
        " b: {from: {topic: 'x'}, to: {mqtt: m/y, link: k}},"
        " c: {from: {mqtt: 'm/y', link: k}, to: {queue: Q}}, d: {from: {queue: Q}, to: {mqtt: n, link: k}},"
        " e: {from: {mqtt: n, link: l}, to: {topic: x}}}\n"
        "links: {l: {host: h}, k: {host: h, client_id: 'k{mapping}'}}",
        "",
    ),
]


def mistakes_of(directory: Path, text: str) -> list[str]:
    """Return the lines about the mistakes of a file, without its name."""
    file = directory / "bridge.yaml"
    file.write_text(text)
    try:
        load(file, problems)
    except ConfigurationError as error:
        return [line.removeprefix(f"{file}:") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize(("text", "line"), MISTAKES)
def test_a_mistake_is_reported_with_its_position(text: str, line: str, tmp_path: Path) -> None:
    lines = mistakes_of(tmp_path, text)
    assert len(lines) == (1 if line else 0)
    assert not line or lines[0].startswith(line)


def test_all_mistakes_of_all_mappings_are_reported(tmp_path: Path) -> None:
    text = """\
mappings:
  a:
    from: {mqtt: 'a/{b}'}
    to: {queue: 'Q.{'}
    filter: {json: nonsense}
    attributes: {reply_to_queue: '}', correl_id: '{b|nothing}'}
  b: {from: {queue: '{'}, to: {mqtt: b}}
  c: {from: {mqtt: '{'}, to: {queue: '{'}}
"""
    assert [line.split(": expected")[0] for line in mistakes_of(tmp_path, text)] == [
        "4:17: mappings.a.to.queue",
        "5:20: mappings.a.filter.json",
        "6:34: mappings.a.attributes.reply_to_queue",
        "6:50: mappings.a.attributes.correl_id",
        "7:21: mappings.b.from.queue",
        "8:20: mappings.c.from.mqtt",
    ]


def configured(mappings: dict[str, tuple[dict[str, str], dict[str, str]]], **link: object) -> Configuration:
    return Configuration.model_validate(
        {
            "mappings": {name: {"from": source, "to": to} for name, (source, to) in mappings.items()},
            "links": {"l": {"host": "h", **link}},
        }
    )


def test_a_loop_that_is_cut_at_run_time_is_reported_and_not_a_mistake() -> None:
    configuration = configured({"a": ({"mqtt": "a/#"}, {"topic": "b/x"}), "b": ({"mqtt": "b/#"}, {"topic": "a/x"})})
    assert problems(configuration) == []
    (loop,) = loops_of(configuration)
    assert set(loop.names) == {"a", "b"}


def test_a_loop_that_is_not_cut_is_a_mistake() -> None:
    # Each direction loses the mark at both of its links.
    around = {
        "a": ({"mqtt": "a", "link": "l"}, {"queue": "A"}),
        "b": ({"queue": "A"}, {"mqtt": "b", "link": "l"}),
        "c": ({"mqtt": "b", "link": "l"}, {"queue": "B"}),
        "d": ({"queue": "B"}, {"mqtt": "a", "link": "l"}),
    }
    marked = configured(around)
    assert problems(marked) == []
    configuration = configured(around, version="3.1.1")
    (clash,) = problems(configuration)
    assert clash.location[0] == "mappings" and clash.location[2:] == ("to", "mqtt")
    assert "transfers no hop mark" in clash.expected
