"""Damage to a file, for property tests: each function returns a description."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final


def flip(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    at, bit = chance.randrange(len(content)), chance.randrange(8)
    content[at] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {at} flipped"


def truncate(file: Path, chance: random.Random) -> str:
    size = chance.randrange(file.stat().st_size)
    os.truncate(file, size)
    return f"truncated to {size}"


def delete(file: Path, _chance: random.Random) -> str:
    file.unlink()
    return "deleted"


#: Kinds of damage, and the number of examples of each.
DAMAGE: Final[dict[str, tuple[Callable[[Path, random.Random], str], int]]] = {
    "bit flip": (flip, 20),
    "truncation": (truncate, 8),
    "deletion": (delete, 1),
}
