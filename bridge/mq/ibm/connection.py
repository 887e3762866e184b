"""Connections to IBM MQ via the client packages `pymqi` and `ibmmq`, its maintained successor.

Both packages wrap IBM's C client library in the same classes. The bridge's own codecs convert structures to bytes if that is
exact. Other structures are converted field by field. Fields whose initial value in a package differs from the MQI's value
(SubLevel and PubLevel 0 in pymqi, PubPriority in both) are always set.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import Any

import msgspec

from bridge.mq.administration import PcfAdministration, run_mqsc
from bridge.mq.ibm.parameters import ConnectionParameters, Tls
from bridge.mq.mqi import (
    MQOD,
    MQSD,
    MQSTS,
    CommandResponse,
    GetOptions,
    Got,
    MQError,
    Property,
    SubscriptionEntry,
    TruncatedMessage,
    check_md,
    check_od,
    check_sd,
)
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqmd, encode_mqmd, fitted_mqmd

#: MQMD version 1 and 2, in bytes.
_MQMD_1, _MQMD_2 = 324, 364
#: The maximum number of packed message descriptors, and of packed object descriptors, of a connection.
PACKED_DESCRIPTORS = 4_096
#: The maximum length of a returned string (MQ_TOPIC_STR_LENGTH, MQ_SELECTOR_LENGTH).
_ROOM = 10_240
#: MQOO options of handles for MQGET.
_GETS = cmqc.MQOO_BROWSE | cmqc.MQOO_INPUT_AS_Q_DEF | cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_INPUT_EXCLUSIVE
_UTF_8 = 1208


#: Formats and offsets of fields in the bytes of MQMD version 2 (IBM MQ documentation, "Fields for MQMD").
_CCSID, _MSG_AND_CORREL_ID = struct.Struct("=i"), struct.Struct("24s24s")
_CCSID_AT, _MSG_ID_AT = 28, 48
#: Formats and offsets of fields in the bytes of MQOD version 4 ("Fields for MQOD"). ObjectString is an MQCHARV.
_USER, _STRING = struct.Struct("12s"), struct.Struct("@P4i")
_ALTERNATE_USER_AT, _OBJECT_STRING_AT = 156, 344
#: Formats and offsets of fields in the bytes of MQGMO version 3 ("Fields for MQGMO").
_OPTIONS = struct.Struct("=2i")
_OPTIONS_AT, _MATCH_OPTIONS_AT, _MSG_TOKEN_AT = 8, 72, 80


@lru_cache(maxsize=4)
def _packed(base: type) -> type:
    """Return a subclass of the packages' MD, OD or PMO that contains previously packed bytes and ignores results.

    Creating and reading the packages' own classes takes longer than the rest of an MQPUT. An instance keeps `source` alive.
    """

    def __init__(self: Any, source: object, packed: bytes) -> None:
        # ibmmq reads the two fields of an MD.
        self.__dict__.update(source=source, packed=packed, Encoding=0, CodedCharSetId=0)

    def pack(self: Any) -> bytes:
        packed: bytes = self.__dict__["packed"]
        return packed

    def unpack(self: Any, _returned: bytes) -> None:
        pass

    return type(f"Packed{base.__name__}", (base,), {"__init__": __init__, "pack": pack, "unpack": unpack})


class Structures:
    """Converts between the structures of the MQ interface and those of one package, for one connection."""

    def __init__(self, library: Any) -> None:
        self._library = library
        #: MDs by identity of the MQMD, PMOs by options
        self._packed_descriptors: dict[int, Any] = {}
        self._packed_options: dict[int, Any] = {}
        #: ODs by topic string and user
        self._packed_topics: dict[tuple[str, str], Any] = {}
        #: MDs and GMOs of removals by options
        self._packed_removals: dict[int, tuple[bytes, bytes]] = {}

    def od(self, od: MQOD, *, results: bool = False) -> Any:
        """Create an OD. With `results`, it has room for the fields that `read_od` reads."""
        check_od(od)
        structure = self._library.OD()
        structure.Version = cmqc.MQOD_VERSION_4
        _copy(od, structure, "ObjectType", "ObjectName", "ObjectQMgrName", "DynamicQName", "AlternateUserId")
        _set_string(structure, "ObjectString", od.ObjectString)
        _set_string(structure, "SelectionString", od.SelectionString)
        if results:
            _set_string(structure, "ResObjectString", "", _ROOM)
        return structure

    @staticmethod
    def read_od(od: MQOD, structure: Any) -> None:
        """Update an MQOD with the results of MQOPEN."""
        if od.ObjectType == cmqc.MQOT_Q:
            _read(structure, od, "ObjectName", "ObjectQMgrName")
        _read(structure, od, "ResolvedQName", "ResolvedQMgrName", "ResolvedType")
        od.ResObjectString = _string(structure, "ResObjectString")

    def md(self, md: MQMD) -> Any:
        check_md(md)
        structure = self._library.MD()
        structure.unpack(encode_mqmd(msgspec.structs.replace(fitted_mqmd(md), Version=cmqc.MQMD_VERSION_2)))
        structure.Version = md.Version
        return structure

    @staticmethod
    def read_md(structure: Any) -> MQMD:
        return decode_mqmd(structure.pack()[: _MQMD_2 if structure.Version >= cmqc.MQMD_VERSION_2 else _MQMD_1])

    def pmo(self, options: int, message_handle: int = 0) -> Any:
        structure = self._library.PMO()
        structure.Version = cmqc.MQPMO_VERSION_3
        structure.Options = options
        structure.PubLevel = 9  # the MQI's initial value. In pymqi it is 0
        structure.OriginalMsgHandle = message_handle
        return structure

    def unanswered(self, md: MQMD, options: int) -> tuple[Any, Any]:
        """Return the MD and PMO of a put whose results are not read, packed once for all messages that share them."""
        packed = self._packed_descriptors.get(id(md))
        if packed is None or packed.source is not md:
            if len(self._packed_descriptors) >= PACKED_DESCRIPTORS:
                self._packed_descriptors.clear()
            packed = self._packed_descriptors[id(md)] = _packed(self._library.MD)(md, self.md(md).pack())
        pmo = self._packed_options.get(options)
        if pmo is None:
            pmo = _packed(self._library.PMO)(md, self.pmo(options).pack())
            self._packed_options[options] = pmo
        return packed, pmo

    @cached_property
    def _topic_descriptor(self) -> bytes:
        """The bytes of an OD for a topic."""
        packed: bytes = self.od(MQOD(ObjectType=cmqc.MQOT_TOPIC)).pack()
        return packed

    def topic(self, od: MQOD) -> Any:
        """Return the OD of a topic string, for a put whose results are not read. Packed once for all puts to the topic."""
        key = od.ObjectString, od.AlternateUserId
        structure = self._packed_topics.get(key)
        if structure is None:
            if len(self._packed_topics) >= PACKED_DESCRIPTORS:
                self._packed_topics.clear()
            structure = self._packed_topics[key] = self._topic(od)
        return structure

    def _topic(self, od: MQOD) -> Any:
        check_od(od)
        packed, string = bytearray(self._topic_descriptor), od.ObjectString.encode()
        _USER.pack_into(packed, _ALTERNATE_USER_AT, od.AlternateUserId.encode())
        address = ctypes.cast(ctypes.c_char_p(string), ctypes.c_void_p).value
        _STRING.pack_into(packed, _OBJECT_STRING_AT, address, 0, 0, len(string), _UTF_8)
        return _packed(self._library.OD)(string, bytes(packed))  # keeps the string alive while its address is used

    @cached_property
    def _initial_get(self) -> tuple[bytes, bytes]:
        """The bytes of an MD and a GMO with initial values."""
        md, gmo = self._library.MD(), self._library.GMO()
        md.Version, gmo.Version = cmqc.MQMD_VERSION_2, cmqc.MQGMO_VERSION_3
        return md.pack(), gmo.pack()

    def get(self, options: GetOptions) -> tuple[bytes, bytes]:
        """Return a new MD and GMO for a get. They cannot be shared, because ibmmq writes the results into them."""
        if options.NeedsMd:
            md, gmo = _packed_get(*self._initial_get, options)
            return bytes(bytearray(md)), bytes(bytearray(gmo))
        # A removal by MsgId differs from the previous one only in the MsgId.
        packed = self._packed_removals.get(options.Options)
        if packed is None:
            packed = self._packed_removals[options.Options] = _packed_get(*self._initial_get, options)
        md, gmo = packed
        return md[:_MSG_ID_AT] + options.MsgId + md[_MSG_ID_AT + 24 :], bytes(bytearray(gmo))

    def got(self, md: bytes, gmo: bytes, data: bytes, length: int, reason: int) -> Got:
        token = gmo[_MSG_TOKEN_AT : _MSG_TOKEN_AT + 16]
        return Got(md=decode_mqmd(md), data=data, DataLength=length, Reason=reason, MsgToken=token)

    def sd(self, sd: MQSD) -> Any:
        check_sd(sd)
        structure = self._library.SD()
        _copy(sd, structure, "Options", "ObjectName", "AlternateUserId", "SubLevel", "SubExpiry", "SubCorrelId")
        structure.PubPriority = cmqc.MQPRI_PRIORITY_AS_PUBLISHED
        for name, room in (("ObjectString", 0), ("SubName", 0), ("SubUserData", _ROOM)):
            _set_string(structure, name, getattr(sd, name), room)
        _set_string(structure, "ResObjectString", "", _ROOM)
        return structure

    @staticmethod
    def read_sd(sd: MQSD, structure: Any) -> None:
        """Update an MQSD with the results of MQSUB."""
        for name in ("SubUserData", "ResObjectString"):
            setattr(sd, name, _string(structure, name))
        sd.SubCorrelId = structure.SubCorrelId
        _read(structure, sd, "SubLevel", "SubExpiry")


@lru_cache(maxsize=64)
def _packed_get(initial_md: bytes, initial_gmo: bytes, options: GetOptions) -> tuple[bytes, bytes]:
    """Return the MD and GMO of a get. They are cached, because a browsing worker repeats the same options."""
    md, gmo = bytearray(initial_md), bytearray(initial_gmo)
    _CCSID.pack_into(md, _CCSID_AT, options.CodedCharSetId)
    _MSG_AND_CORREL_ID.pack_into(md, _MSG_ID_AT, options.MsgId, options.CorrelId)
    _OPTIONS.pack_into(gmo, _OPTIONS_AT, options.Options, options.WaitInterval)
    gmo[_MATCH_OPTIONS_AT : _MATCH_OPTIONS_AT + 4] = options.MatchOptions.to_bytes(4, sys.byteorder, signed=True)
    gmo[_MSG_TOKEN_AT : _MSG_TOKEN_AT + 16] = options.MsgToken.ljust(16, b"\0")
    return bytes(md), bytes(gmo)


def _copy(source: Any, structure: Any, *names: str) -> None:
    """Set fields of a structure of the package."""
    for name in names:
        value = getattr(source, name)
        setattr(structure, name, value.encode() if isinstance(value, str) else value)


def _value(field: bytes | str | int) -> str | int:
    """Return the value of a numeric or character field."""
    return field if isinstance(field, int) else text(field)


def _read(structure: Any, target: Any, *names: str) -> None:
    """Read numeric and character fields of a structure of the package."""
    for name in names:
        setattr(target, name, _value(getattr(structure, name)))


def text(field: bytes | str) -> str:
    """Return the text of a character field, without padding blanks and zero bytes."""
    characters = field if isinstance(field, str) else field.decode("utf-8", "replace")
    return characters.rstrip(" \0")


def _set_string(structure: Any, field: str, value: str, room: int = 0) -> None:
    """Set an MQCHARV, with a buffer of `room` bytes for the result."""
    encoded = value.encode()
    room = max(room, len(encoded)) if room else 0
    if encoded or room:
        structure.set_vs(field, encoded.ljust(room, b"\0"), vs_buffer_size=room, vs_ccsid=_UTF_8)
        structure[field + "VSLength"] = len(encoded)


def _string(structure: Any, field: str) -> str:
    """Return the result in an MQCHARV."""
    return text((structure.get_vs(field) or b"")[: max(structure[field + "VSLength"], 0)])


#: The maximum message length of the client's end of the channel in bytes: IBM MQ's maximum (MAXMSGL).
MAX_MESSAGE_LENGTH = 104_857_600
#: Buffer of the first attempt of a get, in bytes. A longer message costs a second call.
_FIRST_BUFFER = 65_536


#: The result of a get whose caller needs no MQMD.
_REMOVED = Got(md=MQMD(), data=b"")


class _Subscription:
    """The handle of a subscription. The packages' own class would close it when it is garbage-collected."""

    def __init__(self, calls: Any, manager: Any, handle: int) -> None:
        #: the extension module of the package
        self._calls = calls
        self._manager = manager
        self.handle = handle

    def close(self, options: int) -> None:
        """Close the subscription (MQCLOSE). Raises MQError."""
        completion, reason = self._calls.MQCLOSE(self._manager.get_handle(), self.handle, options)
        if completion:
            raise MQError(reason, "close")


