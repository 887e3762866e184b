"""An application over HTTP, as it uses the admin port of a bridge with its token."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE
from tests.helpers.scrape import admin_url

#: The token of an application is this text, followed by its name.
TOKEN = "the-token-of-application-"


class Answer:
    """The answer to a request."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Application:
    """An application with its token."""

    def __init__(self, bridge: BridgeProcess | str, name: str) -> None:
        """`bridge` is a running bridge, or the address of its admin port."""
        self._place = urlsplit(bridge if isinstance(bridge, str) else admin_url(bridge.announced)).netloc
        self._headers = {"Authorization": f"Bearer {TOKEN}{name}"}

    @contextmanager
    def request(
        self, path: str, payload: bytes, headers: Mapping[str, str], query: Mapping[str, Any]
    ) -> Iterator[http.client.HTTPConnection]:
        """Send a request, and close its connection at the end of the block."""
        connection = http.client.HTTPConnection(self._place, timeout=PATIENCE)
        try:
            address = f"{path}?{urlencode(query, doseq=True)}"
            connection.request("POST", address, payload, {**self._headers, **headers})
            yield connection
        finally:
            connection.close()

    def publish(
        self, topic: str, payload: bytes = b"x", /, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Answer:
        """Publish a message."""
        with self.request("/application/publish", payload, headers or {}, {"topic": topic, **query}) as connection:
            return Answer(connection.getresponse())

    def call(
        self, topic: str, payload: bytes = b"x", /, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Answer:
        """Call a device."""
        with self.request("/application/call", payload, headers or {}, {"topic": topic, **query}) as connection:
            return Answer(connection.getresponse())


def tokens_of(*names: str) -> str:
    """Return a token file with the tokens of applications."""
    return "".join(f"{name}:application:{TOKEN}{name}\n" for name in names)
