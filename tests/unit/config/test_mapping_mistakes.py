"""Each kind of mistake in mappings and links: the text, and all reported lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.document import load
from tests.helpers.configuration_mistakes import DURATION_UNITS, NO_DEFAULT, ONE, OTHER, mistakes_of

KEY_VALUE = "a mapping (lines of 'key: value')"
NAME = "a mapping name of 1 to 28 of the characters A-Z a-z 0-9 . _ -"
ENDPOINT = "host:port, such as broker.example.com:1883 or [2001:db8::1]:1883"
LINK_NAME = "a link name of 1 to 23 of A-Z a-z 0-9 . _ - (not local, not queue)"
TEMPLATE = "text, or a template such as PLANT.{line|upper}"
FILTER = "a topic filter such as plant/{line}/+/{metric...}"
ONE_SIDE = "exactly one of queue: and topic:"
WORDS = "not-persistent, persistent or as-queue"
PAYLOAD = "bytes, text, json or record (or a mapping with type: one of these, and ccsid:)"
FILTER_VALUE = "text, a number, true, false, a list of these, or null (it is absent)"
TO_MQ_SECTION = "mappings:\n  a:\n    from: {mqtt: t}\n    to: {queue: Q}\n    "
TO_MQTT_SECTION = "mappings:\n  a:\n    from: {queue: Q}\n    to: {mqtt: t}\n    "
NO_PASSWORD = (
    "no password in this file, because this file is not secret (write it to a file that only the bridge may read, and name"
    " that as password_file; or name an environment variable as password_variable)"
)


SHAPES = {
    "mappings: maps/": "1:11: mappings: expected mappings by name, or a list of paths of mapping files, found 'maps/'",
    "mappings: {a: }": f"1:14: mappings.a: expected {KEY_VALUE}, found nothing",
    "mappings: {a: [b]}": f"1:15: mappings.a: expected {KEY_VALUE}, found a list",
    "mappings: {a: {}}": "1:15: mappings.a: expected mqtt: in from or in to, found a mapping",
    "mappings: {a: {from: {queue: A}, to: {topic: b}}}": "1:15: mappings.a: expected mqtt: in from or in to, found a mapping",
    "mappings: {a: {from: {mqtt: A}, to: {mqtt: b}}}": (
        "1:44: mappings.a.to.mqtt: expected a queue manager's side in from or in to (the topics of the bridge's own clients"
        " are those of the queue manager: to move publications between them and a link, write topic: for them), found 'b'"
    ),
    "mappings: {a: {form: {mqtt: t}, to: {queue: Q}}}": (
        "1:22: mappings.a.form: expected the keys from and to (did you mean from?), found a mapping"
    ),
    "links: {a: {host: h, client_id: 'b-{maping}'}}": (
        "1:33: links.a.client_id: expected a client identifier of 1 to 200 characters, with braces in {mapping} and {bridge}"
        " alone, found 'b-{maping}'"
    ),
    "mappings: {a: {from: {mqtt: t}}}": f"1:15: mappings.a.to: expected {NO_DEFAULT}, found nothing",
    "mappings: {a: {from: t, to: {mqtt: t}}}": f"1:22: mappings.a.from: expected {KEY_VALUE}, found 't'",
    "mappings: {a b: {from: {mqtt: t}, to: {queue: Q}}}": f"1:12: mappings.'a b': expected {NAME}, found 'a b'",
    "mappings: {a: {from: {queue: A, topic: b}, to: {mqtt: t}}}": (
        f"1:22: mappings.a.from: expected {ONE_SIDE}, found a mapping"
    ),
    "mappings: {a: {from: {mqtt: t}, to: {}}}": f"1:37: mappings.a.to: expected {ONE_SIDE}, found a mapping",
    "mappings: {a: {from: {mqtt: t}, to: {topic: b, queue_manager: QM2}}}": (
        "1:63: mappings.a.to.queue_manager: expected no queue manager, because a topic has none (it belongs to a queue:),"
        " found 'QM2'"
    ),
    "mappings: {a: {from: {topic: t, requests_queue: R}, to: {mqtt: t}}}": (
        "1:49: mappings.a.from.requests_queue: expected no requests_queue, because answers come to a queue (write queue:),"
        " found 'R'"
    ),
    "links: {b: {host: h}}\nmappings: {a: {from: {mqtt: t, link: b}, to: {queue: Q}, order: destination}}": (
        "2:65: mappings.a.order: expected strict, because MQTT acknowledges the publications of a link in order, found"
        " 'destination'"
    ),
    "mappings: {a: {from: {mqtt: t}, to: {topic: t, requests_queue: R}}}": (
        "1:64: mappings.a.to.requests_queue: expected no requests_queue, because requests go to a queue (write queue:),"
        " found 'R'"
    ),
    "mappings: {a: {from: {mqtt: t}, to: {queue: Q, requests_queue: R}}}": (
        "1:15: mappings.a.attributes.reply_to_queue: expected a reply_to_queue together with requests_queue (the queue that"
        " the answers come to), found nothing"
    ),
    "mappings: {a: {from: {mqtt: t}, to: {queue: Q, requests_queue: R}, attributes: {reply_to_queue: B, correl_id: c}}}": (
        "1:111: mappings.a.attributes.correl_id: expected no correl_id with requests_queue (the answer is"
        " identified by the MsgId of the queue manager), found 'c'"
    ),
    "mappings: {a: {from: {mqtt: t}, to: {queue: Q, link: l}}}": (
        "1:48: mappings.a.to.link: expected no link, because this side is the queue manager (a link belongs to the side"
        " with mqtt:), found 'link'"
    ),
    "mappings: {a: {from: {mqtt: t, queue: Q}, to: {queue: Q}}}": (
        "1:32: mappings.a.from.queue: expected no queue together with mqtt: (each of from and to is either mqtt:, or"
        " queue:, or topic:), found 'queue'"
    ),
    "mappings: {a: {from: {queue: A*}, to: {mqtt: t}}}": (
        "1:30: mappings.a.from.queue: expected an MQ name of 1 to 48 of the characters A-Z a-z 0-9 . _ / %, found 'A*'"
    ),
    "mappings: {a: {from: {mqtt: 5}, to: {queue: Q}}}": f"1:29: mappings.a.from.mqtt: expected {FILTER}, in quotes, found 5",
    TO_MQ_SECTION + "form: x": "5:5: mappings.a.form: expected a known key (did you mean from?), found 'form'",
    TO_MQ_SECTION + "persistence: persistent": (
        "5:5: mappings.a.persistence: expected a key of a mapping (persistence: belongs under attributes:),"
        " found 'persistence'"
    ),
    TO_MQ_SECTION + "payload: 500": f"5:14: mappings.a.payload: expected {PAYLOAD}, found 500",
    TO_MQ_SECTION + "payload: [text]": f"5:14: mappings.a.payload: expected {KEY_VALUE}, found a list",
    TO_MQ_SECTION + "payload: {ccsid: 500}": (
        "5:22: mappings.a.payload.ccsid: expected no ccsid with payload bytes, which stay as they are (write type: text),"
        " found 500"
    ),
    TO_MQ_SECTION + "payload: {type: json, object: {a: b}}": (
        "5:35: mappings.a.payload.object: expected no object in a mapping to MQ, which does not change the payload,"
        " found a mapping"
    ),
    TO_MQTT_SECTION + "payload: {type: text, object: {a: b}}": (
        "5:35: mappings.a.payload.object: expected members of an object only with type: json, found a mapping"
    ),
    TO_MQ_SECTION + "filter: {qos: 3}": "5:19: mappings.a.filter.qos: expected 0, 1 or 2, or a list of these, found 3",
    TO_MQ_SECTION + "filter: {properties: {a: {b: c}}}": (
        f"5:30: mappings.a.filter.properties.a: expected {FILTER_VALUE}, found a mapping"
    ),
    TO_MQ_SECTION + "filter: {min_size: 2, max_size: 1}": (
        "5:37: mappings.a.filter.max_size: expected a size of at least min_size, found 1"
    ),
}


#: `attributes` of a mapping to MQ, and the reported line.
IN_QUOTES = "hint: put templates in quotes:"
STRAIGHT = "hint: replace the typographic quotes with \" or '"
#: Templates without quotes, and with typographic quotes.
QUOTES = {
    "mappings: {a: {from: {mqtt: t}, to: {queue: {t|upper}}}}": (
        f'1:45: mappings.a.to.queue: expected {TEMPLATE}, found a mapping; {IN_QUOTES} "{{t|upper}}"'
    ),
    "mappings: {a: {from: {mqtt: t}, to: {queue: P.{t|upper}}}}": (
        f"1:47: expected ',' or a closing '}}', found neither; {IN_QUOTES} \"P.{{t|upper}}\""
    ),
    "mappings:\n  a:\n    to:\n      queue: {t}.P": (
        "4:17: expected the same indentation as the lines before, found another, or text too many;"
        f' {IN_QUOTES} "{{t}}.P"'
    ),
    "mappings: {a: {from: {mqtt: \u201ct/{x}\u201d}, to: {queue: Q}}}": (
        f"1:32: expected ',' or a closing '}}', found neither; {STRAIGHT}"
    ),
    "mappings: {a: {from: {mqtt: \u201ct\u201d}, to: {queue: Q}}}": (
        f"1:29: mappings.a.from.mqtt: expected straight quotes, found '\u201ct\u201d'; {STRAIGHT}"
    ),
    "mappings: {\u2018a\u2019: {from: {mqtt: t}, to: {queue: Q}}}": (
        f"1:12: mappings.\u2018a\u2019: expected straight quotes, found '\u2018a\u2019'; {STRAIGHT}"
    ),
}

TO_MQ = {
    "persistence: durable": (
        f"18: persistence: expected {WORDS} (or a mapping from QoS to one of these, such as {{0: not-persistent}}),"
        " found 'durable'"
    ),
    "persistence: {0: durable}": f"22: persistence.0: expected {WORDS}, found 'durable'",
    "persistence: {3: persistent}": "19: persistence.3: expected 0, 1 or 2, found '3'",
    "priority: 10": "15: priority: expected an integer from 0 to 9, or as-queue, found 10",
    "expiry: never": (
        f"13: expiry: expected a duration from 100 ms to 100000000 s {DURATION_UNITS}, or unlimited or as-published,"
        " found 'never'"
    ),
    "format: MQFMT_STRING": "13: format: expected none, string or an MQ format of 1 to 8 characters, found 'MQFMT_STRING'",
    "msg_id: 5": f"13: msg_id: expected {TEMPLATE}, in quotes, found 5",
    'properties: {"": x}': "18: properties.'': expected the name of a property, found ''",
    "qos: 1": (
        "5: qos: expected no qos, because the message of a publication has none (write persistence:, which may say it for"
        " each QoS), found 'qos'"
    ),
    "response_topic: a": (
        "5: response_topic: expected no Response Topic in a mapping to MQ (write reply_to_queue:), found 'response_topic'"
    ),
    "priorty: 1": "5: priorty: expected a known key (did you mean priority?), found 'priorty'",
}


#: The same for a mapping to MQTT.
TO_MQTT = {
    "qos: {persistent: 3}": "23: qos.persistent: expected an integer from 0 to 2, found 3",
    "qos: {1: 2}": "11: qos.1: expected persistent or not-persistent, found '1'",
    "persistence: persistent": (
        "5: persistence: expected no persistence, because a publication has none (write qos:, which may say it for"
        " persistent and not-persistent), found 'persistence'"
    ),
    "priority: 4": "5: priority: expected no priority, because MQTT has none, found 'priority'",
    "correl_id: a": "5: correl_id: expected no correl_id in a mapping to MQTT (write correlation_data:), found 'correl_id'",
    "expiry: 100 ms": (
        f"13: expiry: expected a duration from 1 s to 100000000 s {DURATION_UNITS}, or unlimited or as-published,"
        " found '100 ms'"
    ),
}


LINKS = {
    "links: [a]": f"1:8: links: expected {KEY_VALUE}, found a list",
    "links: {a: {}}": f"1:12: links.a.host: expected {NO_DEFAULT}, found nothing",
    "links: {local: {host: h}}": f"1:9: links.local: expected {LINK_NAME}, found 'local'",
    "links: {a: {host: h, websocket_path: /mqtt}}": (
        "1:38: links.a.websocket_path: expected no path without transport: websocket, found '/mqtt'"
    ),
    "links: {a: {host: h, bridge_bit: true}}": (
        "1:34: links.a.bridge_bit: expected no bridge bit with version: 5, in which the broker keeps the RETAIN flag anyway,"
        " found true"
    ),
    "links: {a: {host: h, version: 3.1.1, bridge_bit: perhaps}}": (
        "1:50: links.a.bridge_bit: expected true or false, found 'perhaps'"
    ),
    "links: {a: {host: h, failover: h2}}": "1:32: links.a.failover: expected a list (lines that begin with '- '), found 'h2'",
    "links: {a: {host: h, failover: ['h2:0']}}": f"1:33: links.a.failover[0]: expected {ENDPOINT}, found 'h2:0'",
    "links: {a: {host: h, password: hunter2}}": f"1:22: links.a.password: expected {NO_PASSWORD}, found 'password'",
    "links: {a: {host: h, tls: {key_file: k}}}": (
        "1:38: links.a.tls.key_file: expected no private key without a certificate_file that it belongs to, found 'k'"
    ),
}


AGAIN = "a link whose client_id is another for each mapping (write {mapping} into it)"
REFERENCES = {
    f"mappings: {{a: {{{ONE}}}}}": (
        "1:38: mappings.a.from.link: expected the name of a link (there is none under links:, and local are the bridge's own"
        " clients), found 'l'"
    ),
    f"links: {{hive: {{host: h}}}}\nmappings: {{a: {{{ONE.replace('l}', 'hife}')}}}}}": (
        "2:38: mappings.a.from.link: expected the name of a link (did you mean hive?), found 'hife'"
    ),
    f"links: {{hive: {{host: h}}}}\nmappings: {{a: {{{ONE}}}}}": (
        "2:38: mappings.a.from.link: expected the name of a link (hive or local), found 'l'"
    ),
    # only the mistake of the link
    f"links: {{l: 5}}\nmappings: {{a: {{{ONE}}}}}": f"1:12: links.l: expected {KEY_VALUE}, found 5",
    f"links: {{l: {{host: h, client_id: me}}}}\nmappings:\n  a: {{{ONE}}}\n  b: {{{OTHER}}}": (
        f"4:45: mappings.b.to.link: expected {AGAIN}, found 'me' again, with which mapping a connects to the same broker"
    ),
    f"links: {{l: {{host: h, client_id: me}}, k: {{host: H, port: 1883, client_id: me}}}}\n"
    f"mappings:\n  a: {{{ONE}}}\n  b: {{{OTHER.replace('l}', 'k}')}}}": (
        f"4:45: mappings.b.to.link: expected {AGAIN}, found 'me' again, with which mapping a connects to the same broker"
    ),
    f"links: {{l: {{host: h, session: clean}}}}\nmappings: {{a: {{guarantee: exactly-once, {ONE}}}}}": (
        "2:27: mappings.a.guarantee: expected at-least-once or at-most-once, because link l has no durable session,"
        " found 'exactly-once'"
    ),
    f"links: {{l: {{host: h}}}}\nmappings:\n  a: {{guarantee: exactly-once, {OTHER}, attributes: {{qos: 1}}}}\n"
    f"  b: {{guarantee: exactly-once, {OTHER.replace('Q}', 'R}')}, attributes: {{qos: {{persistent: 1}}}}}}": (
        "3:92: mappings.a.attributes.qos: expected 2, because guarantee exactly-once needs QoS 2 on link l, found 1\n"
        "4:105: mappings.b.attributes.qos.persistent: expected 2, because guarantee exactly-once needs QoS 2 on link l,"
        " found 1"
    ),
    f"links: {{l: {{host: h, version: 3.1.1}}}}\nmappings: {{a: {{{OTHER}, attributes: {{content_type: x}}}}}}": (
        "2:85: mappings.a.attributes.content_type: expected none, because link l is MQTT 3.1.1, which has no such thing,"
        " found 'x'"
    ),
    "mappings:\n  a: {from: {queue: Q}, to: {mqtt: x}}\n  b: {from: {queue: Q}, to: {mqtt: y}}": (
        "3:21: mappings.b.from.queue: expected a queue that no other enabled mapping takes from,"
        " found 'Q' again, from which mapping a takes"
    ),
    **{
        f"{first}\nmappings: {{a: {{from: {{queue: {queue}}}, to: {{mqtt: x}}}}}}": (
            "2:30: mappings.a.from.queue: expected a queue that the bridge does not use itself,"
            f" found '{queue}', which stores messages for its clients"
        )
        for first, queue in (("", "SYSTEM.MQTT.TRANSMIT.QUEUE"), ("transmission_queue: XMIT", "XMIT"))
    },
    "mappings:\n  a: {from: {mqtt: x}, to: {queue: SYSTEM.MQTT.MAPPING.STATE}}\n"
    "  b: {from: {mqtt: x}, to: {queue: Q, requests_queue: SYSTEM.MQTT.PERSISTENT.STATE},"
    " attributes: {reply_to_queue: A}}\n"
    "  c: {from: {mqtt: x}, to: {queue: SYSTEM.MQTT.MAPPING.STATE, queue_manager: QM2}}": (
        "2:36: mappings.a.to.queue: expected a queue that the bridge does not use itself,"
        " found 'SYSTEM.MQTT.MAPPING.STATE', which stores the progress of mappings\n"
        "3:55: mappings.b.to.requests_queue: expected a queue that the bridge does not use itself,"
        " found 'SYSTEM.MQTT.PERSISTENT.STATE', which stores the sessions of its clients"
    ),
}


def test_a_disabled_mapping_may_use_the_same_queue(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    off = "from: {queue: Q}, to: {mqtt: y}, enabled: false"
    file.write_text(f"mappings:\n  a: {{from: {{queue: Q}}, to: {{mqtt: x}}}}\n  b: {{{off}}}\n")
    assert set(load(file).mappings) == {"a", "b"}


@pytest.mark.parametrize(("text", "lines"), {**SHAPES, **QUOTES, **LINKS, **REFERENCES}.items())
def test_a_mistake_in_a_mapping_is_reported_with_its_position(text: str, lines: str, tmp_path: Path) -> None:
    assert mistakes_of(tmp_path, text) == lines.splitlines()


@pytest.mark.parametrize(
    ("section", "attribute", "line"),
    [*((TO_MQ_SECTION, *row) for row in TO_MQ.items()), *((TO_MQTT_SECTION, *row) for row in TO_MQTT.items())],
)
def test_a_mistake_in_attributes_is_reported_with_its_position(
    section: str, attribute: str, line: str, tmp_path: Path
) -> None:
    column, rest = line.split(": ", 1)
    assert mistakes_of(tmp_path, f"{section}attributes:\n        {attribute}") == [
        f"6:{int(column) + 4}: mappings.a.attributes.{rest}"
    ]


def test_quotes_inside_quotes_are_text(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text('mappings: {a: {from: {mqtt: "\u201ct\u201d"}, to: {queue: Q}}}', encoding="utf-8")
    assert load(file).mappings["a"].source.mqtt == "\u201ct\u201d"