#: MQSTS version 1: StrucId, Version, CompCode, Reason, three counts, ObjectType, and four names.
_MQSTS = struct.Struct("<4s7i48s48s48s48s")
_MQDMHO = struct.Struct("<4s2i")


class IbmConnection(ABC):
    """`bridge.mq.mqi.Connection` to IBM MQ. Use it only on the thread that created it.

    Objects of the packages close their handles when they are garbage-collected, so the connection keeps them until `close`.
    """

    def __init__(self, library: Any, parameters: ConnectionParameters) -> None:
        self._library = library
        self._parameters = parameters
        self._objects: dict[int, Any] = {}
        self._structures = Structures(library)
        self._next = 1
        self._manager = library.QueueManager(None)
        try:
            self._connect()
        except library.MQMIError as error:
            hint = parameters.hint(error.reason)
            detail = f"connect to {parameters.place}" + (f"; hint: {hint}" if hint else "")
            raise MQError(error.reason, detail) from error

    @contextmanager
    def _operation(self, operation: str) -> Iterator[None]:
        """Convert errors of the package to MQError."""
        try:
            self._manager.get_handle()  # without a connection, the package's calls raise TypeError
            yield
        except (self._library.MQMIError, self._library.PYIFError) as error:
            raise self._converted(error, operation) from error

    def _converted(self, error: Any, operation: str) -> MQError:
        """Return the MQError for an error of the package."""
        if isinstance(error, self._library.MQMIError):
            return MQError(error.reason, operation)
        # The package itself rejected the call.
        reason = cmqc.MQRC_HCONN_ERROR if "not connected" in str(error) else cmqc.MQRC_HOBJ_ERROR
        return MQError(reason, f"{operation}: {error}")

    def _connect(self) -> None:
        """Connect (MQCONNX).

        The client library does not reconnect (MQCNO_RECONNECT_DISABLED overrides DEFRECON and mqclient.ini). The bridge
        reconnects, and restores its handles and units of work itself.
        """
        parameters, library = self._parameters, self._library
        # With shared handles, one thread can have several connections, over which subscriptions are spread.
        options = cmqc.MQCNO_HANDLE_SHARE_BLOCK
        options |= cmqc.MQCNO_CLIENT_BINDING if parameters.is_client else cmqc.MQCNO_LOCAL_BINDING
        options |= cmqc.MQCNO_RECONNECT_DISABLED if parameters.is_client else 0
        arguments: dict[str, Any] = {"opts": options}
        peer_name = ctypes.create_string_buffer(b"")
        if parameters.connections:
            cd = library.CD()
            cd.ChannelName = parameters.channel.encode()
            cd.ConnectionName = parameters.connections.encode()
            cd.ChannelType = cmqc.MQCHT_CLNTCONN
            cd.TransportType = cmqc.MQXPT_TCP
            cd.HeartbeatInterval = parameters.heartbeat_interval
            cd.MaxMsgLength = MAX_MESSAGE_LENGTH
            if parameters.tls is not None:
                cd.Version = max(cd.Version, cmqc.MQCD_VERSION_7)
                cd.SSLCipherSpec = parameters.tls.cipher_spec.encode()
                peer_name = ctypes.create_string_buffer(parameters.tls.peer_name.encode())
            arguments["cd"] = cd
        if parameters.tls is not None:
            arguments["sco"] = self._secure(parameters.tls)
        if parameters.user:
            arguments["user"] = parameters.user
            arguments["password"] = parameters.password
        self._connect_with(arguments, peer_name)

    def _secure(self, tls: Tls) -> Any:
        """Return the MQSCO."""
        sco = self._library.SCO()
        sco.KeyRepository = tls.key_repository.encode()
        sco.FipsRequired = cmqc.MQSSL_FIPS_YES if tls.fips else 0
        if tls.certificate_label:
            sco.Version = cmqc.MQSCO_VERSION_5
            sco.CertificateLabel = tls.certificate_label.encode()
        return self._with_password(sco, tls.password) if tls.password else sco

    # Differences between the packages --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _calls(self) -> Any:
        """The extension module of the package, which contains the MQI calls."""

    @abstractmethod
    def _connect_with(self, arguments: dict[str, Any], peer_name: ctypes.Array[ctypes.c_char]) -> None:
        """Call MQCONNX. `peer_name` is the SSLPEER, blank for none. Raises the package's error or MQError."""

    @abstractmethod
    def _with_password(self, sco: Any, password: str) -> Any:
        """Return the MQSCO with the password of its key repository. Raises MQError."""

    # Calls that pymqi does not wrap, via the C library that the package has loaded ----------------------------------

    @cached_property
    def _c_library(self) -> ctypes.CDLL:
        return ctypes.CDLL(self._calls.__file__)

    def _call(self, verb: str, *arguments: Any) -> None:
        """Call a function of the C library. Raises MQError, with MQRC_FUNCTION_NOT_SUPPORTED if it does not exist."""
        try:
            call = getattr(self._c_library, verb)
        except (AttributeError, OSError) as error:
            hint = "; hint: set asynchronous_puts: false" if verb == "MQSTAT" else ""
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, f"{verb}: {error}{hint}") from error
        completion, reason = ctypes.c_int32(), ctypes.c_int32()
        call(ctypes.c_int32(self._manager.get_handle()), *arguments, ctypes.byref(completion), ctypes.byref(reason))
        if completion.value == cmqc.MQCC_FAILED:
            raise MQError(reason.value, verb)

    def _delete_message_handle(self, message_handle: Any) -> None:
        buffer = ctypes.create_string_buffer(_MQDMHO.pack(b"DMHO", 1, 0), _MQDMHO.size)
        self._call("MQDLTMH", ctypes.byref(ctypes.c_int64(message_handle.msg_handle)), buffer)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        buffer = ctypes.create_string_buffer(_MQSTS.pack(b"STAT", 1, *(0,) * 6, *(b"",) * 4), _MQSTS.size)
        with self._operation("statistics"):
            self._call("MQSTAT", ctypes.c_int32(type), buffer)
        fields = map(_value, _MQSTS.unpack(buffer.raw)[2:])
        return MQSTS(**dict(zip(MQSTS.__struct_fields__, fields, strict=False)))  # type: ignore[arg-type]

    # Handles and errors ----------------------------------------------------------------------------------------------

    def _keep(self, mq_object: Any) -> int:
        number = self._next
        self._next += 1
        self._objects[number] = mq_object
        return number

    def _find(self, number: int) -> Any:
        mq_object = self._objects.get(number)
        if mq_object is None:
            with self._operation(f"handle {number}"):
                pass
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {number}")
        return mq_object

    def _find_object(self, number: int) -> Any:
        """Return a queue or topic. Raises MQError."""
        mq_object = self._find(number)
        if isinstance(mq_object, _Subscription):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {number} is a subscription")
        return mq_object

    def open(self, od: MQOD, options: int) -> int:
        if options & _GETS and not options & cmqc.MQOO_READ_AHEAD:
            # With DEFREADA(YES), MQGETs that browse and MQGETs under syncpoint could not use one handle
            # (MQRC_OPTIONS_ERROR: "MQGMO options and read ahead").
            options |= cmqc.MQOO_NO_READ_AHEAD
        structure = self._structures.od(od, results=True)
        queue = self._library.Queue(self._manager)
        with self._operation(f"open {_named(od)}"):
            queue.open(structure, options)
        self._structures.read_od(od, structure)
        return self._keep(queue)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        mq_object = self._find(handle)
        with self._operation("close"):
            mq_object.close(options)
        del self._objects[handle]

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        target = self._find_object(handle)
        if options & cmqc.MQPMO_ASYNC_RESPONSE and not properties:
            return self._put_unanswered(message, options, target.put)
        return self._put(message, options, properties, target.put, "put")

    def _put_unanswered(self, message: AnyMessage, options: int, verb: Callable[[bytes, Any, Any], None]) -> MQMD:
        md, pmo = self._structures.unanswered(message.md, options)
        try:
            verb(message.put_data, md, pmo)
        except self._library.MQMIError as error:
            if error.comp != cmqc.MQCC_WARNING:
                raise MQError(error.reason, "put") from error
        return message.md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        if options & cmqc.MQPMO_ASYNC_RESPONSE and not properties and _is_topic_string(od):
            return self._put_unanswered(message, options, partial(self._manager.put1, self._structures.topic(od)))
        structure = self._structures.od(od)
        return self._put(
            message,
            options,
            properties,
            lambda data, md, pmo: self._manager.put1(structure, data, md, pmo),
            f"put to {_named(od)}",
        )

    def _put(
        self,
        message: AnyMessage,
        options: int,
        properties: Sequence[Property],
        verb: Callable[[bytes, Any, Any], None],
        operation: str,
    ) -> MQMD:
        md = self._structures.md(message.md)
        with self._operation(operation), self._message_handle(properties) as message_handle:
            try:
                verb(message.put_data, md, self._structures.pmo(options, message_handle))
            except self._library.MQMIError as error:
                if error.comp != cmqc.MQCC_WARNING:
                    raise
        return self._structures.read_md(md)

    @contextmanager
    def _message_handle(self, properties: Sequence[Property]) -> Iterator[int]:
        """Yield a message handle with these properties for one put, or 0 without properties."""
        if not properties:
            yield 0
            return
        handle = self._library.MessageHandle(self._manager)
        try:
            for message_property in properties:
                encoded = (
                    message_property.value.encode()
                    if isinstance(message_property.value, str)
                    else message_property.value
                )
                length = len(encoded) if isinstance(encoded, bytes) else 0
                handle.properties.set(
                    message_property.name.encode(), message_property.value, message_property.type, length
                )
            yield handle.msg_handle
        finally:
            self._delete_message_handle(handle)

    def get(self, handle: int, options: GetOptions) -> Got:
        queue = self._find_object(handle)
        # Messages may have any length: a get with a buffer that is too small moves neither the message nor the cursor.
        whole = options.MaxLength is None
        room = _FIRST_BUFFER if options.MaxLength is None else options.MaxLength
        if whole:
            truncated = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
            options = msgspec.structs.replace(options, Options=options.Options & ~truncated)
        md, gmo = self._structures.get(options)
        while True:
            # The packages' own method converts the structures, which this class does itself. `_operation` would take as
            # long as the rest of this method.
            try:
                data, got_md, got_gmo, length, completion, reason = self._calls.MQGET(
                    self._manager.get_handle(), queue.get_handle(), md, gmo, room
                )
            except (self._library.MQMIError, self._library.PYIFError) as error:
                raise self._converted(error, "get") from error
            if whole and reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
                room = max(length, room * 2)
                continue
            if completion == cmqc.MQCC_FAILED:
                raise MQError(reason, "get")
            if not options.NeedsMd:
                return _REMOVED
            if completion == cmqc.MQCC_OK:
                length = len(data)
            message = self._structures.got(got_md, got_gmo, data, length, reason)
            if reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
                raise TruncatedMessage(message, "the message is longer than the buffer")
            return message

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        mq_object = self._find_object(handle)
        ints, chars = [], []
        for selector in selectors:
            with self._operation(f"inquire {selector}"):
                value = mq_object.inquire(selector)
            if isinstance(value, int):
                ints.append(value)
            else:
                chars.append(text(value))
        return ints, chars

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        structure = self._structures.sd(sd)
        destination = cmqc.MQHO_NONE if handle is None else self._find_object(handle).get_handle()
        operation = f"subscription {sd.SubName or sd.ObjectString!r}"
        with self._operation(operation):
            filled, hobj, hsub, completion, reason = self._calls.MQSUB(
                self._manager.get_handle(), structure.pack(), destination
            )
        if completion:
            raise MQError(reason, operation)
        structure.unpack(filled)
        self._structures.read_sd(sd, structure)
        if handle is None:
            queue = self._library.Queue(self._manager)
            queue.set_handle(hobj)
            handle = self._keep(queue)
        return self._keep(_Subscription(self._calls, self._manager, hsub)), handle

    def commit(self) -> None:
        with self._operation("commit"):
            self._manager.commit()

    def backout(self) -> None:
        with self._operation("backout"):
            self._manager.backout()

    @cached_property
    def _administration(self) -> PcfAdministration:
        """Runs commands. Its reply queue is deleted when the connection ends."""
        return PcfAdministration(self)

    def command(self, text: str) -> list[CommandResponse]:
        return run_mqsc(self, text)

    def clear_retained(self, topic: str) -> None:
        self._administration.clear_retained(topic)

    def subscriptions(self, name: str = "*") -> list[SubscriptionEntry]:
        return self._administration.subscriptions(name)

    def disconnect(self) -> None:
        self._objects.clear()
        with self._operation("disconnect"):
            self._manager.disconnect()


