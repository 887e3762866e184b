"""The Python packages over IBM's client library: `ibmmq`, and `pymqi`, which came before it."""

from __future__ import annotations

import importlib
from typing import Any

from bridge.config.queue_manager import Library


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
