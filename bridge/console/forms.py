"""Requests as the console reads them: addresses, queries and forms, and the problem that is reported if they are invalid."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final, TypeVar, get_origin, get_type_hints
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

log = logging.getLogger(__name__)
# Its lines about malformed forms have no numbers.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

T = TypeVar("T", bound=msgspec.Struct)

#: Maximum size of a form before a login, in bytes.
ANONYMOUS_SIZE: Final = 16 * 1024
#: Maximum size of a form in bytes, number of its fields, and time in seconds until it has arrived.
SIZE: Final = 4_500_000
FIELDS: Final = 600
TIMEOUT: Final = 20.0
FORM_TYPES: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_LOCAL: Final = re.compile(r"/(?![/\\])[\x21-\x7e]*")


class RequestProblem(Exception):
    """A request that cannot be answered: HTTP status, title, and further lines with details or advice."""

    def __init__(
        self, status: int, title: str, lines: Sequence[str] = (), headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.lines = list(lines)
        self.headers = headers or {}


def link(path: str, **query: object) -> str:
    """Return the address of a page with a query. Blank and false values are omitted."""
    parameters = {name: value for name, value in query.items() if value not in (None, "", False, 0, [])}
    return path + (f"?{urlencode(parameters, doseq=True)}" if parameters else "")


def anchor(name: str) -> str:
    """Return an element identifier for a name. It keeps the focus when the element is replaced."""
    return f"a{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def here(request: Request) -> str:
    """Return path and query of a request."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def local(target: str) -> str:
    """Return a target of a redirect if it is a path of this console, otherwise the first page."""
    return target if _LOCAL.fullmatch(target) else "/"


def parsed(fields: Iterable[tuple[str, str | bytes]], struct: type[T]) -> T:
    """Return the fields of a query or form as a struct. Unknown fields are ignored. Raises RequestProblem.

    If a field occurs several times, its last value counts, unless the struct has a list. Blank values are as if absent,
    except for a field of type `str | None`.
    """
    values: dict[str, Any] = {}
    lists, optional = _kinds(struct)
    for name, value in fields:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif value or name in optional:
            values[name] = value
        else:
            values.pop(name, None)
    try:
        return msgspec.convert(values, struct, strict=False)
    except msgspec.ValidationError as error:
        raise RequestProblem(400, "The request is not valid", [str(error)]) from error


@cache
def _kinds(struct: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the fields that are lists, and of those that are `str | None`."""
    hints = get_type_hints(struct)
    lists = frozenset(name for name, hint in hints.items() if get_origin(hint) is list)
    return lists, frozenset(name for name, hint in hints.items() if hint == str | None)


async def body_of(request: Request, max_size: int) -> bytes:
    """Return the body of a request of at most `max_size` bytes. Raises RequestProblem."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(TIMEOUT):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_size:
                    raise RequestProblem(413, f"The body has at most {max_size:,} bytes")
                chunks.append(chunk)
    except TimeoutError as error:
        raise RequestProblem(408, f"The body did not arrive within {TIMEOUT:g} s") from error
    except ClientDisconnect as error:
        raise RequestProblem(400, "The body did not arrive") from error
    return b"".join(chunks)


async def form_of(request: Request, max_size: int = SIZE) -> list[tuple[str, str | bytes]]:
    """Return the fields of a form of at most `max_size` bytes. Raises RequestProblem.

    Uploaded files are bytes, and lines of text end with LF.
    """
    content_type = request.headers.get("content-type")
    scope = request.scope
    if content_type is None:
        scope = {**scope, "headers": [*scope["headers"], (b"content-type", FORM_TYPES[0].encode())]}
    elif content_type.partition(";")[0].strip().lower() not in FORM_TYPES:
        raise RequestProblem(415, f"A form is {' or '.join(FORM_TYPES)}")
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size > max_size:
            raise RequestProblem(413, f"This form has at most {max_size:,} bytes")
        return message

    try:
        async with asyncio.timeout(TIMEOUT):
            form = await Request(scope, receive).form(max_files=1, max_fields=FIELDS, max_part_size=SIZE)
            try:
                return [(name, await _text_or_file(field)) for name, field in form.multi_items()]
            finally:
                await form.close()
    except TimeoutError as error:
        raise RequestProblem(408, f"The form did not arrive within {TIMEOUT:g} s") from error
    except ClientDisconnect as error:
        raise RequestProblem(400, "The form did not arrive") from error
    except HTTPException as error:
        log.info("MQB9210I console: malformed form for %s: %s", request.url.path, error.detail)
        raise RequestProblem(400, "The form is malformed", [error.detail]) from error


async def _text_or_file(field: str | UploadFile) -> str | bytes:
    if isinstance(field, UploadFile):
        return await field.read()
    if "\ufffd" in field:
        raise RequestProblem(400, "The form is not valid UTF-8")
    # A browser sends CR LF for each end of a line (HTML, "multipart/form-data and normalization of newlines").
    return field.replace("\r\n", "\n")
