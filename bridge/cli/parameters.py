"""Values of parameters that are plainly right, taken as they are.

Newer versions of typer have pydantic look at every value, at those that nobody gave as well, and to import that takes as
long as all the rest of `mqbridge mq put`. What is left to it is what may be wrong: it is refused in typer's words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any


def shorten(parameters: Iterable[Any]) -> None:
    """Let parameters of a command ask typer only for what is not plainly right."""
    for one in parameters:
        # A typer without this description does not ask pydantic.
        if hasattr(one, "type_descriptor") and "process_value" not in vars(one):
            one.process_value = partial(_process, one, one.process_value)


def _process(parameter: Any, process: Any, ctx: Any, value: Any) -> Any:
    """What click's Parameter.process_value does, which is `process`."""
    kind = parameter.type_descriptor.annotation
    several = parameter.multiple or parameter.nargs == -1
    taken: Any
    if value is None and not parameter.required:
        taken = () if several else None
    elif kind is str and isinstance(value, str):
        taken = value
    elif kind == list[str] and value and isinstance(value, list | tuple):
        taken = list(value)
    elif kind is Path and isinstance(value, str) and _is_free_or_readable(value):
        taken = Path(value)
    elif kind in (int, float) and _is_number_within(value, parameter.type_descriptor.parameter_info):
        taken = kind(value)
    else:
        return process(ctx, value)
    return taken if parameter.callback is None else parameter.callback(ctx, parameter, taken)


def _is_free_or_readable(path: str) -> bool:
    """Which is all that typer asks of a path, unless it is told to ask more: no command here does."""
    return os.access(path, os.R_OK) or not os.path.exists(path)


def _is_number_within(value: Any, option: Any) -> bool:
    if isinstance(value, str):  # other numbers than whole ones in digits are for typer to read
        if not (value.isascii() and value.isdigit() and len(value) < 16):
            return False
        value = int(value)
    elif not isinstance(value, int | float):
        return False
    return bool((option.min is None or option.min <= value) and (option.max is None or value <= option.max))
