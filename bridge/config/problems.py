"""Error reports for configuration files: one `ConfigurationMistake` per mistake, and the exception that carries them."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Tag
from pydantic_core import ErrorDetails

from bridge.config.values import Section, listing

Location = tuple[str | int, ...]
"""The path of a value, as keys and indexes: `("channels", 0, "port")`. `()` is the whole file."""


@dataclass(frozen=True)
class ConfigurationMistake:
    """One mistake in a configuration file."""

    file: Path
    line: int | None
    """Line in the file, from 1. None if the problem concerns the whole file (it is missing or too long)."""
    column: int | None
    """Column in the line, in characters from 1. None if `line` is None."""
    key: str
    """Dotted path of the value, such as `channels[0].port`. Empty for a syntax error."""
    expected: str
    """The expected value, as a phrase that follows "expected"."""
    found: str
    """The actual value, as a phrase that follows "found"."""
    hint: str = ""
    """How to fix it, if the expectation does not contain that."""

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}:{self.column}"
        hint = f"; hint: {self.hint}" if self.hint else ""
        return ": ".join(filter(None, [place, self.key, f"expected {self.expected}, found {self.found}{hint}"]))


@dataclass(frozen=True)
class Clash:
    """A conflict between two parts of the file that are each valid."""

    location: Location
    """The second of the two, such as `("channels", 1, "name")`."""
    expected: str
    found: str | None = None
    """None: the value in the file."""
    again: str = ""
    """If the value duplicates another: the place of the other value, as a clause that follows "again,"."""


class ConfigurationError(Exception):
    """An invalid configuration file. The message lists all `problems`, one per line."""

    def __init__(self, problems: list[ConfigurationMistake]) -> None:
        self.problems = problems
        """All mistakes found, in file order. Never empty."""
        super().__init__("\n".join(map(str, problems)))


def dotted(location: Location) -> str:
    """Return `location` in the notation of the documentation: `channels[0].port`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in location)
    return "".join(steps).removeprefix(".")


def _word(key: str) -> str:
    """Return `key`, quoted if it is ambiguous in a dotted path, too long, or not printable."""
    return key if key.isprintable() and not set(key) & set(" .[]:") and 0 < len(key) <= 60 else quoted(key)


def quoted(text: str) -> str:
    """Return `text` quoted, with unprintable characters escaped, and shortened to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def expectation(error: ErrorDetails, root: type[Section]) -> str:
    """Return the expectation that the pydantic `error` violates, as a phrase.

    `root` is the validated model. `bridge.config.values` reports wrong values itself, so pydantic's own errors concern only
    the structure of the file.
    """
    match error["type"]:
        case "expected" | "unknown_type" | "unknown_method":
            return str(error["ctx"]["expected"])
        case "extra_forbidden":
            model = _way(error["loc"][:-1], root).model
            return key_expectation(str(error["loc"][-1]), model)
        case "missing":
            return "this key, which has no default"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a mapping (lines of 'key: value')"
        case "list_type":
            return "a list (lines that begin with '- ')"
        case _:
            return "another value"


def key_expectation(key: str, model: type[Section]) -> str:
    """Return, as a phrase, what `model` expects instead of the unknown `key`."""
    keys = [field.alias or name for name, field in model.model_fields.items()]
    return model.REFUSED.get(key) or f"a known key ({suggestion(key, keys) or listing(keys, 'or')})"


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return `did you mean ...?`, or an empty string if no known word is similar."""
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]}?" if near else ""


def place_of(error: ErrorDetails, root: Any) -> tuple[Location, bool]:
    """Return the location in the file that `error` refers to, and whether it refers to the key rather than the value."""
    if error["type"] == "extra_forbidden":
        return (*_way(error["loc"][:-1], root).written, error["loc"][-1]), True
    way = _way(error["loc"], root)
    if error["type"] in ("unknown_type", "unknown_method"):
        return (*way.written, error["type"].removeprefix("unknown_")), False
    at: Location = error.get("ctx", {}).get("at", ())
    return (*way.written, *at), way.is_key


@dataclass(frozen=True)
class _Way:
    """A pydantic error location, translated to a location in the file."""

    written: Location
    model: type[Section]
    """The innermost model on the path."""
    is_key: bool
    """Whether the location refers to the last key rather than its value."""


def _way(location: Location, root: Any) -> _Way:
    """Translate a pydantic `location` to the file, and return the innermost model on its path.

    pydantic adds its own steps: the tag of a union member, and `[key]` for a key of a dict. Only the types along the path
    distinguish them from keys.
    """
    kind = model = root
    steps: list[str | int] = []
    free_key = False
    for step in location:
        kind = _without_none(kind)
        if free_key and step == "[key]" and get_origin(kind) is not dict:
            return _Way(tuple(steps), model, is_key=True)
        tagged = {tag: member for member in get_args(kind) for tag in _tags(member)}
        free_key = get_origin(kind) is dict
        if tagged:
            kind = tagged.get(str(step))
        else:
            steps.append(step)
            kind = _kind_below(kind, step)
        kind = _without_none(kind)
        model = kind if _is_section(kind) else model
    return _Way(tuple(steps), model, is_key=False)


def _kind_below(kind: Any, step: str | int) -> Any:
    """Return the type of the value at `step` in a value of type `kind`, or None if the types do not determine it."""
    if _is_section(kind):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}.get(str(step))
    return get_args(kind)[-1] if get_origin(kind) in (dict, list) else None


def _tags(member: Any) -> list[str]:
    """Return the pydantic tags of a union member (at most one)."""
    metadata = get_args(member)[1:] if get_origin(member) is Annotated else ()
    return [part.tag for part in metadata if isinstance(part, Tag)]


def _without_none(kind: Any) -> Any:
    """Return a type without `Annotated` and `| None`."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, UnionType) and len(parts := _but_none(kind)) == 1:
            kind = parts[0]
        else:
            return kind


def _but_none(union: Any) -> list[Any]:
    return [part for part in get_args(union) if part is not NoneType]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
