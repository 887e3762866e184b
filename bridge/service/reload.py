"""Reloading the configuration: reading the file again, and applying changes while the bridge runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from bridge.administration.answers import counted
from bridge.administration.setting_list import LIVE, LIVE_OF_ADMIN
from bridge.config.channel import ChannelConfig
from bridge.config.models import Configuration
from bridge.config.operations import AdminConfig
from bridge.config.problems import ConfigurationError
from bridge.config.values import Section
from bridge.mapping.schema import SchemaError
from bridge.security import audit_log
from bridge.security.authenticator import UnknownPlugin
from bridge.security.authenticators import Authenticators
from bridge.service.administration.parts import Parts
from bridge.service.channels import ChannelError
from bridge.service.client_history import HistoryUnavailable
from bridge.service.log import configure
from bridge.service.payload_schemas import schemas_of

S = TypeVar("S", bound=Section)


class ConfigurationChange:
    """Applies a configuration in place of the previous one."""

    def __init__(self, parts: Parts, authenticators: Authenticators) -> None:
        self._parts = parts
        self._authenticators = authenticators

    async def __call__(self, before: Configuration, after: Configuration) -> list[str]:
        """Apply the changes and return lines that describe them. Raises ReloadRefused before anything has changed."""
        parts = self._parts
        channels = self._channels(before, after)
        log = with_command_line(parts.configuration.log, before.log, after.log)
        register = parts.host.telemetry_channels
        names = {channel.name for channel in channels}
        try:
            parts.channels.check(channels)
            authentication = self._authenticators.of_channels(
                [*channels, *(channel for channel in register.of_commands if channel.name not in names)]
            )
            admin = self._authenticators.of_admin(after.admin)
            schemas = schemas_of(channels)
            history = parts.configuration.model_copy(update={"client_history": after.client_history})
            if after.client_history != before.client_history:
                await self._use_history(history)
            if after.audit_log != before.audit_log:
                try:
                    audit_log.begin(after.audit_log)
                except OSError:
                    if after.client_history != before.client_history:
                        await self._use_history(parts.configuration)
                    raise
        except (ChannelError, UnknownPlugin, SchemaError) as error:
            raise ReloadRefused(str(error)) from error
        except HistoryUnavailable as error:
            raise ReloadRefused(f"client_history.file: {error}") from error
        except OSError as error:
            raise ReloadRefused(f"audit_log.file {after.audit_log.file}: {error.strerror or error}") from error
        parts.service.authentication = authentication
        parts.service.payload_schemas.use(schemas)
        lines = self._use_tables(after)
        self._authenticators.admin = admin
        parts.host.channel_authentication.use_file(after.channel_authentication, channels)
        register.use_file(channels)
        for channel in parts.channels:
            if channel.tls is not None:
                channel.tls.reload_if_changed()
        parts.host.read_credentials()
        # Even without changes, because a command may have set the level.
        configure(log)
        parts.service.journal.trace_to_log(log.level, log.trace_clients)
        if log != parts.configuration.log:
            traced = f", tracing clients {', '.join(log.trace_clients)}" if log.trace_clients else ""
            lines.append(f"log: {log.level} and above, as {log.format}{traced}")
        if after.audit_log != before.audit_log:
            lines.append(f"audit log: {after.audit_log.file or 'none'}")
        if after.client_history != before.client_history:
            lines.append(f"history of clients: {history.client_history_path or 'in memory'}")
        if after.channel_authentication != before.channel_authentication:
            lines.append("channel authentication records changed, for clients that connect from now on")
        if after.limits != before.limits:
            parts.service.use_limits(after.limits)
            parts.host.use_limits(after.limits)
            lines.append("limits changed, for clients, sessions and messages from now on")
        former = {config.name: config for config in before.channels}
        lines += [
            f"schemas of channel {config.name} changed, for publications from now on"
            for config in after.channels
            if config.name in former and config.schemas_differ(former[config.name])
        ]
        if after.pipelines != before.pipelines or after.spark != before.spark:
            lines.append("pipelines changed, for those that are started from now on: mqbridge pipeline stop, then run")
        admin_section = admin_of(parts.configuration, after)
        if admin_section != parts.configuration.admin:
            lines.append("admin: authentication, applications and displays changed")
            parts.applications.use(admin_section.applications)
        live = {name: getattr(after, name) for name in LIVE} | {
            "channels": channels,
            "log": log,
            "admin": admin_section,
        }
        parts.configuration = _relocated(parts.configuration.model_copy(update=live), parts.configuration, after)
        lines += await parts.channels.apply(after.limits)
        lines += await parts.mappings.apply(after.mappings, after.links)
        return lines

    async def _use_history(self, configuration: Configuration) -> None:
        """Use the history of clients of a configuration. Raises HistoryUnavailable."""
        if (history := self._parts.service.journal.history) is not None:
            await history.reload(configuration.client_history, configuration.client_history_path)

    def _use_tables(self, after: Configuration) -> list[str]:
        """Use the tables of a configuration, and return lines that describe the changes."""
        files = self._parts.table_files
        former = {name: table.content.rows for name, table in files.tables.items()}
        after.use_tables(files.tables)
        files.use(after.tables)
        lines = [f"table {name} removed" for name in former if name not in after.tables]
        for name, table in after.tables.items():
            if table.content.rows is not former.get(name):
                verb = "changed" if name in former else "added"
                lines.append(f"table {name} {verb}: {counted(len(table.content.rows), 'row')}")
        return lines

    def _channels(self, before: Configuration, after: Configuration) -> list[ChannelConfig]:
        running, old = (
            {channel.name: channel for channel in some.channels} for some in (self._parts.configuration, before)
        )
        return [
            with_command_line(running[channel.name], old[channel.name], channel)
            if channel.name in running and channel.name in old
            else channel
            for channel in after.channels
        ]


def _relocated(configuration: Configuration, before: Configuration, after: Configuration) -> Configuration:
    """Return a configuration after a reload, with the new places of the sections that a running bridge applies."""
    applied = LIVE | {"admin"}
    places = {location: place for location, place in before.places.items() if location[0] not in applied}
    places |= {location: place for location, place in after.places.items() if location[0] in applied}
    # Values of the command line apply until they change in the file.
    places |= {location: place for location, place in before.places.items() if place.startswith("--")}
    configuration.locate(after.file, places, after.notes)
    return configuration


def with_command_line(running: S, before: S, after: S) -> S:
    """Return a section from the file, with the running values of settings that have not changed in the file.

    Running values include those from the command line.
    """
    same = [name for name in type(after).model_fields if getattr(before, name) == getattr(after, name)]
    return after.model_copy(update={name: getattr(running, name) for name in same})


log = logging.getLogger(__name__)


def admin_of(running: Configuration, after: Configuration) -> AdminConfig:
    """Return the section `admin` of a bridge after it has applied a configuration."""
    return running.admin.model_copy(update={name: getattr(after.admin, name) for name in LIVE_OF_ADMIN})


class ConfigurationSource(msgspec.Struct, frozen=True):
    """The source of a configuration, for reloading it."""

    path: Path
    #: the file as read at the start, without command line options. Sections that need a restart keep these values
    file: Configuration
    #: raises ConfigurationError
    load: Callable[[Path], Configuration]


class ReloadRefused(Exception):
    """A configuration cannot be applied, and nothing has changed. The message is for display."""


#: Applies a configuration in place of another, both without command line options. Returns lines that describe the changes.
#: Raises ReloadRefused.
ApplyChange = Callable[[Configuration, Configuration], Awaitable[list[str]]]


class ConfigurationReload:
    """The reload performed by SIGHUP and `mqbridge reload`."""

    def __init__(self, source: ConfigurationSource | None, apply: ApplyChange) -> None:
        self._source = source
        self._apply = apply
        #: the last configuration read
        self._last: Configuration | None = None
        self._reading = asyncio.Lock()

    async def __call__(self) -> tuple[bool, list[str]]:
        """Reload the file. Return whether it was applied, and lines that describe the changes or the error."""
        source = self._source
        if source is None:
            return self._log(False, ["the bridge was started without a configuration file; nothing is reloaded"])
        async with self._reading:
            try:
                configuration = await asyncio.to_thread(source.load, source.path)
                if source.file.model_fields_set and not configuration.model_fields_set:
                    raise ReloadRefused(f"{source.path} is empty: is it being written? (defaults need a restart)")
                lines = await self._apply(self._last or source.file, configuration)
            except (ConfigurationError, ReloadRefused) as error:
                return self._log(False, [*str(error).splitlines(), "nothing has changed"])
            self._last = configuration
        running = source.file.model_copy(update={"admin": admin_of(source.file, configuration)})
        for section, field in type(configuration).model_fields.items():
            if section not in LIVE and getattr(configuration, section) != getattr(running, section):
                lines.append(f"{field.alias or section} in {source.path} has changed, too: this needs a restart")
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
