"""Detects changes of the files of tables, and reads the files in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from bridge.administration.answers import counted
from bridge.config.table import TableConfig
from bridge.mapping.table import Stamp, TableError, read_table, stamp_of, table_of
from bridge.service.periodic import repeated

log = logging.getLogger(__name__)

#: Seconds between two checks of the files. A changed file is read after two checks have found the same change, because it may
#: be written in several steps.
INTERVAL: Final = 2.0


class TableFile(msgspec.Struct):
    """The state of a table's file since the start."""

    #: number of times that the file could not be used
    failures: int = 0
    #: why the current content of the file is not used, or ""
    problem: str = ""
    #: the file as it was when it was last examined, or None before that
    seen: Stamp | None = None
    #: the content that could not be used. None: the file could not be read
    failed: Stamp | None = None


class TableFiles:
    """Keeps the tables of a running bridge up to date. Methods are called on the event loop."""

    def __init__(self, tables: Mapping[str, TableConfig]) -> None:
        self._tables = dict(tables)
        self._files = {name: TableFile() for name in tables}

    def watched(self) -> AbstractContextManager[None]:
        """Check the files until the context ends."""
        return repeated(self._review_all, INTERVAL, "checking the files of tables", delay=INTERVAL)

    async def refresh(self) -> None:
        """Read the files that have changed since the configuration was read, for example while the bridge stood by."""
        for name, config in self._tables.items():
            with contextlib.suppress(OSError):  # `_review` reports it
                self._files[name].seen = await asyncio.to_thread(stamp_of, config.file)
            await self._review(name, config)

    @property
    def tables(self) -> Mapping[str, TableConfig]:
        """The tables of the configuration, by name."""
        return self._tables

    @property
    def files(self) -> Mapping[str, TableFile]:
        """The states of their files, by table name."""
        return self._files

    def use(self, tables: Mapping[str, TableConfig]) -> None:
        """Check the files of these tables from now on. Their configuration was just read."""
        self._tables = dict(tables)
        self._files = {name: TableFile(self._files[name].failures if name in self._files else 0) for name in tables}

    async def _review_all(self) -> None:
        for name, config in list(self._tables.items()):
            try:
                await self._review(name, config)
            except Exception:
                log.exception("MQB5014E checking the file of table %s failed", name)

    async def _review(self, name: str, config: TableConfig) -> None:
        """Read the file of a table if it has changed and the change is complete."""
        try:
            stamp = await asyncio.to_thread(stamp_of, config.file)
        except OSError as error:
            self._fail(name, config, None, f"{config.file} cannot be read: {error.strerror or error}")
            return
        file = self._files.get(name)
        if file is None or self._tables.get(name) is not config:
            return  # a reload came first
        is_stable, file.seen = stamp == file.seen, stamp
        if stamp == table_of(config).stamp:
            file.problem, file.failed = "", None
        elif is_stable and stamp != file.failed:
            await self._read(name, config, stamp)

    async def _read(self, name: str, config: TableConfig, stamp: Stamp) -> None:
        try:
            table = await asyncio.to_thread(read_table, config.file, config.key)
        except TableError as error:
            self._fail(name, config, stamp, str(error))
            return
        file = self._files.get(name)
        if file is not None and self._tables.get(name) is config:
            missing = set(table_of(config).columns).difference(table.columns)
            # Members of JSON objects may be missing. Only `check`, including that of a reload, knows which columns are in
            # use.
            if missing and config.file.suffix.lower() == ".csv":
                why = f"{config.file}:1: column {min(missing)!r} is missing (hint: mqbridge reload)"
                self._fail(name, config, stamp, why)
                return
            config.use(table)
            file.problem, file.failed = "", None
            log.info("MQB5012I table %s: %s of %s are in use", name, counted(len(table), "row"), config.file)

    def _fail(self, name: str, config: TableConfig, stamp: Stamp | None, why: str) -> None:
        """Record why the current content of a file is not used, once for each content."""
        file = self._files.get(name)
        if file is None or self._tables.get(name) is not config or (file.problem and stamp == file.failed):
            return
        file.failures += 1
        file.problem, file.failed = why, stamp
        log.error("MQB5013E table %s: the former rows stay in use: %s", name, why)
