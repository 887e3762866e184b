"""`mqbridge explain`: explanations of log messages, and of reason codes of MQ and MQTT."""

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
_MQTT_REASON = re.compile(r"0X[0-9A-F]{2}")
#: A return code of CONNACK before MQTT 5.
_RETURN_CODE = re.compile(r"CONNACK ?[1-5]")


class _Explained(msgspec.Struct, omit_defaults=True):
    """A log message or a reason code."""

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
            "Message identifiers, with or without the last letter, MQ reason codes, as numbers or names, and reason codes of"
            " MQTT, such as 0x87 or 'CONNACK 5'. Default: list all messages.",
        ),
    ] = None,
) -> None:
    """Explain log messages and reason codes of MQ and MQTT, and what to do about them.

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
    for written, reason_of in ((_REASON, _reason), (_MQTT_REASON, _mqtt_reason), (_RETURN_CODE, _return_code)):
        if written.fullmatch(text) is not None and (reason := reason_of(text)) is not None:
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


def _mqtt_reason(text: str) -> _Explained | None:
    """Return a reason code of MQTT 5 by its hexadecimal number, or None."""
    from bridge.log_messages.catalogue import mqtt_reasons
    from bridge.mqtt.reason_codes import ReasonCode

    for code in ReasonCode:
        if code == int(text, 16):
            packets = ", ".join(code.packets.split())
            return _Explained(
                f"0x{code:02X}", f"{code.words} (MQTT 5: {packets})", meaning=mqtt_reasons().get(code.name, "")
            )
    return None


def _return_code(text: str) -> _Explained:
    """Return a return code of CONNACK before MQTT 5."""
    from bridge.log_messages.catalogue import mqtt_reasons
    from bridge.mqtt.connection import REASON_CODES
    from bridge.mqtt.packets import ConnackCode

    code = REASON_CODES[ConnackCode(int(text[-1]))]
    words = f"{code.words} (MQTT 3.1 and 3.1.1; MQTT 5: 0x{code:02X})"
    return _Explained(f"CONNACK {text[-1]}", words, meaning=mqtt_reasons()[code.name])


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
