"""Results that are remembered, in a bounded amount of memory: what they are of comes from outside, of any length."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: Longest first argument of a call whose result is remembered.
LONGEST = 1024


def remembered(entries: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have the last `entries` results of a function remembered, unless its first argument is longer than LONGEST."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return (cached if len(args[0]) <= LONGEST else function)(*args, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate
