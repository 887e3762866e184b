"""Standard output in bytes: messages leave exactly as they are, whatever the terminal's character set."""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def write(text: str | bytes) -> None:
    """Write a line, and return when it has left the process: only then may a message be committed."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    sys.stdout.flush()
    stream = sys.stdout.buffer
    stream.write(data if data.endswith(b"\n") else data + b"\n")
    stream.flush()


def write_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    write(msgspec.json.encode(value))


def note(text: str) -> None:
    """Print a line on standard error for whoever watches."""
    print(text, file=sys.stderr, flush=True)
