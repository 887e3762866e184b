"""What is wrong with a file, in words: one `Problem` for each mistake, and the error that carries them all."""

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


@dataclass(frozen=True)
class Clash:
    """Two parts of the file, each right by itself, that cannot stand together."""

    location: Location
    """The later of the two, like `("channels", 1, "name")`."""
    expected: str
    found: str | None = None
    """None: what stands there."""
    again: str = ""
    """If what stands there also stands elsewhere: where, as a clause that follows "again,"."""


class ConfigurationError(Exception):
    """A configuration file that cannot be used. Its text is all `problems`, one to a line."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        """Every mistake that was found, in the order of the file; never empty."""
        super().__init__("\n".join(map(str, problems)))


def dotted(location: Location) -> str:
    """Return `location` as an operator writes it: `channels[0].port`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_word(step)}" for step in location)
    return "".join(steps).removeprefix(".")


def _word(key: str) -> str:
    """Return `key`, in quotes if it could be mistaken for more than one key, or would upset a terminal."""
    return key if key.isprintable() and not set(key) & set(" .[]:") and 0 < len(key) <= 60 else quoted(key)


def quoted(text: str) -> str:
    """Return `text` in quotes, with escapes for what cannot be printed, and cut to what can be read at a glance."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def expectation(error: ErrorDetails, root: type[Section]) -> str:
    """Return as a phrase what `error`, one of pydantic's errors about a `root`, had expected.

    The values themselves are refused by `bridge.config.values`, in full words. That leaves pydantic the file's shape.
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
    """Return as a phrase what a `model` expects in place of `key`, which is none of its keys."""
    known = [field.alias or name for name, field in model.model_fields.items()]
    return model.REFUSED.get(key) or f"a known key ({suggestion(key, known) or listing(known, 'or')})"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean ...?`, or an empty text if nothing known is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


def place_of(error: ErrorDetails, root: Any) -> tuple[Location, bool]:
    """Return the location in the file that `error` is about, and whether the key there is meant rather than its value."""
    if error["type"] == "extra_forbidden":
        return (*_way(error["loc"][:-1], root).written, error["loc"][-1]), True
    way = _way(error["loc"], root)
    if error["type"] in ("unknown_type", "unknown_method"):
        return (*way.written, error["type"].removeprefix("unknown_")), False
    at: Location = error.get("ctx", {}).get("at", ())
    return (*way.written, *at), way.is_key


@dataclass(frozen=True)
class _Way:
    """A location of pydantic's, as the file has it."""

    written: Location
    model: type[Section]
    """The innermost mapping with fixed keys on the way."""
    is_key: bool
    """Whether the last key itself is meant, not its value."""


def _way(location: Location, root: Any) -> _Way:
    """Return pydantic's `location` as the file has it, and the model that describes the mapping there.

    pydantic has steps of its own: the tag of the model, where a value is one of several, and `[key]` where the key of a
    mapping with free keys is meant. Which step is which only the types along the way tell.
    """
    kind = model = root
    written: list[str | int] = []
    free_key = False
    for step in location:
        kind = _without_none(kind)
        if free_key and step == "[key]" and get_origin(kind) is not dict:
            return _Way(tuple(written), model, is_key=True)
        tagged = {tag: member for member in get_args(kind) for tag in _tags(member)}
        free_key = get_origin(kind) is dict
        if tagged:
            kind = tagged.get(str(step))
        else:
            written.append(step)
            kind = _kind_below(kind, step)
        kind = _without_none(kind)
        model = kind if _is_section(kind) else model
    return _Way(tuple(written), model, is_key=False)


def _kind_below(kind: Any, step: str | int) -> Any:
    """Return the type of the value at `step` in a value of type `kind`; None where the types do not tell."""
    if _is_section(kind):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}.get(str(step))
    return get_args(kind)[-1] if get_origin(kind) in (dict, list) else None


def _tags(member: Any) -> list[str]:
    """Return the pydantic tag of a member of a union, if it has one."""
    metadata = get_args(member)[1:] if get_origin(member) is Annotated else ()
    return [part.tag for part in metadata if isinstance(part, Tag)]


def _without_none(kind: Any) -> Any:
    """Return a type without `Annotated` around it and `| None` behind it."""
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
