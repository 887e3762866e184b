"""Options of a data source: known names, values of the right type, and errors that name the option.

A name is written as in Spark programs (`maxMessagesPerTrigger`) or as in YAML (`max_messages_per_trigger`). Case does not
matter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from bridge.config import values

if TYPE_CHECKING:
    from bridge.config.models import Configuration

#: Maximum number of messages in one unit of work of the sink `mq`. MAXUMSGS is 10,000 by default.
UNIT_ROWS: Final = 5_000

Model = TypeVar("Model", bound=values.Section)


class OptionError(ValueError):
    """An option of a data source is unknown, missing or invalid. The message names it."""


_SECRET: Final = "options are visible in plans and logs: write it to a file, and name the file as passwordFile"
_COMMON: Final[Mapping[str, str]] = {
    "*password": _SECRET,
    "maxOffsetsPerTrigger": "write maxMessagesPerTrigger",
    "minPartitions": "write partitions, the number of parts of a batch",
    "asyncProgressTracking*": "its commit log is written later, but messages of the spool are deleted because of it",
}
#: Options of Kafka and other sources that do not exist here -> what to write instead. `*` stands for any characters.
MQ_FOREIGN: Final[Mapping[str, str]] = {
    "starting*": "a queue has no offsets: a stream takes all messages and continues from its checkpoint; filter by put_time",
    "ending*": "a queue has no offsets: use a batch read, or a stream with trigger(availableNow=True); filter by put_time",
    "subscribe*": "write queue (one, or several with commas), or topic (with MQ's wildcards) and subscription",
    "kafka.*": "write config, listener (of a bridge), or channel and connections (of IBM MQ)",
    "clientId": "write applicationName",
    **_COMMON,
}
MQTT_FOREIGN: Final[Mapping[str, str]] = {
    "starting*": "a broker has no log: the stream starts with its session and retained messages, then uses its checkpoint",
    "ending*": "a broker has no log: a stream with trigger(availableNow=True) ends when no more messages arrive",
    "subscribe*": "write topic (a topic filter, or several with commas)",
    "kafka.*": "write host and port, or config and link",
    "queue": "queues are read with format('mq')",
    "brokerUrl": "write host and port, and tls",
    "username": "write user",
    "cleanSession": "write session (durable or clean)",
    **_COMMON,
}

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: Spark adds each option of a table with this prefix, and these properties of the table.
TABLE_OPTION: Final = "option."
_TABLE_PROPERTIES: Final = frozenset(("provider", "owner", "location", "is_managed_location", "external", "comment"))
#: A size as Spark writes it, in binary units.
_SPARK_SIZE: Final = re.compile(r"([0-9]{1,20})([kmgt])", re.IGNORECASE)
_SIZE: Final = values.size(1, 2**62)
_CONNECTION: Final = re.compile(r"\s*([^()\s]+)\(([0-9]{1,5})\)\s*")
#: Options whose values are numbers or Booleans in the sections of the configuration.
_NO_TEXT: Final = frozenset(("port", "inFlight", "tlsCheckHostName"))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


class Options:
    """The options of one use of a data source. Each method raises OptionError."""

    def __init__(
        self, source: str, options: Mapping[str, str], option_names: Iterable[str], foreign: Mapping[str, str] = _COMMON
    ) -> None:
        """Check the names of `options`. `source` is named in errors. `foreign` explains options of other sources."""
        self.source = source
        names = {_plain(name): name for name in option_names}
        self._values: dict[str, str] = {}
        of_table = {key[len(TABLE_OPTION) :]: value for key, value in options.items() if key.startswith(TABLE_OPTION)}
        plain = {key: value for key, value in options.items() if not key.startswith(TABLE_OPTION)}
        for key, value in {**of_table, **plain}.items():
            if key in _TABLE_PROPERTIES and _plain(key) not in names:
                continue
            if (name := names.get(_plain(key))) is None:
                raise self._unknown(key, names, foreign)
            self._values[name] = value

    def _unknown(self, key: str, names: Mapping[str, str], foreign: Mapping[str, str]) -> OptionError:
        for name, reason in foreign.items():
            if re.fullmatch(re.escape(name).replace(r"\*", ".*"), key, re.IGNORECASE):
                return OptionError(f"{self.source} has no option {key}: {reason}")
        near = difflib.get_close_matches(_plain(key), names, n=1)
        suggestion = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"
        return OptionError(f"{self.source} knows no option {key} ({suggestion})")

    def wrong(self, name: str, expected: str) -> OptionError:
        """Return the error for an option with an invalid value."""
        actual = f"found {self._values[name]!r}" if name in self._values else "found none"
        return OptionError(f"{self.source}: option {name}: expected {expected}, {actual}")

    def allow(self, names: Iterable[str], among: Iterable[str], why: str) -> None:
        """Raise OptionError if an option is given that is in `among`, but not in `names`."""
        for name in among:
            if name in self._values and name not in names:
                raise self.wrong(name, f"no value{',' if why.startswith('because') else ''} {why}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return the value of an option. None: it is not set."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise self.wrong(name, "a value")
        return value

    def required(self, name: str, expectation: str) -> str:
        """Return the value of an option without a default. `expectation` describes it."""
        value = self.text(name)
        if value is None:
            raise self.wrong(name, expectation)
        return value

    def names(self, name: str) -> list[str]:
        """Return the values of a list separated by commas."""
        return [part.strip() for part in (self.text(name) or "").split(",") if part.strip()]

    def value(self, name: str, kind: values.ValueKind, default: Any) -> Any:
        """Return the value of an option that is a number, a size, a duration or a Boolean, as in the configuration file."""
        if name not in self._values:
            return default
        try:
            return kind.func(self._converted(name))  # type: ignore[call-arg]
        except PydanticCustomError as error:
            raise self.wrong(name, str((error.context or {})["expected"])) from None

    def size(self, name: str, default: int) -> int:
        """Return the value of an option that is a size in bytes.

        It is written as in the configuration file (`64 MiB`), or as Spark writes sizes (`64m`, also in binary units).
        """
        if (match := _SPARK_SIZE.fullmatch(self._values.get(name, "").strip())) is not None:
            self._values[name] = str(int(match[1]) << 10 * ("kmgt".index(match[2].lower()) + 1))
        return int(self.value(name, _SIZE, default))

    def choice(self, name: str, words: Iterable[str], default: str) -> str:
        """Return the value of an option that is one of some words."""
        value = self.text(name) or default
        if value not in words:
            raise self.wrong(name, f"one of {', '.join(words)}")
        return value

    def truth(self, name: str, default: bool) -> bool:
        """Return the value of an option that is true or false."""
        return bool(self.value(name, values.truth, default))

    def path(self, name: str) -> Path | None:
        """Return the value of an option that is a path, as an absolute path. A URI is rejected."""
        value = self.text(name)
        if value is not None and _URI.match(value):
            raise self.wrong(name, "a local or mounted path, not a URI")
        return None if value is None else Path(value).absolute()

    def place(self, name: str) -> str | None:
        """Return the value of an option that is a path or a URL. Relative paths become absolute, `file:` URLs paths."""
        value = self.text(name)
        if value is None or (_URI.match(value) and not value.startswith("file:")):
            return value
        return str(Path(value.removeprefix("file://").removeprefix("file:")).absolute())

    def address(self, name: str) -> tuple[str, int] | None:
        """Return the value of an option that is `host(port)`, as MQ writes connection names."""
        value = self.text(name)
        if value is None:
            return None
        match = _CONNECTION.fullmatch(value)
        if match is None or not 0 < int(match[2]) < 65_536:
            raise self.wrong(name, "host(port)")
        return match[1], int(match[2])

    # Sections of the configuration -----------------------------------------------------------------------------------

    def configuration(self) -> Configuration | None:
        """Return the configuration file that the option `config` names. None: it is not set."""
        from bridge.config.document import load
        from bridge.config.problems import ConfigurationError

        if (file := self.path("config")) is None:
            return None
        try:
            return load(file)
        except ConfigurationError as error:
            raise OptionError(f"{self.source}: option config: {error}") from error

    def keys(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the given options in the form of a section of the configuration. `names` maps options to its keys."""
        return {
            key: self.path(name)
            if name.endswith("File")
            else self._converted(name)
            if name in _NO_TEXT
            else self.text(name)
            for name, key in names.items()
            if name in self
        }

    def tls(self) -> dict[str, Any] | None:
        """Return the section `tls`. None: no TLS."""
        tls_values = self.keys(TLS_OPTIONS)
        if self.truth("tls", bool(tls_values)):
            return tls_values
        self.allow((), TLS_OPTIONS, "because tls is false")
        return None

    def checked(self, model: type[Model], option_values: Mapping[str, Any], names: Mapping[str, str]) -> Model:
        """Return a section of the configuration. `names` maps options to its keys, for errors."""
        try:
            return model.model_validate(option_values)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            context = problem.get("ctx", {})
            key = str((*problem["loc"], *context.get("at", ()))[-1])
            expected = str(context.get("expected", "a value"))
            raise self.wrong({key: name for name, key in names.items()}.get(key, key), expected) from error

    def _converted(self, name: str) -> str | int | bool:
        """Return the value of an option as YAML reads it."""
        text = self._values[name].strip()
        if text.isdecimal():
            return int(text[:20])
        return {"true": True, "false": False}.get(text.lower(), text)


#: Options for TLS to a broker or to the listener of an embedded queue manager -> keys of ClientTlsConfig.
TLS_OPTIONS: Final = {
    "tlsCaFile": "ca_file",
    "tlsCertificateFile": "certificate_file",
    "tlsKeyFile": "key_file",
    "tlsKeyPasswordVariable": "key_password_variable",
    "tlsCheckHostName": "check_host_name",
}
