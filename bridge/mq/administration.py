"""PCF commands to a queue manager through its command server (IBM MQ documentation, "Programmable command formats")."""

from __future__ import annotations

import re
from contextlib import closing

import msgspec

from bridge.config.queue_manager import COMMAND_QUEUE
from bridge.mq.mqi import MQOD, CommandResponse, Connection, GetOptions, MQError, SubscriptionEntry
from bridge.mq.mqsc import read
from bridge.telemetry.message import CCSID_UTF8, Message
from bridge.wire import cmqc, cmqcfc
from bridge.wire.mq import MQMD
from bridge.wire.mq.pcf import MQCFH, MQCFIN, MQCFST, PCFParameter, decode_pcf, encode_pcf

#: The model queue for replies, defined in deploy/mq/bridge.mqsc, and the fallback. The fallback has MAXDEPTH(5000), which
#: may be too small: a reply has one message for each subscription.
MODEL_QUEUE, DEFAULT_MODEL_QUEUE = "SYSTEM.MQTT.REPLY.MODEL", "SYSTEM.DEFAULT.MODEL.QUEUE"
#: The maximum time for a reply of the command server, in milliseconds.
REPLY_WAIT = 30_000


class PcfResponse(msgspec.Struct):
    """One message of a reply: the reason code, and the parameters by parameter identifier."""

    reason: int
    parameters: dict[int, int | bytes]

    def text(self, parameter: int) -> str:
        """Return a string parameter, or "" if it is missing."""
        value = self.parameters.get(parameter, b"")
        return value.decode("utf-8", "replace").rstrip(" \0") if isinstance(value, bytes) else str(value)

    def number(self, parameter: int) -> int:
        """Return an integer parameter, or 0 if it is missing."""
        value = self.parameters.get(parameter, 0)
        return value if isinstance(value, int) else 0


class CommandFailed(MQError):
    """A command that the command server rejected. `responses` is the complete reply."""

    def __init__(self, reason: int, detail: str, responses: list[PcfResponse]) -> None:
        super().__init__(reason, detail)
        self.responses = responses


def open_reply_queue(connection: Connection, name: str = "MQBRIDGE.*") -> tuple[int, str]:
    """Create a temporary dynamic queue. Return its handle and its name. Raises MQError."""
    od = MQOD(ObjectName=MODEL_QUEUE, DynamicQName=name)
    try:
        handle = connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    except MQError as error:
        if error.reason != cmqc.MQRC_UNKNOWN_OBJECT_NAME:
            raise
        od.ObjectName = DEFAULT_MODEL_QUEUE
        handle = connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    return handle, od.ObjectName


