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

from bridge import durations

if TYPE_CHECKING:
    from bridge.config.values import Section

Model = TypeVar("Model", bound="Section")


class OptionError(ValueError):
    """An option of a data source is unknown, missing or invalid. The message names it."""


# Options of other sources --------------------------------------------------------------------------------------------

_SECRET: Final = "options are visible in plans and logs: write it to a file, and name the file as passwordFile"
_TRIGGER: Final = "set the interval of batches with writeStream.trigger(processingTime=...)"
_PARTS: Final = "write partitions, the number of parts of a batch"
_NO_CLIENT: Final = "there is no Kafka client here"

#: Why options of Kafka's and other sources do not exist here, and what to write instead. A name may end with `*`.
COMMON: Final[Mapping[str, str]] = {"password": _SECRET, "mq.password": _SECRET, "kafka.*": _NO_CLIENT}
_READS: Final[Mapping[str, str]] = {
    **COMMON,
    "maxOffsetsPerTrigger": "write maxMessagesPerTrigger",
    "minOffsetsPerTrigger": _TRIGGER,
    "maxTriggerDelay": _TRIGGER,
    "minPartitions": _PARTS,
    "assign": f"there are no partitions to choose; {_PARTS}",
    "includeHeaders": "the columns rfh2, headers and properties always exist",
    "failOnDataLoss": "a loss in the spool always ends the query",
    "writeId": "it names a write",
}
MQ_READS: Final[Mapping[str, str]] = {
    **_READS,
    "starting*": "a queue has no offsets: a stream takes all messages and continues from its checkpoint; filter by put_time",
    "ending*": "a queue has no offsets: use a batch read, or a stream with trigger(availableNow=True); filter by put_time",
    "subscribe*": "write queue (one, or several with commas), or topic (with MQ's wildcards) and subscription",
    "kafka.bootstrap.servers": "write config, listener (of a bridge), or channel and connections (of IBM MQ)",
    "kafka.group.id": "one query reads a queue, and its checkpoint stores the position",
    "mq.queue.manager": "write queueManager",
    "mq.connection.name.list": "write connections",
    "mq.channel.name": "write channel",
    "mq.queue": "write queue",
    "clientId": "write applicationName",
    "browse": "a streaming read takes messages, and a batch read browses; read a subscription for copies of messages",
}
MQTT_READS: Final[Mapping[str, str]] = {
    **_READS,
    "starting*": "a broker has no log: the stream starts with its session and retained messages, then uses its checkpoint",
    "ending*": "a broker has no log: a stream with trigger(availableNow=True) ends when no more messages arrive",
    "subscribe*": "write topic (a topic filter, or several with commas)",
    "kafka.bootstrap.servers": "write host and port, or config and link",
    "kafka.group.id": "one query reads a session of the broker: write clientId to name it",
    "queue": "queues are read with format('mq')",
    "brokerUrl": "write host and port, and tls",
    "username": "write user",
    "cleanSession": "write session (durable or clean)",
    "mqttVersion": "write version (5 or 3.1.1)",
}


def _reason_against(key: str, table: Mapping[str, str]) -> str | None:
    """Return why an option of another source does not exist here. None: it is not in the table."""
    plain = _plain(key)
    for name, reason in sorted(table.items(), key=lambda item: item[0].endswith("*")):
        if plain == name.lower() or (name.endswith("*") and plain.startswith(name[:-1].lower())):
            return reason
    return None


# Options -------------------------------------------------------------------------------------------------------------

_SIZE: Final = re.compile(r"([0-9]{1,15}) *([A-Za-z]*)")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: Spark adds each option of a table with this prefix, and these properties of the table.
TABLE_OPTION: Final = "option."
_TABLE_PROPERTIES: Final = frozenset(("provider", "owner", "location", "is_managed_location", "external", "comment"))
_CONNECTION: Final = re.compile(r"\s*([^()\s]+)\(([0-9]{1,5})\)\s*")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


