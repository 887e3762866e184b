"""Records as documents: groups, tables, REDEFINES, FILLER, slack bytes, defaults, and errors with field, offset and bytes."""

from __future__ import annotations

import copy
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.record.codec import RecordCodec, RecordError
from bridge.record.copybook import CopybookError, CopybookFiles, parse
from bridge.record.field import CodecError, CodecOptions
from bridge.record.layout import AlternativeChoice, LayoutError, RecordItem, RecordLayout, Redefinition, layout_of

COPYBOOKS = Path(__file__).parent / "copybooks"
BIG, LITTLE = 0x311, 0x222


def layout(name: str, **options: Any) -> RecordLayout:
    return layout_of(parse(CopybookFiles(COPYBOOKS / name)), **options)


def layout_of_text(directory: Path, entries: str, **options: Any) -> RecordLayout:
    (directory / "r.cpy").write_text("       01 R.\n" + "".join(f"          {line}\n" for line in entries.splitlines()))
    return layout_of(parse(CopybookFiles(directory / "r.cpy")), **options)


def codec(
    name: str, ccsid: int = 37, encoding: int = BIG, options: CodecOptions | None = None, **of_layout: Any
) -> Any:
    return RecordCodec(layout(name, **of_layout), ccsid, encoding, options or CodecOptions())


def offsets(of: RecordLayout) -> dict[str, tuple[int, int]]:
    return {item.title: (item.offset, item.length) for _, item in of.items()}


CUSTOMER: dict[str, Any] = {
    "customer_key": {"cust_branch": 123, "cust_number": 987654321},
    "cust_name": "Müller & Söhne",
    "cust_type": "C",
    "cust_firm": {"cust_tax_id": "DE123456789", "cust_employees": 42},
    "cust_address": [
        {"addr_line": ["Hauptstr. ", "1", ""], "addr_zip": 1067},
        {"addr_line": ["", "", ""], "addr_zip": 0},
    ],
    "cust_balance": Decimal("-1234567.89"),
    "cust_limit": Decimal("5000.00"),
}
CUSTOMER["cust_address"][0]["addr_line"][0] = "Hauptstr."
BY_TYPE = {"cust_detail": AlternativeChoice("cust_type", {"P": "cust_person", "C": "cust_firm"}, "cust_detail")}


def test_a_customer_record_byte_by_byte() -> None:
    record = codec("customer.cpy", 273, redefines=BY_TYPE).encode(CUSTOMER)
    expected = (
        "123F 987654321F"
        "D4 D0 93 93 85 99 40 50 40 E2 6A 88 95 85" + "40" * 16 + "C3"
        "C4C5F1F2F3F4F5F6F7F8F9 0000042C" + "40" * 5 + "C881A497A3A2A3994B40 F1" + "40" * 19 + "F0F1F0F6F7"
        "" + "40" * 30 + "F0F0F0F0F0" + "00123456789D" + "4EF0F0F0F5F0F0F0F0F0" + "40" * 4
    )
    assert record.hex().upper() == expected.replace(" ", "")
    assert codec("customer.cpy", 273, redefines=BY_TYPE).decode(record) == CUSTOMER


def test_offsets_of_a_customer_record() -> None:
    assert offsets(layout("customer.cpy")) == {
        "CUSTOMER-RECORD": (0, 154),
        "CUSTOMER-KEY": (0, 7),
        "CUST-BRANCH": (0, 2),
        "CUST-NUMBER": (2, 5),
        "CUST-NAME": (7, 30),
        "CUST-TYPE": (37, 1),
        "CUST-DETAIL": (38, 20),
        "CUST-PERSON": (38, 20),
        "CUST-BIRTH-DATE": (38, 8),
        "CUST-FIRST-NAME": (46, 12),
        "CUST-FIRM": (38, 15),
        "CUST-TAX-ID": (38, 11),
        "CUST-EMPLOYEES": (49, 4),
        "CUST-ADDRESS": (58, 35),
        "ADDR-LINE": (58, 10),
        "ADDR-ZIP": (88, 5),
        "CUST-BALANCE": (128, 6),
        "CUST-LIMIT": (134, 10),
        "FILLER": (144, 4),
    } | {"CUSTOMER-RECORD": (0, 148)}


