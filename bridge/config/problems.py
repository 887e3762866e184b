"""What is wrong with a file, in words: one `Problem` for each mistake, and the error that carries them all."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bridge.config.values import listing

Location = tuple[str | int, ...]
"""The way to a value: keys and indexes as pydantic gives them: `("channels", 0, "port")`; `()` is the whole file."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration file."""

    file: Path
    line: int | None
    """Line in the file, from 1; None if the file as a whole is meant (it is missing, or too long)."""
    column: int | None
    """Column in that line, in characters from 1; None as for `line`."""
    key: str
    """Dotted path of the value, like `channels[0].port`; empty where there is no key (a syntax error)."""
    expected: str
    """What should stand there: a phrase that follows "expected"."""
    found: str
    """What stands there: a phrase that follows "found"."""

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return ": ".join(filter(None, [place, self.key, f"expected {self.expected}, found {self.found}"]))


class ConfigurationError(Exception):
    """A configuration file that cannot be used. Its text is all `problems`, one to a line."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        """Every mistake that was found, in the order of the file; never empty."""
        super().__init__("\n".join(map(str, problems)))


def dotted(location: Location) -> str:
    """`location` as an operator writes it: `channels[0].port`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in location)
    return "".join(steps).removeprefix(".")


def _word(key: str) -> str:
    """`key`, in quotes if it could be mistaken for more than one key, or would upset a terminal."""
    return key if key.isprintable() and not set(key) & set(" .[]:") and 0 < len(key) <= 60 else quoted(key)


def quoted(text: str) -> str:
    """`text` in quotes, with escapes for what cannot be printed, and cut to what can be read at a glance."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def expectation(error: ErrorDetails, root: type[BaseModel]) -> str:
    """What `error`, one of pydantic's errors about a `root`, had expected, as a phrase.

    The values themselves are refused by `bridge.config.values`, in full words. That leaves pydantic the file's shape.
    """
    match error["type"]:
        case "expected":
            return str(error["ctx"]["expected"])
        case "extra_forbidden":
            location = error["loc"]
            return _known_key(str(location[-1]), list(_model_at(location[:-1], root).model_fields))
        case "model_type" | "model_attributes_type":
            return "a mapping (lines of 'key: value')"
        case "list_type":
            return "a list (lines that begin with '- ')"
        case _:
            return "another value"


def _known_key(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"a known key (did you mean {near[0]}?)" if near else f"a known key ({listing(known, 'or')})"


def _model_at(location: Location, root: type[BaseModel]) -> type[BaseModel]:
    """The model that describes the mapping at `location`."""
    model = root
    for step in location:
        if isinstance(step, str):
            model = _model_in(model.model_fields[step].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model named in a type such as `Model`, `Model | None` or `list[Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
