"""What is wrong with a file, in words: one `Problem` for each mistake, and the error that carries them all."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic_core import ErrorDetails

from bridge.config.section import Section
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


def expectation(error: ErrorDetails, root: type[Section]) -> str:
    """What `error`, one of pydantic's errors about a `root`, had expected, as a phrase.

    The values themselves are refused by `bridge.config.values`, in full words. That leaves pydantic the file's shape.
    """
    match error["type"]:
        case "expected" | "unknown_type":
            return str(error["ctx"]["expected"])
        case "extra_forbidden":
            key, model = str(error["loc"][-1]), _way(error["loc"][:-1], root)[1]
            return model.REFUSED.get(key) or _known_key(key, list(model.model_fields))
        case "missing":
            return "this key, which has no default"
        case "model_type" | "model_attributes_type":
            return "a mapping (lines of 'key: value')"
        case "list_type":
            return "a list (lines that begin with '- ')"
        case _:
            return "another value"


def place_of(error: ErrorDetails, root: type[Section]) -> Location:
    """Where the value that `error` is about stands in the file."""
    location = _way(error["loc"], root)[0]
    return (*location, "type") if error["type"] == "unknown_type" else location


def _known_key(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"a known key (did you mean {near[0]}?)" if near else f"a known key ({listing(known, 'or')})"


def _way(location: Location, root: type[Section]) -> tuple[Location, type[Section]]:
    """pydantic's `location` as the file has it, and the model that describes the mapping there.

    Where a section is one of several models, pydantic has a step of its own that says which by its `type`.
    """
    models = [root]
    written: list[str | int] = []
    for step in location:
        if len(models) > 1:
            models = [model for model in models if model.model_fields["type"].default == step]
            continue
        written.append(step)
        if isinstance(step, str) and step in models[0].model_fields:
            models = _models_in(models[0].model_fields[step].annotation) or models
    return tuple(written), models[0]


def _models_in(annotation: Any) -> list[type[Section]]:
    """The models named in a type such as `Model`, `Model | None`, `list[Model]` or `One | Other`."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