def test_slack_bytes_of_the_language_reference() -> None:
    aligned = layout("aligned.cpy")
    places = offsets(aligned)
    # "Slack bytes within records": COMP-TABLE has two slack bytes in it, and two at the end of each occurrence.
    assert [places[name][0] for name in ("COMP-TABLE", "COMP-TYPE", "COMP-PAY", "COMP-HRS", "COMP-NAME")] == [
        1,
        1,
        4,
        8,
        10,
    ]
    table = next(item for _, item in aligned.items() if item.title == "COMP-TABLE")
    assert (table.length, table.stride) == (14, 16)
    # Those before the first item of a group precede the group.
    assert (places["FIELD-M"], places["FIELD-N"], places["FIELD-O"], places["FIELD-P"]) == (
        (161, 5),
        (166, 2),
        (168, 4),
        (168, 4),
    )
    assert (places["FIELD-Q"], places["FIELD-R"]) == ((172, 1), (176, 8))


def test_slack_bytes_are_low_values() -> None:
    aligned = codec("aligned.cpy")
    row = {"comp_type": "A", "comp_pay": Decimal("1.00"), "comp_hrs": 2, "comp_name": "N"}
    document = {
        "work_code": "W",
        "comp_table": [row] * 10,
        "field_m": "M",
        "field_n": "N",
        "field_o": {"field_p": -1},
        "field_q": "Q",
        "field_r": Decimal("0.5"),
    }
    record = aligned.encode(document)
    assert record[:17].hex().upper() == "E6C10000000000640002D5404040400000"
    assert record[172:].hex().upper() == "D8000000" + "4080000000000000"
    assert aligned.decode(record) == document


def test_redefines_uses_the_first_item_unless_the_mapping_chooses() -> None:
    record = b"\xd7" + b"\xc1" * 39
    assert codec("transaction.cpy").decode(record) == {"rec_type": "P", "rec_data": "A" * 39}
    chosen = codec("transaction.cpy", redefines={"rec_data": "rec_header"})
    document = {"rec_type": "H", "rec_header": {"hdr_date": 20261130, "hdr_sequence": 7}}
    record = chosen.encode(document)
    assert record.hex().upper() == "C8F2F0F2F6F1F1F3F00007" + "40" * 29
    assert chosen.decode(record) == document


TYPES = {"rec_data": AlternativeChoice("rec_type", {"H": "rec_header", "P": "rec_payment", "T": "filler"})}


@pytest.mark.parametrize(
    ("document", "hexadecimal"),
    [
        ({"rec_type": "H", "rec_header": {"hdr_date": 1, "hdr_sequence": -1}}, "C8F0F0F0F0F0F0F0F1FFFF"),
        (
            {
                "rec_type": "P",
                "rec_payment": {"pay_account": "A1", "pay_amount": Decimal("1.25"), "pay_currency": "EUR"},
            },
            "D7C1F1" + "40" * 14 + "0000000000125C" + "C5E4D9",
        ),
        ({"rec_type": "T", "trl_count": 3, "trl_total": Decimal("-7.00")}, "E3000000030000000000000700D"),
    ],
)
def test_redefines_is_chosen_by_the_value_of_a_field(document: dict[str, Any], hexadecimal: str) -> None:
    chosen = codec("transaction.cpy", redefines=TYPES)
    if document["rec_type"] == "T":
        hexadecimal = "E30000000300000000000" + "0700D"
    record = chosen.encode(document)
    assert record.hex().upper() == hexadecimal.ljust(80, "4").replace("44", "40") or record.hex().upper().startswith(
        hexadecimal
    )
    assert len(record) == 40
    assert chosen.decode(record) == document


