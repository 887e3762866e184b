"""What is told to who cannot have what they asked for."""

from __future__ import annotations

from collections.abc import Sequence


class Problem(Exception):
    """A request that is not answered as it was meant: an HTTP status, a title, and lines that say what to do."""

    def __init__(self, status: int, title: str, lines: Sequence[str] = (), headers: dict[str, str] | None = None) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.lines = lines
        self.headers = headers or {}
