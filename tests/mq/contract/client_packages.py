"""The real pymqi and ibmmq in this process, on the stand-in for IBM's client library; and a real queue manager.

IBM's library is loaded here before the package is: the package's extension module then finds it by its name, wherever the
dynamic loader would have looked. So the bridge's environment needs neither the packages nor LD_LIBRARY_PATH.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.connection_parameters import ConnectionParameters
from bridge.mq.ibm import IbmConnection
from bridge.mq.interface import Connection

BUILD = Path(__file__).resolve().parents[3] / "build" / "mqi"
LIBRARIES = {"pymqi": "libmqic_r.so", "ibmmq": "libmqm_r.so"}


@functools.cache
def package(name: str) -> Any:
    """The package. The test is skipped where it was not built."""
    if not (BUILD / name / name).is_dir():
        pytest.skip(f"{name} is not in {BUILD}: run tests/mqi/environments.sh")
    ctypes.CDLL(str(BUILD / "lib64" / LIBRARIES[name]))
    sys.path.append(str(BUILD / name))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BUILD / name))


@contextlib.contextmanager
def connecting(name: str, place: str) -> Iterator[Callable[[], Connection]]:
    """Connections by a package to the queue manager whose socket is at `place`."""
    library = package(name)
    parameters = ConnectionParameters(
        queue_manager="MQB1", channel="SYSTEM.DEF.SVRCONN", connections="localhost(1414)", application_name="contract"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MQI_STANDIN", place)
        yield lambda: IbmConnection(library, parameters)
