"""What holds for each answer of the admin port: headers that bound what a browser does with it, and whom it is for.

Source: OWASP Secure Headers Project; CSP level 3. No Strict-Transport-Security: it would be for all ports of a host.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.config.values import is_loopback

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Puts the headers into each answer, and answers nobody who names another host than is listened on."""

    def __init__(self, app: ASGIApp, address: str) -> None:
        """Begin; `address` is where the admin port listens."""
        self._app = app
        self._is_loopback = is_loopback(address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        # A page of some other site whose name leads to 127.0.0.1 (DNS rebinding) would reach the port as its own.
        host = _name_of(Headers(scope=scope).get("host", ""))
        if self._is_loopback and host and not is_loopback(host):
            text = f"The admin port listens on this machine alone, and is not {host[:100]!r}. A proxy in front of it names\n"
            text += "it by the address that it listens on (nginx: proxy_set_header Host $proxy_host).\n"
            await PlainTextResponse(text, 421)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
