"""Addresses of pages, made and read."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from starlette.requests import Request

from bridge.console.problem import Problem

_LOCAL = re.compile(r"/(?![/\\])[\x21-\x7e]*")


def link(path: str, **query: str | int | None) -> str:
    """Return the address of a page, and what is asked of it; what is blank or None is left out."""
    asked = {name: value for name, value in query.items() if value not in (None, "")}
    return path + (f"?{urlencode(asked)}" if asked else "")


def here(request: Request) -> str:
    """Return path and query of a request."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def local(target: str) -> str:
    """Return where a browser is sent: a path of this console, or its first page for all else."""
    return target if _LOCAL.fullmatch(target) else "/"


def asked_for(request: Request, name: str) -> str:
    """Return what a query has to say. Raises Problem where it does not."""
    value = request.query_params.get(name, "")
    if not value:
        raise Problem(400, f"This page needs ?{name}=")
    return value


def number(text: str | None, default: int, most: int) -> int:
    """Return a number of a query or form, from 0 to `most`. Raises Problem."""
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise Problem(400, f"A number from 0 to {most:,} is expected")
    return min(int(text), most)