#: Locked while ibmmq ends the connection with this handle. ibmmq (2.1) keeps a buffer for MQGET per connection handle and
#: queue, and frees it after MQDISC. By then, MQCONNX may have returned the same handle to another thread, whose MQGET would
#: write to the freed buffer. So the other thread waits for the lock before it uses its connection.
_ENDING: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)


class IbmmqConnection(IbmConnection):
    """A connection via `ibmmq`, which supports application names, CCDTs and tokens."""

    @property
    def _calls(self) -> Any:
        return self._library.ibmmqc

    def _connect_with(self, arguments: dict[str, Any], peer_name: ctypes.Array[ctypes.c_char]) -> None:
        parameters = self._parameters
        cno = self._library.CNO()
        cno.Options = arguments.pop("opts")
        cno.Version = cmqc.MQCNO_VERSION_7
        cno.ApplName = parameters.application_name.encode()
        if parameters.ccdt_url:
            cno.CCDTUrl = parameters.ccdt_url
        if parameters.token_file:
            arguments["token"] = parameters.token()
        if peer_name.value:
            arguments["cd"].SSLPeerNamePtr = peer_name.value
        self._manager.connect_with_options(parameters.queue_manager, cno=cno, **arguments)
        self._handle: int = self._manager.get_handle()
        with _ENDING[self._handle]:
            pass

    def disconnect(self) -> None:
        with _ENDING[self._handle]:
            super().disconnect()

    def _with_password(self, sco: Any, password: str) -> Any:
        if self._calls.__strucversions__.get("sco", 1) < cmqc.MQSCO_VERSION_6:  # a client library before 9.3
            hint = self._parameters.hint(cmqc.MQRC_SCO_ERROR)
            raise MQError(
                cmqc.MQRC_SCO_ERROR, f"the client library does not support a key repository password; hint: {hint}"
            )
        sco.Version = cmqc.MQSCO_VERSION_6
        sco.KeyRepoPassword = password
        return sco


