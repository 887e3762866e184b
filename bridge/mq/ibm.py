"""The MQ interface on IBM MQ, through `pymqi` or its maintained successor `ibmmq`.

Both packages wrap IBM's C client library in the same classes; what differs between them is small and stays in here.
Structures go over as bytes of the bridge's own codecs where that is exact, field by field elsewhere. Facts and traps:
pymqi's structures hold bytes only; one connection belongs to one thread; an object that owns a handle closes it when it is
collected, so all of them are kept until `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from bridge.mapping.message import AnyMessage
from bridge.mq.client_library import LibraryMissing, client_status, load_library
from bridge.mq.connection_parameters import ConnectionParameters, Tls, parameters
from bridge.mq.errors import MQError
from bridge.mq.escape import run_mqsc
from bridge.mq.interface import (
    MQOD,
    MQPMO,
    MQSD,
    MQSTS,
    CommandResponse,
    GetOptions,
    Got,
    Property,
    TruncatedMessage,
)
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqmd, encode_mqmd

__all__ = ["ConnectionParameters", "IbmConnection", "LibraryMissing", "Tls", "load_library", "parameters"]

#: MQMD version 1 and 2, in bytes.
_MQMD_1, _MQMD_2 = 324, 364
#: What the first attempt of a get has room for; a longer message costs a second call.
_FIRST_BUFFER = 65_536
#: Message descriptors kept packed for one connection.
PACKED_DESCRIPTORS = 4_096


@lru_cache(maxsize=4)
def _packed(base: type) -> type:
    """A class of the packages' MD or PMO whose bytes were made beforehand; what comes back is not looked at."""

    def __init__(self: Any, source: MQMD | None, packed: bytes) -> None:
        self.__dict__.update(source=source, packed=packed)

    def pack(self: Any) -> bytes:
        packed: bytes = self.__dict__["packed"]
        return packed

    def unpack(self: Any, _returned: bytes) -> None:
        return None

    return type(f"Packed{base.__name__}", (base,), {"__init__": __init__, "pack": pack, "unpack": unpack})