def test_a_value_that_selects_nothing_is_an_error() -> None:
    chosen = codec("transaction.cpy", redefines=TYPES)
    with pytest.raises(
        RecordError, match=r"rec_data at offset 0: rec_type is 'X', which selects no item \(known: H, P, T\)"
    ):
        chosen.decode(b"\xe7" + b"\x40" * 39)
    with pytest.raises(RecordError, match="rec_type is 'X', which selects no item"):
        chosen.encode({"rec_type": "X", "rec_header": {}})
    with pytest.raises(RecordError, match="field rec_payment at offset 1: the record has rec_header in its place"):
        chosen.encode({"rec_type": "H", "rec_header": {"hdr_date": 1, "hdr_sequence": 1}, "rec_payment": {}})


def test_redefines_in_a_table_is_chosen_in_each_element(tmp_path: Path) -> None:
    entries = (
        "05 KIND-OF-ALL PIC 9.\n05 ROWS OCCURS 2.\n10 KIND PIC X.\n10 AS-TEXT PIC X(2).\n"
        "10 AS-NUMBER REDEFINES AS-TEXT PIC S9(3) COMP-3."
    )
    choice = AlternativeChoice("kind", {"N": "as_number"}, "as_text")
    by_row = RecordCodec(layout_of_text(tmp_path, entries, redefines={"as_text": choice}), 37, BIG)
    document = {"kind_of_all": 1, "rows": [{"kind": "N", "as_number": -5}, {"kind": "T", "as_text": "ab"}]}
    record = by_row.encode(document)
    assert record.hex().upper() == "F1D5005DE38182"
    assert by_row.decode(record) == document
    choice = AlternativeChoice("kind_of_all", {"1": "as_number"}, "as_text")
    by_record = RecordCodec(layout_of_text(tmp_path, entries, redefines={"rows.as_text": choice}), 37, BIG)
    document = {"kind_of_all": 1, "rows": [{"kind": "N", "as_number": -5}, {"kind": "T", "as_number": 7}]}
    assert by_record.decode(by_record.encode(document)) == document