#: The end of MQSCO version 6, at offset 632: KeyRepoPasswordPtr, KeyRepoPasswordOffset, KeyRepoPasswordLength.
_KEY_REPOSITORY_PASSWORD = struct.Struct("@P2i")
_KEY_REPOSITORY_PASSWORD_OFFSET = 632


class TlsOptionsWithPassword:
    """An MQSCO of version 6 with the password of its key repository. pymqi's SCO has no fields for it."""

    def __init__(self, sco: Any, password: str) -> None:
        self._sco = sco
        #: kept alive while the address is used
        self._password = password.encode()

    def pack(self) -> bytes:
        """Return the structure."""
        self._sco.Version = cmqc.MQSCO_VERSION_6
        packed: bytes = self._sco.pack()
        text = ctypes.cast(ctypes.c_char_p(self._password), ctypes.c_void_p).value
        end = _KEY_REPOSITORY_PASSWORD.pack(text, 0, len(self._password))
        return packed.ljust(_KEY_REPOSITORY_PASSWORD_OFFSET, b"\0") + end


class PymqiConnection(IbmConnection):
    """A connection via `pymqi`."""

    @property
    def _calls(self) -> Any:
        return self._library.pymqe

    def _connect_with(self, arguments: dict[str, Any], peer_name: ctypes.Array[ctypes.c_char]) -> None:
        parameters = self._parameters
        if parameters.token_file:
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "pymqi cannot send a token; hint: install and use ibmmq")
        if parameters.ccdt_url:
            os.environ["MQCCDTURL"] = parameters.ccdt_url
        if peer_name.value:
            # pymqi packs the pointer unchanged. The caller keeps the buffer until the call has ended.
            arguments["cd"].SSLPeerNamePtr = ctypes.addressof(peer_name)
            arguments["cd"].SSLPeerNameLength = len(peer_name.value)
        self._manager.connect_with_options(parameters.queue_manager, **arguments)

    def _with_password(self, sco: Any, password: str) -> Any:
        return TlsOptionsWithPassword(sco, password)


def connect_ibm(library: Any, parameters: ConnectionParameters) -> IbmConnection:
    """Connect via a package that `load_library` has imported. Raises MQError."""
    return (PymqiConnection if library.__name__ == "pymqi" else IbmmqConnection)(library, parameters)


def _is_topic_string(od: MQOD) -> bool:
    return od.ObjectType == cmqc.MQOT_TOPIC and not od.ObjectName and not od.SelectionString


def _named(od: MQOD) -> str:
    if od.ObjectType == cmqc.MQOT_TOPIC:
        return f"topic {od.ObjectString or od.ObjectName!r}"
    return f"{od.ObjectName}" + (f" at queue manager {od.ObjectQMgrName}" if od.ObjectQMgrName else "")
