"""Client identifiers as names of queue managers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.identity import AS_IS, ClientNames
from bridge.telemetry.request import is_object_name

ESCAPED = ClientNames(escaped=True)
CLIENT_IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=48)


@given(CLIENT_IDS)
def test_an_escaped_identifier_is_an_mq_name_and_can_be_unescaped(client_id: str) -> None:
    name = ESCAPED.name_of(client_id)
    assert ESCAPED.client_of(name) == client_id
    assert (ESCAPED.error(client_id) is None) == is_object_name(name)


@given(CLIENT_IDS, CLIENT_IDS)
def test_two_clients_have_different_names(name: str, other: str) -> None:
    assert (ESCAPED.name_of(name) == ESCAPED.name_of(other)) == (name == other)


@given(st.text(st.sampled_from("A%-2DaéF5/"), max_size=8))
def test_a_name_belongs_to_one_client_at_most(name: str) -> None:
    client_id = ESCAPED.client_of(name)
    assert client_id == "" or ESCAPED.name_of(client_id) == name


@pytest.mark.parametrize(
    ("client_id", "name"),
    [("dev.1/A_b", "dev.1/A_b"), ("dev-1", "dev%2D1"), ("50%", "50%25"), ("ä", "%C3%A4"), ("a ", "a%20")],
)
def test_escaped_names(client_id: str, name: str) -> None:
    assert ESCAPED.name_of(client_id) == name
    assert AS_IS.name_of(client_id) == AS_IS.client_of(client_id) == client_id


@pytest.mark.parametrize("name", ["", "dev-1", "%2d", "%4", "%C3", "a%41"])
def test_a_name_that_no_client_has(name: str) -> None:
    assert ESCAPED.client_of(name) == ""


def test_identifiers_whose_names_do_not_fit() -> None:
    assert ESCAPED.error("x" * 48) is None
    assert ESCAPED.error("-" * 16) is None
    assert "at most 48 bytes" in str(ESCAPED.error("-" * 16 + "x"))
    assert AS_IS.error("-" * 48) is None
    assert "at most 48 bytes" in str(AS_IS.error("ä" * 25))
    assert "blank" in str(AS_IS.error("a "))
