"""Connections to IBM MQ through `pymqi` or its maintained successor `ibmmq`.

The module contains the parameters, the loading of the client library, the MQI verbs, and MQSC by PCF Escape.

Both packages wrap IBM's C client library in the same classes. The small differences are here and in
`client_structures`. A connection belongs to one thread. Objects of the packages that own a handle close it when they
are garbage-collected, so all of them are kept until `close`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bridge.config import IbmQueueManagerConfig, TlsConfig
from bridge.config.queue_manager import Library, key_repository_files, read_password
from bridge.config.values import without_password
from bridge.extras import install
from bridge.mq.administration import Administration
from bridge.mq.ibm.client_structures import Structures, text
from bridge.mq.mqi import (
    MQOD,
    MQPMO,
    MQSD,
    MQSTS,
    CommandResponse,
    Connection,
    GetOptions,
    Got,
    MQError,
    Property,
    TruncatedMessage,
)
from bridge.mq.mqsc import read
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


class Tls(msgspec.Struct, kw_only=True, frozen=True):
    """TLS of a client connection: fields of MQSCO and MQCD."""

    key_repository: str
    #: blank if a CCDT contains it
    cipher_spec: str = ""
    certificate_label: str = ""
    peer_name: str = ""
    #: blank: the client library uses the stash file
    password: str = ""
    fips: bool = False

    def __repr__(self) -> str:
        return f"<Tls with {self.cipher_spec or 'a CCDT'}, key repository {self.key_repository}>"


class ConnectionParameters(msgspec.Struct, kw_only=True, frozen=True):
    """How to connect: MQCNO, MQCD, MQCSP and MQSCO.

    `connections` is a list `host(port),host(port)`; blank with a blank `ccdt_url` connects in bindings mode. Passwords and
    tokens are never part of an error message, nor of the text of this object.
    """

    queue_manager: str
    channel: str = ""
    connections: str = ""
    ccdt_url: str = ""
    user: str = ""
    password: str = ""
    #: path of a file with a token, in place of user and password
    token_file: str = ""
    tls: Tls | None = None
    application_name: str = "mqbridge"
    #: seconds; the channel's own (HBINT) counts where it is longer
    heartbeat_interval: int = 10

    @property
    def place(self) -> str:
        """Return the queue manager in words, for messages."""
        how = f" at {self.connections}, channel {self.channel}" if self.connections else ""
        how = f" by way of {without_password(self.ccdt_url)}" if self.ccdt_url else how
        return f"queue manager {self.queue_manager}{how}"

    @property
    def is_client(self) -> bool:
        """Whether the connection is made over TCP."""
        return bool(self.connections or self.ccdt_url)

    def token(self) -> str:
        """Return the token as its file contains it now. Raises MQError if there is none."""
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a JSON Web Token"
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"token_file {self.token_file} cannot be read: {why}") from None
        if not 0 < len(token) <= cmqc.MQ_CSP_TOKEN_LENGTH:
            what = f"has {len(token)} characters; hint: a token has 1 to {cmqc.MQ_CSP_TOKEN_LENGTH}"
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"token_file {self.token_file} {what}")
        return token

    def hint(self, reason: int) -> str:
        """Return what to do about a connection that failed for `reason`; blank if the reason says it all."""
        tls = self.tls
        if reason == cmqc.MQRC_NOT_AUTHORIZED:
            if self.token_file:
                return (
                    f"the queue manager rejected the token of {self.token_file}: check that it has not expired, its issuer,"
                    " the AuthToken stanza of qm.ini, CHLAUTH, and the user's authority to connect"
                )
            if self.user:
                return f"check the password of user {self.user}, CONNAUTH, CHLAUTH, and the user's authority to connect"
            return "the bridge sent no credentials: check user and password_file, CONNAUTH and CHLAUTH"
        if reason == cmqc.MQRC_KEY_REPOSITORY_ERROR:
            return self._key_repository_hint()
        if reason == cmqc.MQRC_SSL_PEER_NAME_MISMATCH:
            pattern = tls.peer_name if tls is not None and tls.peer_name else "the peer name of the CCDT"
            return (
                f"the queue manager's certificate does not match {pattern}, or the bridge's certificate does not match"
                " SSLPEER of the channel: check both, and the address of the queue manager"
            )
        if reason == cmqc.MQRC_SSL_PEER_NAME_ERROR:
            return "check the distinguished name in peer_name, or certificatePeerName in the CCDT"
        if reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR:
            spec = tls.cipher_spec if tls is not None and tls.cipher_spec else "the CipherSpec of the CCDT"
            return (
                f"TLS failed: check that {spec} matches SSLCIPH of the channel, that no certificate has expired, that each"
                " side trusts the other's certificate, and certificate_label if SSLCAUTH is REQUIRED; the error logs of"
                " client (AMQERR01.LOG) and queue manager name the cause"
            )
        if reason == cmqc.MQRC_SCO_ERROR and tls is not None and tls.password:
            return "install IBM's MQ client 9.3 or later, or use a stash file instead of key_repository_password_file"
        if reason in (cmqc.MQRC_CSP_ERROR, cmqc.MQRC_FUNCTION_NOT_SUPPORTED) and self.token_file:
            return "a token needs IBM's MQ client 9.3.4 or later, and a queue manager on Linux or AIX of such a version"
        if reason == cmqc.MQRC_Q_MGR_NAME_ERROR and self.ccdt_url:
            name = self.queue_manager.lstrip("*")
            return f"check that an entry of the CCDT has queueManager {name}, and which queue manager listens there"
        if reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE and self.ccdt_url:
            return "check that the CCDT can be read, and that a queue manager listens where its entries point"
        if reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE and self.connections and tls is None:
            return "if the channel has SSLCIPH, the bridge needs the section tls"
        return ""

    def _key_repository_hint(self) -> str:
        if self.tls is None:
            return "the channel needs a key repository: add the section tls"
        files = key_repository_files(Path(self.tls.key_repository), has_password=bool(self.tls.password))
        for file in files:
            if not os.access(file, os.R_OK):
                missing = "cannot be read by the user that runs the bridge" if file.exists() else "does not exist"
                stash = ", and key_repository_password_file is not set" if file.suffix == ".sth" else ""
                return f"{file} {missing}{stash}"
        return f"check the password of {files[0]}, and that it is a key repository"

    def __repr__(self) -> str:
        return f"<ConnectionParameters of {self.place}>"


def parameters(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> ConnectionParameters:
    """Return the parameters to connect as `config` says, with the password read.

    Raises NoPassword.
    """
    return ConnectionParameters(
        queue_manager=config.name,
        channel=config.channel or "",
        connections=config.connection_list,
        ccdt_url=config.ccdt_url or "",
        user=config.user or "",
        password=_password(config, environment),
        token_file=str(config.token_file or ""),
        tls=None if config.tls is None else _tls(config.tls, environment),
        application_name=config.application_name,
        heartbeat_interval=math.ceil(config.probe_interval),
    )


def _tls(config: TlsConfig, environment: Mapping[str, str]) -> Tls:
    file, variable = config.key_repository_password_file, config.key_repository_password_variable
    password = ""
    if file is not None or variable is not None:
        password = read_password(f"key repository {config.key_repository}", file, variable, environment)
    return Tls(
        key_repository=str(config.key_repository),
        cipher_spec=config.cipher_spec or "",
        certificate_label=config.certificate_label or "",
        peer_name=config.peer_name or "",
        password=password,
        fips=config.fips,
    )


def _password(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> str:
    if config.user is None:
        return ""
    return read_password(f"user {config.user}", config.password_file, config.password_variable, environment)


class LibraryMissing(Exception):
    """Neither package can be used; the message says what to install."""


def load_library(choice: Library) -> Any:
    """Import pymqi or ibmmq; `auto` takes the one that imports, ibmmq first. Raises LibraryMissing."""
    # Where OpenTelemetry is installed, ibmmq would have each put add a trace context of its own. The bridge sees to that
    # itself (bridge/service/tracing), and its structures are not those that ibmmq looks into then.
    os.environ["MQIPY_NOOTEL"] = "1"
    # Text is UTF-8 in every locale: the client library takes its code page from here ("MQCCSID").
    os.environ.setdefault("MQCCSID", "1208")
    names = ("ibmmq", "pymqi") if choice == "auto" else (choice,)
    failures = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            failures.append(f"{name}: {error}")
    reason = f"IBM MQ is reached through {' or '.join(names)} and IBM's client library, which cannot be loaded"
    if installed := [name for name in names if importlib.util.find_spec(name) is not None]:
        # The packages do not all say it themselves: ibmmq misses a module of its own then.
        advice = (
            f"{' and '.join(installed)} is installed, and does not find the library (libmqm_r.so, libmqic_r.so): install"
            " IBM's MQ client, and name its directory in LD_LIBRARY_PATH (/opt/mqm/lib64)"
        )
    else:
        advice = f"install IBM's MQ client, then: {install(names[0])}"
    raise LibraryMissing(f"{reason} ({'; '.join(failures)}); {advice}")


# What pymqi does not wrap. Its extension module has loaded the C library, which has the calls.

#: MQSTS version 1: StrucId, Version, CompCode, Reason, three counts, ObjectType, and four names.
_MQSTS = struct.Struct("<4s7i48s48s48s48s")
_MQSRO = struct.Struct("<4s3i")
_MQDMHO = struct.Struct("<4s2i")
#: The end of version 6 of MQSCO, from its byte 632 on: KeyRepoPasswordPtr, KeyRepoPasswordOffset, KeyRepoPasswordLength.
_KEY_REPOSITORY_PASSWORD = struct.Struct("@P2i")
_KEY_REPOSITORY_PASSWORD_OFFSET = 632


class TlsOptionsWithPassword:
    """An MQSCO with the password of its key repository, which pymqi's SCO has no fields for: version 6."""

    def __init__(self, sco: Any, password: str) -> None:
        self._sco = sco
        #: kept as long as the address is used
        self._password = password.encode()

    def pack(self) -> bytes:
        """Return the structure."""
        self._sco.Version = cmqc.MQSCO_VERSION_6
        packed: bytes = self._sco.pack()
        text = ctypes.cast(ctypes.c_char_p(self._password), ctypes.c_void_p).value
        end = _KEY_REPOSITORY_PASSWORD.pack(text, 0, len(self._password))
        return packed.ljust(_KEY_REPOSITORY_PASSWORD_OFFSET, b"\0") + end


