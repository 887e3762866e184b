"""Inquire commands: which objects pass, and which of their attributes are told.

Source: IBM MQ documentation, "MQCFIF - PCF integer filter parameter", "MQCFSF", "MQCFBF", and "Inquire Queue".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bridge.mq.embedded.attribute_selectors import selector, values
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.filter import is_named
from bridge.mq.embedded.pcf.request import Filter, PCFRefused, Reply, Request
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import MQCFBF, MQCFBS, MQCFIF, MQCFIL, MQCFIN, MQCFSF, MQCFSL, MQCFST, PCFParameter

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
_ATTRIBUTE_PREFIXES = ("MQIA_", "MQCA_", "MQIACF_", "MQCACF_", "MQBACF_", "MQIACH_", "MQCACH_", "MQIAMO_")
#: Every attribute that IBM MQ knows: a program may ask for one that this queue manager has not.
_SELECTORS = frozenset(
    value
    for module in (cmqc, cmqcfc)
    for name, value in vars(module).items()
    if name.startswith(_ATTRIBUTE_PREFIXES) and isinstance(value, int)
)


def attributes(kind: str, shown: dict[str, Value]) -> Attributes:
    """Return an object as DISPLAY shows it, with its attributes as parameters."""
    return values(kind, shown)


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

    :param wanted: the parameter that lists the attributes to tell, all of them where it is left out.
    :param always: attributes that come first in each message, asked for or not; behind them those of the filters.
    :param known: whether an attribute can be filtered by.
    :param missing: the reason when there is no object at all.
    """
    listed = request.integers(wanted)
    request.finish(filters=True)
    for number in listed or ():
        if number not in _SELECTORS:
            raise PCFRefused(cmqc.MQRC_SELECTOR_ERROR, number, names=cmqcfc.MQIACF_SELECTOR)
    for one in request.filters:
        _check(one, known)
    found = list(objects)
    if not found:
        raise PCFRefused(missing)
    passed = [one for one in found if all(passes(one, by) for by in request.filters)]
    if not passed:
        raise PCFRefused(cmqcfc.MQRCCF_NONE_FOUND)
    # What was filtered by is told too, as in DISPLAY … WHERE.
    return Reply([_select(one, listed, (*always, *(by.Parameter for by in request.filters))) for one in passed])


def known_of(kind: str) -> Callable[[int], bool]:
    """Return a predicate: whether an attribute of a kind of object can be filtered by."""
    return lambda number: selector(kind, number) is not None


def _select(one: Attributes, listed: Sequence[int] | None, always: Sequence[int]) -> list[PCFParameter]:
    """Return the attributes of an object that are in the reply: `always` first, then those listed."""
    chosen = one if listed is None or cmqcfc.MQIACF_ALL in listed else listed
    return [one[number] for number in dict.fromkeys((*always, *chosen)) if number in one]


def _check(one: Filter, known: Callable[[int], bool]) -> None:
    if not known(one.Parameter):
        raise PCFRefused(_FILTER_ERRORS[type(one)], one.Parameter)
    operators = {*_ORDERS, *_MEMBERS}
    if isinstance(one, MQCFSF):
        operators |= {*_GENERIC, *_GENERIC_MEMBERS}
    if one.Operator not in operators:
        raise PCFRefused(_OPERATOR_ERRORS[type(one)], one.Parameter)


def passes(one: Attributes, by: Filter) -> bool:
    """Return whether an object passes a filter; an object without the attribute never does."""
    held = one.get(by.Parameter)
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
