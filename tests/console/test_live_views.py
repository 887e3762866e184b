"""Live views of the console: what is published is told to who looks, as long as they may."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.support.bridge_process import BridgeProcess
from tests.support.console import Console
from tests.support.live_view import LiveView
from tests.support.patience import PATIENCE, until
from tests.support.raw_client import RawClient


def test_a_live_view(console: Console) -> None:
    """A live view tells what is published from now on, payloads as text, until the page is left."""
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
    until(lambda: not [one for one in subscribed("display", "SUB(*)", "TOPICSTR") if one.get("TOPICSTR") == "live/#"])


def test_live_views_are_bounded(console: Console) -> None:
    """There are so many live views at a time, and no more; when one is left there is room again."""
    views = [LiveView(console, "bounded") for _ in range(8)]
    assert [view.status for view in views] == [200] * 8
    assert console.get("/topics/events", filter="bounded").status == 503
    for view in views:
        view.close()

    def room() -> bool:
        with LiveView(console, "bounded") as view:
            return view.status == 200

    until(room)


@pytest.mark.parametrize("how", ["log-out", "token"])
def test_a_live_view_ends_with_the_login(console: Console, how: str) -> None:
    """Who has logged out, or whose token is taken away, sees no more of what is published."""
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


def test_the_end_of_the_bridge_ends_what_goes_on_and_on(tmp_path: Path) -> None:
    """A live view is told of it, a form that has not come in full is not waited for; neither is an error in the log."""
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
