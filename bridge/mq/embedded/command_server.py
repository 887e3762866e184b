"""The command server of the embedded queue manager: PCF commands on SYSTEM.ADMIN.COMMAND.QUEUE, and their replies.

It runs the commands that the bridge itself sends, one by one, and Escape for MQSC. Source: IBM MQ documentation,
"Introduction to Programmable Command Formats", "Definitions of the Programmable Command Formats", "Standard responses".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import msgspec

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.attributes import values
from bridge.mq.embedded.authority import AuthorizationService
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.mqsc.display import objects
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager, dead_letter
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.get import convert
from bridge.mq.mqi import CommandResponse, MQError
from bridge.mq.mqsc import Command, MQSCSyntaxError, Parameter, Position, render
from bridge.security import audit_log
from bridge.security.privileged import NOBODY
from bridge.telemetry.message import CCSID_UTF8, Message
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD, MalformedHeader, byte_order_of
from bridge.wire.mq.pcf import (
    MQCFBF,
    MQCFH,
    MQCFIF,
    MQCFIL,
    MQCFIN,
    MQCFSF,
    MQCFST,
    PCFParameter,
    decode_pcf,
    encode_pcf,
)

log = logging.getLogger(__name__)


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
    #: the reason code of a failed command whose reply also has messages; otherwise MQRC_NONE
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
                reason = _reason(type(parameter).__name__, "DUPLICATE_PARM", cmqcfc.MQRCCF_CFIN_DUPLICATE_PARM)
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
        for parameter in self.rest():
            raise wrong(parameter)
        if self.filters and not filters:
            raise wrong(self.filters[0])


def wrong(one: PCFParameter) -> PCFRefused:
    """Return the error for an unexpected parameter or parameter type."""
    return PCFRefused(_reason(type(one).__name__, "PARM_ID_ERROR"), one.Parameter)


def _reason(structure: str, error: str, otherwise: int = cmqcfc.MQRCCF_STRUCTURE_TYPE_ERROR) -> int:
    """Return the reason code for an error in a PCF structure (MQRCCF_CFIN_PARM_ID_ERROR)."""
    reason: int = getattr(cmqcfc, f"MQRCCF_{structure.removeprefix('MQ')}_{error}", otherwise)
    return reason


def decoded(text: bytes, number: int) -> str:
    """Return a string without its trailing blanks. Raises PCFRefused if it is not UTF-8."""
    try:
        return text.rstrip(b"\0 ").decode()
    except UnicodeDecodeError:
        raise PCFRefused(cmqcfc.MQRCCF_PARM_VALUE_ERROR, number) from None


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
        found: list[Sequence[PCFParameter]] = [
            (
                MQCFST(cmqc.MQCA_Q_NAME, str(status["QUEUE"]).encode().ljust(48)),
                MQCFIN(cmqc.MQIA_CURRENT_Q_DEPTH, int(status["CURDEPTH"])),
            )
            for status in self._display("QSTATUS", name)
        ]
        if not found:
            raise PCFRefused(cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQCA_Q_NAME)
        return Reply(found)

    def _subscriptions(self, request: Request) -> Reply:
        """Return all attributes of the subscriptions that match a name, which may end in `*`."""
        name = request.name(cmqcfc.MQCACF_SUB_NAME)
        request.finish()
        found: list[Sequence[PCFParameter]] = [
            list(values("SUB", subscription).values()) for subscription in self._display("SUB", name)
        ]
        if not found:
            raise PCFRefused(cmqc.MQRC_NO_SUBSCRIPTION)
        return Reply(found)

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
    shown = [
        CommandResponse(command=response.command, message=response.message, ok=response.ok, objects=[shown])
        for shown in response.objects
    ]
    return [render(one) for one in shown or [response]]


def _escaped(text: str) -> Sequence[PCFParameter]:
    return (
        MQCFIN(cmqcfc.MQIACF_ESCAPE_TYPE, cmqcfc.MQET_MQSC),
        MQCFST(cmqcfc.MQCACF_ESCAPE_TEXT, text.encode(errors="replace")),
    )


APPLICATION_NAME = "mqbridge"
#: Messages of a reply to put in one iteration of the event loop.
_REPLIES_AT_ONCE = 50
_HEADER_LENGTH = cmqcfc.MQCFH_STRUC_LENGTH
_NAMES = {number: name for name, number in vars(cmqcfc).items() if name.startswith("MQCMD_")}


class CommandServer:
    """The command server of one queue manager. It runs on the thread on which the recovery log announces messages."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._runs: Mapping[int, Callable[[Request], Reply]] = self.commands(queue_manager)
        self._busy = False
        self._started = False

    @staticmethod
    def commands(queue_manager: QueueManager) -> dict[int, Callable[[Request], Reply]]:
        """Return the commands by number. The tests' stand-in for IBM MQ adds more."""
        return PCFCommands(queue_manager).commands

    def start(self) -> None:
        """Start with the commands on the queue. Raises MQError. Set the recovery log's `dispatch` before."""
        with self._queue_manager.lock:
            queue = self._queue()
            if queue.inputs:
                raise MQError(cmqc.MQRC_OBJECT_IN_USE, f"queue {queue.name} is open for input elsewhere")
            queue.inputs += 1
            queue.exclusive = True
            queue.consumer = self._arrived
            self._started = True
            self._queue_manager.on_close.append(self.stop)
            self._next()

    def stop(self) -> None:
        """Stop running commands. New ones stay on the queue."""
        with self._queue_manager.lock:
            if self._started:
                queue = self._queue()
                queue.consumer = None
                queue.inputs -= 1
                queue.exclusive = False
                self._started = False

    def _queue(self) -> Queue:
        return self._queue_manager.objects.queues[COMMAND_QUEUE]

    def _arrived(self, _messages: Sequence[StoredMessage]) -> None:
        self._next()

    def _next(self) -> None:
        """Run the oldest command, unless one is still running, so that each sees the effects of the previous one."""
        queue_manager = self._queue_manager
        while self._started and not self._busy:
            # Skip commands that failed and could not be removed. They are retried after the next start.
            stored = next((stored for stored in self._queue().messages() if not stored.backout_count), None)
            if stored is None:
                return
            if stored.expired:
                queue_manager.discard(stored)
                continue
            self._busy = True
            self._run(stored)

    def _run(self, stored: StoredMessage) -> None:
        md, data = self._queue_manager.appearance.seen(stored)
        queue = stored.queue
        queue.take(stored)
        queue.depth -= 1  # commands must not count themselves
        header = MQCFH()
        try:
            header, parameters = _command(md, data, int(self._queue_manager.objects.attributes["CCSID"]))
            _check(header)
            reply = self._execute(header, parameters, md)
            answers = _answers(header, reply)
            if reply.unit is not None:
                _note(header, parameters, md, ok=True)
        except PCFRefused as refused:
            if refused.reason == cmqc.MQRC_NOT_AUTHORIZED:
                _note(header, parameters, md, ok=False)
            reply, answers = Reply(), _refusal(header, refused)
        except Exception:
            # Reply to any unexpected error, because a program waits for the reply.
            log.exception("MQB3402E PCF command %d failed", header.Command)
            reply, answers = Reply(), _refusal(header, PCFRefused(cmqc.MQRC_UNEXPECTED_ERROR))
        unit = reply.unit or Unit()
        queue.depth += 1
        unit.gets.append(stored)

        def done(reason: int) -> None:
            if reason and stored.linked:
                self._remove(stored)
            self._reply(stored, md, answers if not reason else _refusal(header, PCFRefused(reason)))

        unit.done = done
        self._queue_manager.recovery_log.submit(unit)

    def _remove(self, stored: StoredMessage) -> None:
        """Remove a command whose unit of work failed."""
        stored.queue.take(stored)
        unit = Unit()
        unit.gets.append(stored)
        self._queue_manager.recovery_log.submit(unit)

    def _execute(self, header: MQCFH, parameters: tuple[PCFParameter, ...], md: MQMD) -> Reply:
        run = self._runs.get(header.Command)
        if run is None:
            raise PCFRefused(cmqcfc.MQRCCF_CFH_COMMAND_ERROR)
        request = Request(header.Command, parameters)
        if self._queue_manager.authorization is not None:
            user = md.UserIdentifier.rstrip(b" \0").decode(errors="replace") or NOBODY
            try:
                self.check(self._queue_manager.authorization, user, request)
            except MQError as error:
                raise PCFRefused(error.reason) from error
        return run(request)

    def check(self, authorization: AuthorizationService, user: str, request: Request) -> None:
        """Check that a user may run a command. Raises MQError, PCFRefused.

        All commands require DSP for the queue manager. Escape, and the status of several queues, are for administrators.
        Source: IBM MQ documentation, "Authorizations for PCF commands".
        """
        authorization.check(user, cmqc.MQOT_Q_MGR, self._queue_manager.name, "DSP")
        if request.command == cmqcfc.MQCMD_PING_Q_MGR:
            return
        if request.command == cmqcfc.MQCMD_INQUIRE_Q_STATUS and "*" not in (
            name := request.text(cmqc.MQCA_Q_NAME) or "*"
        ):
            authorization.check(user, cmqc.MQOT_Q, name, "DSP")
        elif request.command == cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION:
            authorization.check_topic(user, "", "DSP")
        elif request.command == cmqcfc.MQCMD_CLEAR_TOPIC_STRING:
            authorization.check_topic(user, request.text(cmqc.MQCA_TOPIC_STRING) or "", "CLR")
        else:
            authorization.administering(user, f"PCF command {request.command}")

    def _reply(self, stored: StoredMessage, request: MQMD, answers: list[bytes]) -> None:
        """Put the messages of a reply to the request's ReplyToQ, and then run the next command.

        They are put in slices, so that an application can get them meanwhile. Messages that exceed MAXDEPTH of the queue are
        dead-lettered.
        """
        wanted = request.ReplyToQ.strip() and request.MsgType == cmqc.MQMT_REQUEST
        with self._queue_manager.lock:
            if wanted:
                self._put_replies(stored, request, answers[:_REPLIES_AT_ONCE])
            if wanted and (rest := answers[_REPLIES_AT_ONCE:]):
                self._queue_manager.recovery_log.dispatch(lambda: self._reply(stored, request, rest))
            else:
                self._busy = False
                self._next()

    def _put_replies(self, stored: StoredMessage, request: MQMD, answers: list[bytes]) -> None:
        queue_manager = self._queue_manager
        name = request.ReplyToQ.rstrip(b" \0").decode(errors="replace")
        manager = request.ReplyToQMgr.rstrip(b" \0").decode(errors="replace")
        ccsid = int(queue_manager.objects.attributes["CCSID"])
        md = _reply_descriptor(request)
        unit = Unit()
        for data in answers:
            message = Message(*convert(md, data, ccsid, md.Encoding)[:2])
            try:
                self._put(unit, queue_manager.objects.resolve(name, manager), message)
            except MQError as error:
                log.warning("MQB3403W the reply to a PCF command for queue %s was not delivered: %s", name, error)
                if not request.Report & cmqc.MQRO_DISCARD_MSG:
                    lost = queue_manager.undeliverable(stored.queue, message, put_time=stored.put_time)
                    dead_letter(queue_manager, unit, lost, error.reason, name, manager, replacing=True)
        if not unit.empty:
            queue_manager.recovery_log.submit(unit)

    def _put(self, unit: Unit, destination: Destination, message: Message) -> None:
        """Put a reply with the persistence of its command (IBM MQ, "Retrieving replies to your commands"). Raises MQError."""
        if destination.queue is None:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"{destination.name} leads to a topic")
        if destination.queue.temporary and message.md.Persistence == cmqc.MQPER_PERSISTENT:
            raise MQError(cmqc.MQRC_PERSISTENT_NOT_ALLOWED, f"queue {destination.name} is a temporary dynamic queue")
        self._queue_manager.put(unit, destination, message, application=APPLICATION_NAME, replacing=True)


