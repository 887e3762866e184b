"""A live view of the console, as a page's script reads it."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlencode

from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE


class LiveView:
    """Server-sent events of a topic filter, for somebody who has logged in."""

    def __init__(self, console: Console, topic_filter: str) -> None:
        cookie = "; ".join(f"{name}={value}" for name, value in console.cookies.items())
        self._connection = http.client.HTTPConnection(console.place, timeout=PATIENCE)
        query = urlencode({"filter": topic_filter})
        self._connection.request("GET", f"/topics/events?{query}", headers={"Cookie": cookie})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.content_type = self._answer.headers["Content-Type"]

    def event(self, kind: str = "") -> dict[str, Any]:
        """The next event of a kind, or of any."""
        while True:
            line = self._answer.readline().decode()
            assert line, "the view ended"
            if line.startswith("event: ") and line[7:].strip() in (kind or line):
                found: dict[str, Any] = json.loads(self._answer.readline().decode().removeprefix("data: "))
                return found

    def close(self) -> None:
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
