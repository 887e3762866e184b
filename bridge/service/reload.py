"""Reading the configuration file again while the bridge runs: what can change does, the rest is named.

A bad file changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bridge.config import AdminConfig, Configuration, ConfigurationError
from bridge.security import audit_log

log = logging.getLogger(__name__)

#: Sections that a running bridge takes over.
LIVE = frozenset({"mappings", "links", "channels", "channel_authentication", "limits", "log", "audit_log"})
#: And what it takes over of the section `admin`.
LIVE_OF_ADMIN = frozenset({"authentication", "administrators", "open_metrics", "payloads"})


def admin_of(running: Configuration, after: Configuration) -> AdminConfig:
    """Return the section `admin` that a bridge has when it has taken over a configuration."""
    return running.admin.model_copy(update={name: getattr(after.admin, name) for name in LIVE_OF_ADMIN})


class ConfigurationSource(msgspec.Struct, frozen=True):
    """Where a configuration came from, and how to read it from there again."""

    path: Path
    #: the file as it was read at the start, without what the command line adds to it: what is not live runs as it says
    file: Configuration
    #: raises ConfigurationError
    load: Callable[[Path], Configuration]


class ReloadRefused(Exception):
    """A configuration cannot be taken over, and nothing of it is; words for a person."""


#: Takes over a configuration in the place of another, both as files say them; returns lines that say what has changed.
#: Raises ReloadRefused.
TakeOver = Callable[[Configuration, Configuration], Awaitable[list[str]]]


class Reload:
    """What SIGHUP and `mqbridge reload` do."""

    def __init__(self, source: ConfigurationSource | None, take_over: TakeOver) -> None:
        self._source = source
        self._take_over = take_over
        #: what was read last
        self._last: Configuration | None = None
        self._reading = asyncio.Lock()

    async def __call__(self) -> tuple[bool, list[str]]:
        """Read the file again; return whether it was taken over, and lines that say what has changed, or why nothing has."""
        source = self._source
        if source is None:
            return self._log(False, ["the bridge was started without a configuration file; nothing is reloaded"])
        async with self._reading:
            try:
                configuration = await asyncio.to_thread(source.load, source.path)
                if source.file.model_fields_set and not configuration.model_fields_set:
                    raise ReloadRefused(f"{source.path} says nothing: is it being written? (defaults take a restart)")
                lines = await self._take_over(self._last or source.file, configuration)
            except (ConfigurationError, ReloadRefused) as error:
                return self._log(False, [*str(error).splitlines(), "nothing has changed"])
            self._last = configuration
        running = source.file.model_copy(update={"admin": admin_of(source.file, configuration)})
        for section in type(configuration).model_fields:
            if section not in LIVE and getattr(configuration, section) != getattr(running, section):
                lines.append(f"{section} in {source.path} has changed, too: that takes a restart of the bridge")
        return self._log(True, lines)

    @staticmethod
    def _log(ok: bool, lines: list[str]) -> tuple[bool, list[str]]:
        audit_log.note("reloaded" if ok else "reload refused", lines=lines)
        for line in lines:
            if ok:
                log.info("MQB0101I reload: %s", line)
            else:
                log.error("MQB0102E reload: %s", line)
        return ok, lines
