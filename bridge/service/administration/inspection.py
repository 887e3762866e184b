"""The history, the log, the audit log and the effective configuration of a running bridge."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.administration.answers import AuditEntries, History, LogLine
from bridge.administration.requests import (
    MOST_ROWS,
    Refused,
    ShowAuditLog,
    ShowConfiguration,
    ShowHistory,
    ShowLog,
)
from bridge.config.values import without_password
from bridge.service.administration.parts import Parts

#: Bytes at the end of the audit log that are searched.
AUDIT_SIZE: Final = 4_000_000
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|passphrase|headers", re.IGNORECASE)
#: Keys that only name where a secret is.
_PLACE: Final = re.compile(r"(_file|_variable|_cache|_claim|_endpoint|_url)$")
HIDDEN: Final = "(hidden)"


async def show_history(parts: Parts, request: ShowHistory) -> History:
    """Return rates and gauges of the last seconds. Raises Refused."""
    if parts.history is None:
        raise Refused("the bridge keeps a history only if it has an admin port (admin.port)")
    return parts.history.history(request.seconds, time.time())


async def show_log(parts: Parts, request: ShowLog) -> list[LogLine]:
    """Return the last lines of the log. Raises Refused."""
    if parts.log_tail is None:
        raise Refused("the bridge keeps lines of the log only if it has an admin port (admin.port)")
    lines = parts.log_tail.lines(logging.getLevelNamesMapping()[request.level.upper()], request.search)
    return [LogLine(one.time, logging.getLevelName(one.level).lower(), one.text) for one in lines]


async def show_audit_log(parts: Parts, request: ShowAuditLog) -> AuditEntries:
    """Return the last entries of the audit log. Raises Refused."""
    file = parts.configuration.audit_log.file
    if file is None:
        return AuditEntries(file="", entries=[])
    try:
        entries = await asyncio.to_thread(_entries, file, request.search.casefold(), min(request.rows, MOST_ROWS))
    except OSError as error:
        raise Refused(f"audit log {file}: {error.strerror or error}") from error
    return AuditEntries(file=str(file), entries=entries)


def _entries(file: Path, search: str, rows: int) -> list[dict[str, Any]]:
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(size - AUDIT_SIZE, 0))
        lines = stream.read(AUDIT_SIZE).splitlines()
    if size > AUDIT_SIZE:
        del lines[:1]  # the end of an entry
    found: deque[dict[str, Any]] = deque(maxlen=rows)
    for line in lines:
        if search in line.decode(errors="replace").casefold():
            try:
                found.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                continue  # an entry that is being written
    return list(found)[::-1]


async def show_configuration(parts: Parts, request: ShowConfiguration) -> str:
    """Return the effective configuration as YAML, without secrets."""
    # Imported on demand: bridges without a configuration file do not need it.
    import yaml

    return yaml.safe_dump(without_secrets(parts.configuration.model_dump(mode="json", by_alias=True)), sort_keys=False)


def without_secrets(value: Any, key: str = "") -> Any:
    """Return a part of a configuration with its secrets hidden. `key` is the key of the value."""
    if _SECRET.search(key) and not _PLACE.search(key) and value not in (None, "", [], {}) and not isinstance(value, bool):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN
    if isinstance(value, dict):
        return {one: without_secrets(each, str(one)) for one, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(one, key) for one in value]
    return without_password(value) if isinstance(value, str) and "://" in value else value
