"""All attributes, filters and payload types of mappings, in each direction, through a running bridge.

tests/unit/mapping tests all cases of the rules. Here, one message of each passes through the bridge. Each row is a separate
mapping with a broker, and all of them are one configuration. test_mapping_examples.py has mappings of the bridge's own
clients.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.helpers.mapping_site import DLQ, MappingSite, folders, hops
from tests.helpers.paho_clients import PahoSubscriber, publish_all

# Other tests of mappings run on IBM MQ, and the contract suite covers the calls that these need.
pytestmark = pytest.mark.queue_managers("embedded")


class ToMq(NamedTuple):
    """A publication, its mapping, and the compared parts of the message: path -> value."""

    name: str
    mapping: dict[str, Any]
    expected: dict[str, Any]
    payload: bytes = b"21.5"
    qos: int = 1
    retain: bool = False
    mqtt5: dict[str, Any] | None = None
    #: published before it, and not accepted: (payload, qos, retain, MQTT 5 properties)
    passed_by: tuple[bytes, int, bool, dict[str, Any]] | None = None


def attributes(**keys: Any) -> dict[str, Any]:
    return {"attributes": keys}


def hexadecimal(text: str) -> str:
    return text.encode().hex().upper().ljust(48, "0")


USER = {"UserProperty": [("site", "north"), ("line-no", "7")]}

TO_MQ = [
    ToMq("qos0", {}, {"md.Persistence": 0, "mqtt.qos": 0, "mqtt.msgid": None, "rfh2.Format": ""}, qos=0),
    ToMq("qos1", {}, {"md.Persistence": 1, "mqtt.qos": 1, "md.Format": "MQHRF2", "md.Expiry": -1, "md.ReplyToQ": ""}),
    ToMq("qos2", {"guarantee": "exactly-once"}, {"md.Persistence": 1, "mqtt.qos": 2}, qos=2),
    ToMq("at-most-once", {"guarantee": "at-most-once"}, {"md.Persistence": 0, "mqtt.qos": 0}, qos=0),
    ToMq("persistence", attributes(persistence={0: "persistent"}), {"md.Persistence": 1}, qos=0),
    ToMq("persistence-all", attributes(persistence="not-persistent"), {"md.Persistence": 0}),
    ToMq("persistence-as-queue", attributes(persistence="as-queue"), {"md.Persistence": 0}),
    ToMq("priority", attributes(priority=7), {"md.Priority": 7}),
    ToMq("expiry", attributes(expiry="1 h"), {"md.Expiry": range(35_000, 36_001)}),
    ToMq("expiry-as-published", {}, {"md.Expiry": range(71_000, 72_001)}, mqtt5={"MessageExpiryInterval": 7200}),
    ToMq("expiry-never", attributes(expiry="unlimited"), {"md.Expiry": -1}, mqtt5={"MessageExpiryInterval": 7200}),
    ToMq("retained", {}, {"mqps.Ret": True}, retain=True),
    ToMq("retained-not", {}, {"mqps.Ret": None}),
    ToMq("retained-always", attributes(retained="always"), {"mqps.Ret": True}),
    ToMq("retained-never", attributes(retained="never"), {"mqps.Ret": None}, retain=True),
    ToMq("format-string", attributes(format="string"), {"rfh2.Format": "MQSTR", "rfh2.CodedCharSetId": 1208}),
    ToMq("format-own", attributes(format="MYFMT"), {"rfh2.Format": "MYFMT"}),
    ToMq("rfh2-off", attributes(rfh2=False, format="string", properties={"a": "b"}),
         {"md.Format": "MQHRF2", "rfh2.Format": "MQSTR", "mqtt.topic": "a/rfh2-off", "usr.a": "b", "mqps": None}),
    ToMq("payload-text", {"payload": {"type": "text", "ccsid": 500}, **attributes(format="string")},
         {"rfh2.Format": "MQSTR", "rfh2.CodedCharSetId": 500, "body": "Grün".encode("cp500")}, "Grün".encode()),
    ToMq("payload-json", {"payload": "json"}, {"body": b'{"a": [1, "\xc3\xb6"]}'}, '{"a": [1, "ö"]}'.encode()),
    ToMq("payload-bytes", {"payload": "bytes"}, {"body": b"\xff\x00\xfe"}, b"\xff\x00\xfe"),
    ToMq("msg-id", attributes(msg_id="{topic}"), {"md.MsgId": hexadecimal("a/msg-id")}),
    ToMq("correl-id", attributes(correl_id="AB" * 24), {"md.CorrelId": "AB" * 24}),
    ToMq("correlation-data", {}, {"md.CorrelId": hexadecimal("abc"), "mqtt.correlationData": None},
         mqtt5={"CorrelationData": b"abc"}),
    ToMq("correlation-long", {}, {"md.CorrelId": "00" * 24, "mqtt.correlationData": "78" * 25, "mqtt.responseTopic": "r"},
         mqtt5={"CorrelationData": b"x" * 25, "ResponseTopic": "r"}),
    ToMq("reply-to", attributes(reply_to_queue="REPLY.{qos}", reply_to_queue_manager="QM9"),
         {"md.ReplyToQ": "REPLY.1", "md.ReplyToQMgr": "QM9", "md.MsgType": 1}),
    ToMq("user", attributes(user_identifier="{text}"), {"md.UserIdentifier": "operator"}, b"operator"),
    ToMq("properties", attributes(properties={"of": "{topic}", "n": "{usr.line-no}"}),
         {"usr": {"site": "north", "line_x002D_no": "7", "of": "a/properties", "n": "7"}}, mqtt5=USER),
    ToMq("content-type", {}, {"mqtt.contentType": "text/csv"}, mqtt5={"ContentType": "text/csv"}),
    ToMq("filter-qos", {"filter": {"qos": [1, 2]}}, {"body": b"yes"}, b"yes", passed_by=(b"no", 0, False, {})),
    ToMq("filter-retained", {"filter": {"retained": True}}, {"body": b"yes"}, b"yes", retain=True,
         passed_by=(b"no", 1, False, {})),
    ToMq("filter-size", {"filter": {"min_size": 2, "max_size": 3}}, {"body": b"yes"}, b"yes",
         passed_by=(b"nono", 1, False, {})),
    ToMq("filter-property", {"filter": {"properties": {"site": ["north", "east"]}}}, {"body": b"yes"}, b"yes", mqtt5=USER,
         passed_by=(b"no", 1, False, {"UserProperty": [("site", "south")]})),
    ToMq("filter-json", {"filter": {"json": "$.t > 30 && $.u == 'C'"}}, {"body": b'{"t":31,"u":"C"}'}, b'{"t":31,"u":"C"}',
         passed_by=(b'{"t":31,"u":"F"}', 1, False, {})),
    ToMq("filter-expr", {"filter": {"expr": "payload.t > 30 && usr.site == 'north'"}}, {"body": b'{"t":31}'}, b'{"t":31}',
         mqtt5=USER, passed_by=(b'{"t":29}', 1, False, USER)),
    ToMq("field", {"to": {"queue": "{$.queue|upper}"}, **attributes(correl_id="{$.id}", properties={"t": "{$.t}"})},
         {"md.CorrelId": hexadecimal("d7"), "usr.t": "21.50", "body": b'{"queue":"in","id":"d7","t":21.50}'},
         b'{"queue":"in","id":"d7","t":21.50}'),
    ToMq("property-types", attributes(properties={"t": {"value": "{$.t}", "type": "double"}, "on": {"value": "{$.on}",
         "type": "boolean"}, "n": {"value": "{$.n}", "type": "int64"}}),
         {"usr": {"t": 21.5, "on": True, "n": 2**53 + 1}}, b'{"t":21.50,"on":true,"n":9007199254740993}'),
    ToMq("property-types-rfh2-off", attributes(rfh2=False, properties={"t": {"value": "{$.t}", "type": "float"}, "b": {
         "value": "00ff", "type": "bytes"}}), {"mqtt.topic": "a/property-types-rfh2-off", "usr": {"t": 0.5, "b": "00FF"}},
         b'{"t":0.5}'),
    ToMq("transform", {"payload": {"ccsid": 500, "drop": ["$.debug"], "transform": {
         "f": {"expr": "payload.t * 1.8 + 32"}, "of": "{topic}"}}}, {"rfh2.CodedCharSetId": 500,
         "body": '{"t":21.50,"f":70.7,"of":"a/transform"}'.encode("cp500")}, b'{"t":21.50,"debug":{"x":1}}'),
]  # fmt: skip

#: Mappings whose destination is a template of captures, or at another queue manager.
PLACES: dict[str, dict[str, Any]] = {
    "captures": {"from": {"mqtt": "c/{one}/+/{rest...}"}, "to": {"queue": "R.{one|upper}.{rest|mqname}"}},
    "own-queue-manager": {"from": {"mqtt": "m/{one}"}, "to": {"queue": "R.X.a.b", "queue_manager": "MQB1"}},
}
REFUSED: list[tuple[str, dict[str, Any], bytes, int, str]] = [
    ("unfillable", {"to": {"queue": "R.{usr.site}"}}, b"1", 2471, "a/unfillable"),
    ("bad-name", {"to": {"queue": "R {text}"}}, b"1", 2152, "a/bad-name"),
    ("no-json", {"payload": "json"}, b"{", 2110, "a/no-json"),
    ("no-text", {"payload": "text"}, b"\xff", 2119, "a/no-text"),
    ("no-character", {"payload": {"type": "text", "ccsid": 500}}, "€ 5".encode(), 2119, "a/no-character"),
    ("no-queue", {"to": {"queue": "R.NONE"}, "backouts": 0}, b"1", 2085, "a/no-queue"),
    ("no-field", {"to": {"queue": "R.{$.site}"}}, b'{"a":1}', 2471, "a/no-field"),
    ("no-type", attributes(properties={"t": {"value": "{$.t}", "type": "int8"}}), b'{"t":128}', 2473, "a/no-type"),
    ("no-value", {"payload": {"transform": {"x": {"expr": "payload.t + 'a'"}}}}, b'{"t":1}', 2110, "a/no-value"),
]


class ToMqtt(NamedTuple):
    """A message by options of `mqbridge mq put`, its mapping, and the compared parts of the publication."""

    name: str
    mapping: dict[str, Any]
    options: tuple[str, ...]
    expected: dict[str, Any]
    body: bytes = b"21.5"
    #: put before it, and not accepted
    passed_by: tuple[str, ...] | None = None


PERSISTENT = "--persistent"
TO_MQTT = [
    ToMqtt("standard", {}, (), {"qos": 1, "retain": False, "payload": b"21.5", "expiry": None}),
    ToMqtt("persistent", {}, (PERSISTENT,), {"qos": 2}),
    ToMqtt("qos", attributes(qos=1), (PERSISTENT,), {"qos": 1}),
    ToMqtt("qos-each", attributes(qos={"not-persistent": 2}), (), {"qos": 2}),
    ToMqtt("at-most-once", {"guarantee": "at-most-once"}, (PERSISTENT,), {"qos": 0}),
    ToMqtt("exactly-once", {"guarantee": "exactly-once"}, (), {"qos": 2}),
    ToMqtt("retained-always", attributes(retained="always"), (), {"retain": True}),
    ToMqtt("expiry", attributes(expiry="1 h"), (), {"expiry": range(3500, 3601)}),
    ToMqtt("expiry-as-published", {}, ("--expiry", "1h"), {"expiry": range(3500, 3601)}),
    ToMqtt("expiry-never", attributes(expiry="unlimited"), ("--expiry", "1h"), {"expiry": None}),
    ToMqtt("response-topic", attributes(response_topic="r/{md.ReplyToQ|lower}"), ("--reply-to", "ANSWERS"),
           {"ResponseTopic": "r/answers"}),
    ToMqtt("correl-id", {}, ("--correl-id", "order-1"), {"CorrelationData": b"order-1"}),
    ToMqtt("correlation-data", attributes(correlation_data="{usr.id}"), ("--property", "id=7", "--correl-id", "x"),
           {"CorrelationData": b"7"}),
    ToMqtt("content-type", attributes(content_type="text/{usr.kind}"), ("--property", "kind=csv"),
           {"ContentType": "text/csv"}),
    ToMqtt("properties", attributes(properties={"priority": "{md.Priority}", "of": "{md.ReplyToQ|default:'?'}"}),
           ("--priority", "3", "--property", "site=north"),
           {"user": {"site": "north", "priority": "3", "of": "?"}}),
    ToMqtt("payload-text", {"payload": "text"}, ("--ccsid", "500"), {"payload": "Grün".encode()}, "Grün".encode("cp500")),
    ToMqtt("payload-ccsid", {"payload": {"type": "text", "ccsid": 1141}}, (), {"payload": "Grün".encode()},
           "Grün".encode("cp273")),
    ToMqtt("payload-object", {"payload": {"type": "json", "object": {"t": "{text}", "p": "{md.Priority}"}}},
           ("--priority", "2"), {"payload": b'{"t":"21.5","p":"2"}'}),
    ToMqtt("payload-bytes", {}, (), {"payload": b"\xff\x00"}, b"\xff\x00"),
    ToMqtt("field", {"payload": "json", "to": {"mqtt": "b/{$.name}", "link": "l"}, **attributes(correlation_data="{$.id}")},
           ("--ccsid", "500"), {"CorrelationData": b"7", "payload": b'{"name":"field","id":7}'},
           '{"name":"field","id":7}'.encode("cp500")),
    ToMqtt("transform", {"payload": {"transform": {"t": "{$.t}", "p": {"expr": "md.Priority + 1"}}}}, ("--priority", "2"),
           {"payload": b'{"t":21.50,"p":3}'}, b'{"t": 21.50}'),
    ToMqtt("filter-expr", {"filter": {"expr": "payload.t > 30 && md.Priority > 3", "others": "discard"}},
           ("--priority", "4"), {"payload": b'{"t":31}'}, b'{"t":31}', passed_by=("--priority", "3")),
    ToMqtt("filter-property", {"filter": {"properties": {"site": "north"}, "others": "discard"}},
           ("--property", "site=north"), {"qos": 1},
           passed_by=("--property", "site=south")),
    ToMqtt("filter-md", {"filter": {"properties": {"md.Priority": [8, 9]}, "others": "discard"}},
           ("--priority", "9"), {"qos": 1},
           passed_by=("--priority", "7")),
    ToMqtt("filter-qos", {"filter": {"qos": 2, "others": "discard"}},
           (PERSISTENT,), {"qos": 2}, passed_by=()),
]  # fmt: skip
REFUSED_OUT: list[tuple[str, dict[str, Any], bytes, int]] = [
    ("unfillable", {"to": {"mqtt": "b/{usr.site}"}}, b"1", 2471),
    ("bad-topic", {"to": {"mqtt": "b/{text}"}}, b"#", 2425),
    ("no-json", {"payload": "json"}, b"{", 2110),
    ("no-member", {"payload": {"transform": {"x": "{$.y}"}}}, b"{}", 2471),
    ("no-text", {"payload": {"type": "text", "ccsid": 1208}}, b"\xff", 2119),
]


def config(port: int) -> dict[str, Any]:
    mappings: dict[str, Any] = {}
    for row in TO_MQ:
        mappings[row.name] = {"from": {"mqtt": f"a/{row.name}", "link": "l"}, "to": {"queue": "IN"}} | row.mapping
    for name, mapping in PLACES.items():
        mappings[name] = mapping | {"from": {**mapping["from"], "link": "l"}}
    for name, mapping, *_ in REFUSED:
        mappings[f"{name}-in"] = {"from": {"mqtt": f"a/{name}", "link": "l"}, "to": {"queue": "IN"}} | mapping
    for out in TO_MQTT:
        to = {"mqtt": f"b/{out.name}", "link": "l"}
        mappings[f"{out.name}-out"] = {"from": {"queue": queue(out.name)}, "to": to} | out.mapping
    for name, mapping, *_ in REFUSED_OUT:
        to = mapping.get("to", {"mqtt": f"b/{name}"}) | {"link": "l"}
        mappings[f"{name}-refused"] = {"from": {"queue": queue(f"{name}-refused")}} | mapping | {"to": to}
    return {"links": {"l": {"host": "127.0.0.1", "port": port}}, "mappings": mappings}


def queue(name: str) -> str:
    return f"B.{name.upper().replace('-', '.')}"


def mqsc() -> list[str]:
    names = [out.name for out in TO_MQTT] + [f"{row[0]}-refused" for row in REFUSED_OUT]
    return [f"DEFINE QLOCAL({name})" for name in ("IN", "'R.X.a.b'", *map(queue, names))]


@pytest.fixture(scope="module")
def site(queue_manager: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MappingSite]:
    with MappingSite(tmp_path_factory.mktemp("attributes"), queue_manager, config, mqsc()) as site:
        yield site


def mqtt5(fields: dict[str, Any] | None = None) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in (fields or {}).items():
        setattr(properties, name, value)
    return properties


def publications(rows: list[ToMq]) -> Iterator[tuple[str, bytes, int, bool, Properties]]:
    for row in rows:
        if row.passed_by is not None:
            payload, qos, retain, fields = row.passed_by
            yield f"a/{row.name}", payload, qos, retain, mqtt5(fields)
        yield f"a/{row.name}", row.payload, row.qos, row.retain, mqtt5(row.mqtt5)


@pytest.fixture(scope="module")
def from_broker(site: MappingSite) -> dict[str, list[Any]]:
    """Return the messages of the queue, at least one of each row, by topic."""
    publish_all(site.broker.port, publications(TO_MQ))
    site.bridge.wait_for_depth("IN", len(TO_MQ))
    messages: dict[str, list[Any]] = {}
    for message in site.bridge.mq_json("get", "IN", "--limit", "0"):
        content = folders(message)
        topic = content["mqps"]["Top"] if "mqps" in content else content["mqtt"]["topic"]
        messages.setdefault(topic, []).append(message)
    return messages


@pytest.mark.queue_managers("embedded", "ibmmq")
@pytest.mark.parametrize("row", TO_MQ, ids=lambda row: row.name)
def test_from_a_broker_to_mq(from_broker: dict[str, list[Any]], row: ToMq) -> None:
    (message,) = from_broker[f"a/{row.name}"]
    assert {path: value(message, path, wanted) for path, wanted in row.expected.items()} == row.expected
    assert hops(folders(message)["mqbridge"]["hops"]) == f"MQB1/{row.name}"


def value(message: Any, path: str, wanted: Any) -> Any:
    """Return the value. If it is in the expected range, return the range."""
    head, dot, rest = path.partition(".")
    if head == "body":
        body = message["body"]
        return body.encode() if message["bodyEncoding"] == "utf-8" else base64.b64decode(body)
    part = message["md"] if head == "md" else message["rfh2"][0] if head == "rfh2" else folders(message).get(head)
    content = part if not dot or part is None else part.get(rest)
    return wanted if isinstance(wanted, range) and content in wanted else content


def test_destinations(site: MappingSite) -> None:
    publish_all(site.broker.port, [("c/x/y/a/b", b"captured", 1, False, mqtt5()), ("m/n", b"named", 1, False, mqtt5())])
    assert {site.get("R.X.a.b")["body"] for _ in PLACES} == {"captured", "named"}


@pytest.mark.parametrize(("name", "mapping", "payload", "reason", "topic"), REFUSED, ids=[row[0] for row in REFUSED])
def test_publications_that_cannot_be_put(
    site: MappingSite, name: str, mapping: dict[str, Any], payload: bytes, reason: int, topic: str
) -> None:
    publish_all(site.broker.port, [(topic, payload, 1, True, mqtt5({"UserProperty": [("a", "b")]}))])
    letter = site.get(DLQ)
    assert (letter["dlh"]["Reason"], letter["dlh"]["PutApplName"]) == (reason, f"{name}-in")
    assert value(letter, "body", None) == payload
    content = folders(letter)
    assert (content["mqps"], content["usr"]) == ({"Top": topic, "Ret": True}, {"a": "b"})


@pytest.fixture(scope="module")
def at_broker(site: MappingSite) -> dict[str, list[Any]]:
    with PahoSubscriber(site.broker.port, "b/#") as subscriber:
        for row in TO_MQTT:
            put(site, row, queue(row.name))
        messages: dict[str, list[Any]] = {}
        for message in (subscriber.message() for _ in TO_MQTT):
            messages.setdefault(message.topic, []).append(message)
    return messages


def put(site: MappingSite, row: ToMqtt, name: str) -> None:
    if row.passed_by is not None:
        site.put(name, b"passed by", *row.passed_by)
    site.put(name, row.body, *row.options)


@pytest.mark.queue_managers("embedded", "ibmmq")
@pytest.mark.parametrize("row", TO_MQTT, ids=lambda row: row.name)
def test_from_mq_to_a_broker(at_broker: dict[str, list[Any]], row: ToMqtt) -> None:
    (message,) = at_broker[f"b/{row.name}"]
    properties = message.properties
    attributes = {
        "qos": message.qos, "retain": message.retain, "payload": message.payload,
        "expiry": getattr(properties, "MessageExpiryInterval", None), "user": dict(properties.UserProperty),
        **{name: getattr(properties, name, None) for name in ("ResponseTopic", "CorrelationData", "ContentType")},
    }  # fmt: skip
    assert hops(attributes["user"].pop("mqbridge-hops")) == f"MQB1/{row.name}-out"
    for name, wanted in row.expected.items():
        assert attributes[name] in wanted if isinstance(wanted, range) else attributes[name] == wanted, name


@pytest.mark.parametrize(("name", "mapping", "body", "reason"), REFUSED_OUT, ids=[row[0] for row in REFUSED_OUT])
def test_unpublishable_messages(
    site: MappingSite, name: str, mapping: dict[str, Any], body: bytes, reason: int
) -> None:
    source = queue(f"{name}-refused")
    site.put(source, body, "--property", "a=b", "--correl-id", "c")
    letter = site.get(DLQ)
    header = letter["dlh"]
    assert (header["Reason"], header["PutApplName"], header["DestQName"]) == (reason, f"{name}-refused", source)
    assert (value(letter, "body", None), letter["md"]["CorrelId"]) == (body, hexadecimal("c"))
    assert folders(letter)["usr"] == {"a": "b"}
