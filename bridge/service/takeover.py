"""Taking over a configuration that was read again: what a running bridge can change, piece by piece."""

from __future__ import annotations

from typing import TypeVar

from bridge.config import ChannelConfig, Configuration
from bridge.config.values import Section
from bridge.security import audit_log
from bridge.security.authenticator import UnknownMethod
from bridge.security.authenticators import Authenticators, UnknownAuthenticator
from bridge.service.administration.parts import Parts
from bridge.service.channels import ChannelError
from bridge.service.log import configure
from bridge.service.reload import LIVE, ReloadRefused, admin_of

S = TypeVar("S", bound=Section)


class Takeover:
    """Has a configuration take the place of the one before; `bridge.service.reload.Reload` calls it."""

    def __init__(self, parts: Parts, authenticators: Authenticators) -> None:
        self._parts = parts
        self._authenticators = authenticators

    async def __call__(self, before: Configuration, after: Configuration) -> list[str]:
        """Let what has changed hold; return lines that say what. Raises ReloadRefused: then nothing has changed."""
        parts = self._parts
        channels = self._channels(before, after)
        log = with_command_line(parts.configuration.log, before.log, after.log)
        register = parts.host.telemetry_channels
        names = {one.name for one in channels}
        try:
            parts.channels.check(channels)
            authentication = self._authenticators.of_channels(
                [*channels, *(one for one in register.of_commands if one.name not in names)]
            )
            admin = self._authenticators.of_admin(after.admin)
            if after.audit_log != before.audit_log:
                audit_log.begin(after.audit_log)
        except (ChannelError, UnknownMethod, UnknownAuthenticator) as error:
            raise ReloadRefused(str(error)) from error
        except OSError as error:
            raise ReloadRefused(f"audit_log.file {after.audit_log.file}: {error.strerror or error}") from error
        parts.service.authentication = authentication
        self._authenticators.admin = admin
        parts.host.channel_authentication.use_file(after.channel_authentication, channels)
        register.use_file(channels)
        for channel in parts.channels:
            if channel.tls is not None:
                channel.tls.look_again()
        # Whatever has changed: the level may have been set since the file was read.
        configure(log)
        lines = []
        if log != parts.configuration.log:
            lines.append(f"log: {log.level} and above, as {log.format}")
        if after.audit_log != before.audit_log:
            lines.append(f"audit log: {after.audit_log.file or 'none'}")
        if after.channel_authentication != before.channel_authentication:
            lines.append("channel authentication records changed, for clients that connect from now on")
        if after.limits != before.limits:
            parts.service.use_limits(after.limits)
            parts.host.use_limits(after.limits)
            lines.append("limits changed, for clients that connect and sessions that begin from now on")
        admin_section = admin_of(parts.configuration, after)
        if admin_section != parts.configuration.admin:
            lines.append("admin: who may log in, and what the console shows, changed")
        live = {name: getattr(after, name) for name in LIVE} | {"channels": channels, "log": log, "admin": admin_section}
        parts.configuration = parts.configuration.model_copy(update=live)
        lines += await parts.channels.apply(after.limits)
        lines += await parts.mappings.apply(after.mappings, after.links)
        return lines

    def _channels(self, before: Configuration, after: Configuration) -> list[ChannelConfig]:
        running, old = ({one.name: one for one in some.channels} for some in (self._parts.configuration, before))
        return [
            with_command_line(running[one.name], old[one.name], one) if one.name in running and one.name in old else one
            for one in after.channels
        ]


def with_command_line(running: S, before: S, after: S) -> S:
    """Return a section as the file has it now, with what the command line says where the file is as it was before."""
    same = [name for name in type(after).model_fields if getattr(before, name) == getattr(after, name)]
    return after.model_copy(update={name: getattr(running, name) for name in same})
