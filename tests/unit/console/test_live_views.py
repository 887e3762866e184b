"""The number of live views of the console is limited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.console import Console, LiveView
from tests.helpers.patience import until


@pytest.fixture
def users(console: Console) -> Iterator[list[Console]]:
    """Three users who have logged in with separate tokens."""
    tokens = console.bridge.data_directory / "admin.tokens"
    before = tokens.read_text()
    names = ("one", "two", "three")
    tokens.write_text(before + "".join(f"{name}:read:{name * 10}\n" for name in names))
    yield [Console(console.bridge).log_in(name * 10) for name in names]
    tokens.write_text(before)


@pytest.mark.parametrize(
    ("own", "others", "status", "words"),
    [
        pytest.param(4, 0, 429, "token one has 4 live views open, and 4 is the limit for each user", id="one user"),
        pytest.param(0, 8, 503, "8 live views are open, and that is the limit for all users together", id="all users"),
        pytest.param(3, 4, 200, "", id="room"),
    ],
)
def test_live_views_are_limited_per_user_and_in_total(
    users: list[Console], own: int, others: int, status: int, words: str
) -> None:
    first, *rest = users
    views = [LiveView(first, "bounded") for _ in range(own)]
    views += [LiveView(rest[number // 4], "bounded") for number in range(others)]
    try:
        assert [view.status for view in views] == [200] * len(views)
        page = first.get("/topics/live", filter="bounded")
        assert (page.status, words in page.text) == (status, True)
        if status != 200:
            rejected = first.get("/topics/events", filter="bounded")
            assert (rejected.status, words in rejected.text) == (status, True)
            views.pop().close()
        until(lambda: first.get("/topics/live", filter="bounded").status == 200)
        views.append(LiveView(first, "bounded"))
        assert views[-1].status == 200
        if own == 4:
            views.append(LiveView(rest[0], "bounded"))
            assert views[-1].status == 200
    finally:
        for view in views:
            view.close()
    # The next test begins without live views.
    until(
        lambda: (
            not [row for row in first.bridge.mq_json("display", "SUB(*)", "TOPICSTR") if row["TOPICSTR"] == "bounded"]
        )
    )
