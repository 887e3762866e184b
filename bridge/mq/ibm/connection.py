"""The MQ interface on IBM MQ, through `pymqi` or its maintained successor `ibmmq`.

Both packages wrap IBM's C client library in the same classes; what differs between them is small and stays in here and in
`client_library` and `client_structures`. Facts and traps: one connection belongs to one thread; an object that owns a
handle closes it when it is collected, so all of them are kept until `close`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from bridge.mq.errors import MQError
from bridge.mq.ibm.client_library import (
    LibraryMissing,
    TlsOptionsWithPassword,
    client_delete_message_handle,
    client_status,
    client_subscription_request,
    load_library,
)
from bridge.mq.ibm.client_structures import Structures, text
from bridge.mq.ibm.connection_parameters import ConnectionParameters, Tls, parameters
from bridge.mq.ibm.escape import run_mqsc
from bridge.mq.mqi import (
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
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

__all__ = ["ConnectionParameters", "IbmConnection", "LibraryMissing", "Tls", "load_library", "parameters"]

#: Longest message in bytes that the client's end of the channel accepts: IBM MQ's maximum (MAXMSGL).
MAX_MESSAGE_LENGTH = 104_857_600
#: What the first attempt of a get has room for; a longer message costs a second call.
_FIRST_BUFFER = 65_536


class IbmConnection:
    """`bridge.mq.mqi.Connection` to IBM MQ. Use it on the thread that made it."""

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
    def _saying(self, what: str) -> Iterator[None]:
        """Raise errors of the package as those of the interface."""
        try:
            self._manager.get_handle()  # without a connection the package's verbs raise TypeError
            yield
        except self._library.MQMIError as error:
            raise MQError(error.reason, what) from error
        except self._library.PYIFError as error:
            # What the package does not even ask the queue manager.
            reason = cmqc.MQRC_HCONN_ERROR if "not connected" in str(error) else cmqc.MQRC_HOBJ_ERROR
            raise MQError(reason, f"{what}: {error}") from error

    def _connect(self) -> None:
        """Connect (MQCONNX).

        The client library never reconnects by itself (MQCNO_RECONNECT_DISABLED, whatever DEFRECON or mqclient.ini say): the
        bridge reconnects, and restores its handles and units of work itself.
        """
        parameters, library = self._parameters, self._library
        # Shared handles let one thread have several connections: subscriptions are spread over them.
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
        if hasattr(library, "CNO"):
            # ibmmq alone knows the application name, the CCDT and tokens.
            cno = library.CNO()
            cno.Options = arguments.pop("opts")
            cno.Version = cmqc.MQCNO_VERSION_7
            cno.ApplName = parameters.application_name.encode()
            if parameters.ccdt_url:
                cno.CCDTUrl = parameters.ccdt_url
            arguments["cno"] = cno
            if parameters.token_file:
                arguments["token"] = parameters.token()
            if peer_name.value:
                arguments["cd"].SSLPeerNamePtr = peer_name.value
        else:
            if parameters.token_file:
                raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "pymqi cannot send a token; hint: install and use ibmmq")
            if parameters.ccdt_url:
                os.environ["MQCCDTURL"] = parameters.ccdt_url
            if peer_name.value:
                # A pointer, which pymqi packs as it is; the buffer has to last until the call is over.
                arguments["cd"].SSLPeerNamePtr = ctypes.addressof(peer_name)
                arguments["cd"].SSLPeerNameLength = len(peer_name.value)
        self._manager.connect_with_options(parameters.queue_manager, **arguments)

    def _secure(self, tls: Tls) -> Any:
        """Return the MQSCO."""
        sco = self._library.SCO()
        sco.KeyRepository = tls.key_repository.encode()
        sco.FipsRequired = cmqc.MQSSL_FIPS_YES if tls.fips else 0
        if tls.certificate_label:
            sco.Version = cmqc.MQSCO_VERSION_5
            sco.CertificateLabel = tls.certificate_label.encode()
        if not tls.password:
            return sco
        if hasattr(sco, "KeyRepoPassword"):
            sco.Version = cmqc.MQSCO_VERSION_6
            sco.KeyRepoPassword = tls.password
            return sco
        if hasattr(self._library, "CNO"):  # ibmmq on a client library of before 9.3
            hint = self._parameters.hint(cmqc.MQRC_SCO_ERROR)
            raise MQError(cmqc.MQRC_SCO_ERROR, f"the client library takes no key repository password; hint: {hint}")
        return TlsOptionsWithPassword(sco, tls.password)

    def _keep(self, held: Any) -> int:
        number = self._next
        self._next += 1
        self._objects[number] = held
        return number

    def _find(self, number: int) -> Any:
        held = self._objects.get(number)
        if held is None:
            with self._saying(f"handle {number}"):
                pass
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {number}")
        return held

    def open(self, od: MQOD, options: int) -> int:
        made = self._structures.od(od, results=True)
        queue = self._library.Queue(self._manager)
        with self._saying(f"open {_named(od)}"):
            queue.open(made, options)
        self._structures.read_od(od, made)
        return self._keep(queue)

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        held = self._find(handle)
        with self._saying("close"):
            held.close(options)
        del self._objects[handle]

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
        md, pmo = self._structures.unanswered(message.md, options)
        try:
            target.put(message.put_data, md, pmo)
        except self._library.MQMIError as error:
            if error.comp != cmqc.MQCC_WARNING:
                raise MQError(error.reason, "put") from error
        return message.md

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        made = self._structures.od(od)
        return self._put(
            message,
            options,
            properties,
            lambda data, md, pmo: self._manager.put1(made, data, md, pmo),
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
        given = MQPMO(Options=options) if isinstance(options, int) else options
        context = self._find(given.Context).get_handle() if given.Context else 0
        md = self._structures.md(message.md)
        with self._saying(what), self._message_handle(properties) as message_handle:
            pmo = self._structures.pmo(given, context, message_handle)
            try:
                verb(message.put_data, md, pmo)
            except self._library.MQMIError as error:
                if error.comp != cmqc.MQCC_WARNING:
                    raise
                given.Reason = error.reason
        self._structures.read_pmo(given, pmo)
        return self._structures.read_md(md)

    @contextmanager
    def _message_handle(self, properties: Sequence[Property]) -> Iterator[int]:
        """Yield a message handle with these properties, for one put; yield 0 without properties."""
        if not properties:
            yield 0
            return
        made = self._library.MessageHandle(self._manager)
        try:
            for one in properties:
                encoded = one.value.encode() if isinstance(one.value, str) else one.value
                length = len(encoded) if isinstance(encoded, bytes) else 0
                made.properties.set(one.name.encode(), one.value, one.type, length)
            yield made.msg_handle
        finally:
            if hasattr(made, "dlt"):
                made.dlt()
            else:
                client_delete_message_handle(self._library, self._manager.get_handle(), made.msg_handle)

    def get(self, handle: int, options: GetOptions) -> Got:
        if options.MsgHandle:
            raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, "properties are asked for as an RFH2")
        queue = self._find(handle)
        # A message of any length: an attempt with too small a buffer leaves the message and the cursor where they are.
        whole = options.MaxLength is None
        room = _FIRST_BUFFER if options.MaxLength is None else options.MaxLength
        if whole:
            truncated = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
            options = msgspec.structs.replace(options, Options=options.Options & ~truncated)
        with self._saying("get"):
            while True:
                md, gmo = self._structures.get(options)
                try:
                    data = queue.get(room, md, gmo)
                    return self._structures.got(md, gmo, data, len(data), cmqc.MQRC_NONE)
                except self._library.MQMIError as error:
                    if whole and error.reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
                        room = max(error.original_length, room * 2)
                        continue
                    if error.comp != cmqc.MQCC_WARNING:
                        raise
                    got = self._structures.got(md, gmo, error.message, error.original_length, error.reason)
                    if error.reason == cmqc.MQRC_TRUNCATED_MSG_FAILED:
                        raise TruncatedMessage(got, "the message is longer than the buffer") from error
                    return got

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        held = self._find(handle)
        ints, chars = [], []
        for selector in selectors:
            with self._saying(f"inquire {selector}"):
                value = held.inquire(selector)
            if isinstance(value, int):
                ints.append(value)
            else:
                chars.append(text(value))
        return ints, chars

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        held = self._find(handle)
        numbers, texts = iter(ints), iter(chars)
        for selector in selectors:
            is_number = cmqc.MQIA_FIRST <= selector <= cmqc.MQIA_LAST
            with self._saying(f"set {selector}"):
                held.set(selector, next(numbers) if is_number else next(texts).encode())

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        subscription = self._find(handle)
        if not isinstance(subscription, self._library.Subscription):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {handle} is not of a subscription")
        with self._saying("subscription request"):
            if not hasattr(subscription, "subrq"):
                number = subscription._Subscription__sub_handle
                return client_subscription_request(self._library, self._manager.get_handle(), number, action, options)
            sro = self._library.SRO()
            sro.Options = options
            subscription.subrq(action, sro)
        return int(sro.NumPubs)

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        with self._saying("statistics"):
            if not hasattr(self._manager, "stat"):
                return client_status(self._library, self._manager.get_handle(), type)
            found = self._manager.stat(type)
        return MQSTS(
            CompCode=found.CompCode,
            Reason=found.Reason,
            PutSuccessCount=found.PutSuccessCount,
            PutWarningCount=found.PutWarningCount,
            PutFailureCount=found.PutFailureCount,
            ObjectType=found.ObjectType,
            ObjectName=text(found.ObjectName),
            ObjectQMgrName=text(found.ObjectQMgrName),
            ResolvedObjectName=text(found.ResolvedObjectName),
            ResolvedQMgrName=text(found.ResolvedQMgrName),
        )

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        made = self._structures.sd(sd)
        destination = self._find(handle) if handle is not None else None
        subscription = self._library.Subscription(self._manager)
        with self._saying(f"subscription {sd.SubName or sd.ObjectString!r}"):
            subscription.sub(sub_desc=made, sub_queue=destination)
        self._structures.read_sd(sd, made)
        if handle is None:
            handle = self._keep(subscription.get_sub_queue())
        else:
            # A second owner of the caller's handle, which would close it, or by then another of that number, when collected.
            subscription.get_sub_queue().set_handle(None)
        return self._keep(subscription), handle

    def commit(self) -> None:
        with self._saying("commit"):
            self._manager.commit()

    def backout(self) -> None:
        with self._saying("backout"):
            self._manager.backout()

    def command(self, text: str) -> list[CommandResponse]:
        return run_mqsc(self, text)

    def disconnect(self) -> None:
        for held in self._objects.values():
            if isinstance(held, self._library.Subscription):
                # MQDISC ends it. Its __del__ would close it, and complain on standard error where the connection is lost.
                held._Subscription__sub_handle = None
        self._objects.clear()
        with self._saying("disconnect"):
            self._manager.disconnect()


def _named(od: MQOD) -> str:
    if od.ObjectType == cmqc.MQOT_TOPIC:
        return f"topic {od.ObjectString or od.ObjectName!r}"
    return f"{od.ObjectName}" + (f" at queue manager {od.ObjectQMgrName}" if od.ObjectQMgrName else "")