@pytest.mark.parametrize(
    ("redefines", "option", "sentence"),
    [
        ({"nothing": "x"}, ("redefines", "nothing"), "nothing redefines nothing (redefined items: rec_data)"),
        ({"rec_data": "x"}, ("redefines", "rec_data"), "x is not one of the items rec_data, rec_header, rec_payment"),
        (
            {"rec_data": AlternativeChoice("x", {})},
            ("redefines", "rec_data", "field"),
            "x is not a field of the record",
        ),
        (
            {"rec_data": AlternativeChoice("rec_type", {"A": "x"})},
            ("redefines", "rec_data", "items", "A"),
            "x is not one of the items",
        ),
    ],
)
def test_choices_that_do_not_fit_the_copybook_are_rejected(
    redefines: Any, option: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(LayoutError) as error:
        layout("transaction.cpy", redefines=redefines)
    assert error.value.option == option and sentence in str(error.value)


LINE = {"article": "A-1", "quantity": 2, "price": Decimal("9.95")}


@pytest.mark.parametrize("number", [0, 1, 20])
def test_a_table_with_depending_on(number: int) -> None:
    orders = codec("order.cpy")
    document = {"order_id": "O1", "line_count": number, "order_lines": [LINE] * number}
    record = orders.encode(document)
    assert len(record) == 11 + 16 * number
    assert orders.decode(record) == document
    assert orders.encode({name: value for name, value in document.items() if name != "line_count"}) == record


def test_the_number_of_elements_is_checked() -> None:
    orders = codec("order.cpy")
    record = orders.encode({"order_id": "O1", "order_lines": [LINE]})
    with pytest.raises(RecordError, match="2 is not 1, the number of elements of order_lines"):
        orders.encode({"order_id": "O1", "line_count": 2, "order_lines": [LINE]})
    with pytest.raises(RecordError, match="21 elements, of 0 to 20"):
        orders.encode({"order_id": "O1", "order_lines": [LINE] * 21})
    with pytest.raises(
        RecordError, match=r"field line_count at offset 8 \(X'F0F2F1'\): ORDER-LINES has 0 to 20 elements"
    ):
        orders.decode(record[:8] + b"\xf0\xf2\xf1" + record[11:])
    with pytest.raises(RecordError, match="too short: 27 bytes, of 43"):
        orders.decode(record[:8] + b"\xf0\xf0\xf2" + record[11:])
    with pytest.raises(RecordError, match="too long: 28 bytes, of 27; X'40' at offset 27"):
        orders.decode(record + b"\x40")
    with pytest.raises(RecordError, match=r"too short: 9 bytes, of 11; it ends in field line_count at offset 8"):
        orders.decode(record[:9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cust_name": 5}, "field cust_name at offset 7: expected text, found 5"),
        ({"cust_name": None}, "field cust_name at offset 7: missing, and it has no default"),
        (
            {"customer_key": {"cust_branch": 1000, "cust_number": 1}},
            "field customer_key.cust_branch at offset 0: 1000 does not fit 9(03) COMP-3",
        ),
        ({"customer_key": "1"}, "field customer_key: expected an object, found '1'"),
        ({"customer_key": None}, "field customer_key.cust_branch at offset 0: missing, and it has no default"),
        ({"cust_address": {}}, "field cust_address at offset 58: expected an array, found an object"),
        ({"cust_address": [7, 8]}, "field cust_address[0]: expected an object, found 7"),
        (
            {"cust_address": [{"addr_line": ["a", "b", "ccccccccccc"], "addr_zip": 1}]},
            "field cust_address[0].addr_line[2] at offset 78: 'ccccccccccc' has 11 bytes, of 10 at most",
        ),
        (
            {"cust_address": [{"addr_line": ["a", "b", "c"], "addr_zip": 1}]},
            "field cust_address[1].addr_line[0] at offset 93: missing, and it has no default",
        ),
        ({"colour": "red"}, "field colour: the record has no such field (it has cust_address"),
        (
            {"customer_key": {"cust_branch": 1, "cust_number": 1, "x": 1}},
            "field customer_key.x: the record has no such field",
        ),
    ],
)
def test_documents_that_do_not_fit_are_rejected(change: dict[str, Any], message: str) -> None:
    document = copy.deepcopy(CUSTOMER) | change
    with pytest.raises(RecordError) as error:
        codec("customer.cpy", redefines=BY_TYPE).encode(document)
    assert message in str(error.value)


@pytest.mark.parametrize("document", [[], "text", 5, None, True])
def test_a_record_is_made_of_an_object(document: Any) -> None:
    with pytest.raises(RecordError, match="a record is made of an object"):
        codec("customer.cpy").encode(document)


@pytest.mark.parametrize(
    ("offset", "raw", "message"),
    [
        (2, "40", "field customer_key.cust_number at offset 2 (X'407654321F'): more than"),
        (2, "A0", "field customer_key.cust_number at offset 2 (X'A07654321F'): a digit is not 0 to 9"),
        (89, "40", "field cust_address[0].addr_zip at offset 88 (X'F040F0F6F7'): a byte is not a digit"),
        (127, "C1", "field cust_address[1].addr_zip at offset 123 (X'F0F0F0F0C1'): a byte is not a digit"),
        (134, "40", "field cust_limit at offset 134 (X'40F0F0F0F5F0F0F0F0F0'): the sign is not + or -"),
    ],
)
def test_records_with_invalid_bytes(offset: int, raw: str, message: str) -> None:
    customers = codec("customer.cpy", 273, redefines=BY_TYPE)
    record = bytearray(customers.encode(CUSTOMER))
    record[offset] = bytes.fromhex(raw)[0]
    if "more than" in message:
        assert customers.decode(bytes(record))["customer_key"]["cust_number"] == 407654321
        return
    with pytest.raises(RecordError) as error:
        customers.decode(bytes(record))
    assert message in str(error.value)


def test_defaults_fill_missing_fields_and_elements() -> None:
    options = CodecOptions(
        default={
            "cust_name": "?",
            "cust_address.addr_line": "",
            "cust_address.addr_zip": 0,
            "cust_balance": "0",
            "cust_limit": 0,
        }
    )
    customers = codec("customer.cpy", options=options, redefines=BY_TYPE)
    document = {
        "customer_key": {"cust_branch": 1, "cust_number": 2},
        "cust_type": "X",
        "cust_detail": "d",
        "cust_address": [{"addr_line": ["a"]}],
    }
    decoded = customers.decode(customers.encode(document))
    blank = {"addr_line": ["", "", ""], "addr_zip": 0}
    assert decoded["cust_address"] == [{"addr_line": ["a", "", ""], "addr_zip": 0}, blank]
    assert (decoded["cust_name"], decoded["cust_balance"], decoded["cust_limit"]) == (
        "?",
        Decimal("0.00"),
        Decimal("0.00"),
    )


@pytest.mark.parametrize(
    ("default", "sentence"),
    [({"colour": 1}, "the record has no field colour"), ({"cust_name": 1}, "expected text, found 1")],
)
def test_defaults_that_do_not_fit_are_rejected(default: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence) as error:
        codec("customer.cpy", options=CodecOptions(default=default))
    assert error.value.option == ("default", next(iter(default)))


def test_unknown_members_are_ignored_if_the_mapping_specifies_it() -> None:
    options = CodecOptions(ignore_unknown=True)
    document = copy.deepcopy(CUSTOMER) | {"colour": "red"}
    document["customer_key"]["x"] = 1
    customers = codec("customer.cpy", options=options, redefines=BY_TYPE)
    assert customers.encode(document) == customers.encode(CUSTOMER)


@pytest.mark.parametrize("ccsid", [37, 819])
def test_texts_that_follow_each_other(tmp_path: Path, ccsid: int) -> None:
    """They are encoded together, and an error still names its field."""
    entries = "05 A PIC X(2).\n05 B PIC X(3) JUST.\n05 C PIC X(2).\n05 N PIC 9V9.\n05 D PIC X."
    texts = RecordCodec(layout_of_text(tmp_path, entries), ccsid, BIG)
    document: dict[str, Any] = {"a": "1", "b": "2", "c": "", "n": 1, "d": "x"}
    assert texts.encode(document).decode("cp037" if ccsid == 37 else "latin-1") == "1   2  10x"
    for name, value, message in (
        ("a", "123", "field a at offset 0: '123' has 3 bytes, of 2 at most"),
        ("c", "123", "field c at offset 5: '123' has 3 bytes, of 2 at most"),
        ("d", "", None),
        ("b", b"2", "field b at offset 2: expected text, found b'2'"),
        ("b", 2, "field b at offset 2: expected text, found 2"),
        ("c", "\u20ac", "has no '\u20ac'"),
        ("n", Decimal("0.15"), "field n at offset 7: 0.15 does not fit 9V9"),
        ("n", Decimal("9.90"), None),
        ("n", Decimal(10), "field n at offset 7: 10 does not fit 9V9"),
    ):
        if message is None:
            assert len(texts.encode(document | {name: value})) == 10
            continue
        with pytest.raises(RecordError) as error:
            texts.encode(document | {name: value})
        assert message in str(error.value)
    cut = RecordCodec(layout_of_text(tmp_path, entries), ccsid, BIG, CodecOptions(truncate=True))
    assert cut.encode(document | {"a": "123", "b": "1234"})[:5] == texts.encode(document | {"a": "12", "b": "234"})[:5]


MACHINES = [(37, BIG), (500, BIG), (1047, BIG), (1141, BIG), (1208, LITTLE), (819, 0x112)]


@pytest.mark.parametrize(("ccsid", "encoding"), MACHINES)
def test_filler_is_blank_or_low_values(tmp_path: Path, ccsid: int, encoding: int) -> None:
    entries = "05 A PIC X.\n05 FILLER PIC 9(3).\n05 FILLER PIC S9(3) COMP-3.\n"
    entries += "05 FILLER.\n10 PIC X.\n10 B PIC X.\n05 FILLER COMP-2."
    record = RecordCodec(layout_of_text(tmp_path, entries), ccsid, encoding).encode({"a": "1", "b": "2"})
    blank = "40" if record[0] == 0xF1 else "20"
    assert record[1:-9].hex() == blank * 3 + "0000" + blank
    assert record[-8:] == bytes(8)


@pytest.mark.parametrize(
    ("names", "expected"),
    [("snake", "stock_level"), ("camel", "stockLevel"), ("cobol", "STOCK-LEVEL")],
)
def test_names_in_json(tmp_path: Path, names: Any, expected: str) -> None:
    names_of = layout_of_text(tmp_path, "05 STOCK-LEVEL PIC 9.", names=names)
    assert RecordCodec(names_of, 37, BIG).decode(b"\xf1") == {expected: 1}


def test_numbers_as_strings() -> None:
    strings = codec("numbers.cpy", options=CodecOptions(numbers="string"))
    document = {
        "zoned": -1234,
        "zoned_unsigned": 1,
        "zoned_leading": -2,
        "separate_trailing": 3,
        "separate_leading": "-4.5",
        "packed": "1.10",
        "packed_unsigned": 5,
        "halfword": -6,
        "fullword": 7,
        "doubleword": "-999999999999999999",
        "unsigned_halfword": 9999,
        "scaled": "-0.0001",
        "edited": "- 1,234.50",
    }
    assert strings.decode(strings.encode(document)) == document


def test_zeros_that_are_not_stored() -> None:
    scaled = codec("scaled.cpy")
    document = {"thousands": -12000, "millionths": Decimal("0.000345"), "hundreds": 100}
    record = scaled.encode(document)
    assert record.hex().upper() == "00012D345CF0F0F1"
    assert scaled.decode(record) == document
    with pytest.raises(RecordError, match=r"hundreds at offset 5: 120 does not fit 9\(3\)PP, which has 2 zeros"):
        scaled.encode(document | {"hundreds": 120})


@pytest.mark.parametrize(
    ("ccsid", "encoding", "option"),
    [(99999, BIG, ("ccsid",)), (1200, BIG, ("ccsid",)), (37, 0x310, ("encoding",)), (37, 0x301, ("encoding",))],
)
def test_code_pages_and_encodings_that_records_cannot_have(
    tmp_path: Path, ccsid: int, encoding: int, option: tuple[str, ...]
) -> None:
    with pytest.raises(CodecError) as error:
        codec("numbers.cpy", ccsid, encoding)
    assert error.value.option == option


def test_a_record_of_one_item(tmp_path: Path) -> None:
    (tmp_path / "one.cpy").write_text("       01 COUNTER PIC 9(4) COMP.\n")
    record_codec = RecordCodec(layout_of(parse(CopybookFiles(tmp_path / "one.cpy"))), 37, LITTLE)
    assert record_codec.decode(b"\x07\x00") == {"counter": 7}
    assert record_codec.encode({"counter": 7}) == b"\x07\x00"


def test_many_fields_and_deep_groups(tmp_path: Path) -> None:
    entries = "\n".join(f"{level:02d} G{level}." for level in range(2, 48))
    entries += "\n" + "\n".join(f"48 F{number} PIC 9(4)." for number in range(2500))
    many = RecordCodec(layout_of_text(tmp_path, entries), 37, BIG)
    record = "0042".encode("cp037") * 2500
    document = many.decode(record)
    assert many.encode(document) == record
    with pytest.raises(RecordError, match=r"g2\.g3\..*\.f2499 at offset 9996 \(X'40F0F0F4'\)"):
        many.decode(record[:-4] + b"\x40" + record[:3])


def test_a_large_record_takes_limited_memory(tmp_path: Path) -> None:
    large = RecordCodec(layout_of_text(tmp_path, "05 T OCCURS 99999 PIC X(1000)."), 37, BIG)
    tracemalloc.start()
    with pytest.raises(RecordError, match="too short: 3 bytes, of 99,999,000"):
        large.decode(b"abc")
    with pytest.raises(RecordError, match=r"t\[1\] at offset 1000: missing"):
        large.encode({"t": ["a"]})
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


# Any copybook, any document -----------------------------------------------------------------------------------------

_NUMERIC = st.builds(
    lambda signed, whole, decimals, usage: (
        f"{'S' if signed else ''}9({whole}){f'V9({decimals})' if decimals else ''}{usage}"
    ),
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 9),
    st.sampled_from(["", " COMP", " COMP-3", " COMP-5", " COMP SYNC", " BINARY"]),
)
_PICTURES = st.one_of(_NUMERIC, st.integers(1, 9).map(lambda length: f"X({length})"))


