"""What holds for all tests: none depends on how fast the machine is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

# Before anything of the bridge is imported: the tests run what the sources say, and with MQBRIDGE_PURE=0 what is compiled of
# them (`make test-slow`).
os.environ.setdefault("MQBRIDGE_PURE", "1")
# ibmmq hooks itself into OpenTelemetry, which is installed for the tests of traces; the bridge has it leave that alone.
os.environ["MQIPY_NOOTEL"] = "1"

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from bridge.compilation import PURE

if os.environ["MQBRIDGE_PURE"] == "0" and PURE:
    pytest.exit(f"MQBRIDGE_PURE=0, and the bridge is not compiled: {PURE}", 2)

#: Plug-ins of pytest.
pytest_plugins = ["tests.helpers.division", "tests.helpers.leftovers"]

#: Of each property that says no number of its own; `make test-slow` takes more.
EXAMPLES = int(os.environ.get("MQBRIDGE_TEST_EXAMPLES") or 40)

settings.register_profile(
    "tests",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tests")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that the bridge runs on."""
    return {"uvloop": uvloop.new_event_loop}
