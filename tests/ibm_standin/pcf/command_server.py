"""The command server of the stand-in: PCF commands on SYSTEM.ADMIN.COMMAND.QUEUE, and their replies.

It runs the commands of the bridge, and those that monitoring and administration programs send to IBM MQ. Source: IBM MQ
documentation, "Introduction to Programmable Command Formats", "Standard responses".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.embedded.attributes import Value, defaults
from bridge.mq.embedded.authority import AuthorizationService
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager, dead_letter
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.security import audit_log
from bridge.security.privileged import NOBODY
from bridge.telemetry.message import CCSID_UTF8, Message
from bridge.wire.mq import MQMD, MalformedHeader, byte_order_of
from bridge.wire.mq.pcf import MQCFH, MQCFST, PCFParameter, decode_pcf, encode_pcf
from tests.ibm_standin import cmqc, cmqcfc
from tests.ibm_standin.mqi.conversion import convert
from tests.ibm_standin.pcf.commands import PCFCommands, PCFRefused, Reply, Request, reason_of_structure
from tests.ibm_standin.pcf.objects import NamelistCommands, QueueCommands, SubscriptionCommands, TopicCommands
from tests.ibm_standin.pcf.queue_manager import (
    AbsentCommands,
    AuthorityCommands,
    QueueManagerCommands,
    TelemetryChannelCommands,
)
from tests.ibm_standin.pcf.status import StatusCommands

#: command -> type of the object whose authority is checked, parameter with its name, authorities
_AUTHORITIES: dict[int, tuple[int, int, tuple[str, ...]]] = {
    cmqcfc.MQCMD_CHANGE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("CHG",)),
    cmqcfc.MQCMD_CLEAR_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("CLR",)),
    cmqcfc.MQCMD_DELETE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_Q: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DSP",)),
    cmqcfc.MQCMD_INQUIRE_Q_STATUS: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DSP",)),
    cmqcfc.MQCMD_RESET_Q_STATS: (cmqc.MQOT_Q, cmqc.MQCA_Q_NAME, ("DSP", "CHG")),
    cmqcfc.MQCMD_CHANGE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("CHG",)),
    cmqcfc.MQCMD_DELETE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_TOPIC: (cmqc.MQOT_TOPIC, cmqc.MQCA_TOPIC_NAME, ("DSP",)),
    cmqcfc.MQCMD_CHANGE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("CHG",)),
    cmqcfc.MQCMD_DELETE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("DLT",)),
    cmqcfc.MQCMD_INQUIRE_NAMELIST: (cmqc.MQOT_NAMELIST, cmqc.MQCA_NAMELIST_NAME, ("DSP",)),
    cmqcfc.MQCMD_CHANGE_Q_MGR: (cmqc.MQOT_Q_MGR, 0, ("CHG",)),
    cmqcfc.MQCMD_INQUIRE_Q_MGR: (cmqc.MQOT_Q_MGR, 0, ("DSP",)),
    cmqcfc.MQCMD_INQUIRE_Q_MGR_STATUS: (cmqc.MQOT_Q_MGR, 0, ("DSP",)),
}
#: DISPLAY commands in an Escape, which require the authorities of a PCF command: object type in MQSC -> PCF command.
_DISPLAYS = {
    "QUEUE": cmqcfc.MQCMD_INQUIRE_Q,
    "QLOCAL": cmqcfc.MQCMD_INQUIRE_Q,
    "QSTATUS": cmqcfc.MQCMD_INQUIRE_Q_STATUS,
    "TOPIC": cmqcfc.MQCMD_INQUIRE_TOPIC,
}
_DISPLAY = re.compile(r"DIS(?:PLAY)?\s+(\w+)\s*\(\s*'?([^'()]+?)'?\s*\)", re.IGNORECASE)
#: Commands that require only DSP for the queue manager.
_UNCHECKED = (
    cmqcfc.MQCMD_PING_Q_MGR,
    cmqcfc.MQCMD_INQUIRE_Q_NAMES,
    cmqcfc.MQCMD_INQUIRE_TOPIC_NAMES,
    cmqcfc.MQCMD_INQUIRE_NAMELIST_NAMES,
    cmqcfc.MQCMD_INQUIRE_CHANNEL_NAMES,
)


APPLICATION_NAME = "mqbridge"
#: Messages of a reply to put in one iteration of the event loop.
_REPLIES_AT_ONCE = 50
_HEADER_LENGTH = cmqcfc.MQCFH_STRUC_LENGTH
_COMMAND_QUEUE: dict[str, Value] = {"SHARE": "NO", "DESCR": "IBM MQ administration commands (PCF)"}
_NAMES = {number: name for name, number in vars(cmqcfc).items() if name.startswith("MQCMD_")}


log = logging.getLogger(__name__)


class CommandServer:
    """The command server of one queue manager. It runs on the thread on which the recovery log announces messages."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._runs: Mapping[int, Callable[[Request], Reply]] = self.commands(queue_manager)
        self._busy = False
        self._started = False

    @staticmethod
    def commands(queue_manager: QueueManager) -> dict[int, Callable[[Request], Reply]]:
        """Return the commands by number."""
        commands = Commands(queue_manager)
        return {
            **PCFCommands(queue_manager).commands,
            **QueueManagerCommands(queue_manager, commands).commands,
            **QueueCommands(queue_manager, commands).commands,
            **NamelistCommands(queue_manager, commands).commands,
            **TopicCommands(queue_manager, commands).commands,
            **SubscriptionCommands(queue_manager, commands).commands,
            **StatusCommands(queue_manager).commands,
            **AuthorityCommands(queue_manager).commands,
            **(absent := AbsentCommands(queue_manager).commands),
            **TelemetryChannelCommands(queue_manager, commands, absent).commands,
        }

    def start(self) -> None:
        """Start with the commands on the queue. Raises MQError. Set the recovery log's `dispatch` before."""
        with self._queue_manager.lock:
            queues = self._queue_manager.objects.queues
            if COMMAND_QUEUE not in queues:
                queues[COMMAND_QUEUE] = Queue(COMMAND_QUEUE, defaults("QLOCAL") | _COMMAND_QUEUE)
            queue = self._queue()
            queue.open(cmqc.MQOO_INPUT_EXCLUSIVE)
            queue.consumer = self._arrived
            self._started = True
            self._queue_manager.on_close.append(self.stop)
            self._next()

    def stop(self) -> None:
        """Stop running commands. New commands stay on the queue."""
        with self._queue_manager.lock:
            if self._started:
                queue = self._queue()
                queue.consumer = None
                queue.close(cmqc.MQOO_INPUT_EXCLUSIVE, exclusive=True)
                self._started = False

    def _queue(self) -> Queue:
        return self._queue_manager.objects.queues[COMMAND_QUEUE]

    def _arrived(self, _messages: Sequence[StoredMessage]) -> None:
        self._next()

    def _next(self) -> None:
        """Run the oldest command, unless another is running, so that each sees the effects of the previous command."""
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
            log.exception("PCF command %d failed", header.Command)
            reply, answers = Reply(), _refusal(header, PCFRefused(cmqc.MQRC_UNEXPECTED_ERROR))
        unit = reply.unit or Unit()
        queue.depth += 1
        unit.gets.append(stored)

        def completed(reason: int) -> None:
            if reason and stored.linked:
                self._remove(stored)
            self._reply(stored, md, answers if not reason else _refusal(header, PCFRefused(reason)))

        unit.done = completed
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

        All commands require DSP for the queue manager. `_AUTHORITIES` are required for single objects, also if an Escape
        displays one. Other commands, and inquiries of many objects, are for administrators. Source: IBM MQ documentation,
        "Authorizations for PCF commands".
        """
        authorization.check(user, cmqc.MQOT_Q_MGR, self._queue_manager.name, "DSP")
        text = request.text(cmqcfc.MQCACF_ESCAPE_TEXT) if request.command == cmqcfc.MQCMD_ESCAPE else None
        if text is not None and (display := _DISPLAY.match(text)) and (command := _DISPLAYS.get(display[1].upper())):
            object_type, _, words = _AUTHORITIES[command]
            if "*" not in display[2]:
                authorization.check(user, object_type, display[2], *words)
                return
        object_type, number, words = _AUTHORITIES.get(request.command, (0, 0, ()))
        if request.command in _UNCHECKED:
            return
        if object_type == cmqc.MQOT_Q_MGR:
            authorization.check(user, object_type, self._queue_manager.name, *words)
        elif object_type and "*" not in (name := request.text(number) or "*"):
            authorization.check(user, object_type, name, *words)
        elif request.command in (cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, cmqcfc.MQCMD_INQUIRE_TOPIC_STATUS):
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
                log.warning("the reply to a PCF command for queue %s was not delivered: %s", name, error)
                if not request.Report & cmqc.MQRO_DISCARD_MSG:
                    lost = queue_manager.undeliverable(stored.queue, message, put_time=stored.put_time)
                    dead_letter(queue_manager, unit, lost, error.reason, name, manager, replacing=True)
        if not unit.empty:
            queue_manager.recovery_log.submit(unit)

    def _put(self, unit: Unit, destination: ResolvedDestination, message: Message) -> None:
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
    """Raise PCFRefused if a header is not a command header."""
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
        return reason_of_structure(error.structure, "LENGTH_ERROR")
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
