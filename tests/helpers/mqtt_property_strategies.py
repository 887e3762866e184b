"""Hypothesis strategies for MQTT 5 properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bridge.mqtt.packets import PublishProperties
from bridge.mqtt.properties import STRUCTS
from bridge.mqtt.property_table import PROPERTIES, PropertyKind

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)
users = st.lists(st.tuples(text, text), max_size=5).map(tuple)
of_publish = st.builds(
    PublishProperties,
    st.none() | st.integers(0, 1),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.none() | text,
    st.none() | text.filter(lambda topic: "+" not in topic and "#" not in topic),
    st.none() | st.binary(max_size=200),
    st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple),
    st.none() | st.integers(1, 65535),
    users,
)


def of_row(row: Any, place: Any) -> st.SearchStrategy[Any]:
    """Return values of a property, and none."""
    most = {
        PropertyKind.BYTE: 0xFF,
        PropertyKind.TWO_BYTE_INTEGER: 0xFFFF,
        PropertyKind.FOUR_BYTE_INTEGER: 0xFFFFFFFF,
        PropertyKind.VARIABLE_BYTE_INTEGER: 0xFFFFFFFF,
    }
    if row.kind is PropertyKind.STRING_PAIR:
        return users
    if row.kind in most:
        values: st.SearchStrategy[Any] = st.integers(row.least, min(row.most, most[row.kind]))
    elif row.kind is PropertyKind.BINARY:
        values = st.binary(max_size=200)
    else:
        values = text.filter(lambda topic: "+" not in topic and "#" not in topic)
    return st.lists(values, max_size=3).map(tuple) if place in row.repeated else st.none() | values


def of_place(place: Any) -> st.SearchStrategy[Any]:
    """Return properties of a packet."""
    return st.builds(STRUCTS[place], **{row.field: of_row(row, place) for row in PROPERTIES if place in row.places})
