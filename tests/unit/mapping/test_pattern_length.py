"""The length of regular expressions whose counts are written out."""

from __future__ import annotations

import pytest

from bridge.mapping.pattern_length import pattern_length


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("", 0),
        ("^abc$", 5),
        ("a{100}", 100),
        ("a{2,100}", 100),
        ("a{7,}", 7),
        ("a{0}b", 2),
        ("a*b+c?", 3),
        ("a{2}{3}", 6),
        ("((ab){2}c){3}d", 16),
        ("(?:x|yy){5}", 15),
        ("(?P<name>a){4}(?i:b){2}", 6),
        (r"[^\]{9}]{3}[]a{9}]{2}", 5),
        (r"\{9}\d{4}\p{Lu}{2}\x{41}{3}", 12),
        ("a{,9}", 5),
        ("a)b{2}", 4),
        ("(a{2}", 2),
    ],
)
def test_the_length_includes_repetitions(pattern: str, length: int) -> None:
    assert pattern_length(pattern) == length


def test_a_long_pattern_takes_linear_time() -> None:
    assert pattern_length("(" * 100_000 + "a" + "){2}" * 100_000) > 10**1_000
    assert pattern_length("[[:alpha:]" * 20_000 + "]") == 1
