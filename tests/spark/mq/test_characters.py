"""MQCHAR fields as text: each byte is preserved."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.spark.mq.envelope import characters, field_of

FIELDS = [
    # field, text
    (b"", ""),
    (b"orders  ", "orders"),
    (b"abc\0\0\0", "abc"),
    (b"abc\0def", "abc\0def"),
    ("Jörg".encode(), "Jörg"),
    ("Jörg".encode("latin-1"), "J\uf7f6rg"),
    ("\uf7f6".encode(), "\uf7ef\uf79f\uf7b6"),
]


@pytest.mark.parametrize(("field", "text"), FIELDS)
def test_a_field_as_text(field: bytes, text: str) -> None:
    assert characters(field) == text


@given(st.binary(max_size=48))
@example(b"\xef\x9e\x80\xff \0x")
def test_no_byte_is_lost(field: bytes) -> None:
    text = characters(field)
    text.encode()  # it is a string of Arrow
    assert field_of(text) == field.rstrip(b" \0")
