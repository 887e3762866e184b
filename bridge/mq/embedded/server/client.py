"""MQ connections to an embedded queue manager that runs in another process."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from bridge.mq.batch import AT_ONCE, GLANCES, MESSAGES, SIZE, Named, Put, Seen
from bridge.mq.embedded.server import protocol
from bridge.mq.embedded.server.protocol import keep_alive
from bridge.mq.mqi import (
    MQOD,
    MQPMO,
    MQSD,
    MQSTS,
    CommandResponse,
    GetOptions,
    Got,
    MQError,
    Property,
    TruncatedMessage,
)
from bridge.security.unix_socket import socket_address
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

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
            if isinstance(where, Path):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.settimeout(CONNECT_TIMEOUT)
                with socket_address(where / protocol.SOCKET_NAME) as address:
                    self._socket.connect(address)
            else:
                self._socket = socket.create_connection(where, timeout=CONNECT_TIMEOUT)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                keep_alive(self._socket)
                if tls is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=where[0])
        except ssl.SSLError as error:
            from bridge.security.tls import reason_of  # imports the configuration

            self._socket.close()
            raise MQError(
                cmqc.MQRC_SSL_INITIALIZATION_ERROR, f"no TLS with the bridge at {where}: {reason_of(error)}"
            ) from error
        except OSError as error:
            self._socket.close() if hasattr(self, "_socket") else None
            place = where if isinstance(where, Path) else f"{where[0]}({where[1]})"
            raise MQError(
                cmqc.MQRC_Q_MGR_NOT_AVAILABLE,
                f"no bridge answers at {place} ({error.strerror or error}); is it running?",
            ) from error
        request = protocol.Connect(protocol.PROTOCOL_VERSION, application, queue_manager, user, password.encode())
        try:
            connected = self._call(request, protocol.Connected)
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

    def _call(self, request: protocol.Request, result: type[Result]) -> Result:
        if self._socket.fileno() < 0:
            raise MQError(cmqc.MQRC_HCONN_ERROR, "the connection has ended")
        try:
            self._socket.sendall(protocol.frame(request))
            reply = msgspec.msgpack.decode(self._receive(), type=protocol.Reply)
        except OSError as error:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, str(error)) from error
        if reply.reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
            raise TruncatedMessage(msgspec.msgpack.decode(reply.result, type=Got), reply.detail)
        if reply.comp_code != cmqc.MQCC_OK:
            raise MQError(reply.reason, reply.detail, reply.comp_code)
        return msgspec.msgpack.decode(reply.result, type=result)

    def _receive(self) -> bytearray:
        header = self._read(protocol.LENGTH.size)
        return self._read(protocol.LENGTH.unpack(header)[0])

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            count = self._socket.recv_into(left)
            if not count:
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "the queue manager closed the connection")
            left = left[count:]
        return data

    def open(self, od: MQOD, options: int) -> int:
        handle, filled = self._call(protocol.Open(od, options), tuple[int, MQOD])
        _fill(od, filled)
        return handle

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        self._call(protocol.Close(handle, options), type(None))

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
        request = protocol.Put(handle, Message(message.md, message.data), pmo, list(properties))
        md, filled = self._call(request, tuple[MQMD, MQPMO])
        _fill(pmo, filled)
        return md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        pmo = options if isinstance(options, MQPMO) else MQPMO(Options=options)
        request = protocol.Put1(od, Message(message.md, message.data), pmo, list(properties))
        md, filled_od, filled = self._call(request, tuple[MQMD, MQOD, MQPMO])
        _fill(od, filled_od)
        _fill(pmo, filled)
        return md

    def get(self, handle: int, options: GetOptions) -> Got:
        return self._call(protocol.Get(handle, options), Got)

    def get_many(self, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE) -> list[Got]:
        return self._call(protocol.GetMany(handle, options, messages, size), list[Got])

    def get_each(
        self, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
    ) -> list[Got | None]:
        return self._call(protocol.GetEach(handle, options, list(msg_ids), size), list[Got | None])

    def look_many(self, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
        return self._call(protocol.LookMany(handle, options, messages), list[Seen])

    def take_each(self, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
        return self._call(protocol.TakeEach(handle, options, list(wanted[:GLANCES])), list[bool])

    def put_many(self, puts: Sequence[Put]) -> list[MQMD]:
        done: list[MQMD] = []
        part: list[tuple[int, Message, int]] = []
        size = 0
        for number, (handle, message, options) in enumerate(puts, 1):
            part.append((handle, Message(message.md, message.data), options))
            size += message.length
            if size < SIZE and len(part) < MESSAGES and number < len(puts):
                continue
            try:
                mds = self._call(protocol.PutMany(part), list[MQMD])
            except MQError as error:
                if not done or error.reason in AT_ONCE:
                    raise
                return done
            done += mds
            if len(mds) < len(part):
                return done
            part, size = [], 0
        return done

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        return self._call(protocol.Inquire(handle, list(selectors)), tuple[list[int], list[str]])

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        self._call(protocol.Set(handle, list(selectors), list(ints), list(chars)), type(None))

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        handles, filled = self._call(protocol.Subscribe(sd, handle), tuple[tuple[int, int], MQSD])
        _fill(sd, filled)
        return handles

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        return self._call(protocol.SubscriptionRequest(handle, action, options), int)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        return self._call(protocol.Statistics(type), MQSTS)

    def commit(self) -> None:
        self._call(protocol.Commit(), type(None))

    def backout(self) -> None:
        self._call(protocol.Backout(), type(None))

    def command(self, text: str) -> list[CommandResponse]:
        return self._call(protocol.Command(text), list[CommandResponse])

    def abort(self) -> None:
        """Close the socket. The queue manager backs out the unit of work and closes the handles."""
        self._socket.close()

    def disconnect(self) -> None:
        try:
            self._call(protocol.Disconnect(), type(None))
        finally:
            self._socket.close()


def _fill(ours: msgspec.Struct, theirs: msgspec.Struct) -> None:
    """Copy the fields that the queue manager has filled in."""
    for name in ours.__struct_fields__:
        setattr(ours, name, getattr(theirs, name))
