"""The Python packages over IBM's client library: `ibmmq`, and `pymqi`, which came before it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import struct
from typing import Any

from bridge.config.queue_manager import Library
from bridge.extras import install
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQSTS
from bridge.wire import cmqc


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
