"""The real pymqi and ibmmq in this process, on the stand-in for IBM's client library, and a real queue manager.

IBM's library is loaded here before the package. The extension module of the package then finds it by name, wherever the
dynamic loader would have searched. So the bridge's environment needs neither the packages nor LD_LIBRARY_PATH.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.mq.ibm.connection import connect_ibm
from bridge.mq.ibm.parameters import ConnectionParameters, LibraryMissing, load_library
from bridge.mq.mqi import Connection
from tests.helpers.installed import CLIENT_PACKAGES, missing

BUILD = Path(__file__).resolve().parents[2] / "build" / "mqi"
QUEUE_MANAGER_VARIABLE = "MQBRIDGE_TEST_QMGR"
_FIELDS = ("channel", "connections", "user", "password")
LIBRARIES = {"pymqi": "libmqic_r.so", "ibmmq": "libmqm_r.so"}


@functools.cache
def package(name: str) -> Any:
    """Return the package. The test is skipped if the package is not built."""
    if not (CLIENT_PACKAGES / name / name).is_dir():
        missing(f"{name} on the stand-in", "tests/programs.sh")
    ctypes.CDLL(str(BUILD / "lib64" / LIBRARIES[name]))
    sys.path.append(str(CLIENT_PACKAGES / name))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(CLIENT_PACKAGES / name))


@contextlib.contextmanager
def connecting(name: str, place: str) -> Iterator[Callable[..., Connection]]:
    """Return connections with a package to the queue manager whose socket is at `place`, optionally with another channel."""
    library = package(name)
    parameters = ConnectionParameters(
        queue_manager="MQB1", channel="SYSTEM.DEF.SVRCONN", connections="localhost(1414)", application_name="contract"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MQI_STANDIN", place)
        yield functools.partial(_connected, library, parameters)


def _connected(library: Any, parameters: ConnectionParameters, channel: str = "") -> Connection:
    return connect_ibm(library, msgspec.structs.replace(parameters, channel=channel or parameters.channel))


@contextlib.contextmanager
def real_queue_manager() -> Iterator[Callable[..., Connection]]:
    """Return connections to the queue manager of MQBRIDGE_TEST_QMGR, with the installed package.

    MQBRIDGE_TEST_CHANNEL and MQBRIDGE_TEST_CONNECTIONS specify its address (bindings mode without them), MQBRIDGE_TEST_USER
    and MQBRIDGE_TEST_PASSWORD the user: one who may define objects and alter the queue manager.
    """
    name = os.environ[QUEUE_MANAGER_VARIABLE]
    try:
        library = load_library("auto")
    except LibraryMissing as error:
        pytest.fail(f"{QUEUE_MANAGER_VARIABLE} is set, but: {error}")
    settings = {field: os.environ.get(f"MQBRIDGE_TEST_{field.upper()}", "") for field in _FIELDS}
    parameters = ConnectionParameters(queue_manager=name, application_name="contract", **settings)
    yield functools.partial(_connected, library, parameters)