def client_status(library: Any, connection: int, type: int) -> MQSTS:
    """Call MQSTAT and return the status. Raises MQError; MQRC_FUNCTION_NOT_SUPPORTED where the call cannot be found."""
    names = (b"",) * 4
    buffer = ctypes.create_string_buffer(_MQSTS.pack(b"STAT", 1, 0, 0, 0, 0, 0, 0, *names), _MQSTS.size)
    _call(library, "MQSTAT", ctypes.c_int32(connection), ctypes.c_int32(type), buffer)
    _, _, comp_code, reason, successes, warnings, failures, object_type, *found = _MQSTS.unpack(buffer.raw)
    object_name, manager, resolved_name, resolved_manager = (name.decode().rstrip(" \0") for name in found)
    return MQSTS(
        CompCode=comp_code,
        Reason=reason,
        PutSuccessCount=successes,
        PutWarningCount=warnings,
        PutFailureCount=failures,
        ObjectType=object_type,
        ObjectName=object_name,
        ObjectQMgrName=manager,
        ResolvedObjectName=resolved_name,
        ResolvedQMgrName=resolved_manager,
    )


def client_subscription_request(library: Any, connection: int, subscription: int, action: int, options: int) -> int:
    """Call MQSUBRQ and return the number of publications. Raises MQError."""
    buffer = ctypes.create_string_buffer(_MQSRO.pack(b"SRO ", 1, options, 0), _MQSRO.size)
    handles = ctypes.c_int32(connection), ctypes.c_int32(subscription)
    _call(library, "MQSUBRQ", *handles, ctypes.c_int32(action), buffer)
    number: int = _MQSRO.unpack(buffer.raw)[3]
    return number


