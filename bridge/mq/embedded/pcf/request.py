"""The parameters of a PCF command, and its reply.

Source: IBM MQ documentation, "Definitions of the Programmable Command Formats", "Standard responses".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.mq.embedded.unit import Unit
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import (
    MQCFBF,
    MQCFBS,
    MQCFIF,
    MQCFIL,
    MQCFIN,
    MQCFSF,
    MQCFSL,
    MQCFST,
    PCFParameter,
)

Filter: TypeAlias = MQCFIF | MQCFSF | MQCFBF

#: Reason codes for unexpected parameters or parameter types.
_PARM_ID_ERRORS: dict[type, int] = {
    MQCFIN: cmqcfc.MQRCCF_CFIN_PARM_ID_ERROR,
    MQCFST: cmqcfc.MQRCCF_CFST_PARM_ID_ERROR,
    MQCFIL: cmqcfc.MQRCCF_CFIL_PARM_ID_ERROR,
    MQCFSL: cmqcfc.MQRCCF_CFSL_PARM_ID_ERROR,
    MQCFBS: cmqcfc.MQRCCF_CFBS_PARM_ID_ERROR,
    MQCFIF: cmqcfc.MQRCCF_CFIF_PARM_ID_ERROR,
    MQCFSF: cmqcfc.MQRCCF_CFSF_PARM_ID_ERROR,
    MQCFBF: cmqcfc.MQRCCF_CFBF_PARM_ID_ERROR,
}
_DUPLICATES: dict[type, int] = {
    MQCFST: cmqcfc.MQRCCF_CFST_DUPLICATE_PARM,
    MQCFSL: cmqcfc.MQRCCF_CFSL_DUPLICATE_PARM,
    MQCFBS: cmqcfc.MQRCCF_CFBS_DUPLICATE_PARM,
}
#: Parameters of queue-sharing groups, which are ignored.
_OF_A_GROUP = (cmqcfc.MQCACF_COMMAND_SCOPE, cmqc.MQIA_QSG_DISP)


class PCFRefused(Exception):
    """A command was rejected, with the reason code and the invalid parameter."""

    def __init__(self, reason: int, parameter: int | None = None, *, names: int = cmqcfc.MQIACF_PARAMETER_ID) -> None:
        super().__init__(reason, parameter)
        self.reason = reason
        #: the parameter of the error response, or None
        self.error = MQCFIN(names, parameter) if parameter is not None else None

    def __str__(self) -> str:
        return f"{cmqc.reason_name(self.reason)} ({self.reason})"


@dataclass
class Reply:
    """The reply to a command: the parameters of each message, and a unit of work that must end before it is sent."""

    messages: list[Sequence[PCFParameter]] = field(default_factory=lambda: [()])
    unit: Unit | None = None
    #: the reason code of a failed command whose reply also has messages; otherwise MQRC_NONE
    reason: int = cmqc.MQRC_NONE


class Request:
    """The parameters of one command. `finish` rejects parameters that were not read."""

    def __init__(self, command: int, parameters: Iterable[PCFParameter]) -> None:
        self.command = command
        self.filters: list[Filter] = []
        self._parameters: dict[int, PCFParameter] = {}
        for one in parameters:
            if isinstance(one, MQCFIF | MQCFSF | MQCFBF):
                self.filters.append(one)
            elif one.Parameter in self._parameters:
                raise PCFRefused(_DUPLICATES.get(type(one), cmqcfc.MQRCCF_CFIN_DUPLICATE_PARM), one.Parameter)
            else:
                self._parameters[one.Parameter] = one
        self._known = set(_OF_A_GROUP)

    def __contains__(self, number: int) -> bool:
        return number in self._parameters

    def find(self, number: int) -> PCFParameter | None:
        """Return a parameter, or None if it is missing, and mark it as read."""
        self._known.add(number)
        return self._parameters.get(number)

    def text(self, number: int) -> str | None:
        """Return a string without its trailing blanks, or None."""
        one = self.find(number)
        if one is None:
            return None
        if not isinstance(one, MQCFST):
            raise wrong(one)
        return decoded(one.String, number)

    def name(self, number: int) -> str:
        """Return a required string."""
        found = self.text(number)
        if found is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, number)
        return found

    def integer(self, number: int, otherwise: int | None = None) -> int | None:
        """Return an integer, or `otherwise` if it is missing."""
        one = self.find(number)
        if one is None:
            return otherwise
        if isinstance(one, MQCFIL) and len(one.Values) == 1:
            return one.Values[0]
        if not isinstance(one, MQCFIN):
            raise wrong(one)
        return one.Value

    def choice(self, number: int, allowed: Sequence[int]) -> int:
        """Return an integer that must be in `allowed`, whose first item is the default."""
        found = self.integer(number, allowed[0])
        assert found is not None
        if found not in allowed:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_VALUE_ERROR, number)
        return found

    def rest(self) -> list[PCFParameter]:
        """Return the parameters that were not read."""
        return [one for number, one in self._parameters.items() if number not in self._known]

    def finish(self, *, filters: bool = False) -> None:
        """Raise PCFRefused if there are parameters that were not read."""
        for one in self.rest():
            raise wrong(one)
        if self.filters and not filters:
            raise wrong(self.filters[0])


def wrong(one: PCFParameter) -> PCFRefused:
    """Return the error for an unexpected parameter or parameter type."""
    return PCFRefused(_PARM_ID_ERRORS.get(type(one), cmqcfc.MQRCCF_STRUCTURE_TYPE_ERROR), one.Parameter)


def decoded(text: bytes, number: int) -> str:
    """Return a string without its trailing blanks. Raises PCFRefused if it is not UTF-8."""
    try:
        return text.rstrip(b"\0 ").decode()
    except UnicodeDecodeError:
        raise PCFRefused(cmqcfc.MQRCCF_PARM_VALUE_ERROR, number) from None
