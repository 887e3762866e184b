"""Offsets of streaming reads: through the checkpoint and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.spark.mq.offset import BrowseOffset, Entry, Offset, counted, offset_of

NAMED = st.lists(
    st.tuples(
        st.sampled_from([b"a" * 24, b"b" * 24]) | st.binary(min_size=24, max_size=24),
        st.sampled_from([bytes(8), b"12345678"]),
        st.booleans(),
    )
)


@given(
    number=st.integers(0, 2**40),
    partitions=st.integers(1, 1000),
    messages=st.dictionaries(st.text(), NAMED.map(counted), max_size=3),
    reader=st.text(),
)
def test_an_offset_comes_back(number: int, partitions: int, messages: dict[str, list[Entry]], reader: str) -> None:
    offset = Offset(number, partitions, messages, reader)
    assert Offset.of(json.loads(json.dumps(offset.json()))) == offset


def test_an_offset_of_a_browse() -> None:
    """The messages of its batch are the last that it has seen, those that are equal counted among all."""
    one, other = (b"a" * 24, bytes(8), False), (b"b" * 24, bytes(8), True)
    offset = BrowseOffset(3, 2, {"Q": counted([one, other, one]), "R": counted([other])}, {"Q": 2})
    written = json.loads(json.dumps(offset.json()))
    assert BrowseOffset.of(written) == offset_of(written) == offset
    assert offset.messages == {"Q": [Entry(*other), Entry(*one, occurrence=1)]}
    # What was only looked at is not taken away, nor is what was taken passed over.
    with pytest.raises(ValueError, match=r"of a query that browses, .* set the option browse to true"):
        Offset.of(written)
    with pytest.raises(ValueError, match=r"takes its messages away, .* leave the option browse out"):
        BrowseOffset.of(Offset().json())


def test_equal_messages_are_counted() -> None:
    one, other = (b"a" * 24, bytes(8), False), (b"a" * 24, b"12345678", False)
    assert [entry.occurrence for entry in counted([one, other, one, one])] == [0, 0, 1, 2]


def test_an_offset_of_version_1_is_read() -> None:
    """As release 0.1 wrote it; its messages name a reader, which is the same whenever it is read."""
    written = {"number": 7, "partitions": 2, "messages": {"Q": "eJxzTCQNMDACANv6EhI="}}
    entries = [Entry(b"A" + b"a" * 23, b"", False), Entry(b"a" * 24, b"", True)]
    assert Offset.of(written) == Offset(7, 2, {"Q": entries}, "b2285aef33c4c892")
    assert Offset.of({"number": 0, "partitions": 1, "messages": {}}) == Offset()


def test_an_offset_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 3, and this release reads 2 at most: a newer one has written it"):
        Offset.of(Offset().json() | {"version": 3})


def test_messages_in_a_row_take_little_room() -> None:
    """Spark keeps offsets of many batches, and tells them with every progress."""
    numbers = [number.to_bytes(8, "big") for number in range(2**40, 2**40 + 100_000)]
    entries = [Entry(b"AMQ MQB1        " + number, number, False) for number in numbers]
    assert len(json.dumps(Offset(1, 1, {"Q": entries}).json())) < 50_000


def test_an_offset_names_messages_by_whole_identifiers() -> None:
    entry = Entry(b"a" * 24, bytes(8), True)
    with pytest.raises(ValueError, match="queue Q has a message whose MsgId 6162 has 2 bytes instead of 24"):
        Offset(1, 1, {"Q": [entry, entry._replace(msg_id=b"ab")]}).json()
    damaged = Offset().json() | {"messages": {"Q": "eJyrAAAAeQB5"}}
    with pytest.raises(ValueError, match="an offset of the source mq has 1 bytes, which is no multiple of 33: it is damaged"):
        Offset.of(damaged)