def _note(header: MQCFH, parameters: tuple[PCFParameter, ...], md: MQMD, *, ok: bool) -> None:
    """Record in the audit log that a command changed something, or that its user was not authorized."""
    user = md.UserIdentifier.rstrip(b" \0").decode(errors="replace")
    names = [
        parameter.String.rstrip(b" \0").decode(errors="replace")
        for parameter in parameters
        if isinstance(parameter, MQCFST)
    ]
    command = _NAMES.get(header.Command, str(header.Command))
    audit_log.note("command", user=user, command=" ".join([command, *names[:1]]), ok=ok)


def _command(md: MQMD, data: bytes, ccsid: int) -> tuple[MQCFH, tuple[PCFParameter, ...]]:
    """Decode a PCF message, after conversion to the CCSID of the queue manager. Raises PCFRefused."""
    if md.Format != cmqc.MQFMT_ADMIN:
        raise PCFRefused(cmqcfc.MQRCCF_MD_FORMAT_ERROR)
    # Names must exist in the CCSID of the queue manager (IBM MQ documentation, "Processing commands"), and are UTF-8 here.
    for target in (ccsid, CCSID_UTF8):
        md, data, reason = convert(md, data, target, md.Encoding)
        if reason not in (cmqc.MQRC_NONE, cmqc.MQRC_FORMAT_ERROR):
            raise PCFRefused(cmqcfc.MQRCCF_CCSID_ERROR)
    try:
        header, parameters = decode_pcf(data, byte_order=byte_order_of(md.Encoding, "MQCFH"))
    except MalformedHeader as error:
        raise PCFRefused(_unreadable(error, len(data))) from error
    return header, parameters


