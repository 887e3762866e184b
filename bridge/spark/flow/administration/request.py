"""What another process asks of one that runs a pipeline: a file in the pipeline's directory, which that one takes away."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

#: The file.
REQUEST: Final = "request"

Request = Literal["stop", "drain"]
_REQUESTS: Final[dict[str, Request]] = {"stop": "stop", "drain": "drain"}


def ask(directory: Path, request: Request) -> None:
    """Leave a request; the last one counts. Raises OSError."""
    unfinished = directory / f"{REQUEST}.new"
    unfinished.write_text(request, encoding="ascii")
    unfinished.rename(directory / REQUEST)


def take(directory: Path) -> Request | None:
    """Take the request that is there away, and return it; None: there is none. Raises OSError."""
    try:
        found = (directory / REQUEST).read_text(encoding="ascii", errors="replace")
        (directory / REQUEST).unlink()
    except FileNotFoundError:
        return None
    return _REQUESTS.get(found)