class IbmConnection:
    """`bridge.mq.interface.Connection` to IBM MQ. Use it on the thread that made it."""

    def __init__(self, library: Any, parameters: ConnectionParameters) -> None:
        self._library = library
        self._parameters = parameters
        self._objects: dict[int, Any] = {}
        #: MDs by identity of the MQMD, PMOs by options
        self._packed_descriptors: dict[int, Any] = {}
        self._packed_options: dict[int, Any] = {}
        self._next = 1
        self._manager = library.QueueManager(None)
        try:
            self._connect()
        except library.MQMIError as error:
            raise MQError(error.reason, f"connect to {parameters.place}") from error

    def _connect(self) -> None:
        parameters, library = self._parameters, self._library
        # Shared handles let one thread have several connections: subscriptions are spread over them.
        remote = parameters.connections or parameters.ccdt_url
        binding = cmqc.MQCNO_CLIENT_BINDING if remote else cmqc.MQCNO_LOCAL_BINDING
        arguments: dict[str, Any] = {"opts": cmqc.MQCNO_HANDLE_SHARE_BLOCK | binding}
        if parameters.connections:
            cd = library.CD()
            cd.ChannelName = parameters.channel.encode()
            cd.ConnectionName = parameters.connections.encode()
            cd.ChannelType = cmqc.MQCHT_CLNTCONN
            cd.TransportType = cmqc.MQXPT_TCP
            arguments["cd"] = cd
            if parameters.tls is not None:
                self._secure(parameters.tls, cd, arguments)
        if parameters.user:
            arguments["user"] = parameters.user
            arguments["password"] = parameters.password
        if hasattr(library, "CNO"):
            # ibmmq alone knows the application name and the CCDT in the connect options.
            cno = library.CNO()
            cno.Options = arguments.pop("opts")
            cno.Version = cmqc.MQCNO_VERSION_7
            cno.ApplName = parameters.application_name.encode()
            if parameters.ccdt_url:
                cno.CCDTUrl = parameters.ccdt_url
            arguments["cno"] = cno
        elif parameters.ccdt_url:
            raise MQError(
                cmqc.MQRC_FUNCTION_NOT_SUPPORTED,
                "pymqi takes no CCDT URL: use ibmmq, or set MQCCDTURL in the environment",
            )
        self._manager.connect_with_options(parameters.queue_manager, **arguments)

    def _secure(self, tls: Tls, cd: Any, arguments: dict[str, Any]) -> None:
        sco = self._library.SCO()
        sco.KeyRepository = tls.key_repository.encode()
        if tls.certificate_label:
            sco.Version = cmqc.MQSCO_VERSION_5
            sco.CertificateLabel = tls.certificate_label.encode()
        cd.Version = max(cd.Version, cmqc.MQCD_VERSION_7)
        cd.SSLCipherSpec = tls.cipher_spec.encode()
        if tls.peer_name and not hasattr(self._library, "CNO"):
            raise MQError(
                cmqc.MQRC_SSL_PEER_NAME_ERROR, "pymqi cannot pass tls.peer_name on: use ibmmq, or a CCDT with SSLPEER"
            )
        if tls.peer_name:
            cd.SSLPeerNamePtr = tls.peer_name
        arguments["sco"] = sco

    def _keep(self, held: Any) -> int:
        number = self._next
        self._next += 1
        self._objects[number] = held
        return number

    def _find(self, number: int) -> Any:
        held = self._objects.get(number)
        if held is None:
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {number}")
        return held

    def _od(self, od: MQOD) -> Any:
        library_od = self._library.OD()
        library_od.ObjectType = od.ObjectType
        library_od.ObjectName = od.ObjectName.encode()
        library_od.ObjectQMgrName = od.ObjectQMgrName.encode()
        library_od.DynamicQName = od.DynamicQName.encode()
        if od.AlternateUserId:
            library_od.AlternateUserId = od.AlternateUserId.encode()
        if od.ObjectString or od.SelectionString:
            library_od.Version = cmqc.MQOD_VERSION_4
        if od.ObjectString:
            library_od.set_vs("ObjectString", od.ObjectString.encode())
        if od.SelectionString:
            library_od.set_vs("SelectionString", od.SelectionString.encode())
        return library_od

    def _md(self, md: MQMD) -> Any:
        library_md = self._library.MD()
        library_md.unpack(encode_mqmd(msgspec.structs.replace(md, Version=cmqc.MQMD_VERSION_2)))
        library_md.Version = md.Version
        return library_md

    @staticmethod
    def _read_md(library_md: Any) -> MQMD:
        packed = library_md.pack()
        return decode_mqmd(packed[: _MQMD_2 if library_md.Version >= cmqc.MQMD_VERSION_2 else _MQMD_1])

    def open(self, od: MQOD, options: int) -> int:
        try:
            library_od = self._od(od)
            queue = self._library.Queue(self._manager)
            queue.open(library_od, options)
        except self._library.MQMIError as error:
            raise MQError(error.reason, f"open {_named(od)}") from error
        od.ResolvedQName = _text(library_od.ResolvedQName)
        if od.ObjectType == cmqc.MQOT_Q:
            od.ObjectName = _text(library_od.ObjectName)
        return self._keep(queue)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        held = self._find(handle)
        del self._objects[handle]
        try:
            if isinstance(held, self._library.Subscription):
                held.close(sub_close_options=options)
            else:
                held.close(options)
        except self._library.MQMIError as error:
            raise MQError(error.reason, "close") from error
        except self._library.PYIFError as error:
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"close: {error}") from error

    def _pmo(self, options: int | MQPMO, properties: Sequence[Property]) -> Any:
        given = MQPMO(Options=options) if isinstance(options, int) else options
        pmo = self._library.PMO()
        pmo.Version = cmqc.MQPMO_VERSION_3
        pmo.Options = given.Options
        pmo.PubLevel = given.PubLevel
        if given.Context:
            pmo.Context = self._find(given.Context).get_handle()
        if properties:
            pmo.OriginalMsgHandle = self._message_handle(properties).msg_handle
        return pmo

    def _message_handle(self, properties: Sequence[Property]) -> Any:
        handle = self._library.MessageHandle(self._manager)
        for one in properties:
            value = one.value.encode() if isinstance(one.value, str) else one.value
            handle.properties.set(one.name.encode(), value, one.type)
        return handle

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        target = self._find(handle)
        if isinstance(options, int) and options & cmqc.MQPMO_ASYNC_RESPONSE and not properties:
            return self._put_unanswered(target, message, options)
        return self._put(message, options, properties, target.put, "put")

    def _put_unanswered(self, target: Any, message: AnyMessage, options: int) -> MQMD:
        """A put that returns nothing of interest: its structures are packed once for all messages that share them."""
        md = message.md
        packed = self._packed_descriptors.get(id(md))
        if packed is None or packed.source is not md:
            if len(self._packed_descriptors) >= PACKED_DESCRIPTORS:
                self._packed_descriptors.clear()
            packed = self._packed_descriptors[id(md)] = _packed(self._library.MD)(md, self._md(md).pack())
        pmo = self._packed_options.get(options)
        if pmo is None:
            pmo = self._packed_options[options] = _packed(self._library.PMO)(None, self._pmo(options, ()).pack())
        try:
            target.put(message.put_data, packed, pmo)
        except self._library.MQMIError as error:
            if error.comp != cmqc.MQCC_WARNING:
                raise MQError(error.reason, "put") from error
        return md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        library_od = self._od(od)
        return self._put(
            message,
            options,
            properties,
            lambda data, md, pmo: self._manager.put1(library_od, data, md, pmo),
            f"put to {_named(od)}",
        )

    def _put(
        self,
        message: AnyMessage,
        options: int | MQPMO,
        properties: Sequence[Property],
        verb: Callable[[bytes, Any, Any], None],
        what: str,
    ) -> MQMD:
        md, pmo = self._md(message.md), self._pmo(options, properties)
        try:
            verb(message.put_data, md, pmo)
        except self._library.MQMIError as error:
            if error.comp != cmqc.MQCC_WARNING:
                raise MQError(error.reason, what) from error
            if isinstance(options, MQPMO):
                options.Reason = error.reason
        if isinstance(options, MQPMO):
            options.ResolvedQName, options.ResolvedQMgrName = _text(pmo.ResolvedQName), _text(pmo.ResolvedQMgrName)
        return self._read_md(md)

    def get(self, handle: int, options: GetOptions) -> Got:
        library = self._library
        if options.MsgHandle:
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "properties are asked for as an RFH2")
        md, gmo = library.MD(), library.GMO()
        gmo.Version = cmqc.MQGMO_VERSION_3
        gmo.Options = options.Options
        gmo.WaitInterval = options.WaitInterval
        gmo.MatchOptions = options.MatchOptions
        gmo.MsgToken = options.MsgToken
        self._match(md, options)
        queue = self._find(handle)
        reason, length = cmqc.MQRC_NONE, None
        try:
            if options.MaxLength is None:
                data = self._get_whole(queue, md, gmo, options)
            else:
                data = queue.get(options.MaxLength, md, gmo)
        except library.MQMIError as error:
            if error.comp != cmqc.MQCC_WARNING:
                raise MQError(error.reason, "get") from error
            reason, data, length = error.reason, error.message, error.original_length
        got = Got(
            md=self._read_md(md),
            data=data,
            ResolvedQName=_text(gmo.ResolvedQName),
            DataLength=len(data) if length is None else length,
            Reason=reason,
            MsgToken=gmo.MsgToken,
        )
        if reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
            raise TruncatedMessage(got, "the message is longer than the buffer")
        return got

    @staticmethod
    def _match(md: Any, options: GetOptions) -> None:
        md.MsgId, md.CorrelId, md.GroupId = options.MsgId, options.CorrelId, options.GroupId
        md.MsgSeqNumber, md.Offset = options.MsgSeqNumber, options.Offset
        md.Encoding = options.Encoding
        md.CodedCharSetId = options.CodedCharSetId

    def _get_whole(self, queue: Any, md: Any, gmo: Any, options: GetOptions) -> bytes:
        """Get a message of any length: an attempt that has no room leaves it there, the next has."""
        room = _FIRST_BUFFER
        while True:
            try:
                data: bytes = queue.get(room, md, gmo)
            except self._library.MQMIError as error:
                if error.reason != cmqc.MQRC_TRUNCATED_MSG_FAILED:
                    raise
                room = max(error.original_length, room * 2)
                self._match(md, options)
                if gmo.Options & (cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT):
                    # The cursor stands on the message that was too long.
                    gmo.Options &= ~(cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_WAIT)
                    gmo.Options &= ~cmqc.MQGMO_UNMARKED_BROWSE_MSG
                    gmo.Options |= cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
                    gmo.MatchOptions = cmqc.MQMO_NONE
                continue
            return data

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        held = self._find(handle)
        ints, chars = [], []
        for selector in selectors:
            try:
                value = held.inquire(selector)
            except self._library.MQMIError as error:
                raise MQError(error.reason, f"inquire {selector}") from error
            if isinstance(value, int):
                ints.append(value)
            else:
                chars.append(_text(value))
        return ints, chars

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        values: list[int | bytes] = [*ints, *(text.encode() for text in chars)]
        for selector, value in zip(selectors, values, strict=True):
            try:
                self._find(handle).set(selector, value)
            except self._library.MQMIError as error:
                raise MQError(error.reason, f"set {selector}") from error

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        subscription = self._find(handle)
        if not hasattr(subscription, "subrq"):
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "pymqi has no MQSUBRQ")
        sro = self._library.SRO()
        sro.Options = options
        try:
            subscription.subrq(action, sro)
        except self._library.MQMIError as error:
            raise MQError(error.reason, "subscription request") from error
        return int(sro.NumPubs)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        if not hasattr(self._manager, "stat"):
            return client_status(self._library, self._manager.get_handle(), type)
        try:
            found = self._manager.stat(type)
        except self._library.MQMIError as error:
            raise MQError(error.reason, "statistics") from error
        return MQSTS(
            CompCode=found.CompCode,
            Reason=found.Reason,
            PutSuccessCount=found.PutSuccessCount,
            PutWarningCount=found.PutWarningCount,
            PutFailureCount=found.PutFailureCount,
        )

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        library = self._library
        library_sd = library.SD()
        library_sd.Options = sd.Options
        library_sd.ObjectName = sd.ObjectName.encode()
        if sd.AlternateUserId:
            library_sd.AlternateUserId = sd.AlternateUserId.encode()
        for field in ("ObjectString", "SubName", "SubUserData"):
            value = getattr(sd, field)
            if value:
                library_sd.set_vs(field, value.encode())
        library_sd.SubLevel = sd.SubLevel
        library_sd.SubExpiry = sd.SubExpiry
        if sd.Options & cmqc.MQSO_SET_CORREL_ID:
            library_sd.SubCorrelId = sd.SubCorrelId
        subscription = library.Subscription(self._manager)
        try:
            subscription.sub(sub_desc=library_sd, sub_queue=self._find(handle) if handle is not None else None)
        except library.MQMIError as error:
            raise MQError(error.reason, f"subscription {sd.SubName or sd.ObjectString!r}") from error
        if handle is None:
            handle = self._keep(subscription.get_sub_queue())
        else:
            # A second owner of the caller's handle, which would close it, or by then another of that number, when collected.
            subscription.get_sub_queue().set_handle(None)
        return self._keep(subscription), handle

    def commit(self) -> None:
        self._call(self._manager.commit, "commit")

    def backout(self) -> None:
        self._call(self._manager.backout, "backout")

    def _call(self, verb: Any, what: str) -> None:
        try:
            verb()
        except self._library.MQMIError as error:
            raise MQError(error.reason, what) from error

    def command(self, text: str) -> list[CommandResponse]:
        return run_mqsc(self, text)

    def disconnect(self) -> None:
        self._objects.clear()
        self._call(self._manager.disconnect, "disconnect")


def _text(field: bytes | str) -> str:
    text = field if isinstance(field, str) else field.decode("utf-8", "replace")
    return text.rstrip(" \0")


def _named(od: MQOD) -> str:
    if od.ObjectType == cmqc.MQOT_TOPIC:
        return f"topic {od.ObjectString or od.ObjectName!r}"
    return f"{od.ObjectName}" + (f" at queue manager {od.ObjectQMgrName}" if od.ObjectQMgrName else "")