@st.composite
def _entries(draw: st.DrawFn, level: int = 5) -> list[str]:
    lines = []
    for number in range(draw(st.integers(1, 4))):
        occurs = f" OCCURS {draw(st.integers(1, 3))}" if draw(st.booleans()) else ""
        name = f"F{level}-{number}" if draw(st.integers(0, 5)) else "FILLER"
        if level < 20 and draw(st.integers(0, 3)) == 0:
            lines += [f"{level:02d} {name}{occurs}.", *draw(_entries(level + 5))]
        else:
            lines.append(f"{level:02d} {name} PIC {draw(_PICTURES)}{occurs}.")
    return lines


def _document(draw: st.DrawFn, item: RecordItem | Redefinition) -> Any:
    assert isinstance(item, RecordItem)
    if item.is_group:
        members: dict[str, Any] = {}
        for child in item.children:
            assert isinstance(child, RecordItem)
            if child.name is None:
                if child.is_group:
                    members |= _document(draw, child)
            elif child.occurs is None:
                members[child.name] = _document(draw, child)
            else:
                members[child.name] = [_document(draw, child) for _ in range(child.occurs.maximum)]
        return members
    picture = item.picture
    assert picture is not None
    if not picture.is_numeric:
        return draw(st.text(alphabet="aÄ ß!0[", max_size=item.length)).rstrip(" ")
    limit = 10**picture.digits
    number = draw(st.integers(1 - limit if picture.is_signed else 0, limit - 1))
    return Decimal(number).scaleb(-picture.scale) if picture.scale else number


