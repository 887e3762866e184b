"""Options of a data source: known by name, read into plain values, refused in words.

A name is one of the YAML's, written as Spark programs write options (`maxMessagesPerTrigger`) or as the YAML does
(`max_messages_per_trigger`); case does not matter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bridge.spark.errors import OptionError
from bridge.spark.foreign_options import COMMON, reason_against

if TYPE_CHECKING:
    from bridge.config.values import Section

Model = TypeVar("Model", bound="Section")

_SIZE: Final = re.compile(r"([0-9]{1,15}) *(B|KB|KiB|MB|MiB|GB|GiB|)", re.IGNORECASE)
_UNITS: Final = {
    "": 1, "b": 1, "kb": 1000, "kib": 1024, "mb": 1000**2, "mib": 1024**2, "gb": 1000**3, "gib": 1024**3
}  # fmt: skip
_DURATION: Final = re.compile(r"([0-9]{1,9}) *(ms|s|m|min|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: What Spark adds to the options of a table: each option with a prefix, and properties of the table.
_TABLE_OPTION: Final = "option."
_TABLE_PROPERTIES: Final = frozenset(("provider", "owner", "location", "is_managed_location", "external", "comment"))
_CONNECTION: Final = re.compile(r"\s*([^()\s]+)\(([0-9]{1,5})\)\s*")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


class Options:
    """The options of one use of a data source. Each method raises OptionError; `source` is named in its text."""

    def __init__(
        self, source: str, given: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str] = COMMON
    ) -> None:
        """Take those that are `given`; `refused` says why some that others have make no sense here."""
        self.source = source
        names = {_plain(name): name for name in known}
        self._values: dict[str, str] = {}
        of_table = {key[len(_TABLE_OPTION) :]: value for key, value in given.items() if key.startswith(_TABLE_OPTION)}
        plain = {key: value for key, value in given.items() if not key.startswith(_TABLE_OPTION)}
        for key, value in {**of_table, **plain}.items():
            if key in _TABLE_PROPERTIES and _plain(key) not in names:
                continue
            if (name := names.get(_plain(key))) is None:
                raise self._unknown(key, names, refused)
            self._values[name] = value

    def _unknown(self, key: str, names: Mapping[str, str], refused: Mapping[str, str]) -> OptionError:
        if (against := reason_against(key, refused)) is not None:
            return OptionError(f"{self.source} has no option {against[0]}: {against[1]}")
        near = difflib.get_close_matches(_plain(key), names, n=1)
        what = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"
        return OptionError(f"{self.source} knows no option {key} ({what})")

    def wrong(self, name: str, expected: str) -> OptionError:
        """Return the error that says of an option what was expected."""
        found = f"found {self._values[name]!r}" if name in self._values else "found none"
        return OptionError(f"{self.source}: option {name}: expected {expected}, {found}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return the value of an option, None where it is not given. An empty one is refused."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise self.wrong(name, "a value")
        return value

    def required(self, name: str, what: str) -> str:
        """Return the value of an option that has no default; `what` says what it is."""
        value = self.text(name)
        if value is None:
            raise self.wrong(name, what)
        return value

    def names(self, name: str) -> list[str]:
        """Return the values of a list with commas; empty where it is not given."""
        value = self.text(name)
        return [] if value is None else [part.strip() for part in value.split(",") if part.strip()]

    def number(self, name: str, default: int, low: int = 1, high: int = 2**31 - 1) -> int:
        """Return the value of an option that is a whole number."""
        value = self._values.get(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not low <= int(value) <= high:
            raise self.wrong(name, f"an integer from {low} to {high}")
        return int(value)

    def size(self, name: str, default: int) -> int:
        """Return the value of an option that is a number of bytes: `1000000`, `64 MiB`."""
        value = self._values.get(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value.strip())
        if found is None or not int(found[1]):
            raise self.wrong(name, "a size (an integer of bytes, or a number with B, KB, KiB, MB, MiB, GB or GiB)")
        return int(found[1]) * _UNITS[found[2].lower()]

    def duration(self, name: str, default: float) -> float:
        """Return the value of an option that is a duration, in seconds: `500 ms`, `30s`, `15m`, `1h`."""
        value = self._values.get(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise self.wrong(name, "a duration (a whole number with ms, s, m, min or h)")
        return int(found[1]) * _SECONDS[found[2]]

    def truth(self, name: str, default: bool) -> bool:
        """Return the value of an option that is true or false."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return value.strip().lower() == "true"

    def path(self, name: str) -> Path | None:
        """Return the value of an option that is a path; a relative one counts from the working directory of the program.

        A URI is refused: pathlib would make a directory `s3a:` of one.
        """
        value = self.text(name)
        if value is not None and _URI.match(value):
            raise self.wrong(name, "a path of this machine, which may be a mounted one, and no URI")
        return None if value is None else Path(value).absolute()

    def place(self, name: str) -> str | None:
        """Return the value of an option that is a path or a URL; a relative path becomes absolute, a `file:` URL a path."""
        value = self.text(name)
        if value is None or (_URI.match(value) and not value.startswith("file:")):
            return value
        return str(Path(value.removeprefix("file://").removeprefix("file:")).absolute())

    def address(self, name: str) -> tuple[str, int] | None:
        """Return the value of an option that is `host(port)`, as MQ writes connection names."""
        value = self.text(name)
        if value is None:
            return None
        found = _CONNECTION.fullmatch(value)
        if found is None or not 0 < int(found[2]) < 65_536:
            raise self.wrong(name, "host(port)")
        return found[1], int(found[2])


def checked(model: type[Model], written: Mapping[str, Any], options: Options, names: Mapping[str, str]) -> Model:
    """Return the section of the configuration that options say; `names` of options -> its keys. Raises OptionError."""
    from pydantic import ValidationError

    try:
        return model.model_validate(written)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        context = problem.get("ctx", {})
        key = str((*problem["loc"], *context.get("at", ()))[-1])
        expected = str(context.get("expected", "a value"))
        raise options.wrong({key: name for name, key in names.items()}.get(key, key), expected) from error
