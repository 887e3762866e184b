"""`mqbridge record`: layouts of copybooks, and files of records as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.program import program

COPYBOOKS = Path(__file__).parents[1] / "record" / "copybooks"
ORDER = str(COPYBOOKS / "order.cpy")
LINES = [
    {"order_id": "A", "line_count": 1, "order_lines": [{"article": "x", "quantity": 1, "price": 1.5}]},
    {"order_id": "B", "line_count": 0, "order_lines": []},
]
EBCDIC = bytes.fromhex(
    "C140404040404040F0F0F1A74040404040 00001CF0F0F0F0F1F5C0 C240404040404040F0F0F0".replace(" ", "")
)


def record(*arguments: str, status: int = 0, stdin: bytes = b"") -> tuple[bytes, str]:
    result = CliRunner().invoke(program, ["record", *arguments], input=stdin)
    assert result.exit_code == status, result.output
    return result.stdout_bytes, result.stderr


def test_show_prints_offsets_lengths_and_names() -> None:
    output, _ = record("show", ORDER)
    assert [line.split("  ") for line in output.decode().splitlines()][-1] == ["11 to 331 bytes"]
    assert [" ".join(line.split()) for line in output.decode().splitlines()[:-1]] == [
        "OFFSET LENGTH ITEM PICTURE JSON NAME",
        "0 331 ORDER-RECORD group",
        "0 8 ORDER-ID X(8) order_id",
        "8 3 LINE-COUNT 9(3) line_count",
        "11 16 ORDER-LINES group OCCURS 0 TO 20 order_lines",
        "11 6 ARTICLE X(6) order_lines.article",
        "17 3 QUANTITY S9(5) COMP-3 order_lines.quantity",
        "20 7 PRICE S9(5)V99 order_lines.price",
    ]


def test_show_prints_json_for_programs() -> None:
    output, _ = record("show", str(COPYBOOKS / "transaction.cpy"), "-o", "jsonl", "--option", "names=camel")
    items = [json.loads(line) for line in output.splitlines()]
    assert items[5] == {
        "offset": 9,
        "length": 2,
        "depth": 2,
        "cobolName": "HDR-SEQUENCE",
        "jsonName": "recHeader.hdrSequence",
        "description": "S9(4) COMP",
        "occurs": 1,
    }
    assert [item["description"] for item in items if item["cobolName"] == "FILLER"] == ["group REDEFINES REC-DATA"]


@pytest.mark.parametrize("form", ["lines", "array", "indented"])
def test_documents_become_records_and_back(tmp_path: Path, form: str) -> None:
    documents = LINES if form != "indented" else LINES[:1]
    text = {
        "lines": "\n".join(map(json.dumps, LINES)) + "\n\n",
        "array": json.dumps(LINES, indent=2),
        "indented": json.dumps(LINES[0], indent=2),
    }[form]
    (tmp_path / "orders.json").write_text(text)
    target = tmp_path / "orders.dat"
    output, _ = record("encode", ORDER, str(tmp_path / "orders.json"), "--ccsid", "1140", "--to", str(target))
    assert output.decode() == f"{len(documents)} records written to {target}\n"
    assert target.read_bytes() == EBCDIC[: 38 if form != "indented" else 27]
    decoded, _ = record("decode", ORDER, str(target), "--ccsid", "1140")
    assert [json.loads(line) for line in decoded.splitlines()] == documents
    array, _ = record("decode", ORDER, "-", "--ccsid", "1140", "-o", "json", stdin=target.read_bytes())
    assert json.loads(array) == documents
    piped, _ = record("encode", ORDER, "-", "--ccsid", "1140", stdin=text.encode())
    assert piped == target.read_bytes()


def test_no_records_are_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"")
    assert record("decode", ORDER, str(tmp_path / "none")) == (b"", "")
    assert record("decode", ORDER, str(tmp_path / "none"), "-o", "json") == (b"[]\n", "")


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "error"),
    [
        (("show", "none.cpy"), b"", 2, "none.cpy cannot be read: No such file or directory"),
        (("show", str(COPYBOOKS / "address.cpy")), b"", 2, "address.cpy:1:16: :PRE:-STREET is not a name or a clause"),
        (("show", ORDER, "--option", "x"), b"", 2, "--option x: expected NAME=VALUE"),
        (("show", ORDER, "--option", "x=1"), b"", 2, "--option x: no such option"),
        (("show", ORDER, "--option", "names=[a"), b"", 2, "--option names: expected a value in YAML, found '[a'"),
        (("show", ORDER, "--option", "names=a"), b"", 2, "--option names: expected snake, camel or cobol"),
        (
            ("show", ORDER, "--option", "record=A"),
            b"",
            2,
            "--option record: the copybook has no record A; it has ORDER-",
        ),
        (("decode", ORDER, "-", "--ccsid", "65000"), b"", 2, "ccsid: CCSID 65000 is not known here"),
        (("decode", ORDER, "none.dat"), b"", 1, "none.dat: No such file or directory"),
        (
            ("decode", ORDER, "-", "--ccsid", "1140"),
            EBCDIC[:30],
            1,
            "-: record 2 at offset 27: the record is too short: 3 bytes, of 11",
        ),
        (
            ("decode", ORDER, "-", "--ccsid", "1140"),
            EBCDIC[:8] + b"\x40" + EBCDIC[9:],
            1,
            "-: record 1 at offset 0: field line_count at offset 8 (X'40F0F1'): a byte is not a digit",
        ),
        (
            ("encode", ORDER, "-"),
            b'{"order_id": "A", "order_lines": []}\n{"order_id": 1, "order_lines": []}',
            1,
            "-: document 2: the payload does not fit the record of order.cpy: field order_id at offset 0: expected text",
        ),
        (("encode", ORDER, "-"), b"[1", 1, "expected an array of JSON documents: "),
        (("encode", ORDER, "-"), b"no json", 1, "-: document 1: the payload is not JSON"),
    ],
)
def test_errors_have_a_place(arguments: tuple[str, ...], stdin: bytes, status: int, error: str) -> None:
    _, stderr = record(*arguments, status=status, stdin=stdin)
    assert f"mqbridge: error: {error}" in stderr


def test_options_of_payload() -> None:
    redefines = "redefines={rec_data: {field: rec_type, items: {T: filler}, other: rec_data}}"
    arguments = ("decode", str(COPYBOOKS / "transaction.cpy"), "-", "--ccsid", "1140", "--option", redefines)
    raw = b"\xe3" + (3).to_bytes(4, "big") + bytes.fromhex("000000000000700D") + b"\x40" * 27
    output, _ = record(*arguments, stdin=raw)
    assert json.loads(output) == {"rec_type": "T", "trl_count": 3, "trl_total": -7.0}


def test_try_makes_the_record_of_a_json_object(tmp_path: Path) -> None:
    """For a mapping that reads records, whose bytes are difficult to type."""
    file = tmp_path / "bridge.yaml"
    file.write_text(
        "mappings:\n  m:\n    from: {queue: Q}\n    to: {mqtt: 't/{$.order_id}'}\n"
        f"    payload: {{copybook: {ORDER}, ccsid: 1140}}\n"
    )

    def tried(*arguments: str) -> str:
        result = CliRunner().invoke(program, ["try", "m", "--config", str(file), *arguments])
        return result.output

    assert tried("--payload", json.dumps(LINES[0])).startswith("published to MQTT topic t/A\n")
    (tmp_path / "record").write_bytes(EBCDIC[:27])
    encoding = ("--ccsid", "37", "--encoding", "785")
    assert tried("--payload-file", str(tmp_path / "record"), *encoding).startswith("published to MQTT topic t/A\n")
    assert "field order_id at offset 0: expected text, found 1" in tried("--payload", '{"order_id": 1}')
    assert "the record is too short: 5 bytes" in tried("--payload", "[1,2]")
    (tmp_path / "samples").write_text("\n".join([*map(json.dumps, LINES), '{"order_id": 1}', "text"]))
    summary = tried("--samples", str(tmp_path / "samples"), "--each-line")
    assert summary.startswith("4 samples: 2 mapped, 0 not taken, 2 rejected\n")
