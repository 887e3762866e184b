"""`mqbridge explain`: explanations of log messages and reason codes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from bridge.cli.failures import NOT_FOUND, Failure
from bridge.cli.options import OUTPUT, argument, takes
from bridge.cli.output import print_records

if TYPE_CHECKING:
    from bridge.log_messages.catalogue import LogMessage

_IDENTIFIER = re.compile(r"MQB(\d{4})[A-Z]?")
_REASON = re.compile(r"\d+|MQRC(CF)?_\w+")


class _Explained(msgspec.Struct, omit_defaults=True):
    """A log message or an MQ reason code."""

    id: str
    text: str
    happened: str = ""
    why: str = ""
    do: str = ""
    meaning: str = ""


@takes(OUTPUT)
def explain(
    identifiers: Annotated[
        list[str] | None,
        argument(
            "[IDENTIFIER]...",
            "Message identifiers, with or without the last"
            " letter, or MQ reason codes, as numbers or names. Default: list all messages.",
        ),
    ] = None,
) -> None:
    """Explain log messages and MQ reason codes, and what to do about them.

    A log message starts with its identifier, such as MQB1201W. The last letter is the severity: I is information, W a
    warning, E an error, and S a severe error. Exit status 3 if there is no such message.
    """
    from bridge.log_messages.catalogue import catalogue

    messages = catalogue()
    if identifiers:
        explanations = [_explained(identifier.strip().rstrip(":").upper(), messages) for identifier in identifiers]
    else:
        explanations = [_of_message(identifier, message) for identifier, message in messages.items()]

    def text(explanations: list[_Explained]) -> None:
        pages = [
            _page(explanation) if identifiers else f"{explanation.id}  {explanation.text}"
            for explanation in explanations
        ]
        typer.echo(("\n\n" if identifiers else "\n").join(pages))

    print_records(explanations, lambda explanation: explanation.id, table=text)


def _explained(text: str, messages: Mapping[str, LogMessage]) -> _Explained:
    """Return the explanation of an identifier in capitals. Raises Failure if it is unknown."""
    if (match := _IDENTIFIER.fullmatch(text)) is not None:
        # The number identifies the message, whatever the letter.
        for identifier, message in messages.items():
            if identifier[3:7] == match[1]:
                return _of_message(identifier, message)
    elif _REASON.fullmatch(text) is not None and (reason := _reason(text)) is not None:
        return reason
    raise Failure(f"no message {text}", NOT_FOUND, hint=_suggestion(text, list(messages)))


def _of_message(identifier: str, message: LogMessage) -> _Explained:
    return _Explained(identifier, message.text, message.happened, message.why, message.do)


def _reason(text: str) -> _Explained | None:
    """Return an MQ reason code by its number or name, or None."""
    from bridge.log_messages.catalogue import reasons
    from bridge.wire import cmqc

    for code, name in cmqc.reason_names().items():
        if text in (str(code), name):
            return _Explained(str(code), name, meaning=reasons().get(name, ""))
    return None


def _suggestion(text: str, identifiers: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(text, identifiers, n=3, cutoff=0.7)
    return f"did you mean {' or '.join(near)}?" if near else "`mqbridge explain` lists all messages"


def _page(explanation: _Explained) -> str:
    import textwrap

    fill = textwrap.TextWrapper(
        100, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).fill
    parts = (
        ("What happened", explanation.happened),
        ("Why", explanation.why),
        ("What to do", explanation.do),
        ("What it means", explanation.meaning),
    )
    return "\n\n".join(
        [f"{explanation.id}  {explanation.text}", *(f"{head}:\n{fill(text)}" for head, text in parts if text)]
    )
