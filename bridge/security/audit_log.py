"""The audit log of connections, rejections and changes: JSON lines in a file rotated by size."""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import Any, Protocol, cast

import msgspec

from bridge.config.operations import AuditLogConfig
from bridge.security.authenticator import network_of

#: Maximum number of entries per event and client (or network) in an interval in seconds, and of such pairs remembered.
MAX_ENTRIES, INTERVAL, MAX_KINDS = 50, 10.0, 10_000
#: Maximum length of a value in characters: clients choose names and topics.
MAX_VALUE_LENGTH = 1_000

log = logging.getLogger(__name__)
_entries = logging.getLogger("bridge.audit")
_entries.propagate = False
_entries.setLevel(logging.INFO)


class _AuditFile(RotatingFileHandler):
    """The log file: writable by the bridge's user, readable by its group."""

    def _open(self) -> TextIOWrapper:
        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, 0o640)

        return cast(TextIOWrapper, open(self.baseFilename, self.mode, encoding="utf-8", opener=opener))

    def handleError(self, record: logging.LogRecord) -> None:
        """Log that an entry could not be written, for example because the disk is full. The audited operation continues."""
        log.error("MQB0201E writing to audit log %s failed: %s", self.baseFilename, sys.exception())


def begin(config: AuditLogConfig) -> None:
    """Open the configured file, if any. Raises OSError, and then continues with the previous file."""
    handler = None
    if config.file is not None:
        handler = _AuditFile(config.file, maxBytes=config.size, backupCount=config.files - 1)
    end()
    if handler is not None:
        _entries.addHandler(handler)


def end() -> None:
    """Close the file."""
    for handler in list(_entries.handlers):
        _entries.removeHandler(handler)
        handler.close()


class AuditedClient(Protocol):
    """An MQTT client, as identified in entries."""

    client_id: str
    address: str


class _Gathering:
    """Limits the entries of one kind per client or network: a client controls how many rejections it causes.

    Omitted entries are counted and reported with the first entry of the next interval.
    """

    def __init__(self) -> None:
        #: (event, client or network) -> start of the interval, and number of entries in it
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def left_out(self, event: str, source: str, now: float) -> int | None:
        """Return the number of entries omitted before this one, or None if this one must be omitted too."""
        start, count = self._kinds.get((event, source), (now, 0))
        left_out = 0
        if now - start >= INTERVAL:
            start, count, left_out = now, 0, max(0, count - MAX_ENTRIES)
        elif count == 0 and len(self._kinds) >= MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[event, source] = start, count + 1
        return left_out if count < MAX_ENTRIES else None


_gathering = _Gathering()


def note(event: str, client: AuditedClient | None = None, *, stranger: str | None = None, **facts: Any) -> None:
    """Write an entry about an event and, optionally, a client.

    `stranger` is the IP address of an unauthenticated client. It may use any name, so its entries are limited per network.
    """
    if not _entries.handlers:
        return
    source = None if client is None else client.client_id
    if stranger is not None:
        source = network_of(stranger)
    left_out = 0 if source is None else _gathering.left_out(event, source, time.monotonic())
    if left_out is None:
        return
    entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
    if client is not None:
        entry |= {"client": client.client_id, "address": client.address}
    if left_out:
        entry["left_out_before"] = left_out
    entry |= {name: value[:MAX_VALUE_LENGTH] if isinstance(value, str) else value for name, value in facts.items()}
    _entries.info("%s", msgspec.json.encode(entry).decode())
