"""Bytes of numbers, from the tables of IBM's documentation and computed by hand, and round trips."""

from __future__ import annotations

import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.record.copybook import Sign, SourcePosition
from bridge.record.field import CodecOptions, FieldCodecs
from bridge.record.layout import RecordItem
from bridge.record.number_formats import FloatFormat
from bridge.record.picture import picture_of

BIG, LITTLE = 0x311, 0x222  # MQENC of z/OS, and of machines with an x86 processor
STRINGS = CodecOptions(numbers="string")
HERE = SourcePosition("r.cpy", 1, 1)


def codec(clauses: str, ccsid: int = 37, encoding: int = BIG, options: CodecOptions = STRINGS) -> tuple[Any, Any]:
    """Return the reader and the writer of an item with a PICTURE and short clauses."""
    picture, *words = clauses.split()
    item = RecordItem("A", "a", HERE, 0)
    item.picture = None if picture.startswith("COMP") else picture_of(picture)
    usage: Any = next((word for word in [picture, *words] if word.startswith("COMP")), "DISPLAY")
    item.usage = usage
    item.sign = Sign("LEADING" in words, "SEPARATE" in words)
    item.is_justified, item.blank_when_zero = "JUST" in words, "BLANK" in words
    digits = item.picture.digits if item.picture is not None else 0
    match item.usage:
        case "COMP-3":
            item.length = digits // 2 + 1
        case "COMP" | "COMP-5":
            item.length = 2 if digits <= 4 else 4 if digits <= 9 else 8
        case "COMP-1" | "COMP-2":
            item.length = 4 if item.usage == "COMP-1" else 8
        case _:
            assert item.picture is not None
            item.length = item.picture.length + ("SEPARATE" in words)
    return FieldCodecs(ccsid, encoding, options, str).of(item)


@pytest.mark.parametrize(
    ("clauses", "value", "hexadecimal"),
    [
        # Enterprise COBOL for z/OS Programming Guide, "Formats for numeric data": internal representation
        ("S9(4)", 1234, "F1F2F3C4"),
        ("S9(4)", -1234, "F1F2F3D4"),
        ("9(4)", 1234, "F1F2F3F4"),
        ("S9(4) LEADING", 1234, "C1F2F3F4"),
        ("S9(4) LEADING", -1234, "D1F2F3F4"),
        ("S9(4) LEADING SEPARATE", 1234, "4EF1F2F3F4"),
        ("S9(4) LEADING SEPARATE", -1234, "60F1F2F3F4"),
        ("S9(4) SEPARATE", 1234, "F1F2F3F44E"),
        ("S9(4) SEPARATE", -1234, "F1F2F3F460"),
        ("S9(4) COMP", 1234, "04D2"),
        ("S9(4) COMP", -1234, "FB2E"),
        ("9(4) COMP", 1234, "04D2"),
        ("S9(4) COMP-5", 12345, "3039"),
        ("S9(4) COMP-5", -12345, "CFC7"),
        ("9(4) COMP-5", 60000, "EA60"),
        ("S9(4) COMP-3", 1234, "01234C"),
        ("S9(4) COMP-3", -1234, "01234D"),
        ("9(4) COMP-3", 1234, "01234F"),
        ("COMP-1", "1234.0", "434D2000"),
        ("COMP-1", "-1234.0", "C34D2000"),
        ("COMP-2", "1234.0", "434D200000000000"),
        ("COMP-2", "-1234.0", "C34D200000000000"),
        # computed by hand
        ("S9(5)V99 COMP-3", "-123.40", "0012340D"),
        ("S9(3)V9(4) COMP", "-1.5000", "FFFFC568"),
        ("S9(9) COMP", -1, "FFFFFFFF"),
        ("S9(18) COMP", -999999999999999999, "F21F494C589C0001"),
        ("9(18) COMP", "999999999999999999", "0DE0B6B3A763FFFF"),
        ("S9(3)PP COMP-3", 12300, "123C"),
        ("SVPP9(3)", "0.00123", "F1F2C3"),
        ("SVPP9(3)", "-0.00001", "F0F0D1"),
        ("S9", 0, "C0"),
        ("S9(5)V99", "0.07", "F0F0F0F0F0F0C7"),
        ("9(3) BLANK", 0, "404040"),
        ("9(3) BLANK", 7, "F0F0F7"),
        ("COMP-1", "1.0", "41100000"),
        ("COMP-1", "0.0", "00000000"),
        ("COMP-1", "0.15625", "40280000"),
        ("COMP-1", "-118.625", "C276A000"),
        ("COMP-2", "0.1", "401999999999999A"),
    ],
)
def test_vectors_in_ebcdic(clauses: str, value: Any, hexadecimal: str) -> None:
    read, write = codec(clauses)
    raw = bytes.fromhex(hexadecimal)
    assert read(raw) in (value, str(value))
    assert write(value) == raw


