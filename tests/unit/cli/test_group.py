"""`mqbridge group status` with admin ports that do not answer like a bridge."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest


class Handler(BaseHTTPRequestHandler):
    """Answer as the test specifies, and record the token of each request."""

    answer = (200, b"{}")
    tokens: list[str | None]

    def do_GET(self) -> None:
        self.tokens.append(self.headers["Authorization"])
        status, body = self.answer
        self.send_response(status)
        if status == 303:
            self.send_header("Location", "/login")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    Handler.tokens = []
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ((401, b""), "rejects the token"),
        ((303, b""), "answers with HTTP status 303"),
        ((500, b""), "answers with HTTP status 500"),
        ((200, b"<html>"), "is not a bridge"),
        ((200, b'{"status": {}}'), "is not a bridge"),
    ],
)
def test_an_admin_port_without_a_status_is_reported(
    invoke: Any,
    server: HTTPServer,
    tmp_path: Path,
    answer: tuple[int, bytes],
    failure: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handler, "answer", answer)
    (tmp_path / "tokens").write_text("monitor:read:s3cret\nother:read:0ther\n")
    place = f"127.0.0.1:{server.server_port}"
    invocation = invoke("group", "status", place, "--token-file", tmp_path / "tokens", "-o", "json")
    assert invocation.exit_code == 1
    (bridge,) = json.loads(invocation.stdout)
    assert bridge["bridge"] == f"http://{place}/" and failure in bridge["failure"]
    assert Handler.tokens == ["Bearer s3cret"]


def test_a_closed_admin_port_is_reported(invoke: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        invocation = invoke("group", "status", f"http://127.0.0.1:{unused.getsockname()[1]}", "https://[::1]:1")
    assert invocation.exit_code == 1
    assert invocation.stdout.count("no bridge answers at http") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["http://"], "expected a URL such as https://host:port/, found 'http://'"),
        (["https://host:port/"], "expected a URL such as https://host:port/, found 'https://host:port/'"),
        (["absent.yaml"], "absent.yaml"),
    ],
)
def test_arguments_that_do_not_name_a_bridge_are_rejected(invoke: Any, words: list[str], message: str) -> None:
    invocation = invoke("group", "status", *words)
    assert invocation.exit_code == 2 and message in invocation.stderr


def test_a_file_without_a_token_is_rejected(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    invocation = invoke("group", "status", "127.0.0.1:1", "--token-file", tmp_path / "empty")
    assert invocation.exit_code == 2 and "contains no token" in invocation.stderr
