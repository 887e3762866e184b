"""The Python packages over IBM's client library: `ibmmq`, and `pymqi`, which came before it."""

from __future__ import annotations

import ctypes
import importlib
import struct
from typing import Any

from bridge.config.queue_manager import Library
from bridge.mq.errors import MQError
from bridge.mq.interface import MQSTS
from bridge.wire import cmqc


class LibraryMissing(Exception):
    """Neither package can be used; the message says what to install."""


def load_library(choice: Library) -> Any:
    """Import pymqi or ibmmq; `auto` takes the one that imports, ibmmq first. Raises LibraryMissing."""
    names = ("ibmmq", "pymqi") if choice == "auto" else (choice,)
    failures = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            failures.append(f"{name}: {error}")
    raise LibraryMissing(
        f"IBM MQ is reached through {' or '.join(names)} and IBM's client library, which cannot be loaded"
        f" ({'; '.join(failures)}); install IBM's MQ client, then: pip install 'mq-mqtt-bridge[{names[0]}]'"
    )


#: MQSTS version 1: StrucId, Version, CompCode, Reason, three counts, ObjectType, and four names.
_MQSTS = struct.Struct("<4s7i192s")


def client_status(library: Any, handle: int, type: int) -> MQSTS:
    """MQSTAT through pymqi, which does not wrap it: the C library that its extension module has loaded has the call.

    Raises MQError; MQRC_FUNCTION_NOT_SUPPORTED where the call cannot be found.
    """
    try:
        call = ctypes.CDLL(library.pymqe.__file__).MQSTAT
    except (AttributeError, OSError) as error:
        raise MQError(cmqc.MQRC_FUNCTION_NOT_SUPPORTED, f"MQSTAT: {error}; set asynchronous_puts: false") from error
    buffer = ctypes.create_string_buffer(_MQSTS.pack(b"STAT", 1, 0, 0, 0, 0, 0, 0, b""), _MQSTS.size)
    completion, reason = ctypes.c_int32(), ctypes.c_int32()
    call(ctypes.c_int32(handle), ctypes.c_int32(type), buffer, ctypes.byref(completion), ctypes.byref(reason))
    if completion.value == cmqc.MQCC_FAILED:
        raise MQError(reason.value, "statistics")
    _, _, comp_code, found, successes, warnings, failures, _, _ = _MQSTS.unpack(buffer.raw)
    return MQSTS(
        CompCode=comp_code,
        Reason=found,
        PutSuccessCount=successes,
        PutWarningCount=warnings,
        PutFailureCount=failures,
    )
