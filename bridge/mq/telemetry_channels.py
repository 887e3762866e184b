"""The queue manager's view of telemetry channels: those in the configuration file, and those defined by commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from bridge.config.channel import ChannelConfig
from bridge.mq.inquiries import ChannelStatus, ClientStatus

log = logging.getLogger(__name__)

#: The kind of the rows that store definitions.
KIND: Final = "CHANNEL"


class ClientChannelStatus(msgspec.Struct, kw_only=True):
    """The status of a client in DISPLAY CHSTATUS."""

    status: ClientStatus
    #: the authenticated or claimed user name, or blank while the client is disconnected
    user_name: str
    #: seconds
    keep_alive: int
    #: QoS 2 messages received from the client without a PUBREL so far
    unreleased: int
    #: messages that the client has sent and received since it connected
    messages_received: int
    messages_sent: int
    #: time of the last of these messages, in seconds since the epoch, or 0.0
    last_message_at: float


class RunningChannels:
    """The channels of a running bridge, for MQSC commands. This class represents a queue manager without a bridge.

    Methods are called on any thread, with the queue manager's lock held, and must not block. The event loop runs slow
    operations, in order.
    """

    #: a telemetry service runs
    active = False

    def statuses(self) -> Sequence[ChannelStatus]:
        """Return the status of each channel."""
        return ()

    def clients(self, is_wanted: Callable[[str], bool]) -> Iterator[ClientChannelStatus]:
        """Yield the clients, connected or not, for whose identifiers `is_wanted` returns True."""
        return iter(())

    def client(self, client_id: str) -> ClientChannelStatus | None:
        """Return the status of one client, or None if it has no session."""
        return None

    def start(self, name: str) -> None:
        """Start a stopped channel."""

    def stop(self, name: str, client_id: str | None = None) -> None:
        """Stop a channel and disconnect its clients, or disconnect one client only."""

    def purge(self, name: str, client_id: str | None = None) -> None:
        """Stop a channel and end the sessions of its clients, or end the session of one client only."""

    def changed(self) -> None:
        """Apply the current definitions."""


class Definition(msgspec.Struct, frozen=True):
    """A channel defined by a command."""

    #: as displayed by MQSC
    attributes: Mapping[str, str | int]
    config: ChannelConfig


class TelemetryChannelRegister:
    """The definitions of all telemetry channels. The configuration file takes precedence over commands."""

    def __init__(self) -> None:
        self.of_file: Sequence[ChannelConfig] = ()
        #: definitions by commands, by name
        self.defined: dict[str, Definition] = {}
        self.running = RunningChannels()

    @property
    def of_commands(self) -> list[ChannelConfig]:
        """The channels that are defined only by commands."""
        names = {config.name for config in self.of_file}
        return [channel.config for name, channel in sorted(self.defined.items()) if name not in names]

    @property
    def channels(self) -> list[ChannelConfig]:
        """All channels, those in the configuration file first."""
        return [*self.of_file, *self.of_commands]

    def is_of_file(self, name: str) -> bool:
        """Return whether the configuration file defines a channel with this name."""
        return any(config.name == name for config in self.of_file)

    def use_file(self, channels: Sequence[ChannelConfig]) -> None:
        """Set the channels of the configuration file. Warn about definitions by commands that they override."""
        self.of_file = channels
        for name in self.defined:
            if self.is_of_file(name):
                log.warning(
                    "MQB1013W channel %s is defined in the configuration file and by a command; using the definition in the "
                    "file",
                    name,
                )

    def set(self, name: str, definition: Definition) -> None:
        """Add or replace the definition by a command."""
        self.defined[name] = definition
        self.running.changed()

    def forget(self, name: str) -> None:
        """Remove the definition by a command, if there is one."""
        self.defined.pop(name, None)
        self.running.changed()
