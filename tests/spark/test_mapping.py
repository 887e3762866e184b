"""Mappings over columns: each row has the same result as with the rules of the service, byte for byte."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.link.outbox import CLIENT_ID, HOPS
from bridge.mapping.rendered import user_identifier
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.spark.columns import MQTT_ARROW_SCHEMA
from bridge.spark.mapping import Publications, StandardToMq, StandardToMqtt, ToMessages, _of_program
from bridge.spark.mq.envelope import record_batch
from bridge.spark.mq.rows import rows_of
from bridge.spark.options import OptionError
from bridge.spark.schema import RowRefusal
from bridge.telemetry.conversion import received_message
from bridge.telemetry.message import Destination, MappedMessage, Message, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, MQXQH, RFH2, Folder, Typed, encode_chain
from tests.helpers.publications import publication_of_fields

PLANT = {"mqtt": "plant/{line}/{metric...}"}


def to_mq_rule(**mapping: Any) -> ToMqRule:
    rule = rule_of("m1", ToMqMapping.model_validate({"from": PLANT, "to": {"queue": "Q"}} | mapping), "QM1")
    assert isinstance(rule, ToMqRule)
    return rule


def to_mqtt_rule(**mapping: Any) -> ToMqttRule:
    rule = rule_of("m1", ToMqttMapping.model_validate({"from": {"queue": "Q"}, "to": {"mqtt": "out"}} | mapping), "QM1")
    assert isinstance(rule, ToMqttRule)
    return rule


#: One rule for each kind of destination and payload. (The attributes of a mapping are tested with the rules.)
TO_MQ: dict[str, ToMqRule | StandardToMq] = {
    "standard to the topic": StandardToMq(None),
    "standard to a queue": StandardToMq(Destination("Q")),
    "topic": to_mq_rule(to={"topic": "lines/{line}/{metric}"}, attributes={"retained": "always"}),
    "queue by capture": to_mq_rule(to={"queue": "Q.{line|mqname|upper}", "queue_manager": "{clientId}"}),
    "user": to_mq_rule(attributes={"user_identifier": "{clientId|upper}", "priority": 7, "correl_id": "{metric}"}),
    "no RFH2": to_mq_rule(attributes={"rfh2": False, "properties": {"a-b": "{line}"}}),
    "requests": to_mq_rule(
        to={"queue": "Q", "requests_queue": "WAITING"}, attributes={"reply_to_queue": "{line|upper}"}
    ),
    "filter": to_mq_rule(filter={"qos": [1, 2], "retained": False, "min_size": 1, "properties": {"site": ["Ulm", 7]}}),
    "json": to_mq_rule(payload={"type": "json", "ccsid": 1200}, filter={"json": "$.t > 20"}),
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["site", "a-b", "msgid", "", HOPS, CLIENT_ID])
PROPERTIES = st.dictionaries(NAMES, TEXT | st.just("Ulm"), max_size=2)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["plant/1/t"] * 4 + ["plant/2/t/u", "other", "plant/<&>/'ü'", "plant/\0/x", "", None]),
    "payload": st.sampled_from([b"", b"ABC", b'{"t": 21.5}', b'{"t": 1}', "grün".encode(), "☃".encode(), b"\xff\0"])
    | st.binary(max_size=8)
    | st.none(),
    "qos": st.sampled_from([0, 1, 2, 2, 1, 3, None]),
    "retain": st.booleans() | st.none(),
    "message_id": st.integers(1, 65_535) | st.integers(1, 20) | st.sampled_from([None, 0, 65_535, 65_536, -1]),
    "client_id": st.sampled_from(["dev-1", "dev-2", "<msgid dt='i4'>7</msgid>", "", None]),
    "properties": PROPERTIES.map(lambda drawn: list(drawn.items())) | st.none(),
    "response_topic": st.sampled_from([None, None, "", "reply/to"]),
    "correlation_data": st.sampled_from([None, None, b"", b"abc", b"x" * 30, b"\0"]),
    "content_type": st.sampled_from([None, None, "text/plain"]),
    "expiry": st.sampled_from([None, None, 0, 60, 2**32 - 1]),
    "user": st.sampled_from([None, "operator", "a longer name than 12"]),
}


SCHEMA = pa.schema(
    [
        *(field for field in MQTT_ARROW_SCHEMA if field.name not in ("dup", "received", "payload_format")),
        pa.field("user", pa.string()),
    ]
)


def publication(row: dict[str, Any]) -> Publication:
    """Return the result of the service for a row (`bridge.link.outbox`, `bridge.mqtt.connection`). Raises Unmappable."""
    if (
        row["topic"] is None
        or row["payload"] is None
        or row["qos"] == 3
        or (row["message_id"] or 0) not in range(65_536)
    ):
        raise Unmappable(-1, "")
    own = dict(row["properties"] or ())
    hops = own.pop(HOPS, "")
    return publication_of_fields(
        topic=row["topic"],
        payload=row["payload"],
        qos=row["qos"] or 0,
        retain=bool(row["retain"]),
        packet_id=row["message_id"] or 0,
        client_id=own.pop(CLIENT_ID, row["client_id"] or ""),
        user=user_identifier(row["user"] or ""),
        expiry=None if row["expiry"] is None else float(row["expiry"]),
        response_topic=row["response_topic"] or None,
        correlation_data=row["correlation_data"] or None,
        content_type=row["content_type"] or None,
        users=own,
        hops=tuple(hops.split(",")) if hops else (),
    )


def expected_messages(rule: Any, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    expected: list[tuple[Any, ...]] = []
    for row in rows:
        try:
            (mapped,) = rule.messages(publication(row)) or (None,)
        except Unmappable as error:
            why = (error.reason, str(error)) if error.reason > 0 else ()
            expected.append(("refused", original(row), row["topic"], *why))
            continue
        if mapped is not None:
            expected.append(message_facts(mapped))
    return expected


def message_facts(mapped: MappedMessage) -> tuple[Any, ...]:
    to = mapped.destination
    properties = {name: str(value) for name, value in mapped.properties.items()}
    return (to.name, to.queue_manager, mapped.message, mapped.retain, mapped.clear, properties, mapped.kept)


def original(row: dict[str, Any]) -> Message:
    """Return the dead letter of the service. For a row that is not a publication: the payload."""
    try:
        return received_message(publication(row))
    except Unmappable:
        return Message(MQMD(), row["payload"] or b"")


def messages(batch: Any, known: set[int]) -> list[tuple[Any, ...]]:
    """Return the same from the columns, as the writer of the source mq reads them. `known` are rejections to compare
    completely.
    """
    contents: list[tuple[Any, ...]] = []
    for row, columns in zip(rows_of(batch), batch.to_pylist(), strict=True):
        if (refusal := columns["refusal"]) is not None:
            assert refusal["sentence"] and row.refusal == RowRefusal(**refusal | {"source": refusal["source"] or ""})
            why = (refusal["reason"], refusal["sentence"]) if len(contents) in known else ()
            contents.append(("refused", row.message, refusal["source"], *why))
            continue
        name = row.queue if "queue" in columns else row.topic
        properties = {name: str(value) for name, value in (row.properties or {}).items()}
        contents.append((name, row.queue_manager or "", row.message, row.retain, row.clear, properties, row.kept))
    return contents


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.fixed_dictionaries(COLUMNS), max_size=10))
def test_messages_are_those_of_the_rules(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    for name, rule in TO_MQ.items():
        function = ToMessages(rule)
        columns = function.of(batch)
        expected = expected_messages(rule, rows)
        known = {number for number, facts in enumerate(expected) if facts[0] != "refused" or len(facts) > 3}
        assert messages(columns, known) == expected, name
        assert columns.schema == function.schema


def simple(count: int, **more: Any) -> Any:
    return pa.RecordBatch.from_pylist(
        [
            {"topic": "plant/1/t", "payload": b"x" * number, "qos": 1, "message_id": number} | more
            for number in range(count)
        ],
        schema=SCHEMA,
    )


def test_a_column_determines_the_destination() -> None:
    batch = simple(3).append_column("queue", pa.array(["Q.1", "no name!", None]))
    columns = ToMessages(StandardToMq(None), by_column=True).of(batch)
    assert columns.column("queue").to_pylist() == ["Q.1", None, None]
    assert [refusal and refusal["reason"] for refusal in columns.column("refusal").to_pylist()] == [None, 2152, 2152]


def test_kept_columns_stay_with_their_rows() -> None:
    rule = to_mq_rule(filter={"min_size": 2})
    batch = simple(4).append_column("kept.n", pa.array([0, 1, 2, 3]))
    columns = ToMessages(rule, passed=[pa.field("n", pa.int64())]).of(batch)
    assert columns.column("n").to_pylist() == [2, 3]
    assert columns.column("body").to_pylist() == [b"xx", b"xxx"]


def test_mappings_are_pickled() -> None:
    batch = simple(4).append_column("kept.n", pa.array([0, 1, 2, 3]))
    for rule in (TO_MQ["standard to a queue"], TO_MQ["user"]):
        function = ToMessages(rule, passed=[pa.field("n", pa.int64())])
        assert pickle.loads(pickle.dumps(function)).of(batch).equals(function.of(batch))
    envelope = record_batch("Q", [(MQMD(), b"x")])
    back = Publications(TO_MQTT["fields"])
    assert pickle.loads(pickle.dumps(back)).of(envelope).equals(back.of(envelope))


READINGS = b'{"id": "d7", "readings": [{"to": "A", "v": 1.50}, {"to": "B", "v": 2}]}'
SPLIT: dict[str, Any] = {
    "split": "$.readings",
    "payload": {"transform": {"id": "{$.id}", "f": {"expr": "part.v * 1.8 + 32.0"}}},
}


def test_payload_steps_make_a_row_of_each_part() -> None:
    rows = [
        {"topic": "plant/1/t", "payload": payload}
        for payload in (READINGS, b'{"id": "d8", "readings": []}', b'{"id": "d9", "readings": [{"v": 3}]}', b"no JSON")
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).append_column("kept.n", pa.array([0, 1, 2, 3]))
    rule = to_mq_rule(**{"to": {"queue": "Q.{@.to}"}, **SPLIT})
    columns = pickle.loads(pickle.dumps(ToMessages(rule, passed=[pa.field("n", pa.int64())]))).of(batch)
    assert columns.column("n").to_pylist() == [0, 0, 2, 3]
    assert columns.column("queue").to_pylist() == ["Q.A", "Q.B", None, None]
    assert columns.column("body").to_pylist()[:2] == [b'{"id":"d7","f":34.7}', b'{"id":"d7","f":35.6}']
    refusals = [refusal and refusal["sentence"] for refusal in columns.column("refusal").to_pylist()]
    assert refusals[:2] == [None, None]
    assert "part 0 of 1: to.queue" in refusals[2] and "not JSON" in refusals[3]


def test_payload_steps_make_a_publication_of_each_part() -> None:
    envelope = record_batch("Q", [(MQMD(Format=b"MQSTR   ", CodedCharSetId=1208), READINGS)])
    columns = Publications(to_mqtt_rule(**{"to": {"mqtt": "d/{$.id}/{@.to}"}, **SPLIT})).of(envelope)
    assert columns.column("topic").to_pylist() == ["d/d7/A", "d/d7/B"]
    assert columns.column("payload").to_pylist() == [b'{"id":"d7","f":34.7}', b'{"id":"d7","f":35.6}']
    assert [dict(properties)["partIndex"] for properties in columns.column("properties").to_pylist()] == ["0", "1"]


def test_programs_cannot_leave_out_messages_by_rate() -> None:
    rule = to_mq_rule(limit={"per": "{topic}", "every": 10})
    with pytest.raises(OptionError, match="mapping m1 has limit or changes"):
        _of_program("to_messages", rule)


# Messages to publications ---------------------------------------------------------------------------------------------

TO_MQTT: dict[str, ToMqttRule | StandardToMqtt] = {
    "standard": StandardToMqtt(None),
    "standard to a topic": StandardToMqtt("all"),
    "captures": to_mqtt_rule(**{"from": {"topic": "plant/{line}/{metric...}"}, "to": {"mqtt": "{line}/{metric|lower}"}}),
    "fields": to_mqtt_rule(
        attributes={"properties": {"id": "{md.MsgId}", "user": "{md.UserIdentifier|trim|default:'-'}"}, "qos": 1,
                    "content_type": "{messageId|default:'none'}", "expiry": 5.5, "retained": "always"}
    ),
    "filter": to_mqtt_rule(filter={"qos": 2, "max_size": 5, "properties": {"md.Priority": [0, -1]}}),
    "json": to_mqtt_rule(payload="json", filter={"json": "$.t > 20"}),
}  # fmt: skip


def folders(which: int, number: int, site: str) -> tuple[Folder, ...]:
    mqtt = Folder.build("mqtt", {"clientId": "dev-1", "qos": Typed(2, "i4"), "msgid": Typed(number, "i4")})
    mqps = Folder.build("mqps", {"Top": "plant/1/T", "Ret": True})
    usr = Folder.build("usr", {"site": site, "mqtt": {"qos": Typed(1, "i4"), "msgid": Typed(number, "i4")}})
    hops = Folder.build("mqbridge", {"hops": "QM0/a"})
    broken = Folder(b"<usr><a></usr>  ")
    return {0: (mqtt,), 1: (mqtt, mqps), 2: (mqtt, mqps, hops, usr), 3: (usr, mqtt), 4: (mqtt, broken), 5: ()}[which]


BODIES = st.sampled_from([b"", b"x", b"\xc1\xc2", b'{"t": 21.5}', b'{"t": 1}', "grün".encode(), b"\xff"])


@st.composite
def mq_messages(draw: st.DrawFn) -> tuple[MQMD, bytes]:
    """A message with MQRFH2, possibly after an MQXQH and an MQDLH, a message without headers, or a malformed one."""
    own_folders = folders(draw(st.integers(0, 5)), draw(st.integers(1, 65_535)), draw(st.sampled_from(["Ulm", "Köln"])))
    ccsid, body = draw(st.sampled_from([-2, 1208, 500])), draw(BODIES)
    fields: dict[str, Any] = {
        "Persistence": draw(st.integers(0, 1)),
        "Priority": draw(st.sampled_from([-1, 0, 7])),
        "Expiry": draw(st.sampled_from([-1, 65, 999_999_999])),
        "MsgId": draw(st.sampled_from([b"\0" * 24, b"ID".ljust(24, b"\1")])),
        "UserIdentifier": draw(st.sampled_from([b"", b"app"])),
    }
    kind = draw(st.sampled_from(["chain", "chain", "chain", "plain", "malformed"]))
    if kind == "plain":
        return MQMD(**fields, Format=b"MQSTR", CodedCharSetId=max(ccsid, 0)), body
    headers: list[Any] = [RFH2(folders=own_folders, Format=b"MQSTR", CodedCharSetId=ccsid)]
    if draw(st.booleans()):
        headers = [MQXQH(RemoteQMgrName=b"dev-1", MsgDesc=MQMD(UserIdentifier=b"inner")), *headers]
    if draw(st.booleans()):
        headers = [MQDLH(Reason=2085, Encoding=546, CodedCharSetId=1208), *headers]
    encoded = encode_chain(headers, body, encoding=546, ccsid=1208)
    data = encoded.data
    if kind == "malformed":
        data = data[: draw(st.integers(0, len(data) - len(body) - 1))]
    return MQMD(**fields, Format=encoded.Format, Encoding=encoded.Encoding, CodedCharSetId=encoded.CodedCharSetId), data


def expected_publications(rule: Any, drawn_messages: Sequence[tuple[MQMD, bytes]], batch: Any) -> list[Any]:
    expected: list[Any] = []
    topics, bodies = batch.column("topic").to_pylist(), batch.column("body").to_pylist()
    for (md, data), topic, body in zip(drawn_messages, topics, bodies, strict=True):
        try:
            (publication,) = rule.publications(Message(md, data), topic=topic) or (None,)
        except Unmappable as error:
            expected.append(
                {"payload": body, "refusal": {"reason": error.reason, "sentence": str(error), "source": "Q"}}
            )
            continue
        if publication is not None:
            expected.append(publication_columns(publication))
    return expected


def publication_columns(mapped_publication: Publication) -> dict[str, Any]:
    return {
        "topic": mapped_publication.topic,
        "payload": mapped_publication.payload,
        "qos": mapped_publication.qos,
        "retain": mapped_publication.retain,
        "client_id": mapped_publication.client_id or None,
        "properties": [
            *mapped_publication.user_properties.items(),
            *([(CLIENT_ID, mapped_publication.client_id)] if mapped_publication.client_id else []),
            *([(HOPS, ",".join(mapped_publication.hops))] if mapped_publication.hops else []),
        ],
        "response_topic": mapped_publication.properties.response_topic or None,
        "correlation_data": mapped_publication.properties.correlation_data or None,
        "content_type": mapped_publication.properties.content_type or None,
        "expiry": None if mapped_publication.expiry is None else math.ceil(mapped_publication.expiry),
        "refusal": None,
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(mq_messages(), min_size=1, max_size=6))
def test_publications_are_those_of_the_rules(drawn_messages: list[tuple[MQMD, bytes]]) -> None:
    envelope = record_batch("Q", drawn_messages)
    for name, rule in TO_MQTT.items():
        columns = Publications(rule).of(envelope)
        empty = dict.fromkeys(columns.schema.names)
        assert columns.to_pylist() == [
            empty | columns for columns in expected_publications(rule, drawn_messages, envelope)
        ], name


def test_messages_that_the_columns_build() -> None:
    """Without `headers`, the folders are in `rfh2`, as a program writes them."""
    rows = [{"rfh2": [("mqps", [("Top", "plant/9/x")])], "body": b"1"}, {"rfh2": [], "body": None}]
    schema = pa.schema([("rfh2", pa.map_(pa.string(), pa.map_(pa.string(), pa.string()))), ("body", pa.binary())])
    rule = to_mqtt_rule(**{"from": {"topic": "plant/{line}/{metric...}"}, "to": {"mqtt": "{line}"}})
    mapped, refused = Publications(rule).of(pa.RecordBatch.from_pylist(rows, schema=schema)).to_pylist()
    assert (mapped["topic"], mapped["payload"]) == ("9", b"1")
    assert refused["refusal"]["reason"] == cmqc.MQRC_TOPIC_STRING_ERROR