class Options:
    """The options of one use of a data source. Each method raises OptionError."""

    def __init__(
        self, source: str, given: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str] = COMMON
    ) -> None:
        """Check the names of `given`. `source` is named in errors. `refused` explains options of other sources."""
        self.source = source
        names = {_plain(name): name for name in known}
        self._values: dict[str, str] = {}
        of_table = {key[len(TABLE_OPTION) :]: value for key, value in given.items() if key.startswith(TABLE_OPTION)}
        plain = {key: value for key, value in given.items() if not key.startswith(TABLE_OPTION)}
        for key, value in {**of_table, **plain}.items():
            if key in _TABLE_PROPERTIES and _plain(key) not in names:
                continue
            if (name := names.get(_plain(key))) is None:
                raise self._unknown(key, names, refused)
            self._values[name] = value

    def _unknown(self, key: str, names: Mapping[str, str], refused: Mapping[str, str]) -> OptionError:
        if (reason := _reason_against(key, refused)) is not None:
            return OptionError(f"{self.source} has no option {key}: {reason}")
        near = difflib.get_close_matches(_plain(key), names, n=1)
        what = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"
        return OptionError(f"{self.source} knows no option {key} ({what})")

    def wrong(self, name: str, expected: str) -> OptionError:
        """Return the error for an option with an invalid value."""
        found = f"found {self._values[name]!r}" if name in self._values else "found none"
        return OptionError(f"{self.source}: option {name}: expected {expected}, {found}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return the value of an option. None: it is not set."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise self.wrong(name, "a value")
        return value

    def required(self, name: str, what: str) -> str:
        """Return the value of an option without a default; `what` describes it."""
        value = self.text(name)
        if value is None:
            raise self.wrong(name, what)
        return value

    def names(self, name: str) -> list[str]:
        """Return the values of a list separated by commas."""
        return [part.strip() for part in (self.text(name) or "").split(",") if part.strip()]

    def number(self, name: str, default: int, low: int = 1, high: int = 2**31 - 1) -> int:
        """Return the value of an option that is an integer."""
        value = self._values.get(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not low <= int(value) <= high:
            raise self.wrong(name, f"an integer from {low} to {high}")
        return int(value)

    def size(self, name: str, default: int) -> int:
        """Return the value of an option that is a number of bytes: `1000000`, `64 MiB`."""
        from bridge.config.values import SIZE_UNITS

        value = self._values.get(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value.strip())
        units = {unit.lower(): count for unit, count in SIZE_UNITS.items()}
        if found is None or not int(found[1]) or (unit := found[2].lower() or "b") not in units:
            raise self.wrong(name, f"a size (an integer of bytes, or a number with {', '.join(SIZE_UNITS)})")
        return int(found[1]) * units[unit]

    def duration(self, name: str, default: float) -> float:
        """Return the value of an option that is a duration, in seconds: `500 ms`, `30s`, `15min`, `1h`."""
        value = self._values.get(name)
        if value is None:
            return default
        try:
            return float(durations.parsed(value.strip()))
        except ValueError:
            raise self.wrong(name, f"a duration (a number with {', '.join(durations.UNITS)})") from None

    def truth(self, name: str, default: bool) -> bool:
        """Return the value of an option that is true or false."""
        value = self._values.get(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return value == "true"

    def path(self, name: str) -> Path | None:
        """Return the value of an option that is a path, as an absolute path. A URI is rejected."""
        value = self.text(name)
        if value is not None and _URI.match(value):
            raise self.wrong(name, "a local or mounted path, not a URI")
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
    """Return the section of the configuration that options specify; `names` maps options to its keys. Raises OptionError."""
    from pydantic import ValidationError

    try:
        return model.model_validate(written)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        context = problem.get("ctx", {})
        key = str((*problem["loc"], *context.get("at", ()))[-1])
        expected = str(context.get("expected", "a value"))
        raise options.wrong({key: name for name, key in names.items()}.get(key, key), expected) from error


# TLS -----------------------------------------------------------------------------------------------------------------

#: Options for TLS to a broker or to the listener of an embedded queue manager -> keys of ClientTlsConfig.
TLS_OPTIONS: Final = {
    "tlsCaFile": "ca_file",
    "tlsCertificateFile": "certificate_file",
    "tlsKeyFile": "key_file",
    "tlsKeyPasswordVariable": "key_password_variable",
    "tlsCheckHostName": "check_host_name",
}


def tls_of(options: Options) -> dict[str, Any] | None:
    """Return the section `tls` as in YAML. None: no TLS. Raises OptionError."""
    given = [name for name in TLS_OPTIONS if name in options]
    if not options.truth("tls", bool(given)):
        if given:
            raise options.wrong(given[0], "no value, because tls is false")
        return None
    written: dict[str, Any] = {}
    for name in given:
        if name.endswith("File"):
            value: Any = options.path(name)
        else:
            value = options.truth(name, True) if name == "tlsCheckHostName" else options.text(name)
        written[TLS_OPTIONS[name]] = value
    return written
