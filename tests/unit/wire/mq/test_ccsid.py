"""CCSIDs: characters of bytes, including EBCDIC code pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mq.ccsid import CharacterSet, character_set, same_characters

EBCDIC = [37, 273, 277, 278, 280, 284, 285, 297, 500, 871, 1047, *range(1140, 1150)]
EURO_OF = {1140: 37, 1141: 273, 1142: 277, 1143: 278, 1144: 280, 1145: 284, 1146: 285, 1147: 297, 1148: 500, 1149: 871}


def known(ccsid: int, encoding: int = 546) -> CharacterSet:
    characters = character_set(ccsid, encoding)
    assert characters is not None
    return characters


def test_ebcdic_pages(subtests: pytest.Subtests) -> None:
    """Each page has 256 characters and round-trips. Characters that all pages share have the same positions."""
    shared = "ABCIJRSZabcijrsz0189 .<(+&*);-/,%_>?:'="
    data = bytes.fromhex("c1c2c3c9d1d9e2e9818283899199a2a9f0f1f8f9404b4c4d4e505c5d5e60616b6c6d6e6f7a7d7e")
    latin_1 = {chr(code) for code in range(256)}
    for ccsid in EBCDIC:
        with subtests.test(ccsid=ccsid):
            characters, every = known(ccsid), bytes(range(256))
            text = characters.decode(every, nl_to_lf=False)
            assert len(set(text)) == 256
            assert characters.encode(text) == every
            assert set(text) == (latin_1 - {"¤"} | {"€"} if ccsid in EURO_OF else latin_1)
            assert characters.decode(data) == shared
            # X'15' is NL and X'25' is LF. Outside EBCDIC, both become LF (ConvEBCDICNewline=NL_TO_LF).
            assert characters.decode(b"\x15\x25") == "\n\n"
            assert characters.decode(b"\x15\x25", nl_to_lf=False) == "\x85\n"
            assert characters.encode("\n") == b"\x25"


@pytest.mark.parametrize("ccsid", [37, 273, 500, 1140, 424, 875, 1026])
def test_pages_that_python_supports_are_equal(ccsid: int) -> None:
    every = bytes(range(256)) if ccsid != 424 else bytes(range(0x40))
    theirs = every.decode(f"cp{ccsid:03d}").replace("‾", "¯" if ccsid == 273 else "‾")
    assert known(ccsid).decode(every, nl_to_lf=False) == theirs


@pytest.mark.parametrize(
    ("ccsid", "data", "text"),
    [
        pytest.param(1047, "ad bd 5f b0 ba bb 4a 5a 4f", "[]^¬Ý¨¢!|", id="1047, z/OS Unix"),
        pytest.param(37, "ba bb b0 5f ad bd 4a 5a 4f", "[]^¬Ý¨¢!|", id="37, US"),
        pytest.param(500, "4a 5a 5f ba b0 bb 4f", "[]^¬¢|!", id="500, international"),
        pytest.param(273, "4a e0 5a c0 6a d0 a1 7c 43 dc 63 fc", "ÄÖÜäöüß§{}[]", id="273, German"),
        pytest.param(277, "9f", "]", id="277, Danish: ]"),
        pytest.param(278, "71 e0", "\\É", id="278, Swedish"),
        pytest.param(285, "5b 4a", "£$", id="285, UK"),
        pytest.param(1141, "9f", "€", id="1141, German with the euro sign"),
        pytest.param(1149, "4a c0", "Þþ", id="1149, Icelandic"),
        pytest.param(437, "81 9b", "ü¢", id="437"),
        pytest.param(850, "81 bd", "ü¢", id="850"),
        pytest.param(819, "fc a2", "ü¢", id="819"),
        pytest.param(1252, "80", "€", id="1252"),
        pytest.param(1250, "9c", "ś", id="1250"),
        pytest.param(1251, "c6", "Ж", id="1251"),
        pytest.param(943, "93fa", "日", id="943"),
        pytest.param(932, "93fa", "日", id="932"),
        pytest.param(5488, "c8d5", "日", id="5488"),
        pytest.param(1208, "e697a5", "日", id="1208"),
        pytest.param(1202, "e565", "日", id="1202"),
        pytest.param(1201, "65e5", "日", id="1201"),
    ],
)
def test_characters(ccsid: int, data: str, text: str) -> None:
    characters = known(ccsid)
    assert characters.decode(bytes.fromhex(data)) == text
    assert characters.encode(text) == bytes.fromhex(data)


@pytest.mark.parametrize(("encoding", "data"), [(546, "e565"), (273, "65e5")], ids=["native", "big-endian"])
@pytest.mark.parametrize("ccsid", [1200, 13488, 17584])
def test_utf_16_has_the_byte_order_of_the_encoding(ccsid: int, encoding: int, data: str) -> None:
    assert known(ccsid, encoding).decode(bytes.fromhex(data)) == "日"


def test_unknown_ccsids_have_no_character_set() -> None:
    assert character_set(9999) is None
    assert character_set(0) is None


def test_ccsids_with_the_same_characters_are_recognized() -> None:
    assert same_characters(1208, 1208)
    assert not same_characters(1208, 819)
    assert not same_characters(1200, 1200)  # the Encoding determines which


@given(st.sampled_from([1208, 1200, 1202, 5488]), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_unicode_text_round_trips(ccsid: int, text: str) -> None:
    assert known(ccsid).decode(known(ccsid).encode(text)) == text


@given(st.sampled_from(EBCDIC), st.text(st.characters(max_codepoint=255, exclude_characters="¤\x85")))
def test_any_latin_1_text_round_trips_through_ebcdic(ccsid: int, text: str) -> None:
    assert known(ccsid).decode(known(ccsid).encode(text)) == text


@given(st.sampled_from(EBCDIC), st.text())
def test_a_character_missing_in_a_page_is_an_error_or_a_question_mark(ccsid: int, text: str) -> None:
    characters = known(ccsid)
    page = characters.decode(bytes(range(256)), nl_to_lf=False)
    if all(character in page for character in text):
        assert len(characters.encode(text)) == len(text)
        return
    with pytest.raises(UnicodeEncodeError):
        characters.encode(text)
    assert b"\x6f" in characters.encode(text, "replace")