def _check(header: MQCFH) -> None:
    """Raise PCFRefused if a header is not that of a command."""
    if header.Type not in (cmqcfc.MQCFT_COMMAND, cmqcfc.MQCFT_COMMAND_XR):
        raise PCFRefused(cmqcfc.MQRCCF_CFH_TYPE_ERROR)
    if not cmqcfc.MQCFH_VERSION_1 <= header.Version <= cmqcfc.MQCFH_VERSION_3:
        raise PCFRefused(cmqcfc.MQRCCF_CFH_VERSION_ERROR)
    if header.MsgSeqNumber != 1:
        raise PCFRefused(cmqcfc.MQRCCF_CFH_MSG_SEQ_NUMBER_ERR)
    if header.Control != cmqcfc.MQCFC_LAST:
        raise PCFRefused(cmqcfc.MQRCCF_CFH_CONTROL_ERROR)


def _unreadable(error: MalformedHeader, length: int) -> int:
    if error.structure != "MQCFH":
        return _reason(error.structure, "LENGTH_ERROR")
    if length < _HEADER_LENGTH:
        return cmqcfc.MQRCCF_MSG_LENGTH_ERROR
    if error.offset == 4:
        return cmqcfc.MQRCCF_CFH_LENGTH_ERROR
    return cmqcfc.MQRCCF_CFH_PARM_COUNT_ERROR if error.offset == 32 else cmqcfc.MQRCCF_STRUCTURE_TYPE_ERROR


