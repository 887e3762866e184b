"""`mqbridge explain`: what a line of the log means, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from bridge.cli import options
from bridge.cli.failures import Failure

if TYPE_CHECKING:
    from bridge.log_messages.catalogue import LogMessage

_IDENTIFIER = re.compile(r"MQB(\d{4})[A-Z]?")
_REASON = re.compile(r"\d+|MQRC(CF)?_\w+")


class _Explained(msgspec.Struct, omit_defaults=True):
    """A message, or a reason code of MQ, as a line of JSON."""

    id: str
    text: str
    happened: str = ""
    why: str = ""
    do: str = ""
    meaning: str = ""


def explain(
    identifiers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IDENTIFIER...",
            help="Of messages, with or without the last letter; or reason codes of MQ, as numbers or names. Without"
            " any: a line for each message.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Say what a line of the log means, and what to do about it.

    It begins with its identifier: MQB1201W, say. Its letter says how severe it is: I for information, W
    for a warning, E for an error, S for a severe one. Exit status 1 where the bridge has no such message.
    """
    from bridge.log_messages.catalogue import catalogue

    messages = catalogue()
    if identifiers:
        found = [_explained(one.strip().rstrip(":").upper(), messages) for one in identifiers]
    else:
        found = [_of_message(identifier, message) for identifier, message in messages.items()]
    if json:
        from bridge.cli.output import write_json

        for one in found:
            write_json(one)
    elif identifiers:
        typer.echo("\n\n".join(map(_page, found)))
    else:
        typer.echo("\n".join(f"{one.id}  {one.text}" for one in found))


def _explained(wanted: str, messages: Mapping[str, LogMessage]) -> _Explained:
    """Return what an identifier, in capitals, is. Raises Failure where it is none."""
    if (named := _IDENTIFIER.fullmatch(wanted)) is not None:
        # One number is one message, whatever letter somebody remembers.
        for identifier, message in messages.items():
            if identifier[3:7] == named[1]:
                return _of_message(identifier, message)
    elif _REASON.fullmatch(wanted) is not None and (reason := _reason(wanted)) is not None:
        return reason
    raise Failure(f"{wanted} is no message of this bridge{_suggestion(wanted, list(messages))}")


def _of_message(identifier: str, message: LogMessage) -> _Explained:
    return _Explained(identifier, message.text, message.happened, message.why, message.do)


def _reason(wanted: str) -> _Explained | None:
    """Return a reason code of MQ by its number or name; None where there is none."""
    from bridge.log_messages.catalogue import reasons
    from bridge.wire import cmqc

    for code, name in cmqc.reason_names().items():
        if wanted in (str(code), name):
            return _Explained(str(code), name, meaning=reasons().get(name, ""))
    return None


def _suggestion(wanted: str, identifiers: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(wanted, identifiers, n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else "; `mqbridge explain` lists all of them"


def _page(one: _Explained) -> str:
    import textwrap

    fill = textwrap.TextWrapper(
        100, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).fill
    parts = (
        ("What happened", one.happened),
        ("Why", one.why),
        ("What to do", one.do),
        ("What it means", one.meaning),
    )
    return "\n\n".join([f"{one.id}  {one.text}", *(f"{head}:\n{fill(text)}" for head, text in parts if text)])
