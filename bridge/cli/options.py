"""Options that several commands share, each declared once, and the values of those that every command accepts.

A command states with `takes` which of the common options it uses. Their values are in `settings`. They can also be given
before the command: `mqbridge -c bridge.yaml client list`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Flag, StrEnum, auto
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bridge import durations
from bridge.cli.failures import WRONG_USAGE, Failure

Command = TypeVar("Command", bound=Callable[..., object])


class Common(Flag):
    """Common options of a command."""

    CONFIG = auto()
    DATA_DIR = auto()
    OUTPUT = auto()
    YES = auto()


CONFIG, OUTPUT, YES = Common.CONFIG, Common.OUTPUT, Common.YES
#: the options that identify a running bridge, or its queue manager
BRIDGE = Common.CONFIG | Common.DATA_DIR


def takes(common: Common) -> Callable[[Command], Command]:
    """State the common options of a command."""

    def add(command: Command) -> Command:
        command.takes = common  # type: ignore[attr-defined]
        return command

    return add


class Format(StrEnum):
    """Output formats."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    yaml = "yaml"
    name = "name"


@dataclass
class Settings:
    """Values of the common options of the command that runs."""

    config: Path | None = None
    data_dir: Path | None = None
    output: Format = Format.table
    yes: bool = False
    quiet: bool = False
    debug: bool = False
    no_color: bool = False

    def reset(self) -> None:
        """Set all values to their defaults."""
        self.__init__()  # type: ignore[misc]

    @property
    def colored(self) -> bool:
        """Whether colours are allowed (https://no-color.org)."""
        return not self.no_color and not os.environ.get("NO_COLOR")


settings = Settings()


def option(metavar: str, help: str, *names: str, show_default: bool | str = False, **more: Any) -> Any:
    """Declare an option. Its default is not shown unless `show_default` is set."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=show_default, **more)


def flag(help: str, *names: str, **more: Any) -> Any:
    """Declare an option without a value."""
    return typer.Option(*names, help=help, **more)


def argument(metavar: str, help: str, *, show_default: bool = False, **more: Any) -> Any:
    """Declare an argument. Its default is not shown unless `show_default` is set."""
    return typer.Argument(metavar=metavar, help=help, show_default=show_default, **more)


DataDirectory = Annotated[
    Path | None,
    option(
        "DIR",
        "Data directory of the embedded queue manager. Default: the one in the"
        " configuration file, the environment variable MQBRIDGE_DATA_DIR, or"
        " ./data.",
        "--data-dir",
    ),
]
ConfigurationFile = Annotated[
    Path | None,
    option(
        "FILE", "Configuration file of the bridge. Default: the environment variable MQBRIDGE_CONFIG.", "--config", "-c"
    ),
]
Json = Annotated[bool, flag("Print JSON, one object per line (-o jsonl).", "--json")]
Yes = Annotated[bool, flag("Skip the confirmation prompt.", "--yes", "-y")]


def _common(
    config: ConfigurationFile = None,
    data_dir: DataDirectory = None,
    output: Annotated[
        Format | None, option("FORMAT", "Output format: table, json, jsonl, yaml or name.", "--output", "-o")
    ] = None,
    json: Json = False,
    yes: Yes = False,
    quiet: Annotated[bool, flag("Print results and errors only.", "--quiet", "-q")] = False,
    debug: Annotated[bool, flag("Print a traceback for each error.", "--debug")] = False,
    no_color: Annotated[bool, flag("Disable colours, like the variable NO_COLOR.", "--no-color")] = False,
) -> None:
    """Declare the common options."""


_SHOWN = {"config": Common.CONFIG, "data_dir": Common.DATA_DIR, "output": OUTPUT, "json": OUTPUT, "yes": YES}


def common_parameters(common: Common, *, root: bool = False, declared: tuple[str, ...] = ()) -> list[Any]:
    """Return the common options of a command as click parameters that set `settings`.

    The options for all commands are in the help of `mqbridge` (`root`) only. A command that declares an option itself
    (`declared`) gets its own value.
    """
    declaration = typer.Typer(add_completion=False)
    declaration.command()(_common)
    parameters = []
    for parameter in typer.main.get_command(declaration).params:
        name = str(parameter.name)
        if name in declared or (name in _SHOWN and not common & _SHOWN[name]) or parameter.opts == ["--help"]:
            continue
        parameter.expose_value = False
        parameter.callback = _remember
        parameter.hidden = name not in _SHOWN and not root  # type: ignore[attr-defined]
        parameters.append(parameter)
    return parameters


def _remember(context: Any, parameter: Any, value: Any) -> None:
    """Keep the value of a common option. A value after the command replaces one before the command."""
    if value is None or value is False:
        return
    if parameter.name == "json":
        settings.output = Format.jsonl
    elif parameter.name == "output":
        settings.output = Format(value)
    elif parameter.name in ("config", "data_dir"):
        setattr(settings, parameter.name, Path(value))
    else:
        setattr(settings, parameter.name, True)


def duration(text: str | float) -> float:
    """Return a duration in seconds. A number without a unit is a number of seconds. Raises BadParameter."""
    if not isinstance(text, str):  # a default
        return text
    try:
        return float(durations.parsed(text, plain=True))
    except ValueError:
        raise typer.BadParameter(f"expected a duration such as 5s, 90min, 12h or 30d, found {text!r}") from None


class LogLevel(StrEnum):
    """The levels of `log.level` in the configuration file."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Limit = Annotated[int, option("N", "Print at most N entries.", "--limit", "-n", show_default=True, min=1, max=10_000)]
Count = Annotated[int | None, option("N", "Process at most N messages.", "--limit", "-n", min=1)]
Away = Annotated[
    float | None,
    option(
        "TIME",
        "Only clients that have been disconnected for this long, such as 30d, 12h or 90min.",
        "--away",
        parser=duration,
    ),
]
Properties = Annotated[
    list[str] | None, option("NAME=VALUE", "A message property, in the usr folder. Can be repeated.", "--property")
]
Master = Annotated[str | None, option("URL", "Spark master, such as spark://host:7077. Default: this machine.")]

_TIMES = "2026-11-21, 2026-11-21T14:30 (UTC, or with an offset such as +01:00), or -40s, -90min, -2h, -7d before now"

From = Annotated[str | None, option("TIME", f"Start time: {_TIMES}. Default: the first row.", "--from")]
To = Annotated[str | None, option("TIME", "End time, exclusive. Default: the last row.", "--to")]


def moment(text: str | None, name: str) -> datetime | None:
    """Return the time in an option. Raises Failure."""
    if text is None:
        return None
    try:
        if text.startswith("-"):
            return datetime.now(UTC) - timedelta(seconds=float(durations.parsed(text[1:])))
        timestamp = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # the latter: before the year 1
        raise Failure(f"{name}: expected a time such as {_TIMES}, found {text!r}", WRONG_USAGE) from None
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)


def period(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the times of `--from` and `--to`. Raises Failure if they are not in that order."""
    first, last = moment(start, "--from"), moment(end, "--to")
    if first is not None and last is not None and first >= last:
        raise Failure(f"--from {first.isoformat()} is not before --to {last.isoformat()}", WRONG_USAGE)
    return first, last
