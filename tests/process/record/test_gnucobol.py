"""Records that programs of GnuCOBOL read and write, compiled from the same copybooks: an independent implementation.

GnuCOBOL works in ASCII here. With -fsign=EBCDIC, signs are the characters that those of EBCDIC are converted to. So the
converted bytes are the records of a machine with EBCDIC.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bridge.record.codec import RecordCodec
from bridge.record.copybook import CopybookFiles, parse
from bridge.record.field import CodecOptions
from bridge.record.layout import RecordItem, RecordLayout, layout_of
from tests.helpers.installed import program

COPYBOOKS = Path(__file__).parents[2] / "unit" / "record" / "copybooks"
#: MQMD.Encoding of the programs: binary numbers big-endian, or native with -fbinary-byteorder=native; native floating point.
BIG_ENDIAN, NATIVE = 0x211, 0x212
ASCII, EBCDIC = 819, 37


class CobolProgram:
    """A program that displays the fields of the record in the file `in`, and writes values of its own to the file `out`."""

    def __init__(
        self, directory: Path, copybook: str, document: dict[str, Any], *options: str, **of_layout: Any
    ) -> None:
        self._directory = directory
        self.layout = layout_of(parse(CopybookFiles(COPYBOOKS / copybook)), **of_layout)
        self._fields = list(_fields(self.layout.record, document))
        source = directory / "program.cob"
        source.write_text(self._source(copybook))
        command = [
            program("cobc"),
            "-x",
            "-std=ibm",
            "-ffold-copy=LOWER",
            *options,
            "-I",
            str(COPYBOOKS),
            "-o",
            "program",
            str(source),
        ]
        compiled = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr

    def _source(self, copybook: str) -> str:
        record, length = self.layout.record.title, self.layout.maximum
        # A file has variable records, so that its records are as long as the table with DEPENDING ON makes them.
        moves = [f"MOVE {_literal(value)} TO {name}" for name, _, value in self._fields]
        shows = []
        for name, item, _ in self._fields:
            operand = name
            if item.picture is not None and item.picture.is_numeric:
                shows.append(f"MOVE {name} TO EDITED-NUMBER")
                operand = "EDITED-NUMBER"
            shows.append(f'DISPLAY "{name}=" {operand}')
        lines = [
            "IDENTIFICATION DIVISION.",
            "PROGRAM-ID. RECORDS.",
            "ENVIRONMENT DIVISION.",
            "INPUT-OUTPUT SECTION.",
            "FILE-CONTROL.",
            '    SELECT RECORD-IN ASSIGN TO "in" ORGANIZATION SEQUENTIAL.',
            '    SELECT RECORD-OUT ASSIGN TO "out" ORGANIZATION SEQUENTIAL.',
            "DATA DIVISION.",
            "FILE SECTION.",
            "FD RECORD-IN.",
            f"01 BYTES-IN PIC X({length}).",
            "FD RECORD-OUT.",
            f"01 BYTES-OUT PIC X({length}).",
            "WORKING-STORAGE SECTION.",
            f'COPY "{copybook}".',
            "01 EDITED-NUMBER PIC -(20)9.9(10).",
            "PROCEDURE DIVISION.",
            "    OPEN INPUT RECORD-IN",
            f"    READ RECORD-IN INTO {record}",
            "    CLOSE RECORD-IN",
            *(f"    {show}" for show in shows),
            f"    MOVE LOW-VALUES TO {record}",
            *(f"    {move}" for move in moves),
            "    OPEN OUTPUT RECORD-OUT",
            f"    WRITE BYTES-OUT FROM {record}",
            "    CLOSE RECORD-OUT",
            f'    DISPLAY "LENGTH=" FUNCTION LENGTH({record})',
            "    STOP RUN.",
        ]
        return "".join(f"       {line}\n" for line in lines)

    def run(self, record: bytes) -> tuple[dict[str, str], bytes]:
        """Return the fields of a record as the program displays them, and the record that it writes."""
        (self._directory / "in").write_bytes(record)
        process = subprocess.run(["./program"], cwd=self._directory, capture_output=True, check=True)
        fields = dict(line.partition("=")[::2] for line in process.stdout.decode("latin-1").splitlines())
        return fields, (self._directory / "out").read_bytes()

    def check(self, record: bytes) -> bytes:
        """Check the fields of a record that the program displays. Return the record that it writes."""
        fields, written = self.run(record)
        assert int(fields.pop("LENGTH")) == self.layout.maximum
        for name, item, value in self._fields:
            if isinstance(value, str):
                assert fields[name].rstrip() == value, name
            elif item.usage in ("COMP-1", "COMP-2"):
                assert float(fields[name]) == float(value), name
            else:
                assert Decimal(fields[name]) == value, name
        return written


def _fields(item: RecordItem, document: Any, index: str = "") -> Iterator[tuple[str, RecordItem, Any]]:
    """Yield the name of each field in a program, its item and its value in a document."""
    for child in item.children:
        assert isinstance(child, RecordItem)
        value = document if child.name is None else document[child.name]
        if child.name is None and not child.is_group:
            continue
        for number, element in enumerate(value if child.occurs is not None else [value], 1):
            at = f"{index} {number}" if child.occurs is not None else index
            if child.is_group:
                yield from _fields(child, element, at)
            else:
                yield f"{child.title}{f' ({at.strip()})' if at else ''}", child, element


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _in_ebcdic(layout: RecordLayout, record: bytes) -> bytes:
    """Return a record with all fields of USAGE DISPLAY converted from ASCII to EBCDIC, as MQ or FTP do with text."""
    converted = bytearray(record)

    def convert(item: RecordItem, offset: int) -> None:
        for number in range(item.occurs.maximum if item.occurs is not None else 1):
            start = offset + number * item.stride
            if not item.is_group and item.usage == "DISPLAY":
                field = slice(start, start + item.length)
                converted[field] = converted[field].decode("latin-1").encode("cp037")
            for child in item.children:
                assert isinstance(child, RecordItem)
                convert(child, start + child.offset - item.offset)

    convert(layout.record, 0)
    return bytes(converted)


NUMBERS: dict[str, Any] = {
    "zoned": -1234,
    "zoned_unsigned": 1,
    "zoned_leading": -2,
    "separate_trailing": 3,
    "separate_leading": Decimal("-4.5"),
    "packed": Decimal("-1.10"),
    "packed_unsigned": 5,
    "halfword": -6,
    "fullword": 123456789,
    "doubleword": -999999999999999999,
    "unsigned_halfword": 9999,
    "scaled": Decimal("-0.0001"),
    "edited": "- 1,234.50",
}
SYNCHRONIZED: dict[str, Any] = {
    "work_code": "W",
    "comp_table": [
        {"comp_type": "A", "comp_pay": Decimal(number) / 100, "comp_hrs": number, "comp_name": f"N{number}"}
        for number in range(10)
    ],
    "field_n": "N",
    "field_p": -123456,
    "field_q": "Q",
    "field_r": Decimal("-0.375"),
}
SHIPMENT: dict[str, Any] = {
    "sender": {"from_street": "Main Street 1", "from_city": "Leeds"},
    "receiver": {"to_street": "Rue de Rome", "to_city": "Paris"},
    "weight": Decimal("12.5"),
}
MACHINE: dict[str, Any] = {
    "native_half": -32000,
    "native_full": 999999999,
    "native_double": -123456789012345678,
    "binary_scaled": Decimal("-12345.67"),
    "short_float": Decimal("-118.625"),
    "long_float": Decimal("0.375"),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("copybook", "document", "encoding", "options"),
    [
        ("numbers.cpy", NUMBERS, BIG_ENDIAN, []),
        ("synchronized.cpy", SYNCHRONIZED, BIG_ENDIAN, []),
        ("shipment.cpy", SHIPMENT, BIG_ENDIAN, []),
        ("machine.cpy", MACHINE, NATIVE, ["-fbinary-byteorder=native"]),
    ],
)
def test_a_program_reads_and_writes_the_same_records(
    tmp_path: Path, copybook: str, document: dict[str, Any], encoding: int, options: list[str], sign: int
) -> None:
    if sign < 0:
        document = {
            name: -value
            if isinstance(value, int | Decimal) and "unsigned" not in name and name not in ("native_full", "weight")
            else value
            for name, value in document.items()
        }
    cobol = CobolProgram(tmp_path, copybook, document, "-fsign=EBCDIC", "-fbinary-truncate", *options)
    codec = RecordCodec(cobol.layout, ASCII, encoding)
    record = codec.encode(document)
    written = cobol.check(record)
    assert codec.decode(written) == document
    assert written == record
    in_ebcdic = RecordCodec(cobol.layout, EBCDIC, encoding)
    assert in_ebcdic.decode(_in_ebcdic(cobol.layout, written)) == document
    assert in_ebcdic.encode(document) == _in_ebcdic(cobol.layout, written)


def test_signs_of_compilers_on_ascii_machines(tmp_path: Path) -> None:
    cobol = CobolProgram(tmp_path, "numbers.cpy", NUMBERS, "-fsign=ASCII")
    codec = RecordCodec(cobol.layout, ASCII, BIG_ENDIAN, CodecOptions(ascii_signs="ascii"))
    record = codec.encode(NUMBERS)
    assert cobol.check(record) == record
    assert codec.decode(record) == NUMBERS


@pytest.mark.parametrize("number", [0, 3, 20])
def test_a_table_with_depending_on(tmp_path: Path, number: int) -> None:
    lines = [{"article": f"A{line}", "quantity": -line, "price": Decimal(line) / 4} for line in range(number)]
    document = {"order_id": "O1", "line_count": number, "order_lines": lines}
    cobol = CobolProgram(tmp_path, "order.cpy", document, "-fsign=EBCDIC")
    codec = RecordCodec(cobol.layout, ASCII, BIG_ENDIAN)
    record = codec.encode(document)
    fields, written = cobol.run(record.ljust(cobol.layout.maximum))
    assert int(fields["LENGTH"]) == len(record)
    assert codec.decode(written[: len(record)]) == document
    assert written[: len(record)] == record


def test_a_key_of_a_customer_and_its_company(tmp_path: Path) -> None:
    (tmp_path / "customer.cpy").write_bytes((COPYBOOKS / "customer.cpy").read_bytes())
    layout = layout_of(parse(CopybookFiles(COPYBOOKS / "customer.cpy")), redefines={"cust_detail": "cust_firm"})
    address = {"addr_line": ["Main Street", "1", ""], "addr_zip": 12345}
    address["addr_line"][0] = "Main St"  # type: ignore[index]
    document = {
        "customer_key": {"cust_branch": 123, "cust_number": 987654321},
        "cust_name": "Smith",
        "cust_type": "C",
        "cust_firm": {"cust_tax_id": "GB123", "cust_employees": -7},
        "cust_address": [address, address],
        "cust_balance": Decimal("-123456789.01"),
        "cust_limit": Decimal("-0.05"),
    }
    source = tmp_path / "program.cob"
    moves = [
        "123 TO CUST-BRANCH", "987654321 TO CUST-NUMBER", '"Smith" TO CUST-NAME', '"C" TO CUST-TYPE',
        "SPACES TO CUST-DETAIL", '"GB123" TO CUST-TAX-ID', "-7 TO CUST-EMPLOYEES", "-123456789.01 TO CUST-BALANCE",
        "-0.05 TO CUST-LIMIT",
        *(f'"{line}" TO ADDR-LINE({row} {number})' for row in (1, 2) for number, line in ((1, "Main St"), (2, "1"))),
        *(f"12345 TO ADDR-ZIP({row})" for row in (1, 2)),
    ]  # fmt: skip
    text = [
        "IDENTIFICATION DIVISION.", "PROGRAM-ID. RECORDS.", "DATA DIVISION.", "WORKING-STORAGE SECTION.",
        'COPY "customer.cpy".', "PROCEDURE DIVISION.", "    MOVE SPACES TO CUSTOMER-RECORD",
        *(f"    MOVE {move}" for move in moves), "    DISPLAY CUSTOMER-RECORD WITH NO ADVANCING", "    STOP RUN.",
    ]  # fmt: skip
    source.write_text("".join(f"       {line}\n" for line in text))
    subprocess.run(
        [program("cobc"), "-x", "-std=ibm", "-fsign=EBCDIC", "-o", "program", source.name], cwd=tmp_path, check=True
    )
    written = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, check=True).stdout
    codec = RecordCodec(layout, ASCII, BIG_ENDIAN)
    assert codec.decode(written) == document
    assert codec.encode(document) == written


def _random_group(chance: random.Random, prefix: str, level: int) -> list[str]:
    """The entries of a group with all kinds of items, except those with SYNCHRONIZED."""
    lines = []
    for number in range(chance.randint(1, 5)):
        name = f"{prefix}-{number}"
        occurs = f" OCCURS {chance.randint(1, 4)}" if chance.random() < 0.3 else ""
        if level < 20 and chance.random() < 0.3:
            lines += [f"{level:02d} {name}{occurs}.", *_random_group(chance, name, level + 5)]
            continue
        digits, decimals = chance.randint(1, 9), chance.randint(0, 9)
        number_ = f"{'S' * chance.randint(0, 1)}9({digits}){f'V9({decimals})' if decimals else ''}"
        signed = number_.startswith("S")
        picture = chance.choice(
            [
                f"PIC X({chance.randint(1, 20)})",
                f"PIC {number_}",
                f"PIC {number_} COMP",
                f"PIC {number_} COMP-3",
                # With one or two digits, GnuCOBOL has one byte, and IBM two.
                f"PIC S9({chance.randint(3, 18)}) COMP-5",
                f"PIC {number_} SIGN LEADING SEPARATE" if signed else f"PIC {number_} BINARY",
                f"PIC {'Z' * digits}9.9-",
                "COMP-1",
                "COMP-2",
            ]
        )
        lines.append(f"{level:02d} {name} {picture}{occurs}.")
        if not occurs and chance.random() < 0.2:
            lines.append(f"{level:02d} {name}-R REDEFINES {name} PIC X.")
    return lines


def test_lengths_of_any_record(tmp_path: Path) -> None:
    """GnuCOBOL computes the same length of each of a hundred random records, and of their groups and items."""
    chance = random.Random(52)
    records = {f"R{number}": _random_group(chance, f"R{number}", 5) for number in range(100)}
    lines = [line for name, entries in records.items() for line in (f"01 {name}.", *entries)]
    (tmp_path / "all.cpy").write_text("".join(f"       {line}\n" for line in lines))
    declarations = parse(CopybookFiles(tmp_path / "all.cpy"))
    expected = {}
    for name in records:
        for _, item in layout_of(declarations, name).items():
            expected[item.title] = item.length
    source = ["IDENTIFICATION DIVISION.", "PROGRAM-ID. LENGTHS.", "DATA DIVISION.", "WORKING-STORAGE SECTION."]
    source += [
        'COPY "all.cpy".',
        "PROCEDURE DIVISION.",
        *(f'    DISPLAY "{name}=" LENGTH OF {name}' for name in expected),
    ]
    (tmp_path / "lengths.cob").write_text("".join(f"       {line}\n" for line in [*source, "    STOP RUN."]))
    command = [program("cobc"), "-x", "-std=ibm", "-I", str(tmp_path), "-o", "lengths", "lengths.cob"]
    compiled = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    process = subprocess.run(["./lengths"], cwd=tmp_path, capture_output=True, text=True, check=True)
    lengths = dict(line.split("=") for line in process.stdout.splitlines())
    assert {name: int(length) for name, length in lengths.items()} == expected
