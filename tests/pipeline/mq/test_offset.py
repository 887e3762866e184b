"""Offsets of streaming reads: through the checkpoint and back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bridge.pipeline.mq.offset import Offset

ENTRIES = st.lists(st.tuples(st.binary(min_size=24, max_size=24), st.booleans()))


@given(
    number=st.integers(0, 2**40),
    partitions=st.integers(1, 1000),
    messages=st.dictionaries(st.text(), ENTRIES, max_size=3),
)
def test_an_offset_comes_back(number: int, partitions: int, messages: dict[str, list[tuple[bytes, bool]]]) -> None:
    offset = Offset(number, partitions, messages)
    assert Offset.of(json.loads(json.dumps(offset.json()))) == offset


def test_messages_in_a_row_take_little_room() -> None:
    """Spark keeps offsets of many batches, and tells them with every progress."""
    entries = [(b"AMQ MQB1        " + number.to_bytes(8, "big"), False) for number in range(2**40, 2**40 + 100_000)]
    assert len(json.dumps(Offset(1, 1, {"Q": entries}).json())) < 50_000