@given(st.data(), st.sampled_from([(37, BIG), (273, BIG), (1141, LITTLE), (819, LITTLE)]))
def test_any_document_of_any_copybook_round_trips(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, machine: tuple[int, int]
) -> None:
    lines = data.draw(_entries())
    try:
        layout_ = layout_of_text(tmp_path_factory.getbasetemp(), "\n".join(lines))
    except CopybookError as error:
        assert "JSON name" in str(error)
        return
    compiled = RecordCodec(layout_, *machine)
    document = data.draw(st.composite(lambda draw: _document(draw, layout_.record))())
    record = compiled.encode(document)
    assert len(record) == layout_.maximum
    assert compiled.decode(record) == document


@given(
    st.binary(max_size=200),
    st.sampled_from(["customer.cpy", "transaction.cpy", "order.cpy", "numbers.cpy", "aligned.cpy"]),
)
def test_any_bytes_are_decoded_or_rejected(raw: bytes, name: str) -> None:
    compiled = codec(name)
    for record in (raw, raw.ljust(layout(name).maximum, b"\xf0")):
        try:
            document = compiled.decode(record)
        except RecordError as error:
            assert str(error)
        else:
            compiled.encode(document)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.sampled_from(sorted(CUSTOMER)), _JSON))
def test_any_document_is_encoded_or_rejected(changes: dict[str, Any]) -> None:
    try:
        codec("customer.cpy", redefines=BY_TYPE).encode(copy.deepcopy(CUSTOMER) | changes)
    except RecordError as error:
        assert str(error)
