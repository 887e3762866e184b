"""Rows come back once, those of one place together, however few may be in memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.archive.division import PLACE_BITS, Division, place_of

PLACES = st.one_of(st.integers(0, 3), st.integers(0, 2**PLACE_BITS - 1))


def table(places: list[int], first: int = 0) -> pa.Table:
    rows = {"place": places, "row": list(range(first, first + len(places)))}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in rows.items()})


@given(st.lists(st.lists(PLACES, max_size=30), max_size=6), st.integers(1, 40))
def test_rows_of_a_place_are_together(added: list[list[int]], most: int) -> None:
    given_rows: Counter[tuple[int, int]] = Counter()
    found: Counter[tuple[int, int]] = Counter()
    seen: set[int] = set()
    with Division(most) as division:
        for places in added:
            one = table(places, sum(given_rows.values()))
            given_rows.update(zip(*one.to_pydict().values(), strict=True))
            division.add(one)
        for one in division.tables():
            places = set(one["place"].to_pylist())
            assert one.num_rows <= most or len(places) == 1
            assert not places & seen
            seen |= places
            found.update(zip(*one.to_pydict().values(), strict=True))
    assert found == given_rows


def test_few_rows_need_no_disk(tmp_path: Path) -> None:
    with Division(10, tmp_path / "nowhere") as division:
        division.add(table(list(range(10))))
        assert [one.num_rows for one in division.tables()] == [10]


@pytest.mark.parametrize("read", [0, 1])
def test_nothing_is_left_behind(tmp_path: Path, read: int) -> None:
    with Division(10, tmp_path) as division:
        for first in range(0, 100, 10):
            division.add(table(list(range(first, first + 10))))
        assert list(tmp_path.rglob("*.arrow"))
        for _, _ in zip(range(read), division.tables(), strict=False):
            pass
    assert list(tmp_path.iterdir()) == []


def test_places_are_spread() -> None:
    """Numbers that go up together, as those of names that were first seen together do."""
    numbers = pa.array(range(10_000), pa.int64())
    for columns in ((numbers, numbers, numbers), (pa.array([7] * 10_000, pa.int64()), numbers, numbers)):
        places = place_of(*columns).to_pylist()
        assert len(set(places)) == 10_000
        for bit in range(0, PLACE_BITS, 6):
            assert max(Counter(place >> bit & 63 for place in places).values()) < 250
