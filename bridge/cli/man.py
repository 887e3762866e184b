"""The manual page mqbridge(1), made of the help of the commands: `python -m bridge.cli.man > mqbridge.1`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from bridge import __version__
from bridge.cli.examples import EXAMPLES

_DESCRIPTION = """
mqbridge lets MQTT clients connect to a queue manager, as the telemetry service of IBM MQ does. To the queue manager each
client is a publish/subscribe application; its client identifier is the name of a remote queue manager. The queue manager is
an embedded one, or one of IBM MQ.

The bridge is started by mqbridge run. Most other commands ask a bridge that runs, by its control socket; they find it by
the configuration file, or by the data directory.
"""
#: section -> entries: a term, and what it means
_TABLES = {
    "EXIT STATUS": (
        ("0", "All was done."),
        ("1", "Something could not be done. Of status: something is not as it should be. Of reload: nothing was taken over."),
        ("2", "The command or a configuration file is not what it should be."),
    ),
    "FILES": (
        ("/etc/mqbridge/bridge.yaml", "The configuration file, as the unit for systemd has it."),
        ("DIR/", "The data directory: ./data, unless the file or --data-dir says something else."),
    ),
    "ENVIRONMENT": (
        ("MQBRIDGE_CONFIG", "The configuration file, for commands with --config."),
        ("MQBRIDGE_DATA_DIR", "The data directory of the embedded queue manager, for commands with --data-dir."),
    ),
}
_EXAMPLES = ("run", "check", "status", "client list", "mapping pause", "link test", "mq sub")
#: Signs that troff has a meaning or another shape for.
_SIGNS = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti"}
)
_SEE_ALSO = r"\fBmosquitto_pub\fR(1), \fBmosquitto_sub\fR(1), \fBrunmqsc\fR(1), \fBsystemctl\fR(1)"


def manual_page() -> str:
    """Return the page, in the man macros of troff."""
    from bridge.cli.program import program

    return "\n".join(_lines(program)) + "\n"


def _lines(program: Any) -> Iterator[str]:
    from typer.main import get_command

    command: Any = get_command(program)
    context = command.make_context("mqbridge", [], resilient_parsing=True)
    yield f'.TH MQBRIDGE 1 "" "mqbridge {__version__}" "User Commands"'
    yield from (".SH NAME", r"mqbridge \- a bridge between MQTT clients and IBM MQ")
    yield from (".SH SYNOPSIS", r".B mqbridge", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]")
    yield from (".SH DESCRIPTION", *_paragraphs(_DESCRIPTION))
    yield from (".SH OPTIONS", *_options(command, context))
    yield ".SH COMMANDS"
    for name in _in_order(command, context):
        yield from _command(command.get_command(context, name), context, name)
    for section, entries in _TABLES.items():
        yield f".SH {section}"
        for term, text in entries:
            yield from (".TP", _bold(term), _escaped(text))
    yield ".SH EXAMPLES"
    yield from _examples(line for name in _EXAMPLES for line in EXAMPLES[name])
    yield from (".SH SEE ALSO", _SEE_ALSO)


def _in_order(command: Any, context: Any) -> list[str]:
    """Return the commands as the help has them, section by section."""
    sections = [name for section in command.SECTIONS.values() for name in section]
    return list(dict.fromkeys([*sections, *command.list_commands(context)]))


def _command(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    path = context.command_path.removeprefix("mqbridge ")
    # Of a group its commands are listed, one by one.
    if hasattr(command, "list_commands"):
        for lower in command.list_commands(context):
            yield from _command(command.get_command(context, lower), context, lower)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f'.SS "{_escaped(path)} {_escaped(usage)}"', *_paragraphs(inspect.cleandoc(command.help or "")))
    yield from _options(command, context)
    yield from _examples(EXAMPLES[path])


def _options(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield from (".TP", _bold(record[0]), _escaped(record[1]) or r"\&")


def _examples(lines: Any) -> Iterator[str]:
    yield from (".PP", ".nf", ".RS 4", *map(_escaped, lines), ".RE", ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _bold(text: str) -> str:
    return rf"\fB{_escaped(text)}\fR"


def _escaped(text: str) -> str:
    """Return a text with what troff would obey as it is meant; quotes are those of the keyboard."""
    text = re.sub(r"[^\0-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text.translate(_SIGNS))
    return rf"\&{text}" if text.startswith((".", r"\(aq")) else text


if __name__ == "__main__":
    sys.stdout.write(manual_page())