class PcfAdministration:
    """Commands over one connection. Replies arrive on a temporary dynamic queue, deleted when the connection ends."""

    def __init__(self, connection: Connection, reply_wait: int | None = None) -> None:
        """Create the reply queue. `reply_wait` is the maximum time for a reply in milliseconds, by default REPLY_WAIT."""
        self._connection = connection
        self._reply_wait = REPLY_WAIT if reply_wait is None else reply_wait
        self._replies, self.reply_queue = open_reply_queue(connection)

    def run(self, command: int, *parameters: PCFParameter, max_responses: int | None = None) -> list[PcfResponse]:
        """Run a command. Raises CommandFailed with the reason of the first failed message of the reply.

        At most `max_responses` messages of the reply are read. If there are more, do not use the connection again.
        """
        md = MQMD(
            Format=cmqc.MQFMT_ADMIN,
            # Without it, text is in the code page of the client's locale.
            CodedCharSetId=CCSID_UTF8,
            MsgType=cmqc.MQMT_REQUEST,
            ReplyToQ=self.reply_queue.encode(),
            Expiry=self._reply_wait // 100,
        )
        body = encode_pcf(MQCFH(Command=command, Version=cmqcfc.MQCFH_VERSION_1), parameters)
        reply_to = self._connection.put1(
            MQOD(ObjectName=COMMAND_QUEUE), Message(md, body), cmqc.MQPMO_NO_SYNCPOINT | cmqc.MQPMO_NEW_MSG_ID
        )
        responses: list[PcfResponse] = []
        failure: CommandFailed | None = None
        while True:
            message = self._connection.get(
                self._replies,
                GetOptions(
                    Options=cmqc.MQGMO_WAIT | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_CONVERT,
                    WaitInterval=self._reply_wait,
                    CorrelId=reply_to.MsgId,
                    CodedCharSetId=CCSID_UTF8,
                ),
            )
            header, parameters = decode_pcf(message.data)
            if header.CompCode == cmqc.MQCC_FAILED and failure is None:
                failure = CommandFailed(header.Reason, f"PCF command {command}", responses)
            values = {
                parameter.Parameter: _value(parameter)
                for parameter in parameters
                if isinstance(parameter, MQCFIN | MQCFST)
            }
            responses.append(PcfResponse(header.Reason, values))
            if header.Control == cmqcfc.MQCFC_LAST or len(responses) == max_responses:
                break
        if failure is not None:
            raise failure
        return responses

    def clear_retained(self, topic: str) -> None:
        """Clear the retained publication of a topic: CLEAR TOPICSTR(topic) CLRTYPE(RETAINED).

        An unknown topic, or one without a retained publication, is not an error.
        """
        try:
            self.run(
                cmqcfc.MQCMD_CLEAR_TOPIC_STRING,
                MQCFST(cmqc.MQCA_TOPIC_STRING, topic.encode()),
                MQCFIN(cmqcfc.MQIACF_CLEAR_TYPE, cmqcfc.MQCLRT_RETAINED),
            )
        except MQError as error:
            if error.reason not in (cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqcfc.MQRCCF_TOPIC_STRING_NOT_FOUND):
                raise

    def subscriptions(self, name: str = "*") -> list[SubscriptionEntry]:
        """Return the subscriptions with a name, which may end in `*`."""
        try:
            responses = self.run(cmqcfc.MQCMD_INQUIRE_SUBSCRIPTION, MQCFST(cmqcfc.MQCACF_SUB_NAME, name.encode()))
        except MQError as error:
            if error.reason in (cmqc.MQRC_NO_SUBSCRIPTION, cmqcfc.MQRCCF_NONE_FOUND):
                return []
            raise
        return [
            SubscriptionEntry(
                response.text(cmqcfc.MQCACF_SUB_NAME),
                response.text(cmqc.MQCA_TOPIC_STRING),
                response.text(cmqcfc.MQCACF_SUB_USER_DATA),
                response.number(cmqcfc.MQIACF_DURABLE_SUBSCRIPTION) == cmqc.MQSUB_DURABLE_YES,
                response.text(cmqcfc.MQCACF_DESTINATION),
            )
            for response in responses
        ]

    def escape(self, text: str) -> tuple[bool, list[str]]:
        """Run one MQSC command. Return whether it succeeded, and its output, one string for each message.

        Raises MQError if it failed and the command server returned no text.
        """
        is_complete = True
        try:
            responses = self.run(
                cmqcfc.MQCMD_ESCAPE,
                MQCFIN(cmqcfc.MQIACF_ESCAPE_TYPE, cmqcfc.MQET_MQSC),
                MQCFST(cmqcfc.MQCACF_ESCAPE_TEXT, text.encode()),
            )
        except CommandFailed as error:
            is_complete, responses = False, error.responses
            if not any(cmqcfc.MQCACF_ESCAPE_TEXT in response.parameters for response in responses):
                raise
        return is_complete, list(filter(None, (response.text(cmqcfc.MQCACF_ESCAPE_TEXT) for response in responses)))

    def close(self) -> None:
        """Close the reply queue."""
        self._connection.close(self._replies)


def _value(parameter: MQCFIN | MQCFST) -> int | bytes:
    return parameter.Value if isinstance(parameter, MQCFIN) else parameter.String


_MESSAGE = re.compile(r"(AMQ\d{4})([IWEST])?")
_ATTRIBUTE = re.compile(r"([A-Z][A-Z0-9]*)\(((?:'(?:[^']|'')*'|[^()]|\([^()]*\))*)\)")


def run_mqsc(connection: Connection, text: str) -> list[CommandResponse]:
    """Run MQSC commands via PCF Escape. Return one response for each. Raises MQError if there is no reply."""
    with closing(PcfAdministration(connection)) as administration:
        return [_run(administration, command.line, command.text) for command in read(text)]


def _run(administration: PcfAdministration, line: int, command: str) -> CommandResponse:
    try:
        ok, answers = administration.escape(command)
    except MQError as error:
        return CommandResponse(command=command, message=str(error), ok=False, line=line)
    objects: list[dict[str, str | int]] = []
    message = ""
    for answer in answers:
        first, _, rest = answer.partition("\n")
        match = _MESSAGE.match(first.strip())
        if match is not None:
            message = message or first.strip()
            ok = ok and match.group(2) not in ("E", "S", "T")
        else:
            rest = answer
        attributes = {name: _attribute_value(value) for name, value in _ATTRIBUTE.findall(rest)}
        if attributes:
            objects.append(attributes)
    return CommandResponse(command=command, message=message, ok=ok, objects=objects, line=line)


def _attribute_value(text: str) -> str | int:
    text = text.strip()
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return int(text) if text.isdigit() else text
