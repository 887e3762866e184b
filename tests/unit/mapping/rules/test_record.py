"""`payload: {type: record}`: JSON documents become COBOL records, and records become JSON documents."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from bridge.config.document import load
from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import problems, warnings_of
from bridge.mapping.rates import LeftOut
from bridge.mapping.rule import ToMqRule, ToMqttRule, rule_of
from bridge.mapping.template import RuleError
from bridge.telemetry.message import Message, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, RFH2, encode_chain
from tests.helpers.rules_to_mq import header, mapped, publication

COPYBOOK = """\
      * STOCK OF AN ARTICLE
       01  STOCK-RECORD.
           05  ARTICLE                  PIC X(6).
           05  ON-STOCK                 PIC S9(5) COMP-3.
           05  PRICE                    PIC S9(5)V99 COMP-3.
           05  PLACES                   PIC S9(4) COMP.
           05  KIND                     PIC X.
           05  DETAIL                   PIC X(4).
           05  DETAIL-NUMBER REDEFINES DETAIL PIC 9(4).
           05  WEIGHT                   COMP-1.
"""
DOCUMENT = b'{"article":"A-1","on_stock":-7,"price":12.50,"places":3,"kind":"T","detail":"ab","weight":1.5}'
#: In CCSID 1140 and Encoding 785.
ZOS = bytes.fromhex("C160F1404040 00007D 0001250C 0003 E3 81824040 41180000".replace(" ", ""))
#: In CCSID 1208 and Encoding 530.
X86 = b"A-1   " + bytes.fromhex("00007D 0001250C 0300".replace(" ", "")) + b"Tab  " + bytes.fromhex("0000C03F")
#: In CCSID 1208 and Encoding 546.
REVERSED = b"A-1   " + bytes.fromhex("7D0000 0C250100 0300".replace(" ", "")) + b"Tab  " + bytes.fromhex("0000C03F")
BY_KIND = {"detail": {"field": "kind", "items": {"N": "detail_number"}, "other": "detail"}}


@pytest.fixture
def copybook(tmp_path: Path) -> str:
    (tmp_path / "stock.cpy").write_text(COPYBOOK)
    return str(tmp_path / "stock.cpy")


def to_mq(copybook: str, attributes: dict[str, Any] | None = None, /, **payload: Any) -> ToMqRule:
    config = {
        "from": {"mqtt": "plant/{line}/+/{metric...}"},
        "to": {"queue": "Q"},
        "attributes": attributes or {},
        "payload": {"type": "record", "copybook": copybook} | payload,
    }
    rule = rule_of("m1", ToMqMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqRule)
    return rule


def to_mqtt(copybook: str, keys: dict[str, Any] | None = None, /, **payload: Any) -> ToMqttRule:
    config = {
        "from": {"queue": "Q"},
        "to": {"mqtt": "stock/{$.article}"},
        "payload": {"type": "record", "copybook": copybook} | payload,
    } | (keys or {})
    rule = rule_of("m1", ToMqttMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqttRule)
    return rule


def body_of(rule: ToMqRule, payload: bytes = DOCUMENT) -> bytes:
    message_data = mapped(rule, payload=payload).message.data
    return message_data[int.from_bytes(message_data[8:12], "little") :]


def message(body: bytes, ccsid: int = 1140, encoding: int = 785, **fields: Any) -> Message:
    return Message(MQMD(Format=cmqc.MQFMT_NONE, CodedCharSetId=ccsid, Encoding=encoding, **fields), body)


def published(rule: ToMqttRule, sent: Message) -> tuple[str, bytes]:
    publication_ = rule.map(sent)
    assert publication_ is not None
    return publication_.topic, publication_.payload


@pytest.mark.parametrize("times", [1, 2], ids=["first", "cached"])
@pytest.mark.parametrize(
    ("options", "ccsid", "encoding", "body"),
    [
        ({"ccsid": 1140}, 1140, 785, ZOS),
        ({"ccsid": 1140, "encoding": "s390"}, 1140, 785, ZOS),
        ({}, 1208, 530, X86),
        ({"ccsid": 819}, 819, 530, X86),
        ({"encoding": "x86"}, 1208, 530, X86),
        ({"encoding": "reversed"}, 1208, 546, REVERSED),
        ({"ccsid": 37, "encoding": 273}, 37, 273, ZOS[:-4] + bytes.fromhex("3FC00000")),
    ],
)
def test_a_record_and_the_descriptor_of_its_body(
    copybook: str, options: dict[str, Any], ccsid: int, encoding: int, body: bytes, times: int
) -> None:
    rule = to_mq(copybook, **options)
    for _ in range(times):
        mapped_message = mapped(rule, payload=DOCUMENT)
        rfh2 = header(mapped_message)
        assert (rfh2.CodedCharSetId, rfh2.Encoding, rfh2.Format) == (ccsid, encoding, cmqc.MQFMT_NONE)
        assert mapped_message.message.data.endswith(body) and body_of(rule) == body
    plain = mapped(to_mq(copybook, {"rfh2": False, "format": "CSQREC"}, **options), payload=DOCUMENT).message
    assert (plain.md.CodedCharSetId, plain.md.Encoding, plain.md.Format) == (ccsid, encoding, b"CSQREC")
    assert plain.data == body


@pytest.mark.parametrize(
    ("sent", "options"),
    [
        (message(ZOS), {}),
        (message(X86, 819, 530), {}),
        (message(X86, 819, 546), {"encoding": "x86"}),
        (message(REVERSED, 819, 546), {}),
        (message(ZOS, 1208, 530), {"ccsid": 1140, "encoding": "s390"}),
        (message(ZOS, 1140, 546), {"encoding": 785}),
        (message(X86, 0, 530), {}),  # MQCCSI_Q_MGR
    ],
)
def test_a_document_of_a_record(copybook: str, sent: Message, options: dict[str, Any]) -> None:
    assert published(to_mqtt(copybook, **options), sent) == ("stock/A-1", DOCUMENT)


def test_the_header_before_a_record_describes_it(copybook: str) -> None:
    rfh2 = RFH2(Format=cmqc.MQFMT_NONE, Encoding=785, CodedCharSetId=1140, folders=())
    format_, encoding, ccsid, data = encode_chain([rfh2], ZOS)
    sent = Message(MQMD(Format=format_, CodedCharSetId=ccsid, Encoding=encoding), data)
    assert published(to_mqtt(copybook), sent) == ("stock/A-1", DOCUMENT)


def test_a_publication_of_a_record_is_text(copybook: str) -> None:
    publication_ = to_mqtt(copybook).map(message(ZOS))
    assert publication_ is not None and publication_.properties.payload_format_indicator == 1


def test_fields_of_a_record_are_used_like_those_of_json(copybook: str) -> None:
    keys = {
        "filter": {"json": "$.price > 10", "expr": "payload.on_stock < 0"},
        "attributes": {"properties": {"price": "{$.price}"}},
    }
    transform = {"a": "{$.article|lower}", "p": "{$.price}", "twice": {"expr": "payload.places * 2"}}
    rule = to_mqtt(copybook, keys, transform=transform)
    publication_ = rule.map(message(ZOS))
    assert publication_ is not None
    assert publication_.payload == b'{"a":"a-1","p":12.50,"twice":6}'
    assert publication_.user_properties["price"] == "12.50"
    assert rule.map(message(ZOS[:9] + bytes.fromhex("0000250C") + ZOS[13:])) is None
    selecting_rule = to_mqtt(copybook, {"to": {"mqtt": "t"}}, keep=["$.price"])
    assert published(selecting_rule, message(ZOS)) == ("t", b'{"price":12.50}')


def test_a_document_is_transformed_before_it_becomes_a_record(copybook: str) -> None:
    transform = {
        "article": "{$.id}",
        "on_stock": "{$.n}",
        "price": {"expr": "payload.cents / 100.0"},
        "places": 3,
        "kind": "T",
        "detail": "ab",
        "weight": 1.5,
    }
    rule = to_mq(copybook, transform=transform, ccsid=1140)
    assert body_of(rule, b'{"id": "A-1", "n": -7, "cents": 1250}') == ZOS


def test_schemas_check_the_json_document_of_either_direction(copybook: str, tmp_path: Path) -> None:
    schema = tmp_path / "stock.json"
    schema.write_text('{"properties": {"price": {"maximum": 12.5}}}')
    assert body_of(to_mq(copybook, schema=str(schema), ccsid=1140)) == ZOS
    assert published(to_mqtt(copybook, schema=str(schema)), message(ZOS)) == ("stock/A-1", DOCUMENT)
    with pytest.raises(Unmappable, match="is greater than the maximum"):
        body_of(to_mq(copybook, schema=str(schema)), DOCUMENT.replace(b"12.50", b"12.51"))
    with pytest.raises(Unmappable, match="is greater than the maximum"):
        to_mqtt(copybook, schema=str(schema)).map(message(ZOS[:9] + bytes.fromhex("0001350C") + ZOS[13:]))


def test_each_part_becomes_a_record(copybook: str) -> None:
    config = {
        "from": {"mqtt": "plant/#"},
        "to": {"queue": "Q"},
        "attributes": {"rfh2": False},
        "split": "$.stock",
        "payload": {"type": "record", "copybook": copybook, "ccsid": 1140},
    }
    rule = rule_of("m1", ToMqMapping.model_validate(config), "QM1")
    assert isinstance(rule, ToMqRule)
    payload = b'{"stock": [' + DOCUMENT + b"," + DOCUMENT.replace(b"A-1", b"B-2") + b"]}"
    messages = rule.messages(publication(topic="plant/x", payload=payload))
    assert messages is not None and not isinstance(messages, LeftOut)
    assert [mapped_message.message.data for mapped_message in messages] == [ZOS, b"\xc2\x60\xf2" + ZOS[3:]]


def test_each_element_of_a_table_is_published(tmp_path: Path) -> None:
    (tmp_path / "t.cpy").write_text(
        "       01 T.\n         05 R OCCURS 2.\n           10 A PIC X.\n           10 B PIC 99.\n"
    )
    keys = {"to": {"mqtt": "t/{@.a}"}, "split": "$.r"}
    publications = to_mqtt(str(tmp_path / "t.cpy"), keys).publications(message(b"\xc1\xf0\xf1\xc2\xf9\xf9"))
    assert publications is not None and not isinstance(publications, LeftOut)
    assert [(element.topic, element.payload) for element in publications] == [
        ("t/A", b'{"a":"A","b":1}'),
        ("t/B", b'{"a":"B","b":99}'),
    ]


def test_redefines_by_a_field(copybook: str) -> None:
    rule = to_mq(copybook, redefines=BY_KIND, ccsid=1140)
    number = DOCUMENT.replace(b'"kind":"T","detail":"ab"', b'"kind":"N","detail_number":42')
    assert body_of(rule, number) == ZOS[:15] + b"\xd5\xf0\xf0\xf4\xf2" + ZOS[20:]
    assert body_of(rule) == ZOS
    back = to_mqtt(copybook, redefines=BY_KIND)
    assert published(back, message(body_of(rule, number)))[1] == number


def test_numbers_names_and_defaults(copybook: str) -> None:
    strings = to_mqtt(copybook, {"to": {"mqtt": "t/{$.onStock}"}}, numbers="string", names="camel")
    assert published(strings, message(ZOS)) == (
        "t/-7",
        b'{"article":"A-1","onStock":-7,"price":"12.50","places":3,"kind":"T","detail":"ab","weight":"1.5"}',
    )
    rule = to_mq(
        copybook,
        ccsid=1140,
        names="cobol",
        default={"KIND": "T", "DETAIL": "", "WEIGHT": 1.5},
        unknown="ignore",
        truncate=True,
        round="half-up",
    )
    payload = b'{"ARTICLE":"A-12345","ON-STOCK":"-7","PRICE":12.495,"PLACES":3,"colour":"red"}'
    assert body_of(rule, payload) == b"\xc1\x60\xf1\xf2\xf3\xf4" + ZOS[6:16] + b"\x40" * 4 + ZOS[20:]


def test_an_empty_retained_publication_clears_the_topic(copybook: str) -> None:
    assert body_of(to_mq(copybook, {"retained": "always"}), b"") == b""
    publication_ = to_mqtt(copybook, {"to": {"mqtt": "t"}, "attributes": {"retained": "always"}}).map(message(b""))
    assert publication_ is not None and publication_.payload == b""


@pytest.mark.parametrize("times", [1, 2], ids=["first", "cached"])
@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"no json", "the payload is not JSON"),
        (b'{"price": NaN}', "the payload is not JSON"),
        (b"[1]", "the payload does not fit the record of stock.cpy: a record is made of an object, not of an array"),
        (b"{}", "stock.cpy: field article at offset 0: missing, and it has no default"),
        (DOCUMENT.replace(b"12.50", b"12.505"), "field price at offset 9: 12.505 does not fit S9(5)V99 COMP-3"),
        (DOCUMENT.replace(b"12.50", b"1e400"), "field price at offset 9: 1E+400 does not fit"),
        (DOCUMENT.replace(b"-7", b"1" * 5000), "the payload is not JSON (Integer value out of range"),
        (DOCUMENT.replace(b"-7", b"1" * 200), "field on_stock at offset 6: a number of many digits does not fit"),
        (DOCUMENT.replace(b'"A-1"', '"€"'.encode()), "field article at offset 0: CCSID 37 has no '€'"),
        (b"[" * 100_000, "the payload is not JSON"),
    ],
)
def test_publications_that_do_not_fit_the_record(copybook: str, payload: bytes, why: str, times: int) -> None:
    rule = to_mq(copybook, ccsid=37)
    mapped(rule, payload=DOCUMENT)
    for _ in range(times):
        with pytest.raises(Unmappable) as error:
            rule.map(publication(payload=payload))
        assert why in str(error.value) and error.value.reason == cmqc.MQRC_FORMAT_ERROR


@pytest.mark.parametrize(
    ("sent", "why", "reason"),
    [
        (message(ZOS[:20]), "too short: 20 bytes, of 24", cmqc.MQRC_FORMAT_ERROR),
        (message(ZOS + b"\0"), "too long: 25 bytes, of 24; X'00' at offset 24", cmqc.MQRC_FORMAT_ERROR),
        (message(b""), "too short: 0 bytes, of 24", cmqc.MQRC_FORMAT_ERROR),
        (
            message(ZOS[:6] + b"\x40\x40\x40" + ZOS[9:]),
            "field on_stock at offset 6 (X'404040'): the sign 0 is not A to F",
            cmqc.MQRC_FORMAT_ERROR,
        ),
        (message(ZOS, 65000), "CCSID 65000 is not known here", cmqc.MQRC_SOURCE_CCSID_ERROR),
        (message(ZOS, 1200), "CCSID 1200 has no digits of one byte", cmqc.MQRC_SOURCE_CCSID_ERROR),
        (message(ZOS, 37, 0), "Encoding 0 has no format for on_stock", cmqc.MQRC_FORMAT_ERROR),
    ],
)
def test_messages_that_do_not_fit_the_record(copybook: str, sent: Message, why: str, reason: int) -> None:
    with pytest.raises(Unmappable) as error:
        to_mqtt(copybook).map(sent)
    assert why in str(error.value) and error.value.reason == reason


def test_messages_that_choose_many_character_sets_take_limited_memory(copybook: str) -> None:
    rule = to_mqtt(copybook)
    for encoding in range(0x111, 0x333):
        for ccsid in (37, 500, 819):
            try:
                rule.map(message(ZOS, ccsid, encoding))
            except Unmappable as error:
                assert str(error)
    record = rule.record
    assert record is not None and record._codec.cache_info().currsize <= 16


def test_a_filter_on_a_body_that_is_not_a_record_does_not_accept_it(copybook: str) -> None:
    keys = {"from": {"topic": "a/#"}, "to": {"mqtt": "t"}, "filter": {"expr": "payload.places == 3"}}
    rule = to_mqtt(copybook, keys)
    assert rule.map(message(b"short"), topic="a/b") is None


def test_otherwise_reads_records_of_the_other_mapping(copybook: str, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(
        "mappings:\n"
        "  many:\n    from: {topic: 'a/#'}\n    to: {mqtt: many}\n    filter: {json: $.places > 2}\n"
        "    payload: {copybook: stock.cpy}\n"
        "  others:\n    from: {topic: 'a/#'}\n    to: {mqtt: others}\n    otherwise: [many]\n"
    )
    configuration = load(file, problems)
    rule = rule_of("others", configuration.mappings["others"], "QM1")
    assert isinstance(rule, ToMqttRule)
    assert rule.map(message(ZOS), topic="a/b") is None
    assert rule.map(message(ZOS[:13] + b"\0\1" + ZOS[15:]), topic="a/b") is not None


def test_a_rule_is_pickled_with_the_content_of_its_copybook(copybook: str) -> None:
    config = to_mq(copybook, ccsid=1140).config
    config.resolve({}, config.names)
    Path(copybook).unlink()
    rule = pickle.loads(pickle.dumps(rule_of("m1", config, "QM1")))
    assert body_of(rule) == ZOS


def test_a_changed_copybook_is_another_mapping(copybook: str) -> None:
    def config() -> ToMqMapping:
        config_made = ToMqMapping.model_validate(
            {"from": {"mqtt": "a"}, "to": {"queue": "Q"}, "payload": {"copybook": copybook}}
        )
        config_made.resolve({}, config_made.names)
        return config_made

    before = config()
    assert before == config()
    Path(copybook).write_text(COPYBOOK.replace("X(6)", "X(7)"))
    assert before != config()


# Mistakes of the configuration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{type: record}", "5:14: mappings.m.payload.copybook: expected a copybook with payload record"),
        ("{type: json, copybook: stock.cpy}", "mappings.m.payload.copybook: expected no copybook with payload json"),
        ("{type: text, encoding: s390}", "mappings.m.payload.encoding: expected no encoding with payload text"),
        ("{copybook: none.cpy}", "5:25: mappings.m.payload.copybook: expected a copybook and options that fit it"),
        ("{copybook: wrong.cpy}", "wrong.cpy:2:13: the clause POINTER is not supported"),
        ("{copybook: stock.cpy, record: X}", "payload.record: expected a copybook and options that fit it"),
        ("{copybook: stock.cpy, names: x}", "payload.names: expected snake, camel or cobol"),
        ("{copybook: stock.cpy, encoding: x}", "payload.encoding: expected an integer from 1 to 4095, or normal"),
        ("{copybook: stock.cpy, encoding: 16}", "payload.encoding: expected a copybook and options that fit it"),
        ("{copybook: stock.cpy, ccsid: 1200}", "payload.ccsid: expected a copybook and options that fit it"),
        ("{copybook: stock.cpy, ccsid: 65000}", "payload.ccsid: expected a copybook and options that fit it"),
        ("{copybook: stock.cpy, default: {x: 1}}", "5:49: mappings.m.payload.default.x: expected a copybook"),
        ("{copybook: stock.cpy, default: {price: x}}", "payload.default.price: expected a copybook"),
        ("{copybook: stock.cpy, redefines: {x: y}}", "payload.redefines.x: expected a copybook"),
        ("{copybook: stock.cpy, redefines: {detail: y}}", "payload.redefines.detail: expected a copybook"),
        ("{copybook: stock.cpy, redefines: {detail: {field: y}}}", "redefines.detail.field: expected a copybook"),
        (
            "{copybook: stock.cpy, redefines: {detail: {items: {}}}}",
            "detail.field: expected this key, which has no default",
        ),
        (
            "{copybook: stock.cpy, redefines: {detail: {field: kind, items: {A: y}}}}",
            "redefines.detail.items.A: expected a copybook",
        ),
        ("{copybook: stock.cpy, round: x}", "payload.round: expected half-up, half-even or down"),
        ("{copybook: stock.cpy, object: {a: b}}", "payload.object: expected members of an object only with type: json"),
    ],
)
def test_mistakes_have_a_place_in_the_file(copybook: str, tmp_path: Path, payload: str, why: str) -> None:
    (tmp_path / "wrong.cpy").write_text("       01 R.\n       05 A POINTER.\n")
    file = tmp_path / "bridge.yaml"
    file.write_text(f"mappings:\n  m:\n    from: {{mqtt: t}}\n    to: {{queue: Q}}\n    payload: {payload}\n")
    with pytest.raises(ConfigurationError) as error:
        load(file, problems)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "option",
    [{"default": {"price": 1}}, {"round": "down"}, {"signs": "ascii"}, {"truncate": True}, {"unknown": "ignore"}],
)
def test_a_mapping_that_reads_records_has_no_options_for_writing(copybook: str, option: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"expected no {next(iter(option))} in a mapping to MQTT"):
        to_mqtt(copybook, **option)


def test_option_values_are_those_of_the_rule(copybook: str) -> None:
    with pytest.raises(RuleError, match=r"payload.redefines.price: nothing redefines price"):
        to_mq(copybook, redefines={"price": "x"})


def test_keys_of_items_are_text(copybook: str) -> None:
    choice = {"field": "places", "items": {3: "detail_number"}, "other": "detail"}
    rule = to_mq(copybook, redefines={"detail": choice}, ccsid=1140)
    number = DOCUMENT.replace(b'"detail":"ab"', b'"detail_number":42')
    assert body_of(rule, number)[16:20] == b"\xf0\xf0\xf4\xf2"
    assert msgspec.json.decode(published(to_mqtt(copybook), message(body_of(rule, number)))[1])["detail"] == "0042"


@pytest.mark.parametrize(
    ("keys", "warnings"),
    [
        ("payload: {copybook: stock.cpy, redefines: {detail: detail}}", []),
        (
            "payload: {copybook: stock.cpy}",
            [
                "mapping m: DETAIL and DETAIL-NUMBER share their bytes, and DETAIL is always used (hint: payload.redefines"
                " chooses another one)"
            ],
        ),
        (
            "payload: {copybook: stock.cpy, redefines: {detail: detail}}\n    attributes: {format: string}",
            [
                "mapping m: attributes.format is string, and ON-STOCK (COMP-3) is not text: a conversion by the queue manager"
                " (MQGMO_CONVERT) would change it"
            ],
        ),
    ],
)
def test_notes_of_check(copybook: str, tmp_path: Path, keys: str, warnings: list[str]) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(f"mappings:\n  m:\n    from: {{mqtt: t}}\n    to: {{queue: Q}}\n    {keys}\n")
    assert list(warnings_of(load(file, problems))) == warnings