@pytest.mark.parametrize(
    ("clauses", "encoding", "value", "hexadecimal"),
    [
        ("S9(4) COMP", LITTLE, 1234, "D204"),
        ("S9(4) COMP-3", LITTLE, -1234, "4D2301"),
        ("COMP-1", 0x111, "1234.0", "449A4000"),
        ("COMP-2", 0x111, "-0.1", "BFB999999999999A"),
        ("COMP-1", LITTLE, "1234.0", "00409A44"),
        ("COMP-2", LITTLE, "-0.1", "9A9999999999B9BF"),
        ("COMP-1", 0x111, "0.1", "3DCCCCCD"),
        ("COMP-1", LITTLE, "3.4028235e+38", "FFFF7F7F"),
    ],
)
def test_byte_orders_of_the_encoding(clauses: str, encoding: int, value: Any, hexadecimal: str) -> None:
    read, write = codec(clauses, encoding=encoding)
    assert (str(read(bytes.fromhex(hexadecimal))), write(value).hex().upper()) == (str(value), hexadecimal)


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [("F1F2A3", 123), ("F1F2E3", 123), ("F1F2F3", 123), ("F1F2B3", -123), ("F1F2D3", -123)],
)
def test_all_signs_of_the_hardware_are_read(hexadecimal: str, value: int) -> None:
    assert codec("S9(3)")[0](bytes.fromhex(hexadecimal)) == value
    packed = hexadecimal[1::2][:3]  # its digits
    assert codec("S9(3) COMP-3")[0](bytes.fromhex(packed + hexadecimal[4])) == value


@pytest.mark.parametrize(
    ("clauses", "text", "value"),
    [
        ("S9(3)", "12C", 123),
        ("S9(3)", "12L", -123),
        ("S9(3)", "12{", 120),
        ("S9(3)", "12}", -120),
        ("S9(3)", "123", 123),
        ("S9(3)", "12s", -123),
        ("S9(3) LEADING", "J23", -123),
        ("S9(3) LEADING SEPARATE", "-123", -123),
        ("9(3)", "123", 123),
    ],
)
def test_zoned_numbers_in_ascii(clauses: str, text: str, value: int) -> None:
    assert codec(clauses, ccsid=1208)[0](text.encode()) == value


def test_signs_in_ascii_are_written_in_either_style() -> None:
    _, write = codec("S9(3)", ccsid=819)
    assert (write(123), write(-123), write(-120)) == (b"12C", b"12L", b"12}")
    _, write = codec("S9(3)", ccsid=819, options=CodecOptions(ascii_signs="ascii"))
    assert (write(123), write(-123), write(-120)) == (b"123", b"12s", b"12p")


