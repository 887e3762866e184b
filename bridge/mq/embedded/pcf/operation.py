"""MQSC commands made of PCF commands, and their refusals as PCF reason codes.

Source: IBM MQ documentation, "PCF reason codes", and the error codes that each command's topic lists.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.mq.embedded.attribute_selectors import SELECTORS, Selector, selector
from bridge.mq.embedded.attributes import AttributeRefused
from bridge.mq.embedded.mqsc.amq import CommandRefused
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError, Parameter, Position
from bridge.mq.embedded.pcf.request import PCFRefused, Request
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFBS, MQCFIN, MQCFSL, MQCFST, PCFParameter

_NOWHERE = Position(1, 1)
#: What a refusal of MQSC is in PCF, where the refusal does not say itself.
_REASONS = {
    "AMQ8143E": cmqc.MQRC_Q_NOT_EMPTY,
    "AMQ8147E": cmqc.MQRC_UNKNOWN_OBJECT_NAME,
    "AMQ8148E": cmqcfc.MQRCCF_OBJECT_OPEN,
    "AMQ8150E": cmqcfc.MQRCCF_OBJECT_ALREADY_EXISTS,
    "AMQ8424E": cmqcfc.MQRCCF_OBJECT_NAME_ERROR,
    "AMQ8871E": cmqc.MQRC_UNKNOWN_ENTITY,
    "AMQ8469E": cmqcfc.MQRCCF_SUBSCRIPTION_IN_USE,
    "AMQ9514E": cmqcfc.MQRCCF_CHANNEL_IN_USE,
    "AMQ9533W": cmqcfc.MQRCCF_CHANNEL_NOT_ACTIVE,
}


class Operation:
    """One MQSC command in the making."""

    def __init__(self, verb: str, noun: str, name: str | None = None) -> None:
        self._verb = verb
        self._noun = noun
        self._name = name
        self._parameters: list[Parameter] = []

    def add(self, keyword: str, value: str | None = None) -> None:
        """Add a keyword with a value in parentheses, or without one."""
        self._parameters.append(Parameter(keyword, None if value is None else (value,), _NOWHERE))

    def take(self, request: Request, *, without: Iterable[str] = ()) -> None:
        """Add every attribute that the request sets. Raises PCFRefused for one that the kind of object has not."""
        left_out = frozenset(without)
        for one in request.rest():
            attribute = selector(self._noun, one.Parameter)
            if attribute is None or attribute.keyword in left_out:
                continue
            text = setting(attribute, request, one)
            if text is not None:
                self.add(attribute.keyword, text)

    def take_records(self, request: Request) -> None:
        """Say whether a DELETE takes the authority records of the object away as well."""
        kept = (cmqcfc.MQRAR_YES, cmqcfc.MQRAR_NO)
        if request.choice(cmqcfc.MQIACF_REMOVE_AUTHREC, kept) == cmqcfc.MQRAR_NO:
            self.add("AUTHREC", "NO")

    def run(self, commands: Commands) -> Unit | None:
        """Execute it: the unit of work in which it takes effect. Raises PCFRefused."""
        text = f"{self._verb} {self._noun}" + (f"({self._name})" if self._name is not None else "")
        command = Command(text, 1, self._verb, self._noun, self._name, tuple(self._parameters), None, _NOWHERE)
        try:
            return commands.execute(command)[1]
        except MQSCSyntaxError as error:
            number = next((one.number for one in SELECTORS.get(self._noun, ()) if one.keyword == error.near), None)
            raise PCFRefused(
                cmqcfc.MQRCCF_ATTR_VALUE_ERROR if number is not None else cmqcfc.MQRCCF_PARM_MISSING, number
            ) from error
        except CommandRefused as error:
            raise PCFRefused(error.reason or _REASONS.get(error.number, cmqcfc.MQRCCF_COMMAND_FAILED)) from error
        except MQError as error:
            raise PCFRefused(error.reason) from error


def setting(attribute: Selector, request: Request, one: PCFParameter) -> str | None:
    """Return the MQSC value that a parameter gives an attribute; None where the value is fixed. Raises PCFRefused."""
    number = one.Parameter
    if attribute.binary and isinstance(one, MQCFBS):
        found = request.byte_string(number) or b""
        if len(found) > attribute.length:
            raise PCFRefused(cmqcfc.MQRCCF_CFBS_STRING_LENGTH_ERR, number)
        return found.hex().upper()
    if attribute.length and not attribute.binary and not attribute.listed and isinstance(one, MQCFST):
        text = request.text(number) or ""
        if attribute.length > 0 and len(text.encode()) > attribute.length:
            raise PCFRefused(cmqcfc.MQRCCF_CFST_STRING_LENGTH_ERR, number)
        return _unless_fixed(attribute, text, text)
    if attribute.listed and isinstance(one, MQCFSL):
        return ",".join(request.texts(number))
    if not attribute.length and isinstance(one, MQCFIN):
        try:
            word = attribute.word(one.Value)
        except AttributeRefused:
            raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_ERROR, number) from None
        request.ignore(number)
        return _unless_fixed(attribute, one.Value, word)
    return None  # a structure of the wrong type: Request.finish refuses it


def _unless_fixed(attribute: Selector, value: str | int, text: str) -> str | None:
    if attribute.fixed is None:
        return text
    if value != attribute.fixed:
        raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_FIXED, attribute.number)
    return None
