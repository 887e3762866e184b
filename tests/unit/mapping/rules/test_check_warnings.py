"""Notes of `mqbridge check` about valid mappings that may not do what the user expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.mapping.check import warnings_of

LINKS = "links: {five: {host: h}, three: {host: h, version: 3.1.1, bridge_bit: true}, low: {host: h, maximum_qos: 1},"
LINKS += " plain: {host: h, version: 3.1.1}}\n"
WARNINGS = [
    (
        "from: {mqtt: 'a/{line}', link: five}, to: {queue: 'Q.{lime}'}",
        "{lime} in its destination is not a capture (captures: line), so it is a message property: a message without it goes"
        " to the dead-letter queue",
    ),
    (
        "from: {queue: Q}, to: {mqtt: 'a/{device}'}",
        "{device} in its destination is not a capture, so it is a message property: a message without it goes to the"
        " dead-letter queue",
    ),
    ("from: {queue: Q}, to: {mqtt: \"a/{device|default:'none'}\"}", ""),
    (
        "from: {mqtt: 'a/{line}'}, to: {queue: Q}, limit: {per: '{lime}', every: 1 s}",
        "{lime} in limit.per is not a capture (captures: line), so it is a message property: a message without it goes to the"
        " dead-letter queue",
    ),
    (
        "from: {mqtt: 'a/{line}'}, to: {queue: Q}, changes: {per: '{line}', of: '{$.v}{temp}'}",
        "{temp} in changes.of is not a capture (captures: line), so it is a message property: a message without it goes"
        " to the dead-letter queue",
    ),
    (
        "from: {mqtt: a, link: five}, to: {queue: Q}, attributes: {correl_id: '{correlationData}'}",
        "attributes.correl_id gets the bytes of {correlationData} only if there are 24 of them, otherwise their hexadecimal"
        " digits as text (hint: {correlationData|bytes})",
    ),
    (
        "from: {queue: Q}, to: {mqtt: a, link: five}, attributes: {correlation_data: '{mqtt.correlationData|lower}'}",
        "attributes.correlation_data gets the bytes of {mqtt.correlationData} only if there are 24 of them, otherwise their"
        " hexadecimal digits as text (hint: {mqtt.correlationData|bytes})",
    ),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, attributes: {correl_id: '{correlationData|bytes}'}", ""),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, attributes: {correl_id: '{correlationData|text}'}", ""),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, attributes: {correl_id: 'x{correlationData}'}", ""),
    ("from: {queue: Q}, to: {mqtt: a, link: five}, attributes: {correlation_data: '{md.CorrelId}'}", ""),
    ("from: {mqtt: 'a/{line}', link: five}, to: {queue: 'Q.{line}.{usr.device}'}", ""),
    (
        "from: {mqtt: a, link: five}, to: {queue: Q}, filter: {qos: 2}",
        "its filter accepts nothing: at-least-once subscribes with QoS 1, and no message has a higher QoS",
    ),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, filter: {qos: [1, 2]}", ""),
    ("from: {mqtt: a}, to: {queue: Q}, filter: {qos: 2}", ""),
    (
        "from: {mqtt: a, link: five}, to: {queue: Q}, guarantee: exactly-once",
        "exactly-once applies to QoS 2 only: a broker may repeat publications with QoS 1, and lose those with QoS 0",
    ),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, guarantee: exactly-once, filter: {qos: 2}", ""),
    (
        "from: {mqtt: a, link: three}, to: {queue: Q, requests_queue: R}, attributes: {reply_to_queue: A}",
        "no publication requests an answer: MQTT 3.1.1 has no Response Topic, so requests_queue stays empty",
    ),
    ("from: {mqtt: a, link: five}, to: {queue: Q, requests_queue: R}, attributes: {reply_to_queue: A}", ""),
    (
        "from: {mqtt: a, link: three}, to: {queue: Q}, filter: {properties: {site: north}}",
        "its filter looks at properties, which publications of MQTT 3.1.1 do not have",
    ),
    (
        "from: {queue: Q}, to: {mqtt: a, link: five}, attributes: {qos: 0}",
        "attributes.qos is 0, and it publishes with QoS 1, because of at-least-once",
    ),
    (
        "from: {queue: Q}, to: {mqtt: a, link: five}, attributes: {qos: 2}, guarantee: at-most-once",
        "attributes.qos is 2, and it publishes with QoS 0, because of at-most-once",
    ),
    (
        "from: {queue: Q}, to: {mqtt: a, link: low}, attributes: {qos: 2}",
        "attributes.qos is 2, and it publishes with QoS 1, because of link low",
    ),
    (
        "from: {queue: Q}, to: {mqtt: a, link: low}, guarantee: exactly-once",
        "exactly-once needs QoS 2, but its link supports at most 1",
    ),
    ("from: {queue: Q}, to: {mqtt: a, link: five}", ""),
    (
        "from: {mqtt: 'a/{line}', link: five}, to: {queue: 'Q-{line}'}",
        "to.queue always contains 'Q-', and no queue has such a name (1 to 48 of the characters A-Z a-z 0-9 . _ / %): all its"
        " messages go to the dead-letter queue",
    ),
    (
        "from: {mqtt: a, link: three}, to: {queue: 'Q.{usr.site}'}",
        "{usr.site} is a User Property, and publications of MQTT 3.1.1 have none: all its messages go to the dead-letter"
        " queue",
    ),
    ("from: {mqtt: a, link: three}, to: {queue: \"Q.{usr.site|default:'none'}\"}", ""),
    (
        "from: {mqtt: a, link: plain}, to: {queue: Q}, filter: {retained: true}",
        "its filter accepts retained publications only: a broker of MQTT 3.1.1 sends them with RETAIN when the mapping"
        " subscribes, and later ones without (hint: bridge_bit: true for link plain, if its broker supports it)",
    ),
    ("from: {mqtt: a, link: five}, to: {queue: Q}, filter: {retained: true}", ""),
    ("from: {mqtt: a, link: three}, to: {queue: Q}, filter: {retained: true}", ""),
    (
        "from: {mqtt: a, link: plain}, to: {topic: t}",
        "a broker of MQTT 3.1.1 sends publications with RETAIN when the mapping subscribes, and later ones without: these do"
        " not become retained messages (hint: bridge_bit: true for link plain, if its broker supports it)",
    ),
    ("from: {mqtt: a, link: plain}, to: {topic: t}, attributes: {retained: never}", ""),
    ("from: {mqtt: a, link: three}, to: {topic: t}", ""),
    (
        "from: {queue: Q}, to: {mqtt: a, link: three}",
        "a broker of MQTT 3.1.1 may acknowledge a publication that its ACL rejects: the mapping counts the message as moved,"
        " but no subscriber gets it (hint: version: 5, with which the broker reports it)",
    ),
    ("from: {queue: Q}, to: {mqtt: a, link: three}, guarantee: at-most-once", ""),
    (
        "from: {queue: Q, requests_queue: Q}, to: {mqtt: a, link: five}",
        "its requests_queue is also its source queue, and should be a separate queue",
    ),
    (
        "from: {mqtt: a, link: five}, to: {queue: Q, requests_queue: Q}, attributes: {reply_to_queue: A}",
        "its requests_queue is also its destination queue, and should be a separate queue",
    ),
]


@pytest.mark.parametrize(("mapping", "warning"), WARNINGS)
def test_a_mapping_with_a_note(mapping: str, warning: str, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(f"{LINKS}mappings: {{m: {{{mapping}}}}}\n")
    assert list(warnings_of(load(file))) == ([f"mapping m: {warning}"] if warning else [])
