"""Reading the configuration file again while the bridge runs: mappings and links change, a bad file changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from bridge.config import Configuration, ConfigurationError
from bridge.security import audit_log
from bridge.service.mappings.registry import Mappings

log = logging.getLogger(__name__)

#: Sections that a running bridge takes over.
LIVE = frozenset({"mappings", "links", "channel_authentication"})


class ConfigurationSource(msgspec.Struct, frozen=True):
    """Where a configuration came from, and how to read it from there again."""

    path: Path
    #: the file as it was read at the start, without what the command line adds to it: what is not live runs as it says
    file: Configuration
    #: raises ConfigurationError
    load: Callable[[Path], Configuration]


class Reload:
    """What SIGHUP and `mqbridge reload` do."""

    def __init__(
        self, source: ConfigurationSource | None, mappings: Mappings, take_over: Callable[[Configuration], None]
    ) -> None:
        """Begin; `take_over` is called with a configuration that was read again, for what is no mapping or link."""
        self._source = source
        self._take_over = take_over
        self._mappings = mappings

    async def __call__(self) -> tuple[bool, list[str]]:
        """Read the file again; return whether it was taken over, and lines that say what has changed, or why nothing has."""
        source = self._source
        if source is None:
            return self._log(False, ["the bridge was started without a configuration file; nothing is reloaded"])
        try:
            configuration = await asyncio.to_thread(source.load, source.path)
        except ConfigurationError as error:
            return self._log(False, [*str(error).splitlines(), "nothing has changed"])
        self._take_over(configuration)
        lines = await self._mappings.apply(configuration.mappings, configuration.links)
        for section in type(configuration).model_fields:
            if section not in LIVE and getattr(configuration, section) != getattr(source.file, section):
                lines.append(f"{section} in {source.path} has changed, too: that takes a restart of the bridge")
        return self._log(True, lines)

    @staticmethod
    def _log(ok: bool, lines: list[str]) -> tuple[bool, list[str]]:
        audit_log.note("reloaded" if ok else "reload refused", lines=lines)
        for line in lines:
            log.log(logging.INFO if ok else logging.ERROR, "reload: %s", line)
        return ok, lines
