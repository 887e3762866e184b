"""Copybooks: both source formats, COPY REPLACING, clauses, and errors with line and column."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.record.copybook import CopybookError, CopybookFiles, Declaration, Occurs, Sign, parse
from bridge.record.layout import LayoutError, layout_of
from bridge.record.picture import Picture, PictureError, picture_of

COPYBOOKS = Path(__file__).parent / "copybooks"
#: The beginning of a copybook in fixed format.
RECORD = "       01  R.\n"


def declared(directory: Path, text: str, name: str = "r.cpy") -> list[Declaration]:
    """Return the records of a copybook with this text."""
    (directory / name).write_text(text)
    return parse(CopybookFiles(directory / name))


def names_of(declarations: list[Declaration]) -> list[str]:
    return [declaration.title for declaration in declarations]


@pytest.mark.parametrize("name", sorted(path.name for path in COPYBOOKS.glob("*.cpy") if path.name != "address.cpy"))
def test_every_copybook_has_a_layout(name: str) -> None:
    layout = layout_of(parse(CopybookFiles(COPYBOOKS / name)))
    assert layout.record.is_group and layout.maximum > 0


def test_fixed_format_has_sequence_numbers_comments_and_identification(tmp_path: Path) -> None:
    text = (
        "000100 01  R.                                                           REMARK\n"
        "000200* a comment. 05 X\n"
        "000300/ a page\n"
        "000400     05  A PIC X(3).                                              05 B\n"
        "000500D    05  DEBUGGED PIC X.\n"
    )
    (record,) = declared(tmp_path, text)
    assert names_of(record.children) == ["A"]


def test_free_format_begins_in_column_1(tmp_path: Path) -> None:
    text = "*> comment\n01 R.\n05 A PIC X. *> more\n"
    text += "  05 A-NAME-BEYOND-COLUMN-72 USAGE IS DISPLAY                PIC IS X(10).\n"
    (record,) = declared(tmp_path, text)
    assert names_of(record.children) == ["A", "A-NAME-BEYOND-COLUMN-72"]


def test_a_directive_selects_free_format(tmp_path: Path) -> None:
    text = (
        "       >>SOURCE FORMAT IS FREE\n01 R. 05 A                                                           PIC X.\n"
    )
    (record,) = declared(tmp_path, text)
    assert names_of(record.children) == ["A"]


def test_words_and_literals_continue_on_the_next_line(tmp_path: Path) -> None:
    text = (
        RECORD
        + "           05  A-LONG-\n"
        + "      -    NAME PIC X(70) VALUE 'ABC\n"
        + "      -    'DEF. 05 NOT-A-FIELD'.\n"
    )
    (record,) = declared(tmp_path, text)
    assert names_of(record.children) == ["A-LONG-NAME"]


def test_a_copybook_without_level_01_is_one_record(tmp_path: Path) -> None:
    (record,) = declared(tmp_path, "           05 A PIC X.\n           05 B PIC X.\n", "parts.cpy")
    assert (record.title, names_of(record.children)) == ("PARTS", ["A", "B"])


def test_the_clauses_of_an_entry(tmp_path: Path) -> None:
    text = RECORD + (
        "           02 A PICTURE IS S9(3)V9 USAGE IS DISPLAY\n"
        "              SIGN IS LEADING SEPARATE CHARACTER VALUE +1.5.\n"
        "           02 B OCCURS 1 TO 5 TIMES DEPENDING ON N OF R\n"
        "              ASCENDING KEY IS C INDEXED BY I J.\n"
        "              03 C PIC 9(4) COMPUTATIONAL-4 SYNCHRONIZED LEFT.\n"
        "              03 FILLER PIC X JUST RIGHT VALUE SPACE.\n"
        "              03 PIC X.\n"
        "              03 D PIC 9(3) BLANK WHEN ZEROES.\n"
    )
    (record,) = declared(tmp_path, text)
    a, b = record.children
    assert (a.picture, a.usage, a.sign) == (picture_of("S9(3)V9"), "DISPLAY", Sign(True, True))
    assert b.occurs == Occurs(1, 5, "N")
    c, filler, unnamed, d = b.children
    assert (c.usage, c.is_synchronized, filler.is_justified, d.blank_when_zero) == ("COMP", True, True, True)
    assert (filler.name, unnamed.name) == (None, None)


@pytest.mark.parametrize(
    ("entries", "place", "sentence"),
    [
        ("           05 A PIC X", (2, 12), "the entry 05 A PIC has no period"),
        ("           77 A PIC X.", (2, 12), "level 77 (independent items) is not supported"),
        ("           66 A RENAMES B.", (2, 12), "level 66 (RENAMES) is not supported"),
        ("           50 A PIC X.", (2, 12), "level 50 is not supported"),
        ("           A PIC X.", (2, 12), "expected a level number, found A"),
        ("           05 A PIC X(3)N.", (2, 25), "symbol 'N' (national characters) is not supported"),
        ("           05 A PIC 9V9V9.", (2, 21), "S comes first, V once"),
        ("           05 A PIC 9(32).", (2, 21), "more than 31 digits"),
        ("           05 A POINTER.", (2, 17), "the clause POINTER is not supported"),
        ("           05 A USAGE INDEX.", (2, 23), "USAGE INDEX is not supported"),
        ("           05 A PIC X PIC X.", (2, 23), "A has two clauses PIC"),
        ("           05 A PIC X.\n              10 B PIC X.", (3, 18), "B follows A, which has a PICTURE"),
        ("           05 A PIC X OCCURS 0 TIMES.", (2, 23), "OCCURS … TO needs DEPENDING ON"),
        ("           05 A PIC X OCCURS 1 TO 5.", (2, 23), "OCCURS … TO needs DEPENDING ON"),
        ("           05 A PIC X OCCURS UNBOUNDED.", (2, 30), "expected a number of at least 0, found UNBOUNDED"),
        ("           05 A PIC X VALUE 'ABC.", (2, 29), "a literal that does not end"),
        ("           COPY MISSING.", (2, 12), "has no such file (looked for missing, missing.cpy"),
        ("           COPY '../secret'.", (2, 12), "not the name of a file in the same directory"),
        ("           COPY R.", (2, 12), "r.cpy copies itself"),
        ("           COPY X REPLACING ==A== TO ==B==.", (2, 35), "expected BY, found TO"),
        ("           REPLACE ==A== BY ==B==.", (2, 12), "the statement REPLACE is not supported"),
        ("       >>SOURCE FIXED\n      ?    05 A PIC X.", (3, 7), "column 7 contains '?', which is not an indicator"),
        ("           EXEC SQL INCLUDE X END-EXEC.", (2, 12), "expected a level number, found EXEC"),
    ],
)
def test_mistakes_have_line_and_column(tmp_path: Path, entries: str, place: tuple[int, int], sentence: str) -> None:
    with pytest.raises(CopybookError) as error:
        declared(tmp_path, RECORD + entries + "\n")
    position = error.value.position
    assert sentence in str(error.value)
    assert (position.file, position.line, position.column) == ("r.cpy", *place)


@pytest.mark.parametrize(
    ("entries", "line", "sentence"),
    [
        ("           05 A.", 2, "an item without PICTURE has subordinate items"),
        ("           05 A COMP-1 PIC 9.", 2, "an item of USAGE COMP-1 has no PICTURE"),
        ("           05 A PIC X COMP.", 2, "USAGE COMP needs a PICTURE of digits"),
        ("           05 A PIC 9(19) COMP.", 2, "a binary number has 18 digits at most"),
        ("           05 A PIC 9(3) SIGN LEADING.", 2, "SIGN belongs to a number of USAGE DISPLAY with S"),
        ("           05 A PIC 9 JUST.", 2, "JUSTIFIED belongs to text"),
        ("           05 A PIC X.\n           05 A PIC 9.", 3, "A has the JSON name a, as A of the same group"),
        ("           05 A-B PIC X.\n           05 A_B PIC 9.", 3, "has the JSON name a_b"),
        (
            "           05 A PIC X.\n           05 B PIC X.\n           05 C REDEFINES A PIC X.",
            4,
            "which is not the item before",
        ),
        ("           05 A PIC X OCCURS 2.\n           05 C REDEFINES A PIC XX.", 3, "which has OCCURS"),
        ("           05 A PIC X OCCURS 9 DEPENDING ON N.", 2, "N is not an item of the record"),
        (
            "           05 N PIC 9.\n           05 A PIC X OCCURS 9 DEPENDING ON N.\n           05 B PIC X.",
            3,
            "belongs to the last item",
        ),
        ("           05 N PIC X.\n           05 A PIC X OCCURS 9 DEPENDING ON N.", 3, "N is not a single whole number"),
        (
            "           05 X PIC X.\n           05 A PIC X.\n           05 B REDEFINES A PIC S9 COMP SYNC.",
            4,
            "boundary of 2 bytes",
        ),
        ("           05 A PIC X(100) OCCURS 9999999.", 1, "999,999,900 bytes, of 104,857,600 at most"),
        ("           05 A OCCURS 9999.\n            10 B PIC X OCCURS 999.", 1, "9,989,001 values, of 100,000 at most"),
    ],
)
def test_items_that_have_no_layout_are_rejected(tmp_path: Path, entries: str, line: int, sentence: str) -> None:
    with pytest.raises(CopybookError) as error:
        layout_of(declared(tmp_path, RECORD + entries + "\n"))
    assert sentence in str(error.value)
    assert error.value.position.line == line


def test_one_of_several_records_is_selected(tmp_path: Path) -> None:
    records = declared(tmp_path, RECORD + "         02 A PIC X.\n       01 S.\n         02 B PIC XX.\n")
    assert layout_of(records, "s").maximum == 2
    with pytest.raises(LayoutError, match=r"2 records: R, S \(hint: select one with the option record\)"):
        layout_of(records)
    with pytest.raises(LayoutError, match="no record T; it has R, S"):
        layout_of(records, "T")


def test_copy_replacing_parts_of_names_and_pictures() -> None:
    layout = layout_of(parse(CopybookFiles(COPYBOOKS / "shipment.cpy")))
    described = [(item.title, item.offset, item.length) for _, item in layout.items() if not item.is_group]
    assert described == [
        ("FROM-STREET", 0, 20),
        ("FROM-CITY", 20, 15),
        ("TO-STREET", 35, 20),
        ("TO-CITY", 55, 25),
        ("WEIGHT", 80, 5),
    ]


@pytest.mark.parametrize(
    ("replacing", "names"),
    [
        ("OLD-A BY NEW-A", ["NEW-A", "OLD-B", "X-OLD-C"]),
        ("LEADING ==OLD== BY ==N==", ["N-A", "N-B", "X-OLD-C"]),
        ("TRAILING ==-B== BY ====", ["OLD-A", "OLD", "X-OLD-C"]),
        ("==05 OLD-A PIC X.== BY ====", ["OLD-B", "X-OLD-C"]),
        ("==OLD-A== BY ==E PIC 9. 05 F==", ["E", "F", "OLD-B", "X-OLD-C"]),
    ],
)
def test_copy_replacing(tmp_path: Path, replacing: str, names: list[str]) -> None:
    (tmp_path / "PART.CPY").write_text(
        "           05 OLD-A PIC X.\n           05 OLD-B PIC X.\n           05 X-OLD-C PIC X.\n"
    )
    (record,) = declared(tmp_path, RECORD + f"       COPY PART OF LIB SUPPRESS\n       REPLACING {replacing}.\n")
    assert names_of(record.children) == names


@pytest.mark.parametrize("copied", [False, True])
def test_a_pipe_and_a_device_are_not_read(tmp_path: Path, copied: bool) -> None:
    """They may never end."""
    os.mkfifo(tmp_path / "pipe.cpy")
    (tmp_path / "zero.cpy").symlink_to("/dev/zero")
    for name in ("pipe.cpy", "zero.cpy"):
        (tmp_path / "main.cpy").write_text(f"       01 R.\n           COPY {name}.\n")
        with pytest.raises((OSError, CopybookError), match="Not a regular file"):
            parse(CopybookFiles(tmp_path / ("main.cpy" if copied else name)))


def test_nested_copies_end(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"p{number}.cpy").write_text(f"           COPY p{number + 1}.\n")
    with pytest.raises(CopybookError, match="nested more than 10 deep"):
        declared(tmp_path, "           COPY p0.\n")


def test_many_copies_end(tmp_path: Path) -> None:
    (tmp_path / "p0.cpy").write_text("           05 A PIC X.\n" * 10)
    for number in range(1, 8):
        (tmp_path / f"p{number}.cpy").write_text(f"           COPY p{number - 1}.\n" * 30)
    with pytest.raises(CopybookError, match="more than 200,000 words"):
        declared(tmp_path, "           COPY p7.\n")


def test_many_operands_and_continuation_lines_end(tmp_path: Path) -> None:
    (tmp_path / "part.cpy").write_text("".join(f"           05 A{number} PIC X.\n" for number in range(3000)))
    operands = "".join(f"           ==A{number}== BY ==B{number}==\n" for number in range(3000))
    (record,) = declared(tmp_path, RECORD + f"           COPY PART REPLACING\n{operands}           .\n")
    assert {name[0] for name in names_of(record.children)} == {"B"} and len(record.children) == 3000
    with pytest.raises(CopybookError, match=r"r.cpy:\d+:7: too many continuation lines"):
        declared(tmp_path, RECORD + "           05 A PIC X VALUE 'a\n" + f"      -    '{'a' * 50}\n" * 14_000)


def test_a_file_is_read_once_and_changes_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "part.cpy").write_text("           05 A PIC X.\n")
    (tmp_path / "r.cpy").write_text(RECORD + "           COPY PART.\n")
    files = CopybookFiles(tmp_path / "r.cpy")
    parse(files)
    (tmp_path / "part.cpy").write_text("           05 A PIC XX.\n")
    assert layout_of(parse(files)).maximum == 1
    changed = CopybookFiles(tmp_path / "r.cpy")
    assert layout_of(parse(changed)).maximum == 2
    assert files != changed


@pytest.mark.parametrize(
    ("text", "length", "digits", "scale", "signed"),
    [
        ("9", 1, 1, 0, False),
        ("s9(5)v99", 7, 7, 2, True),
        ("9(3)V", 3, 3, 0, False),
        ("V99", 2, 2, 2, False),
        ("9(3)P(2)", 3, 3, -2, False),
        ("S99PPPV", 2, 2, -3, True),
        ("PPP99", 2, 2, 5, False),
        ("SVP9", 1, 1, 2, True),
    ],
)
def test_numeric_pictures_are_parsed(text: str, length: int, digits: int, scale: int, signed: bool) -> None:
    assert picture_of(text) == Picture(text, length, True, digits, scale, signed)


@pytest.mark.parametrize(
    ("text", "length", "edited"),
    [
        ("X(10)", 10, False),
        ("A(3)", 3, False),
        ("XX99", 4, False),
        ("ZZ,ZZ9.99-", 10, True),
        ("$$,$$9.99CR", 11, True),
        ("99/99/9999", 10, True),
        ("XXBXX", 5, True),
        ("+9.99E+99", 9, True),
    ],
)
def test_pictures_of_text_are_parsed(text: str, length: int, edited: bool) -> None:
    assert picture_of(text) == Picture(text, length, is_edited=edited)


@pytest.mark.parametrize("text", ["", "9P9", "S", "V", "9S", "X(0)", "X(", "P", "PV9", "9V9P", "X(999999999)", "N(3)"])
def test_invalid_pictures_are_rejected(text: str) -> None:
    with pytest.raises(PictureError):
        picture_of(text)


@given(st.text(alphabet="XAZ9SVPB0/,.+-*$CRDBE()123 ", max_size=30))
def test_a_picture_is_read_or_rejected(text: str) -> None:
    with contextlib.suppress(PictureError):
        assert picture_of(text).length > 0


_WORDS = (
    "01 05 10 49 88 A B-1 FILLER PIC X(3) S9(4)V99 COMP-3 OCCURS 5 TIMES DEPENDING ON REDEFINES COPY REPLACING == : BY ( )"
    " VALUE 'a' \" . SIGN SYNC"
)
_PIECES = st.sampled_from([*_WORDS.split(), "\n", "\n       ", "\n      *", "\n      -", ".\n       05 "])


@given(st.lists(_PIECES, max_size=60))
def test_any_text_is_parsed_or_rejected(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> None:
    directory = tmp_path_factory.getbasetemp()
    (directory / "fuzz.cpy").write_text("       01 R. 05 " + " ".join(pieces))
    with contextlib.suppress(CopybookError, LayoutError):
        layout_of(parse(CopybookFiles(directory / "fuzz.cpy")))


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.getbasetemp()
    (directory / "fuzz.cpy").write_bytes(content)
    with contextlib.suppress(CopybookError):
        parse(CopybookFiles(directory / "fuzz.cpy"))
