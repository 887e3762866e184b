"""MQ connections to an embedded queue manager in another process, their wire protocol, and batches of calls.

Requests and replies are MessagePack frames over a stream socket. A frame is a length (four bytes, big-endian) and one value:
a request, tagged with its MQI call, or a reply. A socket is one MQ connection, with one request in flight. Closing it backs
out the unit of work.

`get_many` and `put_many` run a batch of calls: in one round trip on a `RemoteConnection`, as a loop on any other connection.
A batch ends at the first call that fails, and returns the results so far. The next batch starts with that call and raises its
MQError. The error is raised immediately if the first call fails, or if it would otherwise be lost: the unit of work was
backed out, or the outcome of a call is unknown.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from bridge.mq.mqi import (
    MQOD,
    MQSD,
    CommandResponse,
    Connection,
    GetOptions,
    Got,
    MQError,
    Property,
    SubscriptionEntry,
    TruncatedMessage,
)
from bridge.security.unix_socket import socket_address
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQLONG, MQMD

LENGTH = struct.Struct(">I")
#: The socket of a queue manager, in its data directory.
SOCKET_NAME = "mqbridge.sock"
PROTOCOL_VERSION = 9

#: TCP keep-alive: seconds of silence before the first probe, seconds between probes, and unanswered probes at most.
_IDLE: Final = 30
_INTERVAL: Final = 10
_PROBES: Final = 3

#: Socket options and their values. Some systems lack some of them.
_OPTIONS: Final = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _PROBES,
    # TCP does not send probes while data is unacknowledged.
    "TCP_USER_TIMEOUT": (_IDLE + _INTERVAL * _PROBES) * 1000,
}


def keep_alive(connection: socket.socket) -> None:
    """Configure TCP keep-alive, so that the connection breaks a minute after the peer has disappeared."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


#: Default limits of a batch: messages, and bytes of message data. An embedded queue manager does nothing else meanwhile.
MESSAGES: Final = 250
SIZE: Final = 1024 * 1024
#: MQGMO options of a get without message data. Also set MaxLength to 0.
GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES

#: Reason codes that are raised immediately.
_AT_ONCE: Final = (cmqc.MQRC_BACKED_OUT, cmqc.MQRC_CALL_INTERRUPTED)

#: A put: handle, message, MQPMO_ options.
Put: TypeAlias = tuple[int, AnyMessage, int]


class ConnectCall(msgspec.Struct, tag="MQCONN", array_like=True):
    version: int
    application: str
    #: blank for any queue manager
    queue_manager: str = ""
    user: str = ""
    password: bytes = b""


class OpenCall(msgspec.Struct, tag="MQOPEN", array_like=True):
    od: MQOD
    options: MQLONG


class CloseCall(msgspec.Struct, tag="MQCLOSE", array_like=True):
    handle: MQLONG
    options: MQLONG


class GetCall(msgspec.Struct, tag="MQGET", array_like=True):
    """An MQGET."""

    handle: MQLONG
    options: GetOptions


class PutCall(msgspec.Struct, tag="MQPUT", array_like=True):
    """An MQPUT."""

    handle: MQLONG
    message: Message
    options: MQLONG
    properties: list[Property] = []


class CallPipeline(msgspec.Struct, tag="pipeline", array_like=True):
    """Calls to run in order, while time remains. Each result is a Got, or the MQMD of a put."""

    calls: list[GetCall | PutCall]
    #: how often to run the calls. See `following` for the options of repeated gets
    times: MQLONG = 1
    #: bytes of message data after which the pipeline ends
    size: MQLONG = SIZE


class Put1Call(msgspec.Struct, tag="MQPUT1", array_like=True):
    od: MQOD
    message: Message
    options: MQLONG
    properties: list[Property]


class SubscribeCall(msgspec.Struct, tag="MQSUB", array_like=True):
    sd: MQSD


class InquireCall(msgspec.Struct, tag="MQINQ", array_like=True):
    handle: MQLONG
    selectors: list[MQLONG]


class CommitCall(msgspec.Struct, tag="MQCMIT", array_like=True):
    pass


class BackoutCall(msgspec.Struct, tag="MQBACK", array_like=True):
    pass


class DisconnectCall(msgspec.Struct, tag="MQDISC", array_like=True):
    pass


class CommandCall(msgspec.Struct, tag="MQSC", array_like=True):
    text: str


class ClearRetainedCall(msgspec.Struct, tag="clear retained", array_like=True):
    topic: str


class SubscriptionsCall(msgspec.Struct, tag="subscriptions", array_like=True):
    name: str


Request = (
    ConnectCall
    | OpenCall
    | CloseCall
    | PutCall
    | Put1Call
    | GetCall
    | CallPipeline
    | SubscribeCall
    | InquireCall
    | CommitCall
    | BackoutCall
    | DisconnectCall
    | CommandCall
    | ClearRetainedCall
    | SubscriptionsCall
)


