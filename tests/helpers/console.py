"""The console as seen by a browser without JavaScript: pages, forms, cookies, and live views."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE
from tests.helpers.scrape import admin_url

_CSRF = re.compile(r'name="csrf_token" value="([^"]+)"')


class Page:
    """A response."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.bytes = answer.read()

    @property
    def html(self) -> str:
        return self.bytes.decode()

    @property
    def text(self) -> str:
        """Return the text of the page, without its elements."""
        return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.html)))


class Console:
    """A user of the console of a bridge. `tls` if it has a certificate."""

    def __init__(self, bridge: BridgeProcess, tls: ssl.SSLContext | None = None) -> None:
        self.bridge = bridge
        self.tls = tls
        self.place = urlsplit(admin_url(bridge.announced)).netloc
        self.cookies: dict[str, str] = {}
        self.csrf_token = ""

    @property
    def token(self) -> str:
        """Return the token that the bridge has created."""
        return (self.bridge.data_directory / "admin.tokens").read_text().partition("admin:change:")[2].split()[0]

    def request(
        self, method: str, path: str, body: str | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Page:
        if self.tls is None:
            connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection(self.place, timeout=PATIENCE, context=self.tls)
        try:
            sent = dict(headers or {})
            if self.cookies and "Cookie" not in sent:
                sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request(method, path, body, sent)
            page = Page(connection.getresponse())
        finally:
            connection.close()
        for cookie in page.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if not self.cookies[name]:
                del self.cookies[name]
        return page

    def get(self, path: str, **query: str) -> Page:
        return self.request("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, /, headers: Mapping[str, str] | None = None, **fields: str) -> Page:
        """Send a form unchanged, with no token except that in its fields."""
        form = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return self.request("POST", path, urlencode(fields), form)

    def log_in(self, token: str = "") -> Console:
        page = self.post("/login", token=token or self.token)
        assert page.status == 303, page.text
        return self.learn()

    def learn(self) -> Console:
        """Read the token of the login from a page."""
        match = _CSRF.search(self.get("/log").html)
        assert match is not None
        self.csrf_token = match[1]
        return self

    def change(self, path: str, **fields: str) -> Page:
        """Send a form of a page. Return the page that is shown then."""
        page = self.post(path, csrf_token=self.csrf_token, **fields)
        return page if page.status != 303 else self.get(page.headers["Location"])

    def json(self, path: str, **query: str) -> Any:
        """Return the JSON of a page."""
        address = path + (f"?{urlencode(query)}" if query else "")
        page = self.request("GET", address, headers={"Accept": "application/json"})
        assert page.status == 200, page.html
        assert page.headers["Content-Type"] == "application/json"
        return json.loads(page.bytes)

    def links(self, path: str, to: str) -> list[str]:
        """Return the links of a page to addresses with this beginning."""
        links = re.findall(rf'href="({re.escape(to)}[^"]*)"', self.get(path).html)
        return [unescape(link) for link in links]


class LiveView:
    """Server-sent events of a topic filter, for a user who has logged in."""

    def __init__(self, console: Console, topic_filter: str) -> None:
        cookie = "; ".join(f"{name}={value}" for name, value in console.cookies.items())
        self._connection = http.client.HTTPConnection(console.place, timeout=PATIENCE)
        query = urlencode({"filter": topic_filter})
        self._connection.request("GET", f"/topics/events?{query}", headers={"Cookie": cookie})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.content_type = self._answer.headers["Content-Type"]

    def event(self, kind: str = "") -> dict[str, Any]:
        """Return the next event of a kind, or of any kind."""
        while True:
            line = self._answer.readline().decode()
            assert line, "the view ended"
            if line.startswith("event: ") and line[7:].strip() in (kind or line):
                event: dict[str, Any] = json.loads(self._answer.readline().decode().removeprefix("data: "))
                return event

    def close(self) -> None:
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
