"""Options that several commands share, each described once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

#: Longest wait in seconds: WaitInterval is an MQLONG of milliseconds.
_LONGEST_WAIT = 2_147_483
_MQLONG_MAX = 2_147_483_647

DataDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Data directory of the queue manager. Without it: what the configuration file says, else the environment"
        " variable MQBRIDGE_DATA_DIR, else ./data.",
        show_default=False,
    ),
]
ConfigurationFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file of the bridge, which says where its queue manager is. Without it: the one that the"
        " environment variable MQBRIDGE_CONFIG names, if it does.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object to a line.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the MQMD and the headers as well.")]
Body = Annotated[
    str | None,
    typer.Argument(
        metavar="BODY|-", help="The message's body; standard input without it, or for -.", show_default=False
    ),
]
Persistent = Annotated[
    bool, typer.Option("--persistent", help="MQPER_PERSISTENT; without it, what the queue or topic has by default.")
]
Priority = Annotated[
    int | None,
    typer.Option(min=0, max=9, metavar="N", help="0 to 9; without it, what the queue or topic has by default."),
]
Expiry = Annotated[
    int | None,
    typer.Option(min=1, max=_MQLONG_MAX, metavar="TENTHS", help="Tenths of a second until the message expires."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="A message property, in the usr folder; any number of times.",
        show_default=False,
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=_LONGEST_WAIT,
        metavar="S",
        help="Seconds to wait for each message; 0 takes what is there.",
        show_default=False,
    ),
]
Count = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Stop after N messages; 0: take all that come.", show_default=False),
]


class LogLevel(StrEnum):
    """The levels of `log.level` in the configuration file."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark to run on, such as spark://host:7077; without it, this machine.", show_default=False
    ),
]
