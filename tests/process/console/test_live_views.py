"""Live views of the console: users see publications at once, as long as they are logged in."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.console import Console, LiveView
from tests.helpers.patience import PATIENCE, until
from tests.helpers.raw_client import RawClient


def test_a_live_view_shows_publications(console: Console) -> None:
    with LiveView(console, "live/#") as view:
        assert view.content_type.startswith("text/event-stream")
        assert view.event("notice")["text"] == "Subscribed to live/#"
        with RawClient.connected(console.bridge.port, "live") as client:
            client.publish("live/<b>", b"<script>", 1)
            client.publish("live/bytes", bytes(4), 1)
            first, second = view.event("message"), view.event("message")
        assert (first["topic"], first["text"], first["size"]) == ("live/<b>", "<script>", 8)
        assert str(second["text"]).startswith("00000000  00 00 00 00")
    subscribed = console.bridge.mq_json
    until(lambda: not [row for row in subscribed("display", "SUB(*)", "TOPICSTR") if row.get("TOPICSTR") == "live/#"])


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


@pytest.mark.parametrize("how", ["log-out", "token"])
def test_a_live_view_ends_with_the_login(console: Console, how: str) -> None:
    tokens = console.bridge.data_directory / "admin.tokens"
    before = tokens.read_text()
    if how == "token":
        tokens.write_text(f"{before}guest:read:{'g' * 20}\n")
        console = Console(console.bridge).log_in("g" * 20)
    with LiveView(console, "ending/#") as view:
        assert view.event("notice")["text"] == "Subscribed to ending/#"
        if how == "token":
            tokens.write_text(before)
        else:
            assert console.post("/logout", csrf_token=console.csrf_token).status == 303
        console.bridge.mq("pub", "ending/1", "not for you")
        assert view.event()["kind"] == "end"


def test_a_stop_of_the_bridge_ends_live_views_and_incomplete_requests(tmp_path: Path) -> None:
    bridge = BridgeProcess(tmp_path / "data", config="admin: {port: 0}\n").start()
    console = Console(bridge).log_in()
    address, _, port = console.place.partition(":")
    with LiveView(console, "last/#") as view, socket.create_connection((address, int(port)), PATIENCE) as form:
        assert view.event("notice")["text"] == "Subscribed to last/#"
        form.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nnext=")
        assert console.get("/healthz").status == 200
        assert bridge.stop() == 0
        assert view.event()["kind"] == "end"
        with contextlib.suppress(ConnectionResetError):
            assert form.recv(1_000) == b""
    assert "Traceback" not in bridge.log
    assert "ASGI" not in bridge.log
    bridge.discard()
