"""JSON payloads keep the digits of their numbers. Singular queries select one of their values."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath_rfc9535 import find

from bridge.mapping.json_document import MISSING, PathError, document_of, encoded, path_of
from bridge.telemetry.message import Unmappable

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(NUMBERS))
def test_numbers_keep_their_digits(numbers: list[str]) -> None:
    document = f"[{','.join(numbers)}]"
    # -0 is an integer, and there is only one zero.
    expected = ",".join("0" if number == "-0" else number for number in numbers)
    assert encoded(document_of(document.encode())) == f"[{expected}]".encode()


@given(DOCUMENTS)
def test_documents_are_written_as_they_were_read(document: Any) -> None:
    assert json.loads(encoded(document_of(json.dumps(document).encode()))) == document


@given(DOCUMENTS, st.data())
def test_a_query_selects_the_value_defined_by_rfc_9535(document: Any, data: st.DataObject) -> None:
    query = "$"
    for _ in range(data.draw(st.integers(0, 4))):
        names = st.sampled_from([*document]) if isinstance(document, dict) and document else NAMES
        segment = data.draw(names | st.integers(-3, 3))
        query += f"[{json.dumps(segment)}]"
    node = find(query, document)
    selected = path_of(query).value(document)
    assert selected == node[0].value if node else selected is MISSING


@pytest.mark.parametrize(
    ("query", "segments"),
    [
        ("$", ()),
        ("$.device.id", ("device", "id")),
        ("$.readings[0].value", ("readings", 0, "value")),
        ("$['a name'][\"b'c\"][ -1 ]", ("a name", "b'c", -1)),
        (r"$['it\'s \"quoted\" \u00e9 }|{']", ('it\'s "quoted" é }|{',)),
        ("$.größe._1", ("größe", "_1")),
    ],
)
def test_the_segments_of_a_query(query: str, segments: tuple[str | int, ...]) -> None:
    path = path_of(query)
    assert path.segments == segments
    assert pickle.loads(pickle.dumps(path)).segments == segments


@pytest.mark.parametrize(
    ("query", "position", "why"),
    [
        ("device.id", 0, "begins with $"),
        ("$.device-id", 1, "hint: ['device-id']"),
        ("$.a.1b", 3, "hint: ['1b']"),
        ("$.*", 1, "names and indexes only"),
        ("$..a", 1, "names and indexes only"),
        ("$.a[*]", 3, "names and indexes only"),
        ("$.a[0:1]", 3, "names and indexes only"),
        ("$.a[01]", 3, "names and indexes only"),
        ("$[?@.a]", 1, "names and indexes only"),
        ("$['a", 1, "names and indexes only"),
        (r"$['\q']", 1, "escapes of JSON"),
        (r"$['\ud800']", 1, "escapes of JSON"),
        ("$.a b", 3, "names and indexes only"),
    ],
)
def test_a_text_that_is_not_a_singular_query(query: str, position: int, why: str) -> None:
    with pytest.raises(PathError) as error:
        path_of(query)
    assert error.value.position == position
    assert why in error.value.sentence


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"NaN", b"1e400", b"-1e999", b"9" * 5_000, b"[" * 100_000, b'"\xff"', b"{'a': 1}", b'{"a": 1} x'],
    ids=lambda payload: repr(payload[:10]),
)
def test_a_payload_that_is_not_json_is_rejected(payload: bytes) -> None:
    with pytest.raises(Unmappable, match="the payload is not JSON") as error:
        document_of(payload)
    assert len(str(error.value)) < 300
