"""Generate the manual page mqbridge(1) from the help of the commands, when a package is built.

`python deploy/man.py > mqbridge.1`, with the Python that the bridge is installed with.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from bridge import __version__
from bridge.cli.failures import EXIT_STATUSES
from bridge.cli.program import SECTIONS, all_examples, program

_DESCRIPTION = """
mqbridge lets MQTT clients connect to a queue manager, in the style of the telemetry service of IBM MQ. Each client appears to
the queue manager as a publish/subscribe application. Its client identifier is the name of a remote queue manager. The queue
manager is either embedded or IBM MQ.

mqbridge run starts the bridge. Most other commands connect to a running bridge. They find it with its configuration file
(--config), or with its data directory (--data-dir).
"""
_FILES = {
    "/etc/mqbridge/bridge.yaml": "The configuration file of the service.",
    "DIR": "The data directory of the embedded queue manager, by default ./data.",
}
_ENVIRONMENT = {
    "MQBRIDGE_CONFIG": "The configuration file, if --config is not given.",
    "MQBRIDGE_DATA_DIR": "The data directory, if neither --data-dir nor the configuration file specifies it.",
    "NO_COLOR": "Print no colours.",
}
_EXAMPLES = ("run", "check", "status", "client list", "mapping pause", "link test", "mq sub", "mqsc")
_SEE_ALSO = r"\fBmosquitto_pub\fR(1), \fBmosquitto_sub\fR(1), \fBrunmqsc\fR(1), \fBsystemctl\fR(1)"
#: Characters that have a meaning in troff.
_SIGNS = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti"}
)


def manual_page() -> str:
    """Return the page, with the man macros of troff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    root: Any = get_command(program)
    context = root.make_context("mqbridge", [], resilient_parsing=True)
    yield f'.TH MQBRIDGE 1 "" "mqbridge {__version__}" "User Commands"'
    yield from (".SH NAME", r"mqbridge \- a bridge between MQTT clients and IBM MQ")
    yield from (".SH SYNOPSIS", r".B mqbridge", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]")
    yield from (".SH DESCRIPTION", *_paragraphs(_DESCRIPTION))
    yield from (".SH OPTIONS", *_options(root, context))
    yield ".SH COMMANDS"
    for section in SECTIONS.values():
        for name in section:
            yield from _command(root.get_command(context, name), context, name)
    for heading, entries in {"EXIT STATUS": EXIT_STATUSES, "FILES": _FILES, "ENVIRONMENT": _ENVIRONMENT}.items():
        yield f".SH {heading}"
        for term, text in entries.items():
            yield from (".TP", _bold(term), _escaped(text))
    yield ".SH EXAMPLES"
    examples = all_examples()
    yield from _examples(line for name in _EXAMPLES for line in examples[name])
    yield from (".SH SEE ALSO", _SEE_ALSO)


def _command(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    path = context.command_path.removeprefix("mqbridge ")
    if examples := all_examples().get(path):
        usage = " ".join(command.collect_usage_pieces(context))
        yield from (f'.SS "{_escaped(path)} {_escaped(usage)}"', *_paragraphs(inspect.cleandoc(command.help or "")))
        yield from _options(command, context)
        yield from _examples(examples)
    for lower in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _command(command.get_command(context, lower), context, lower)


def _options(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield from (".TP", _bold(record[0]), _escaped(record[1]) or r"\&")


def _examples(lines: Any) -> Iterator[str]:
    yield from (".PP", ".nf", ".RS 4", *map(_escaped, lines), ".RE", ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.replace("\b", "").strip()):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _bold(text: str) -> str:
    return rf"\fB{_escaped(text)}\fR"


def _escaped(text: str) -> str:
    """Return a text with the characters escaped that have a meaning in troff."""
    text = re.sub(r"[^\0-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text.translate(_SIGNS))
    return rf"\&{text}" if text.startswith((".", r"\(aq")) else text


if __name__ == "__main__":
    sys.stdout.write(manual_page())
