"""The parameters and replies of PCF commands, and the commands that the bridge sends.

Source: IBM MQ documentation, "Definitions of the Programmable Command Formats", "Standard responses".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from bridge.mq.embedded.attributes import SELECTORS, Selector, Value, names_in
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import objects
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import CommandResponse
from bridge.mq.mqsc import Command, MQSCSyntaxError, Parameter, Position, render
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq.pcf import (
    MQCFBF,
    MQCFBS,
    MQCFIF,
    MQCFIL,
    MQCFIN,
    MQCFSF,
    MQCFST,
    PCFParameter,
    string_list,
)

Filter: TypeAlias = MQCFIF | MQCFSF | MQCFBF

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
    #: the reason code of a failed command whose reply also has messages, otherwise MQRC_NONE
    reason: int = cmqc.MQRC_NONE


class Request:
    """The parameters of one command. `finish` rejects parameters that were not read."""

    def __init__(self, command: int, parameters: Iterable[PCFParameter]) -> None:
        self.command = command
        self.filters: list[Filter] = []
        self._parameters: dict[int, PCFParameter] = {}
        for parameter in parameters:
            if isinstance(parameter, MQCFIF | MQCFSF | MQCFBF):
                self.filters.append(parameter)
            elif parameter.Parameter in self._parameters:
                reason = reason_of_structure(
                    type(parameter).__name__, "DUPLICATE_PARM", cmqcfc.MQRCCF_CFIN_DUPLICATE_PARM
                )
                raise PCFRefused(reason, parameter.Parameter)
            else:
                self._parameters[parameter.Parameter] = parameter
        self._known = set(_OF_A_GROUP)

    def __contains__(self, number: int) -> bool:
        return number in self._parameters

    def find(self, number: int) -> PCFParameter | None:
        """Return a parameter, or None if it is missing, and mark it as read."""
        self._known.add(number)
        return self._parameters.get(number)

    def text(self, number: int) -> str | None:
        """Return a string without its trailing blanks, or None."""
        parameter = self.find(number)
        if parameter is None:
            return None
        if not isinstance(parameter, MQCFST):
            raise wrong(parameter)
        return decoded(parameter.String, number)

    def name(self, number: int) -> str:
        """Return a required string."""
        text = self.text(number)
        if text is None:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, number)
        return text

    def integer(self, number: int, otherwise: int | None = None) -> int | None:
        """Return an integer, or `otherwise` if it is missing."""
        parameter = self.find(number)
        if parameter is None:
            return otherwise
        if isinstance(parameter, MQCFIL) and len(parameter.Values) == 1:
            return parameter.Values[0]
        if not isinstance(parameter, MQCFIN):
            raise wrong(parameter)
        return parameter.Value

    def choice(self, number: int, allowed: Sequence[int]) -> int:
        """Return an integer that must be in `allowed`, whose first item is the default."""
        number_chosen = self.integer(number, allowed[0])
        assert number_chosen is not None
        if number_chosen not in allowed:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_VALUE_ERROR, number)
        return number_chosen

    def rest(self) -> list[PCFParameter]:
        """Return the parameters that were not read."""
        return [parameter for number, parameter in self._parameters.items() if number not in self._known]

    def finish(self, *, filters: bool = False) -> None:
        """Raise PCFRefused if parameters were not read."""
        for parameter in self.rest():
            raise wrong(parameter)
        if self.filters and not filters:
            raise wrong(self.filters[0])


def wrong(parameter: PCFParameter) -> PCFRefused:
    """Return the error for an unexpected parameter or parameter type."""
    return PCFRefused(reason_of_structure(type(parameter).__name__, "PARM_ID_ERROR"), parameter.Parameter)


def reason_of_structure(structure: str, error: str, otherwise: int = cmqcfc.MQRCCF_STRUCTURE_TYPE_ERROR) -> int:
    """Return the reason code for an error in a PCF structure (MQRCCF_CFIN_PARM_ID_ERROR)."""
    reason: int = getattr(cmqcfc, f"MQRCCF_{structure.removeprefix('MQ')}_{error}", otherwise)
    return reason


def decoded(text: bytes, number: int) -> str:
    """Return a string without its trailing blanks. Raises PCFRefused if it is not UTF-8."""
    try:
        return text.rstrip(b"\0 ").decode()
    except UnicodeDecodeError:
        raise PCFRefused(cmqcfc.MQRCCF_PARM_VALUE_ERROR, number) from None


def values(kind: str, row: Mapping[str, Value]) -> dict[int, PCFParameter]:
    """Convert the attributes of an object, by MQSC keyword, to PCF parameters by selector.

    Attributes that the object does not have (CURDEPTH of an alias) are omitted.
    """
    parameters: dict[int, PCFParameter] = {}
    for number, attribute in SELECTORS[kind].items():
        value = row.get(attribute.keyword, attribute.fixed)
        if value is not None:
            parameters[number] = _parameter(attribute, value)
    return parameters


def _parameter(attribute: Selector, value: Value) -> PCFParameter:
    if attribute.listed:
        return string_list(attribute.number, names_in(value), attribute.length)
    if attribute.binary:
        return MQCFBS(attribute.number, bytes.fromhex(str(value)).ljust(attribute.length, b"\0"))
    if attribute.length:
        return MQCFST(attribute.number, attribute.characters(value), cmqc.MQCCSI_DEFAULT)
    return MQCFIN(attribute.number, attribute.integer(value))


_NOWHERE = Position(1, 1)
#: CLRTYPE(RETAINED)
_RETAINED = (Parameter("CLRTYPE", ("RETAINED",), _NOWHERE),)


class PCFCommands:
    """The PCF commands of one queue manager. Call them with its lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._commands = Commands(queue_manager)
        self._display = partial(objects, queue_manager)
        self.commands: dict[int, Callable[[Request], Reply]] = {
            cmqcfc.MQCMD_PING_Q_MGR: self._ping,
            cmqcfc.MQCMD_INQUIRE_Q_STATUS: self._queue_status,
            cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION: self._subscriptions,
            cmqcfc.MQCMD_CLEAR_TOPIC_STRING: self._clear,
            cmqcfc.MQCMD_ESCAPE: self._escape,
        }

    def _ping(self, request: Request) -> Reply:
        request.finish()
        return Reply()

    def _queue_status(self, request: Request) -> Reply:
        """Return the depth of the local queues that match a name, which may end in `*`."""
        name = request.name(cmqc.MQCA_Q_NAME)
        request.finish()
        rows: list[Sequence[PCFParameter]] = [
            (
                MQCFST(cmqc.MQCA_Q_NAME, str(status["QUEUE"]).encode().ljust(48)),
                MQCFIN(cmqc.MQIA_CURRENT_Q_DEPTH, int(status["CURDEPTH"])),
            )
            for status in self._display("QSTATUS", name)
        ]
        if not rows:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        return Reply(rows)

    def _subscriptions(self, request: Request) -> Reply:
        """Return all attributes of the subscriptions that match a name, which may end in `*`."""
        name = request.name(cmqcfc.MQCACF_SUB_NAME)
        request.finish()
        rows: list[Sequence[PCFParameter]] = [
            list(values("SUB", subscription).values()) for subscription in self._display("SUB", name)
        ]
        if not rows:
            raise PCFRefused(cmqc.MQRC_NO_SUBSCRIPTION)
        return Reply(rows)

    def _clear(self, request: Request) -> Reply:
        topic = request.name(cmqc.MQCA_TOPIC_STRING)
        if cmqcfc.MQIACF_CLEAR_TYPE not in request:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_COUNT_TOO_SMALL, cmqcfc.MQIACF_CLEAR_TYPE)
        request.choice(cmqcfc.MQIACF_CLEAR_TYPE, (cmqcfc.MQCLRT_RETAINED,))
        request.choice(cmqcfc.MQIACF_CLEAR_SCOPE, (cmqcfc.MQCLRS_LOCAL,))
        request.finish()
        command = Command(f"CLEAR TOPICSTR({topic})", 1, "CLEAR", "TOPICSTR", topic, _RETAINED, None, _NOWHERE)
        try:
            return Reply(unit=self._commands.execute(command)[1])
        except MQSCSyntaxError as error:  # an empty topic string
            raise PCFRefused(cmqcfc.MQRCCF_PARM_MISSING) from error

    def _escape(self, request: Request) -> Reply:
        """Run an MQSC command in a PCF command. Each message of the reply contains runmqsc's output for one object."""
        if request.integer(cmqcfc.MQIACF_ESCAPE_TYPE) != cmqcfc.MQET_MQSC:
            raise PCFRefused(cmqcfc.MQRCCF_ESCAPE_TYPE_ERROR, cmqcfc.MQIACF_ESCAPE_TYPE)
        text = request.name(cmqcfc.MQCACF_ESCAPE_TEXT)
        request.finish()
        read = self._commands.read(text)
        if len(read) != 1:
            raise PCFRefused(cmqcfc.MQRCCF_PARM_SYNTAX_ERROR, cmqcfc.MQCACF_ESCAPE_TEXT)
        response, unit = self._commands.run(read[0])
        messages = [_escaped(line) for line in _texts(response)]
        return Reply(messages, unit, cmqc.MQRC_NONE if response.ok else cmqcfc.MQRCCF_COMMAND_FAILED)


def _texts(response: CommandResponse) -> list[str]:
    """Return the text of the response for each object separately."""
    responses = [
        CommandResponse(command=response.command, message=response.message, ok=response.ok, objects=[attributes])
        for attributes in response.objects
    ]
    return [render(response) for response in responses or [response]]


def _escaped(text: str) -> Sequence[PCFParameter]:
    return (
        MQCFIN(cmqcfc.MQIACF_ESCAPE_TYPE, cmqcfc.MQET_MQSC),
        MQCFST(cmqcfc.MQCACF_ESCAPE_TEXT, text.encode(errors="replace")),
    )