def _reply_descriptor(request: MQMD) -> MQMD:
    """Return the MQMD of a reply. Its identifiers depend on the report options of the request (IBM MQ, "Responses")."""
    passed = bool(request.Report & cmqc.MQRO_PASS_CORREL_ID)
    expires = bool(request.Report & cmqc.MQRO_PASS_DISCARD_AND_EXPIRY)
    return MQMD(
        Report=request.Report & cmqc.MQRO_DISCARD_MSG if expires else cmqc.MQRO_NONE,
        MsgType=cmqc.MQMT_REPLY,
        Expiry=request.Expiry if expires else cmqc.MQEI_UNLIMITED,
        Format=cmqc.MQFMT_ADMIN,
        CodedCharSetId=CCSID_UTF8,
        Priority=request.Priority,
        Persistence=request.Persistence,
        MsgId=request.MsgId if request.Report & cmqc.MQRO_PASS_MSG_ID else cmqc.MQMI_NONE,
        CorrelId=request.CorrelId if passed else request.MsgId,
        UserIdentifier=request.UserIdentifier,
    )


def _answers(command: MQCFH, reply: Reply) -> list[bytes]:
    """Return the messages of a reply."""
    failed = cmqc.MQCC_FAILED if reply.reason else cmqc.MQCC_OK
    return [
        _encoded(command, number, number == len(reply.messages), failed, reply.reason, parameters)
        for number, parameters in enumerate(reply.messages, 1)
    ]


def _refusal(command: MQCFH, refused: PCFRefused) -> list[bytes]:
    """Return an error response and the final summary ("Standard responses")."""
    error = [refused.error] if refused.error is not None else []
    summary = cmqcfc.MQRCCF_COMMAND_FAILED
    return [
        _encoded(command, 1, False, cmqc.MQCC_FAILED, refused.reason, error),
        _encoded(command, 2, True, cmqc.MQCC_FAILED, summary, ()),
    ]


def _encoded(
    command: MQCFH, number: int, last: bool, comp_code: int, reason: int, parameters: Sequence[PCFParameter]
) -> bytes:
    header = msgspec.structs.replace(
        command,
        Type=cmqcfc.MQCFT_RESPONSE,
        Version=cmqcfc.MQCFH_VERSION_1,
        MsgSeqNumber=number,
        Control=cmqcfc.MQCFC_LAST if last else cmqcfc.MQCFC_NOT_LAST,
        CompCode=comp_code,
        Reason=reason,
    )
    return encode_pcf(header, parameters)