def client_delete_message_handle(library: Any, connection: int, handle: int) -> None:
    """Call MQDLTMH. Raises MQError."""
    buffer = ctypes.create_string_buffer(_MQDMHO.pack(b"DMHO", 1, 0), _MQDMHO.size)
    _call(library, "MQDLTMH", ctypes.c_int32(connection), ctypes.byref(ctypes.c_int64(handle)), buffer)


def _call(library: Any, verb: str, *arguments: Any) -> None:
    try:
        call = getattr(ctypes.CDLL(library.pymqe.__file__), verb)
    except (AttributeError, OSError) as error:
        hint = "; set asynchronous_puts: false" if verb == "MQSTAT" else ""
        raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, f"{verb}: {error}{hint}") from error
    completion, reason = ctypes.c_int32(), ctypes.c_int32()
    call(*arguments, ctypes.byref(completion), ctypes.byref(reason))
    if completion.value == cmqc.MQCC_FAILED:
        raise MQError(reason.value, verb)


_MESSAGE = re.compile(r"(AMQ\d{4})([IWEST])?")
_ATTRIBUTE = re.compile(r"([A-Z][A-Z0-9]*)\(((?:'(?:[^']|'')*'|[^()]|\([^()]*\))*)\)")


def run_mqsc(connection: Connection, text: str) -> list[CommandResponse]:
    """Run MQSC commands, one response for each. Raises MQError when the command server cannot be reached."""
    administration = Administration(connection)
    try:
        return [_run(administration, command.line, command.text) for command in read(text)]
    finally:
        administration.close()


def _run(administration: Administration, line: int, command: str) -> CommandResponse:
    try:
        ok, answers = administration.escape(command)
    except MQError as error:
        return CommandResponse(command=command, message=str(error), ok=False, line=line)
    objects: list[dict[str, str | int]] = []
    message = ""
    for answer in answers:
        first, _, rest = answer.partition("\n")
        found = _MESSAGE.match(first.strip())
        if found is not None:
            message = message or first.strip()
            ok = ok and found.group(2) not in ("E", "S", "T")
        else:
            rest = answer
        attributes = {name: _value(value) for name, value in _ATTRIBUTE.findall(rest)}
        if attributes:
            objects.append(attributes)
    return CommandResponse(command=command, message=message, ok=ok, objects=objects, line=line)


def _value(text: str) -> str | int:
    text = text.strip()
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return int(text) if text.isdigit() else text


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
