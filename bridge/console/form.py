"""The fields of a form that was sent, within bounds."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from bridge.console.problem import Problem

#: Bytes of a form and fields of it, at most, and seconds that it may take to come.
SIZE: Final = 1_500_000
FIELDS: Final = 64
TIMEOUT: Final = 20.0
_TYPE: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; of one that comes twice, the last. Raises Problem."""
    if request.headers.get("content-type", _TYPE).partition(";")[0].strip().lower() != _TYPE:
        raise Problem(415, f"A form is {_TYPE}")
    data = bytearray()
    try:
        async with asyncio.timeout(TIMEOUT):
            async for chunk in request.stream():
                data += chunk
                if len(data) > SIZE:
                    raise Problem(413, f"A form has at most {SIZE:,} bytes")
    except TimeoutError as error:
        raise Problem(408, f"The form has not come within {TIMEOUT:g} s") from error
    except ClientDisconnect as error:
        raise Problem(400, "The form has not come") from error
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError as error:
        raise Problem(400, "This is no form of UTF-8, or one of too many fields") from error
    # A browser sends CR LF for each end of a line (HTML, "multipart/form-data and normalization of newlines").
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
