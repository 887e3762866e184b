"""Conversion of user property names to names of message properties, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.headers import property_name, user_name


def test_names_are_converted(subtests: pytest.Subtests) -> None:
    for name, element in [
        ("site", "site"),
        ("_x", "_x"),
        ("site-id", "site_x002D_id"),
        ("a.b", "a_x002E_b"),
        ("$a$", "_x0024_a$"),
        ("1st", "_x0031_st"),
        ("", "_x0000_"),
        ("_x002D_", "_x005F_x002D_"),
        ("ü", "_x00FC_"),
        ("😀", "_x0001F600_"),
    ]:
        with subtests.test(name=name, element=element):
            assert property_name(name) == element
            assert user_name(element) == name


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.text("_x0F5A1-", max_size=30))
def test_any_name_can_be_converted_and_restored(name: str) -> None:
    element = property_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]*", element)
    assert user_name(element) == name


@given(st.text())
def test_any_element_has_a_name(element: str) -> None:
    user_name(element)
