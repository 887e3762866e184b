"""Payload conversion in both directions, and reasons for errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mapping.json_document import document_of
from bridge.mapping.message_view import in_ccsid, json_object, text_of, utf_8
from bridge.telemetry.message import Unmappable


@pytest.mark.parametrize(
    ("data", "ccsid", "expected"),
    [
        (b"21.5", 1208, b"21.5"),
        ("Ölstand".encode("cp850"), 850, "Ölstand".encode()),
        (bytes.fromhex("c1c2c325f1"), 1047, b"ABC\n1"),
        (bytes.fromhex("c1c2c315f1"), 500, b"ABC\n1"),
        ("日".encode("utf-16-le"), 1200, "日".encode()),
        (b"", 37, b""),
    ],
)
def test_payloads_from_mq_are_converted(data: bytes, ccsid: int, expected: bytes) -> None:
    assert utf_8(data, ccsid) == expected


@pytest.mark.parametrize(
    ("text", "ccsid", "expected"),
    [
        ("21.5", 1208, "32312e35"),
        ("ABC\n1", 1047, "c1c2c325f1"),
        ("[€]", 1148, "4a9f5a"),
        ("Öl", 850, "996c"),
        ("日", 1200, "e565"),
    ],
)
def test_payloads_to_mq_are_converted(text: str, ccsid: int, expected: str) -> None:
    assert in_ccsid(text.encode(), ccsid).hex() == expected


@pytest.mark.parametrize(
    ("convert", "reason", "part"),
    [
        pytest.param(lambda: utf_8(b"a\xff", 1208), 2119, "not text in CCSID 1208: 'a?.*at byte 1", id="no UTF-8"),
        pytest.param(lambda: utf_8(b"abc", 1200), 2119, "not text in CCSID 1200", id="half a UTF-16 unit"),
        pytest.param(lambda: utf_8(b"abc", 9999), 2111, "CCSID 9999", id="source unknown"),
        pytest.param(lambda: in_ccsid(b"\xff", 500), 2119, "not text in CCSID 1208", id="payload no UTF-8"),
        pytest.param(
            lambda: in_ccsid("a日".encode(), 500), 2119, "no '日', which is character 2", id="no such character"
        ),
        pytest.param(lambda: in_ccsid(b"a", 9999), 2115, "CCSID 9999", id="target unknown"),
        pytest.param(lambda: document_of(b"{'a': 1}"), 2110, "not JSON", id="single quotes"),
        pytest.param(lambda: document_of(b"NaN"), 2110, "not JSON", id="NaN"),
        pytest.param(lambda: document_of(b'{"a": Infinity}'), 2110, "not JSON", id="Infinity"),
        pytest.param(lambda: document_of(b""), 2110, "not JSON", id="nothing"),
        pytest.param(lambda: document_of(b'{"a":1}\0'), 2110, "not JSON", id="a NUL behind it"),
        pytest.param(lambda: document_of(b'"\xff"'), 2110, "not JSON", id="JSON is UTF-8"),
        pytest.param(lambda: document_of(b"[" * 100_000), 2110, "not JSON", id="too deep"),
        pytest.param(lambda: document_of(b"x" * 100), 2110, "and 60 bytes more", id="long ones are cut"),
    ],
)
def test_payloads_that_cannot_be_converted_have_a_reason(convert: object, reason: int, part: str) -> None:
    with pytest.raises(Unmappable, match=part) as raised:
        convert()  # type: ignore[operator]
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("data", "document"),
    [
        (b'{"b":1,"a":[true,null,"x"]}', {"b": 1, "a": [True, None, "x"]}),
        (b" 1.5 ", 1.5),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'"\\u00e9"', "é"),
        (b"null", None),
    ],
)
def test_json(data: bytes, document: object) -> None:
    assert document_of(data) == document


def test_an_object_is_compact_and_ordered() -> None:
    assert json_object({"b": "ü", "a": '"'}) == '{"b":"ü","a":"\\""}'.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([1208, 1200, 1202, 5488]))
def test_text_round_trips(text: str, ccsid: int) -> None:
    assert utf_8(in_ccsid(text.encode(), ccsid), ccsid) == text.encode()


@given(st.binary(max_size=40), st.integers(0, 70_000))
def test_any_bytes_in_any_ccsid_are_text_or_unmappable(data: bytes, ccsid: int) -> None:
    try:
        text_of(data, ccsid)
    except Unmappable as error:
        assert error.reason in (2111, 2119)
