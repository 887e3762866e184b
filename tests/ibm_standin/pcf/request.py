"""Processing of PCF commands: lists in a request, requested attributes, filters, and the equivalent MQSC.

Source: IBM MQ documentation, "Definitions of the Programmable Command Formats", "Standard responses".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bridge.mq.embedded.attributes import AttributeRefused, Selector, Value, selector
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import is_named
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, Parameter, Position
from bridge.wire.mq.pcf import MQCFBF, MQCFBS, MQCFIF, MQCFIL, MQCFIN, MQCFSF, MQCFSL, MQCFST, PCFParameter
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.attributes import SELECTORS
from tests.ibm_standin.pcf.commands import Filter, PCFRefused, Reply, Request, decoded, values, wrong


def integers(request: Request, number: int) -> tuple[int, ...] | None:
    """Return a list of integers, or None. A single integer is a list of one."""
    parameter = request.find(number)
    if parameter is None:
        return None
    if isinstance(parameter, MQCFIN):
        return (parameter.Value,)
    if not isinstance(parameter, MQCFIL):
        raise wrong(parameter)
    return parameter.Values


def texts(request: Request, number: int) -> list[str]:
    """Return a list of strings without their trailing blanks. A single string is a list of one."""
    parameter = request.find(number)
    if parameter is None:
        return []
    if isinstance(parameter, MQCFST):
        return [decoded(parameter.String, number)]
    if not isinstance(parameter, MQCFSL):
        raise wrong(parameter)
    return [decoded(text, number) for text in parameter.Strings]


def byte_string(request: Request, number: int) -> bytes | None:
    """Return a byte string, or None."""
    parameter = request.find(number)
    if parameter is None:
        return None
    if not isinstance(parameter, MQCFBS):
        raise wrong(parameter)
    return parameter.String


def ignore(request: Request, *numbers: int) -> None:
    """Accept parameters without an effect here."""
    for number in numbers:
        request.find(number)


#: One object: its parameters by number.
Attributes = dict[int, PCFParameter]

_ORDERS: dict[int, Callable[[int], bool]] = {
    cmqcfc.MQCFOP_LESS: lambda order: order < 0,
    cmqcfc.MQCFOP_EQUAL: lambda order: order == 0,
    cmqcfc.MQCFOP_GREATER: lambda order: order > 0,
    cmqcfc.MQCFOP_NOT_LESS: lambda order: order >= 0,
    cmqcfc.MQCFOP_NOT_EQUAL: lambda order: order != 0,
    cmqcfc.MQCFOP_NOT_GREATER: lambda order: order <= 0,
}
_GENERIC = {cmqcfc.MQCFOP_LIKE: True, cmqcfc.MQCFOP_NOT_LIKE: False}
_MEMBERS = {cmqcfc.MQCFOP_CONTAINS: True, cmqcfc.MQCFOP_EXCLUDES: False}
_GENERIC_MEMBERS = {cmqcfc.MQCFOP_CONTAINS_GEN: True, cmqcfc.MQCFOP_EXCLUDES_GEN: False}
_OPERATOR_ERRORS = {
    MQCFIF: cmqcfc.MQRCCF_CFIF_OPERATOR_ERROR,
    MQCFSF: cmqcfc.MQRCCF_CFSF_OPERATOR_ERROR,
    MQCFBF: cmqcfc.MQRCCF_CFBF_OPERATOR_ERROR,
}
_FILTER_ERRORS = {
    MQCFIF: cmqcfc.MQRCCF_CFIF_PARM_ID_ERROR,
    MQCFSF: cmqcfc.MQRCCF_CFSF_PARM_ID_ERROR,
    MQCFBF: cmqcfc.MQRCCF_CFBF_PARM_ID_ERROR,
}
#: IBM MQ's numbers for attributes of objects. A program may request an attribute that this queue manager lacks.
_ATTRIBUTES = (range(1, 4001), range(7001, 8001))


def attributes(kind: str, row: dict[str, Value]) -> Attributes:
    """Return an object, as in DISPLAY, with its attributes as parameters."""
    return values(kind, row)


def inquire(
    request: Request,
    objects: Iterable[Attributes],
    wanted: int,
    always: Sequence[int],
    *,
    known: Callable[[int], bool],
    missing: int = cmqc.MQRC_UNKNOWN_OBJECT_NAME,
) -> Reply:
    """Reply with one message for each object that passes the request's filters.

    :param wanted: the parameter that lists the attributes to return. Without it, all are returned.
    :param always: attributes that are always first in each message, before the attributes of the filters.
    :param known: whether a filter may use an attribute.
    :param missing: the reason code if no object matches.
    """
    listed = integers(request, wanted)
    request.finish(filters=True)
    for number in listed or ():
        if not any(number in numbers for numbers in _ATTRIBUTES):
            raise PCFRefused(cmqc.MQRC_SELECTOR_ERROR, number, names=cmqcfc.MQIACF_SELECTOR)
    for filter_parameter in request.filters:
        _check(filter_parameter, known)
    rows = list(objects)
    if not rows:
        raise PCFRefused(missing)
    passed = [row for row in rows if all(passes(row, by) for by in request.filters)]
    if not passed:
        raise PCFRefused(cmqcfc.MQRCCF_NONE_FOUND)
    # The attributes of filters are returned too, as in DISPLAY … WHERE.
    return Reply([_select(row, listed, (*always, *(by.Parameter for by in request.filters))) for row in passed])


def known_of(kind: str) -> Callable[[int], bool]:
    """Return a predicate for the attributes of a kind of object that filters may use."""
    return lambda number: selector(kind, number) is not None


def _select(row: Attributes, listed: Sequence[int] | None, always: Sequence[int]) -> list[PCFParameter]:
    """Return the attributes of an object for the reply: `always` first, then the listed attributes."""
    chosen = row if listed is None or cmqcfc.MQIACF_ALL in listed else listed
    return [row[number] for number in dict.fromkeys((*always, *chosen)) if number in row]


def _check(filter_parameter: Filter, known: Callable[[int], bool]) -> None:
    if not known(filter_parameter.Parameter):
        raise PCFRefused(_FILTER_ERRORS[type(filter_parameter)], filter_parameter.Parameter)
    operators = {*_ORDERS, *_MEMBERS}
    if isinstance(filter_parameter, MQCFSF):
        operators |= {*_GENERIC, *_GENERIC_MEMBERS}
    if filter_parameter.Operator not in operators:
        raise PCFRefused(_OPERATOR_ERRORS[type(filter_parameter)], filter_parameter.Parameter)


def passes(row: Attributes, by: Filter) -> bool:
    """Return whether an object passes a filter. An object without the attribute does not."""
    held = row.get(by.Parameter)
    operator = by.Operator
    if isinstance(by, MQCFIF):
        if isinstance(held, MQCFIL):
            return operator in _MEMBERS and (by.FilterValue in held.Values) == _MEMBERS[operator]
        return isinstance(held, MQCFIN) and operator in _ORDERS and _compare(operator, held.Value, by.FilterValue)
    if isinstance(by, MQCFBF):
        if not isinstance(held, MQCFBS):
            return False
        return operator in _ORDERS and _compare(operator, held.String, by.FilterValue.ljust(len(held.String), b"\0"))
    wanted = _text(by.FilterValue)
    if isinstance(held, MQCFSL):
        names = [_text(text) for text in held.Strings]
        if operator in _GENERIC_MEMBERS:
            return any(is_named(name, wanted) for name in names) == _GENERIC_MEMBERS[operator]
        return operator in _MEMBERS and (wanted in names) == _MEMBERS[operator]
    if not isinstance(held, MQCFST):
        return False
    text = _text(held.String)
    if operator in _GENERIC:
        return is_named(text, wanted) == _GENERIC[operator]
    return operator in _ORDERS and _compare(operator, text, wanted)


def _compare(operator: int, held: int | str | bytes, wanted: int | str | bytes) -> bool:
    return _ORDERS[operator]((held > wanted) - (held < wanted))  # type: ignore[operator]


def _text(value: bytes) -> str:
    return value.rstrip(b"\0 ").decode(errors="replace")


_NOWHERE = Position(1, 1)
#: The PCF reason codes of MQSC errors that do not contain one.
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
    """An MQSC command under construction."""

    def __init__(self, verb: str, noun: str, name: str | None = None) -> None:
        self._verb = verb
        self._noun = noun
        self._name = name
        self._parameters: list[Parameter] = []

    def add(self, keyword: str, value: str | None = None) -> None:
        """Add a keyword with a value in parentheses, or without one."""
        self._parameters.append(Parameter(keyword, None if value is None else (value,), _NOWHERE))

    def take(self, request: Request, *, without: Iterable[str] = ()) -> None:
        """Add every attribute that the request sets. Raises PCFRefused for an attribute that the kind of object lacks."""
        left_out = frozenset(without)
        for parameter in request.rest():
            attribute = selector(self._noun, parameter.Parameter)
            if attribute is None or attribute.keyword in left_out:
                continue
            text = setting(attribute, request, parameter)
            if text is not None:
                self.add(attribute.keyword, text)

    def take_records(self, request: Request) -> None:
        """Add whether DELETE also removes the authority records of the object."""
        choices = (cmqcfc.MQRAR_YES, cmqcfc.MQRAR_NO)
        if request.choice(cmqcfc.MQIACF_REMOVE_AUTHREC, choices) == cmqcfc.MQRAR_NO:
            self.add("AUTHREC", "NO")

    def run(self, commands: Commands) -> Unit | None:
        """Execute the command. Return the unit of work in which it takes effect. Raises PCFRefused."""
        text = f"{self._verb} {self._noun}" + (f"({self._name})" if self._name is not None else "")
        command = Command(text, 1, self._verb, self._noun, self._name, tuple(self._parameters), None, _NOWHERE)
        try:
            return commands.execute(command)[1]
        except MQSCSyntaxError as error:
            number = next(
                (
                    selector_entry.number
                    for selector_entry in SELECTORS.get(self._noun, {}).values()
                    if selector_entry.keyword == error.near
                ),
                None,
            )
            raise PCFRefused(
                cmqcfc.MQRCCF_ATTR_VALUE_ERROR if number is not None else cmqcfc.MQRCCF_PARM_MISSING, number
            ) from error
        except CommandRefused as error:
            raise PCFRefused(error.reason or _REASONS.get(error.number, cmqcfc.MQRCCF_COMMAND_FAILED)) from error
        except MQError as error:
            raise PCFRefused(error.reason) from error


def setting(attribute: Selector, request: Request, parameter: PCFParameter) -> str | None:
    """Return the MQSC value of an attribute in a parameter, or None if the value is fixed. Raises PCFRefused."""
    number = parameter.Parameter
    if attribute.binary and isinstance(parameter, MQCFBS):
        bytes_of_parameter = byte_string(request, number) or b""
        if len(bytes_of_parameter) > attribute.length:
            raise PCFRefused(cmqcfc.MQRCCF_CFBS_STRING_LENGTH_ERR, number)
        return bytes_of_parameter.hex().upper()
    if attribute.length and not attribute.binary and not attribute.listed and isinstance(parameter, MQCFST):
        text = request.text(number) or ""
        if attribute.length > 0 and len(text.encode()) > attribute.length:
            raise PCFRefused(cmqcfc.MQRCCF_CFST_STRING_LENGTH_ERR, number)
        return _unless_fixed(attribute, text, text)
    if attribute.listed and isinstance(parameter, MQCFSL):
        return ",".join(texts(request, number))
    if not attribute.length and isinstance(parameter, MQCFIN):
        try:
            word = attribute.word(parameter.Value)
        except AttributeRefused:
            raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_ERROR, number) from None
        ignore(request, number)
        return _unless_fixed(attribute, parameter.Value, word)
    return None  # a structure of the wrong type, which Request.finish rejects


def _unless_fixed(attribute: Selector, value: str | int, text: str) -> str | None:
    if attribute.fixed is None:
        return text
    if value != attribute.fixed:
        raise PCFRefused(cmqcfc.MQRCCF_ATTR_VALUE_FIXED, attribute.number)
    return None