@pytest.mark.parametrize(
    ("clauses", "hexadecimal", "sentence"),
    [
        ("9(3)", "F1F240", "a byte is not a digit"),
        ("9(3)", "F1F2C3", "a byte is not a digit"),
        ("S9(3)", "F1C2C3", "a byte is not a digit, or the last one has no sign"),
        ("S9(3)", "404040", "a byte is not a digit"),
        ("S9(3) SEPARATE", "F1F2F340", "the sign is not [+] or -"),
        ("S9(3) SEPARATE", "F14040F3", "a byte is not a digit"),
        ("S9(4) COMP-3", "0A234C", "a digit is not 0 to 9"),
        ("S9(4) COMP-3", "012345", "the sign 5 is not A to F"),
        ("S9(4) COMP-3", "11234C", "more than 4 digits"),
        ("9(4) COMP-3", "01234D", "a negative number, but the PICTURE has no S"),
        ("S9(4) COMP-3", "404040", "the sign 0 is not A to F"),
        ("S9(4) COMP", "2710", "10000 has more than 4 digits"),
        ("9(4) COMP", "FFFF", "65535 has more than 4 digits"),
    ],
)
def test_invalid_bytes_are_rejected(clauses: str, hexadecimal: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        codec(clauses)[0](bytes.fromhex(hexadecimal))


@pytest.mark.parametrize("hexadecimal", ["7F800000", "FF800000", "7FC00000"])
def test_json_has_no_infinity(hexadecimal: str) -> None:
    with pytest.raises(ValueError, match="not a number, or infinite"):
        codec("COMP-1", encoding=0x111)[0](bytes.fromhex(hexadecimal))


@pytest.mark.parametrize("value", ["1e39", "-1e400", "1e999999999"])
@pytest.mark.parametrize("encoding", [BIG, 0x111])
def test_numbers_that_are_too_large_for_floating_point(value: str, encoding: int) -> None:
    if value == "1e39" and encoding == BIG:
        value = "1e76"
    with pytest.raises(ValueError, match=r"too large|expected a number"):
        codec("COMP-1", encoding=encoding)[1](value)


@pytest.mark.parametrize(
    ("clauses", "value", "sentence"),
    [
        ("S9(3)", 1000, r"1000 does not fit S9\(3\)"),
        ("9(3)", -1, r"-1 does not fit 9\(3\)"),
        ("S9(3)V99 COMP-3", "1.234", r"'1.234' does not fit S9\(3\)V99 COMP-3, which has 2 decimals \(hint: round\)"),
        ("S9(3)PP", 12345, "which has 2 zeros at the end"),
        ("S9(4) COMP", 10000, "10000 does not fit"),
        ("S9(4) COMP-5", 32768, "32768 does not fit"),
        ("9(3)", 1e300, "does not fit"),
        ("9(3)V9", "1e999", "does not fit"),
        ("9(3)V9", "0." + "1" * 60, "does not fit"),
        ("9(3)", "1e-999", "does not fit"),
        ("9(3)", "twelve", "expected a number, found 'twelve'"),
        ("9(3)", "1" * 100, "expected a number"),
        ("9(3)", True, "expected a number, found true"),
        ("9(3)", [1], "expected a number, found an array"),
        ("9(3)", float("nan"), "nan is not a number"),
        ("9(3)", None, "expected a number, found null"),
        ("X(3)", 12, "expected text, found 12"),
        ("X(3)", "abcd", r"'abcd' has 4 bytes, of 3 at most \(hint: truncate: true\)"),
        ("X(3)", "a€", "CCSID 37 has no '€'"),
    ],
)
def test_values_that_do_not_fit_are_rejected(clauses: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        codec(clauses)[1](value)


@pytest.mark.parametrize(
    ("rounding", "numbers"),
    [("half-up", ("1.3", "-1.3", "1.2")), ("half-even", ("1.2", "-1.2", "1.2")), ("down", ("1.2", "-1.2", "1.2"))],
)
def test_rounding_if_the_mapping_specifies_it(rounding: Any, numbers: tuple[str, ...]) -> None:
    read, write = codec("S9(3)V9 COMP-3", options=CodecOptions(numbers="string", round=rounding))
    assert tuple(read(write(value)) for value in ("1.25", "-1.25", "1.249")) == numbers
    with pytest.raises(ValueError, match="does not fit"):
        write("9999.99")


@pytest.mark.parametrize("clauses", ["9(3)", "9(3)V9", "S9(3)P", "S9(4) COMP", "COMP-1", "9(31) COMP-3"])
def test_a_number_of_many_digits_does_not_fit(clauses: str) -> None:
    with pytest.raises(ValueError, match=r"does not fit|too large"):
        codec(clauses)[1](10**5000)


def test_truncation_if_the_mapping_specifies_it() -> None:
    options = CodecOptions(truncate=True)
    assert codec("X(3)", options=options)[1]("abcd") == b"\x81\x82\x83"
    _, write = codec("X(4)", ccsid=1208, options=options)
    assert write("aé€x") == "aé ".encode()  # no part of a character
    assert codec("X(4)", ccsid=1208)[1]("é") == "é  ".encode()
    _, write = codec("X(4) JUST", ccsid=1208, options=options)
    assert (write("abcdef"), write("aé€x")) == (b"cdef", "€x".encode())


def test_binary_numbers_with_all_values_of_their_bytes() -> None:
    read, write = codec("S9(4) COMP", options=CodecOptions(binary="full"))
    assert (read(b"\x7f\xff"), write(-32768)) == (32767, b"\x80\x00")
    with pytest.raises(ValueError, match="does not fit"):
        write(32768)


def test_text_is_padded_and_trimmed() -> None:
    assert codec("X(4)")[1](" a") == b"\x40\x81\x40\x40"
    assert codec("X(4)")[0](b"\x40\x81\x40\x40") == " a"
    assert codec("X(4) JUST")[1]("a ") == b"\x40\x40\x81\x40"
    assert codec("X(4) JUST")[0](b"\x40\x40\x81\x40") == "a "
    assert codec("ZZ9.99")[1](" 12.50") == b"\x40\xf1\xf2\x4b\xf5\xf0"


@pytest.mark.parametrize("ccsid", [37, 273, 500, 1047, 1140, 1141, 819, 1252, 1208])
def test_text_of_all_bytes_is_unchanged(ccsid: int) -> None:
    raws = [bytes([byte]) for byte in range(256)]
    read, write = codec("X(3)", ccsid=ccsid)
    for raw in raws:
        try:
            text = read(b"".join([raw, raw, raw]))
        except ValueError:
            assert ccsid in (1208, 1252)  # bytes without a character
            continue
        assert write(text) == raw * 3


def test_a_newline_of_ebcdic_is_not_the_line_feed() -> None:
    read, write = codec("X(2)", ccsid=1047)
    assert read(b"\x15\x25") == "\x85\n"
    assert write("\x85\n") == b"\x15\x25"


@pytest.mark.parametrize(
    ("ccsid", "text", "hexadecimal"),
    [
        (37, "[Ä]", "BA63BB"),
        (273, "[Ä]", "634AFC"),
        (500, "[Ä]", "4A635A"),
        (1047, "[Ä]", "AD63BD"),
        (1140, "€Ä ", "9F6340"),
        (1141, "€Ä ", "9F4A40"),
    ],
)
def test_text_is_converted_to_code_pages(ccsid: int, text: str, hexadecimal: str) -> None:
    read, write = codec("X(3)", ccsid=ccsid)
    assert write(text) == bytes.fromhex(hexadecimal)
    assert read(bytes.fromhex(hexadecimal)) == text.rstrip()


_DIGITS = st.integers(1, 18)


@given(
    st.data(),
    _DIGITS,
    st.booleans(),
    st.sampled_from(["", "LEADING", "SEPARATE", "LEADING SEPARATE", "COMP", "COMP-3", "COMP-5"]),
    st.sampled_from([(37, BIG), (1141, BIG), (819, LITTLE), (1208, LITTLE)]),
    st.integers(-3, 20),
)
def test_numbers_round_trip(
    data: st.DataObject, digits: int, signed: bool, form: str, machine: tuple[int, int], scale: int
) -> None:
    scale = min(scale, digits)
    whole = f"9({digits - scale})" if scale >= 0 and digits > scale else ""
    text = f"{whole}V9({scale})" if scale > 0 else f"9({digits})" + "P" * -scale
    if not signed and ("LEADING" in form or "SEPARATE" in form):
        form = ""
    read, write = codec(f"{'S' if signed else ''}{text} {form}", *machine)
    number = data.draw(st.integers(-(10**digits) + 1 if signed else 0, 10**digits - 1))
    value = Fraction(number) / Fraction(10) ** scale
    exact = (
        str(value.numerator)
        if scale <= 0
        else f"{'-' if number < 0 else ''}{abs(number) // 10**scale}.{abs(number) % 10**scale:0{scale}d}"
    )
    assert str(read(write(exact))) == exact


@given(st.integers(0, 2**64 - 1), st.sampled_from([4, 8]), st.booleans(), st.sampled_from(["big", "little"]))
def test_floating_point_is_written_as_it_was_read(bits: int, length: int, hexadecimal: bool, order: Any) -> None:
    raw = (bits >> (64 - 8 * length)).to_bytes(length, "big")
    order = "big" if hexadecimal else order
    form = FloatFormat(length, hexadecimal=hexadecimal, order=order)
    try:
        text = form.read(raw)
    except ValueError:
        number = struct.unpack((">" if order == "big" else "<") + ("f" if length == 4 else "d"), raw)[0]
        assert number != number or abs(number) == float("inf")
        return
    again = form.write(Decimal(text))
    if hexadecimal and (not any(raw[1:]) or raw[1] < 0x10):
        assert form.read(again) == text or float(text) < 1e-70  # not normalized
    elif text not in ("0.0", "-0.0"):
        assert again == raw


@given(
    st.binary(min_size=1, max_size=16),
    st.sampled_from(["S9(31)", "S9(3)V99 COMP-3", "S9(9) COMP", "COMP-2", "9(4) BLANK"]),
)
def test_any_bytes_are_a_number_or_rejected(raw: bytes, clauses: str) -> None:
    read, _ = codec(clauses)
    try:
        read(raw.ljust(8, b"\xf0") if clauses == "COMP-2" else raw)
    except ValueError as error:
        assert str(error)