class Reply(msgspec.Struct, array_like=True):
    """Completion code, reason code, a description, and the result, including descriptors and options that were updated."""

    comp_code: int
    reason: int
    detail: str = ""
    result: msgspec.Raw = msgspec.Raw(b"\xc0")


class ConnectResult(msgspec.Struct, array_like=True):
    """The result of MQCONN: the queue manager's name, process and version."""

    queue_manager: str
    process: int
    version: str


def frame(value: object) -> bytearray:
    """Encode a value as a frame."""
    buffer = bytearray()
    _ENCODER.encode_into(value, buffer, LENGTH.size)
    LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH.size)
    return buffer


def reply(comp_code: int, reason: int, detail: str, result: object = None) -> bytearray:
    """Encode a `Reply` as a frame, without copying its result, which may be long."""
    return frame((comp_code, reason, detail, result))


_ENCODER = msgspec.msgpack.Encoder()


Result = TypeVar("Result")

#: The maximum time to connect in seconds, including authentication.
CONNECT_TIMEOUT = 60.0


class RemoteConnection:
    """`bridge.mq.mqi.Connection` to the queue manager with a data directory or TCP address.

    Raises MQError with MQRC_Q_MGR_NOT_AVAILABLE if no bridge is running there, MQRC_CONNECTION_BROKEN if it stops later.
    """

    def __init__(
        self,
        where: Path | tuple[str, int],
        *,
        application: str = "mqbridge",
        queue_manager: str = "",
        user: str = "",
        password: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect, with `tls` if the listener uses TLS."""
        try:
            self._socket = _connected(where, tls)
        except ssl.SSLError as error:
            from bridge.security.tls import reason_of  # imports the configuration

            raise MQError(
                cmqc.MQRC_SSL_INITIALIZATION_ERROR,
                f"TLS handshake with the bridge at {where} failed: {reason_of(error)}",
            ) from error
        except OSError as error:
            place = where if isinstance(where, Path) else f"{where[0]}({where[1]})"
            raise MQError(
                cmqc.MQRC_Q_MGR_NOT_AVAILABLE,
                f"no bridge answers at {place} ({error.strerror or error}). Is it running?",
            ) from error
        request = ConnectCall(PROTOCOL_VERSION, application, queue_manager, user, password.encode())
        try:
            connected = self._call(request, ConnectResult)
        except MQError as error:
            self._socket.close()
            if isinstance(error.__cause__, TimeoutError):
                why = f"the bridge does not answer within {CONNECT_TIMEOUT:g} s: does it hang?"
                raise MQError(cmqc.MQRC_Q_MGR_NOT_AVAILABLE, why) from error
            raise
        # From now on, calls may wait indefinitely: MQGET with MQWI_UNLIMITED does.
        self._socket.settimeout(None)
        #: name of the queue manager
        self.queue_manager = connected.queue_manager

    def _call(self, request: Request, result: type[Result]) -> Result:
        if self._socket.fileno() < 0:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "the connection has ended")
        try:
            self._socket.sendall(frame(request))
            reply = msgspec.msgpack.decode(self._receive(), type=Reply)
        except OSError as error:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, str(error)) from error
        if reply.reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
            raise TruncatedMessage(msgspec.msgpack.decode(reply.result, type=Got), reply.detail)
        if reply.comp_code != cmqc.MQCC_OK:
            raise MQError(reply.reason, reply.detail, reply.comp_code)
        return msgspec.msgpack.decode(reply.result, type=result)

    def _receive(self) -> bytearray:
        header = self._read(LENGTH.size)
        return self._read(LENGTH.unpack(header)[0])

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "the queue manager closed the connection")
            rest = rest[count:]
        return data

    def open(self, od: MQOD, options: int) -> int:
        handle, filled = self._call(OpenCall(od, options), tuple[int, MQOD])
        _fill(od, filled)
        return handle

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        self._call(CloseCall(handle, options), type(None))

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        return self._call(PutCall(handle, Message(message.md, message.data), options, list(properties)), MQMD)

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        request = Put1Call(od, Message(message.md, message.data), options, list(properties))
        md, filled = self._call(request, tuple[MQMD, MQOD])
        _fill(od, filled)
        return md

    def get(self, handle: int, options: GetOptions) -> Got:
        return self._call(GetCall(handle, options), Got)

    def run(self, pipeline: CallPipeline, kind: type[Result]) -> list[Result]:
        """Run a pipeline in one round trip, like `run_pipeline`. `kind` is the type of the results."""
        return self._call(pipeline, list[kind])  # type: ignore[valid-type]

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        return self._call(InquireCall(handle, list(selectors)), tuple[list[int], list[str]])

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        handles, filled = self._call(SubscribeCall(sd), tuple[tuple[int, int], MQSD])
        _fill(sd, filled)
        return handles

    def commit(self) -> None:
        self._call(CommitCall(), type(None))

    def backout(self) -> None:
        self._call(BackoutCall(), type(None))

    def command(self, text: str) -> list[CommandResponse]:
        return self._call(CommandCall(text), list[CommandResponse])

    def clear_retained(self, topic: str) -> None:
        self._call(ClearRetainedCall(topic), type(None))

    def subscriptions(self, name: str = "*") -> list[SubscriptionEntry]:
        return self._call(SubscriptionsCall(name), list[SubscriptionEntry])

    def abort(self) -> None:
        """Close the socket. The queue manager backs out the unit of work and closes the handles."""
        self._socket.close()

    def disconnect(self) -> None:
        try:
            self._call(DisconnectCall(), type(None))
        finally:
            self._socket.close()


def _connected(where: Path | tuple[str, int], tls: ssl.SSLContext | None) -> socket.socket:
    """Return a socket that is connected to the queue manager. Raises OSError."""
    if isinstance(where, Path):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        connection = socket.create_connection(where, timeout=CONNECT_TIMEOUT)
    try:
        if isinstance(where, Path):
            connection.settimeout(CONNECT_TIMEOUT)
            with socket_address(where / SOCKET_NAME) as address:
                connection.connect(address)
            return connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=where[0])
    except OSError:
        connection.close()
        raise


def _fill(ours: msgspec.Struct, theirs: msgspec.Struct) -> None:
    """Copy the fields that the queue manager has filled in."""
    for name in ours.__struct_fields__:
        setattr(ours, name, getattr(theirs, name))


def run_pipeline(
    pipeline: CallPipeline,
    get: Callable[[int, GetOptions], Any],
    put_message: Callable[[PutCall], Any],
    *,
    until: float = math.inf,
) -> list[Any]:
    """Run at least one call, until one fails, a limit is reached, or time.monotonic() is `until`.

    Raises the MQError of the first call.
    """
    results: list[Any] = []
    size = pipeline.size
    for call in _in_order(pipeline):
        if results and time.monotonic() > until:
            break
        try:
            result = get(call.handle, call.options) if isinstance(call, GetCall) else put_message(call)
        except MQError as error:
            if not results or error.reason in _AT_ONCE:
                raise
            break
        results.append(result)
        if isinstance(result, Got):
            size -= len(result.data)
            if size <= 0:
                break
    return results


def _in_order(pipeline: CallPipeline) -> Iterable[GetCall | PutCall]:
    if pipeline.times == 1:
        return pipeline.calls
    again = [
        GetCall(call.handle, following(call.options)) if isinstance(call, GetCall) else call for call in pipeline.calls
    ]
    return chain(pipeline.calls, chain.from_iterable(repeat(again, pipeline.times - 1)))


def get_many(
    connection: Connection, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE
) -> list[Got]:
    """Call MQGET for up to `messages` messages and `size` bytes of data. Return at least one message.

    With MQGMO_BROWSE_FIRST, all calls after the first use MQGMO_BROWSE_NEXT. With MQGMO_WAIT, only the first call waits. A
    short result does not mean that the queue is empty: an embedded queue manager ends a batch that takes too long. Raises the
    MQError of the first MQGET, for example MQRC_NO_MSG_AVAILABLE.
    """
    return _run(connection, CallPipeline([GetCall(handle, options)], messages, size=size), Got)


def put_many(connection: Connection, puts: Sequence[Put], messages: int = MESSAGES, size: int = SIZE) -> list[MQMD]:
    """Call MQPUT for each message, up to `messages` messages and `size` bytes of data. Return the completed MQMDs.

    It may end early, like `get_many`. Raises the MQError of the first MQPUT.
    """
    calls: list[GetCall | PutCall] = []
    for handle, message, options in puts[:messages]:
        plain = message if isinstance(message, Message) else Message(message.md, message.data)
        calls.append(PutCall(handle, plain, options))
        size -= message.length
        if size <= 0:
            break
    return _run(connection, CallPipeline(calls), MQMD) if calls else []


def _run(connection: Connection, pipeline: CallPipeline, kind: type[Result]) -> list[Result]:
    if isinstance(connection, RemoteConnection):
        return connection.run(pipeline, kind)
    return run_pipeline(pipeline, connection.get, lambda call: connection.put(call.handle, call.message, call.options))


def following(options: GetOptions) -> GetOptions:
    """Return the options for the gets that follow the first."""
    flags = options.Options & ~cmqc.MQGMO_WAIT
    if flags & cmqc.MQGMO_BROWSE_FIRST:
        flags = flags & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
    return msgspec.structs.replace(options, Options=flags)
