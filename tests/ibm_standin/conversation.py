"""An MQ connection of a C program: its requests, verbs and replies.

A reply contains the results of IBM's calls: structures with their output fields in the caller's version, the length of a
message that did not fit, or a warning with its result. Source: IBM MQ, "Function calls" of the MQI.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import msgspec

from bridge.config.authentication import matches_name
from bridge.config.tls import ANY_CIPHER, CIPHER_SPECS
from bridge.mq import mqi
from bridge.mq.embedded import property as properties
from bridge.mq.embedded.admission import ConnectionSlot, note_refusal
from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.handles import QueueHandle
from bridge.mq.embedded.queue import INPUT
from bridge.mq.embedded.server import ApplicationServer, Conversation, Malformed, unexpected
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.inquire import mqinq
from bridge.mq.embedded.verbs.open import mqback, mqcmit
from bridge.mq.mqi import MQError, Property
from bridge.security.tls import certificate_of
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.ibm_standin import attributes as attributes  # adds what programs in C inquire
from tests.ibm_standin import cmqc, structures
from tests.ibm_standin.agreement import ChannelAgreement, agreed
from tests.ibm_standin.channels import ChannelInstance, instances_of
from tests.ibm_standin.frames import GREETING, LENGTH, Reader, Verb, Writer
from tests.ibm_standin.mqi.get import BROWSES, mqget
from tests.ibm_standin.mqi.hconn import MqiHconn, MqiQueueHandle
from tests.ibm_standin.mqi.inquire import mqset, mqstat
from tests.ibm_standin.mqi.open import mqclose, mqopen
from tests.ibm_standin.mqi.put import mqput, mqput1
from tests.ibm_standin.mqi.structures import MQPMO, MqiGetOptions, MqiGot, MqiSubscriptionDescriptor
from tests.ibm_standin.mqi.subscribe import mqsub, mqsubrq
from tests.ibm_standin.rules import REFUSALS, Present
from tests.ibm_standin.values import read_properties, write_properties

log = logging.getLogger(__name__)

#: All handles of objects have eight digits, because ibmmq confuses handles such as 100 and 1001.
FIRST_HANDLE = 10_000_000
_MATCH_DEFAULT = cmqc.MQMO_MATCH_MSG_ID | cmqc.MQMO_MATCH_CORREL_ID
_MSG_HANDLE_GIVEN = 1
#: Bytes of a message in a read-ahead buffer in addition to its data: MQMD and MQGMO.
_READ_AHEAD_OVERHEAD = 500
_DELETE_PROPERTIES = 1
#: Maximum time for an application to end after STOP CHANNEL MODE(QUIESCE), in seconds.
_QUIESCE_TIMEOUT = 5.0

#: Strings of an MQSD, in the order sent, and the reason code if one is invalid.
_MQSD_STRINGS = {
    "ObjectString": cmqc.MQRC_OBJECT_STRING_ERROR,
    "SubName": cmqc.MQRC_SUB_NAME_ERROR,
    "SubUserData": cmqc.MQRC_SUB_USER_DATA_ERROR,
    "SelectionString": cmqc.MQRC_SELECTION_STRING_ERROR,
}

_connections = itertools.count(1)


class MqiConversation(Conversation):
    """An MQ connection of a C program."""

    LENGTH = LENGTH
    HCONN: ClassVar[type[Hconn]] = MqiHconn

    def __init__(
        self,
        server: ApplicationServer,
        present: Present,
        slot: ConnectionSlot | None = None,
        channels: Sequence[str] = (),
    ) -> None:
        """Begin. `channels` are the channels over which a client may connect via TCP. Empty allows any."""
        super().__init__(server, slot)
        self._present = present
        #: the user of a login over TCP
        self._login = ""
        self._channels = channels
        self._greeted = False
        #: the meaning of MQCCSI_Q_MGR in an MQMD: the character set of a client, or 0 for programs that use bindings
        self._ccsid = 0
        #: the channel instance of the conversation
        self._instance: ChannelInstance | None = None
        #: address and process of the client, whose heartbeats are expected
        self._client: tuple[str, int] | None = None

    def data_received(self, data: bytes) -> None:
        if self._client is not None:
            instances_of(self._queue_manager).heartbeats.heard(self._client)
        if self._greeted:
            super().data_received(data)
            return
        self._buffer += data
        if not GREETING.startswith(self._buffer[: len(GREETING)]):
            self._fail(f"a connection that begins {bytes(self._buffer[:8])!r}")
        elif len(self._buffer) >= len(GREETING):
            self._greeted = True
            del self._buffer[: len(GREETING)]
            super().data_received(b"")

    # Replies ---------------------------------------------------------------------------------------------------------

    def _refuse(self, error: MQError) -> None:
        frame = Writer().frame(error.comp_code, error.reason)
        if self._login and self._hconn is None and error.reason == cmqc.MQRC_NOT_AUTHORIZED:
            self._present.failed_logins[self._login] += 1
            self._loop.call_later(self._present.rules.failed_login_delay, self._reply, frame)
        else:
            self._reply(frame)

    def _answer(self, result: Any = None, warning: MQError | None = None) -> None:
        writer = result if isinstance(result, Writer) else Writer()
        if warning is not None:
            self._reply(writer.frame(warning.comp_code, warning.reason))
        else:
            self._reply(writer.frame(cmqc.MQCC_WARNING if writer.reason else cmqc.MQCC_OK, writer.reason))

    def _work(self, request: bytes) -> None:
        reader = Reader(request)
        verb = reader.long()
        do = self._VERBS.get(verb)
        if do is None:
            raise Malformed(f"verb {verb}")
        if verb == Verb.MQCONN:
            self._mqconn(reader)
        else:
            do(self, self._mqi, reader)

    @property
    def _mqi(self) -> MqiHconn:
        hconn = self._connected()
        assert isinstance(hconn, MqiHconn)
        return hconn

    # Connection and units of work ------------------------------------------------------------------------------------

    def _mqconn(self, reader: Reader) -> None:
        queue_manager = reader.text(cmqc.MQRC_Q_MGR_NAME_ERROR)
        options = reader.long()
        client = bool(reader.long())
        channel = reader.text(cmqc.MQRC_UNKNOWN_CHANNEL_NAME)
        user, password = reader.text(cmqc.MQRC_NOT_AUTHORIZED), reader.raw()
        application = reader.raw().decode(errors="replace")
        self._login = user if self.slot is not None else ""
        process = reader.long()
        self._channel = channel
        if refusal := self._present.refusal():
            self._reject(refusal, REFUSALS.get(refusal, "a rule of the test"))
        self._check_channel()
        wanted = ChannelAgreement(reader.long(), reader.long(), reader.long())
        self._ccsid, connection_name = reader.long(), reader.raw()
        attributes = self._queue_manager.objects.server_channels.get(channel)
        agreement = agreed(attributes, int(self._queue_manager.objects.attributes["MAXMSGL"]), wanted)
        if client:
            sharing = 0 if options & cmqc.MQCNO_NO_CONV_SHARING else agreement.sharing_conversations
            self._leave_channel()
            instances = instances_of(self._queue_manager)
            self._instance = instances.join(
                self, channel, attributes, self.address, (process, wanted, connection_name), sharing
            )
            if self.slot is not None and attributes is not None and agreement.heartbeat_interval:
                self._client = self.address, process
                instances.heartbeats.heard(self._client)
                instances.heartbeats.expect(self, self._client, agreement.heartbeat_interval)
        # A name that begins with an asterisk is a group of queue managers, which any queue manager matches.
        if queue_manager.startswith("*"):
            queue_manager = ""
        name = self._queue_manager.name.encode()[:12].ljust(12)

        def answer() -> None:
            writer = Writer().raw(b"AMQC" + name + next(_connections).to_bytes(8, "big"))
            writer.long(agreement.max_message_length if client else 0).long(agreement.sharing_conversations)
            self._answer(writer.long(agreement.heartbeat_interval))

        self._connect(queue_manager, application, user, password, answer)

    def _check_channel(self) -> None:
        """Check that clients may connect over the channel, and compare TLS with its definition. Raises MQError.

        Source: IBM MQ documentation, "CipherSpec mismatches", "SSL client authentication (SSLCAUTH)", "SSLPEER (SSL Peer)".
        The reason code for SSLPEER is not documented.
        """
        if self.slot is None or self._transport is None:
            return
        if self._channels and self._channel not in self._channels:
            self._reject(cmqc.MQRC_UNKNOWN_CHANNEL_NAME, "the listener has no such channel")
        attributes = self._queue_manager.objects.server_channels.get(self._channel)
        if attributes is not None:
            reason, why = _tls_mismatch(attributes, self._transport.get_extra_info("ssl_object"))
            if reason:
                self._reject(reason, why)

    def _reject(self, reason: int, why: str) -> NoReturn:
        log.warning("channel %s: rejected an application at %s: %s", self._channel, self.address, why)
        note_refusal(self.address, f"channel {self._channel}: {why}")
        raise MQError(reason, why)

    def connection_lost(self, error: Exception | None) -> None:
        with self._queue_manager.lock:
            self._leave_channel()
        super().connection_lost(error)

    def stop(self, *, force: bool) -> None:
        if force:
            self._loop.call_soon_threadsafe(self.abort)
            return
        if self._hconn is not None:
            self._mqi.channel_quiescing = True
        self._loop.call_soon_threadsafe(self.quiesce)
        self._loop.call_soon_threadsafe(self._loop.call_later, _QUIESCE_TIMEOUT, self.abort)

    def _leave_channel(self) -> None:
        if self._instance is None:
            return
        instances = instances_of(self._queue_manager)
        instances.leave(self._instance, self)
        self._instance = None
        if self._client is not None:
            instances.heartbeats.forget(self, self._client)
            self._client = None

    def _mqdisc(self, hconn: MqiHconn, reader: Reader) -> None:
        self._leave_channel()
        self._disconnect()

    def _mqbegin(self, hconn: MqiHconn, reader: Reader) -> None:
        # No other resource managers exist that could take part.
        self._answer(None, MQError(cmqc.MQRC_NO_EXTERNAL_PARTICIPANTS, comp_code=cmqc.MQCC_WARNING))

    def _mqcmit(self, hconn: MqiHconn, reader: Reader) -> None:
        self._end(mqcmit(hconn))

    def _mqback(self, hconn: MqiHconn, reader: Reader) -> None:
        mqback(hconn)
        self._answer()

    # Objects ---------------------------------------------------------------------------------------------------------

    def _mqopen(self, hconn: MqiHconn, reader: Reader) -> None:
        options = reader.long()
        descriptor = _ObjectDescriptor(reader)
        self._present.opened()
        handle = mqopen(hconn, descriptor.od, options)
        writer = descriptor.write(Writer().long(FIRST_HANDLE + handle))
        self._answer(writer.long(_reads_ahead(hconn, handle)))

    def _mqclose(self, hconn: MqiHconn, reader: Reader) -> None:
        handle, options = _handle(reader.long()), reader.long()
        warning = _warning(_unfinished(hconn, handle))
        self._end(mqclose(hconn, handle, options), warning=warning)

    def _mqinq(self, hconn: MqiHconn, reader: Reader) -> None:
        handle, selectors = _handle(reader.long()), reader.longs()
        int_count, char_length = reader.long(), reader.long()
        ints, texts = mqinq(hconn, handle, selectors)
        chars = "".join(texts).encode()
        warning = 0
        if len(ints) > int_count:
            warning = cmqc.MQRC_INT_ATTR_COUNT_TOO_SMALL
        if len(chars) > char_length:
            warning = cmqc.MQRC_CHAR_ATTRS_TOO_SHORT
        self._answer(Writer().longs(ints[:int_count]).raw(chars[:char_length]), _warning(warning))

    def _mqset(self, hconn: MqiHconn, reader: Reader) -> None:
        handle, selectors, ints = _handle(reader.long()), reader.longs(), reader.longs()
        chars = reader.raw()
        # Only one of the attributes that MQSET sets is a character attribute.
        texts = [structures.text(chars)] if chars else []
        self._end(mqset(hconn, handle, selectors, ints, texts))

    def _mqstat(self, hconn: MqiHconn, reader: Reader) -> None:
        type_, raw = reader.long(), reader.raw()
        structures.MQSTS.read(raw)
        status = mqstat(hconn, type_)
        names = [name for name in status.__struct_fields__ if name not in ("ObjectString", "SubName")]
        written = structures.MQSTS.written(raw, **{name: getattr(status, name) for name in names})
        self._answer(Writer().raw(written).text(status.ObjectString).text(status.SubName))

    # Messages --------------------------------------------------------------------------------------------------------

    def _mqput(self, hconn: MqiHconn, reader: Reader) -> None:
        handle = _handle(reader.long())
        message = _PutMessage(reader, self._ccsid)
        md, unit = mqput(hconn, handle, message.message, message.pmo, message.properties)
        self._end(unit, message.write(Writer(), md), _warning(message.pmo.Reason))

    def _mqput_async(self, hconn: MqiHconn, reader: Reader, *, opens: bool = False) -> None:
        """Put a message without a reply. The program does not wait, and MQSTAT reports the outcome."""
        try:
            target = _ObjectDescriptor(reader).od if opens else _handle(reader.long())
            message = _PutMessage(reader, self._ccsid)
            put: Callable[..., tuple[MQMD, Unit | None]] = mqput1 if opens else mqput
            _, unit = put(hconn, target, message.message, message.pmo, message.properties)
        except Malformed:
            raise
        except Exception as error:
            hconn.outcomes.failed((error if isinstance(error, MQError) else unexpected(error)).reason)
        else:
            if unit is not None:
                unit.done = lambda reason: hconn.outcomes.failed(reason) if reason else None
                self._queue_manager.recovery_log.submit(unit)
        self._working = False

    def _mqput1_async(self, hconn: MqiHconn, reader: Reader) -> None:
        self._mqput_async(hconn, reader, opens=True)

    def _mqput1(self, hconn: MqiHconn, reader: Reader) -> None:
        descriptor = _ObjectDescriptor(reader)
        message = _PutMessage(reader, self._ccsid)
        md, unit = mqput1(hconn, descriptor.od, message.message, message.pmo, message.properties)
        self._end(unit, message.write(descriptor.write(Writer()), md), _warning(message.pmo.Reason))

    def _mqget(self, hconn: MqiHconn, reader: Reader, *, ahead: bool = False) -> None:
        handle = _handle(reader.long())
        md_raw, gmo_raw = reader.raw(), reader.raw()
        length, wants_properties = reader.long(), bool(reader.long())
        md = structures.read_md(md_raw)
        gmo = structures.MQGMO.read(gmo_raw)
        options = MqiGetOptions(
            Options=gmo["Options"],
            WaitInterval=gmo["WaitInterval"],
            MatchOptions=gmo.get("MatchOptions", _MATCH_DEFAULT),
            MsgId=md.MsgId,
            CorrelId=md.CorrelId,
            GroupId=md.GroupId,
            MsgSeqNumber=md.MsgSeqNumber,
            Offset=md.Offset,
            MsgToken=gmo.get("MsgToken", bytes(16)),
            MsgHandle=_MSG_HANDLE_GIVEN if wants_properties else 0,
            Encoding=md.Encoding,
            CodedCharSetId=md.CodedCharSetId or self._ccsid,
            MaxLength=length,
        )

        room = reader.long() if ahead else 0
        self._present.gets += 1
        if options.Options & cmqc.MQGMO_UNMARKED_BROWSE_MSG and self._present.rules.step_cost is not None:
            self._present.stepped(_stepped_over(hconn, handle, options.Options))

        def form(message: MqiGot) -> Writer:
            writer = Writer().raw(structures.written_md(md_raw, message.md))
            names = ("ResolvedQName", "GroupStatus", "SegmentStatus", "Segmentation", "MsgToken", "ReturnedLength")
            writer.raw(structures.MQGMO.written(gmo_raw, **{name: getattr(message, name) for name in names}))
            writer.long(message.DataLength).raw(message.data)
            write_properties(writer, message.properties if wants_properties else None)
            writer.reason = message.Reason
            return writer

        def form_many(first: MqiGot) -> Writer:
            writer = form(first)
            whole = first.Reason != cmqc.MQRC_TRUNCATED_MSG_FAILED
            more = _following(hconn, handle, options, room - len(first.data)) if whole else []
            writer.long(len(more))
            for message in more:
                block = form(message)
                writer.raw(
                    block.frame(cmqc.MQCC_WARNING if block.reason else cmqc.MQCC_OK, block.reason)[LENGTH.size :]
                )
            return writer

        self._get(handle, options, form_many if ahead else form, lambda: mqget(hconn, handle, options))

    def _mqget_ahead(self, hconn: MqiHconn, reader: Reader) -> None:
        self._mqget(hconn, reader, ahead=True)

    def _mqbufmh(self, hconn: MqiHconn, reader: Reader) -> None:
        options, raw, data = reader.long(), reader.raw(), reader.raw()
        md = structures.read_md(raw)
        inner, rest, own_properties = properties.split(md, data)
        if options & _DELETE_PROPERTIES:
            md, data = inner, rest
        writer = Writer().raw(structures.written_md(raw, md)).long(len(data)).raw(data)
        write_properties(writer, own_properties)
        self._answer(writer)

    def _mqmhbuf(self, hconn: MqiHconn, reader: Reader) -> None:
        raw, length = reader.raw(), reader.long()
        new_properties = read_properties(reader)
        md, data = properties.merge(structures.read_md(raw), b"", new_properties)
        too_big = len(data) > length
        writer = Writer().raw(raw if too_big else structures.written_md(raw, md)).long(len(data))
        writer.raw(b"" if too_big else data)
        self._answer(writer, MQError(cmqc.MQRC_PROPERTIES_TOO_BIG) if too_big else None)

    # Publish/subscribe -----------------------------------------------------------------------------------------------

    def _mqsub(self, hconn: MqiHconn, reader: Reader) -> None:
        number, raw = reader.long(), reader.raw()
        strings = {name: reader.text(reason) for name, reason in _MQSD_STRINGS.items()}
        fields = {**structures.MQSD.read(raw), **strings}
        sd = MqiSubscriptionDescriptor(
            **{name: fields[name] for name in MqiSubscriptionDescriptor.__struct_fields__ if name in fields}
        )
        managed = bool(sd.Options & cmqc.MQSO_MANAGED)
        destination = None if managed or number in (cmqc.MQHO_NONE, cmqc.MQHO_UNUSABLE_HOBJ) else _handle(number)
        (subscription, queue), unit = mqsub(hconn, sd, destination)
        changed = {
            name: getattr(sd, name) for name in ("Options", "SubExpiry", "SubCorrelId", "PubPriority", "SubLevel")
        }
        writer = Writer().long(FIRST_HANDLE + queue).long(FIRST_HANDLE + subscription)
        writer.raw(structures.MQSD.written(raw, **changed))
        writer.text(sd.ObjectString or sd.ResObjectString)
        writer.text(sd.SubName).text(sd.SubUserData).text(sd.SelectionString).text(sd.ResObjectString)
        writer.long(destination is None and _reads_ahead(hconn, queue))
        self._end(unit, writer)

    def _mqsubrq(self, hconn: MqiHconn, reader: Reader) -> None:
        handle, action, raw = _handle(reader.long()), reader.long(), reader.raw()
        options = structures.MQSRO.read(raw)["Options"]
        count, unit = mqsubrq(hconn, handle, action, options)
        self._end(unit, Writer().raw(structures.MQSRO.written(raw, NumPubs=count)))

    _VERBS: ClassVar[dict[int, Callable[[MqiConversation, MqiHconn, Reader], None]]] = {
        Verb.MQCONN: lambda self, application, reader: None,
        Verb.MQDISC: _mqdisc,
        Verb.MQOPEN: _mqopen,
        Verb.MQCLOSE: _mqclose,
        Verb.MQPUT: _mqput,
        Verb.MQPUT1: _mqput1,
        Verb.MQGET: _mqget,
        Verb.MQBEGIN: _mqbegin,
        Verb.MQCMIT: _mqcmit,
        Verb.MQBACK: _mqback,
        Verb.MQINQ: _mqinq,
        Verb.MQSET: _mqset,
        Verb.MQSUB: _mqsub,
        Verb.MQSUBRQ: _mqsubrq,
        Verb.MQSTAT: _mqstat,
        Verb.MQBUFMH: _mqbufmh,
        Verb.MQMHBUF: _mqmhbuf,
        Verb.MQPUT_ASYNC: _mqput_async,
        Verb.MQGET_AHEAD: _mqget_ahead,
        Verb.MQPUT1_ASYNC: _mqput1_async,
    }


class _ObjectDescriptor:
    """The MQOD of a request and its reply."""

    def __init__(self, reader: Reader) -> None:
        self._raw = reader.raw()
        fields = structures.MQOD.read(self._raw)
        if fields.get("RecsPresent"):
            raise MQError(cmqc.MQRC_RECS_PRESENT_ERROR, "distribution lists are not supported")
        self.od = mqi.MQOD(
            ObjectType=fields["ObjectType"],
            ObjectName=fields["ObjectName"],
            ObjectQMgrName=fields["ObjectQMgrName"],
            DynamicQName=fields["DynamicQName"],
            AlternateUserId=fields["AlternateUserId"],
            ObjectString=reader.text(cmqc.MQRC_OBJECT_STRING_ERROR),
            SelectionString=reader.text(cmqc.MQRC_SELECTION_STRING_ERROR),
        )
        self._names = self.od.ObjectName, self.od.ObjectQMgrName

    def write(self, writer: Writer) -> Writer:
        od = self.od
        changed = {name: getattr(od, name) for name in ("ResolvedQName", "ResolvedQMgrName", "ResolvedType")}
        if (od.ObjectName, od.ObjectQMgrName) != self._names:  # a dynamic queue
            changed |= {"ObjectName": od.ObjectName, "ObjectQMgrName": od.ObjectQMgrName}
        return writer.raw(structures.MQOD.written(self._raw, **changed)).text(od.ResObjectString)


class _PutMessage:
    """The message of a put and its options, in the request and the reply."""

    def __init__(self, reader: Reader, ccsid: int) -> None:
        """Read them. `ccsid` is the meaning of MQCCSI_Q_MGR (IBM MQ, "CodedCharSetId (MQLONG)" of the MQMD)."""
        self._md, self._pmo = reader.raw(), reader.raw()
        md = structures.read_md(self._md)
        if md.CodedCharSetId == cmqc.MQCCSI_Q_MGR:
            md = msgspec.structs.replace(md, CodedCharSetId=ccsid)
        fields = structures.MQPMO.read(self._pmo)
        if fields.get("RecsPresent"):
            raise MQError(cmqc.MQRC_RECS_PRESENT_ERROR, "distribution lists are not supported")
        self.pmo = MQPMO(Options=fields["Options"], PubLevel=fields.get("PubLevel", 9))
        context = fields["Context"]
        self.pmo.Context = _handle(context) if context else 0
        self.message = Message(md, reader.raw())
        self.properties: Sequence[Property] = read_properties(reader)

    def write(self, writer: Writer, md: MQMD) -> Writer:
        names = ("ResolvedQName", "ResolvedQMgrName", "KnownDestCount", "UnknownDestCount", "InvalidDestCount")
        writer.raw(structures.written_md(self._md, md))
        return writer.raw(structures.MQPMO.written(self._pmo, **{name: getattr(self.pmo, name) for name in names}))


def _following(hconn: MqiHconn, handle: int, options: MqiGetOptions, room: int) -> list[MqiGot]:
    """Browse the messages after the last browsed message, as long as they fit into `room` bytes of a read-ahead buffer.

    A message that would be truncated is left for the next call of the program.
    """
    fixed = options.Options & ~(BROWSES | cmqc.MQGMO_WAIT | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG)
    following = msgspec.structs.replace(options, Options=fixed | cmqc.MQGMO_BROWSE_NEXT)
    group: list[MqiGot] = []
    with contextlib.suppress(MQError):  # no more messages, or the next message does not fit
        while room > 0:
            following = msgspec.structs.replace(following, MaxLength=min(options.MaxLength or 0, room))
            message, _ = mqget(hconn, handle, following)
            group.append(message)
            room -= len(message.data) + _READ_AHEAD_OVERHEAD
    return group


def _stepped_over(hconn: MqiHconn, hobj: int, options: int) -> int:
    """Return the number of marked messages that a browse skips before an unmarked message or the end of the queue."""
    handle = hconn.find(hobj)
    if not isinstance(handle, QueueHandle):
        return 0
    messages = handle.queue.messages()
    if options & cmqc.MQGMO_BROWSE_NEXT and handle.cursor is not None:
        messages = handle.queue.after(handle.cursor, handle.before)
    return sum(1 for _ in itertools.takewhile(lambda stored: stored.msg_number in handle.marked, messages))


def _reads_ahead(hconn: MqiHconn, hobj: int) -> bool:
    """Return whether a client may read ahead from a queue (IBM MQ, "Enabling and disabling read ahead")."""
    handle = hconn.find(hobj)
    if not isinstance(handle, QueueHandle) or not handle.options & (INPUT | cmqc.MQOO_BROWSE):
        return False
    default = handle.attributes.get("DEFREADA", "NO")
    if default == "DISABLED" or handle.options & cmqc.MQOO_NO_READ_AHEAD:
        return False
    return default == "YES" or bool(handle.options & cmqc.MQOO_READ_AHEAD)


def _unfinished(hconn: MqiHconn, hobj: int) -> int:
    """Return the warning of MQCLOSE: the reason code for an incomplete group or message, or MQRC_NONE."""
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, MqiQueueHandle):
        return cmqc.MQRC_NONE
    return max(handle.put_place.unfinished, handle.got_place.unfinished)


def _tls_mismatch(channel: Mapping[str, Value], stream: ssl.SSLObject | None) -> tuple[int, str]:
    """Return reason code and text if TLS does not match the definition of a channel, otherwise 0 and ""."""
    cipher_spec, peer_name = str(channel["SSLCIPH"]), str(channel["SSLPEER"])
    cipher = None if stream is None else stream.cipher()
    if stream is None or cipher is None:
        reason = cmqc.MQRC_SSL_INITIALIZATION_ERROR if cipher_spec else 0
        return reason, f"it does not use TLS, and SSLCIPH is {cipher_spec}"
    name, version, _ = cipher
    versions = ANY_CIPHER.get(cipher_spec)
    matches = CIPHER_SPECS.get(cipher_spec, cipher_spec) == name if versions is None else version in versions
    if not matches:
        explanation = f"it uses {version} with {name}, and SSLCIPH is {cipher_spec or 'blank'}"
        return cmqc.MQRC_SSL_INITIALIZATION_ERROR, explanation
    certificate = certificate_of(stream)
    if certificate is None:
        required = peer_name or channel["SSLCAUTH"] == "REQUIRED"
        reason = cmqc.MQRC_SSL_INITIALIZATION_ERROR if required else 0
        return reason, "it presents no certificate, and the channel has SSLCAUTH(REQUIRED) or SSLPEER"
    if peer_name and not matches_name(peer_name, certificate.subject):
        return cmqc.MQRC_SSL_PEER_NAME_MISMATCH, f"SSLPEER is {peer_name}, its certificate {certificate.subject}"
    return 0, ""


def _handle(number: int) -> int:
    """Return the queue manager's number of a handle. It rejects an invalid number with the correct reason code."""
    return number - FIRST_HANDLE


def _warning(reason: int) -> MQError | None:
    return MQError(reason, comp_code=cmqc.MQCC_WARNING) if reason else None
