"""The telemetry channels as a queue manager knows them: those of the bridge's file, and those that commands have defined."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from bridge.administration.answers import ChannelStatus, ClientStatus
from bridge.config.channel import ChannelConfig

log = logging.getLogger(__name__)

#: Kind of the rows in which a queue manager keeps definitions.
KIND: Final = "CHANNEL"


class ClientChannelStatus(msgspec.Struct, kw_only=True):
    """What DISPLAY CHSTATUS tells of a client beside what `ClientStatus` says."""

    status: ClientStatus
    #: the user that the client says, or has shown, that it is; blank while it is away
    user_name: str
    #: seconds
    keep_alive: int
    #: messages with QoS 2 that it has sent and not released
    unreleased: int
    #: messages that it has sent and got since it connected
    messages_received: int
    messages_sent: int
    #: seconds since the epoch when the last of these was sent; 0.0 where there was none
    last_message_at: float


class RunningChannels(Protocol):
    """The channels of a running bridge, as commands of its queue manager look at them, start and stop them.

    Commands may come on any thread, with the queue manager's lock held. So nothing here waits: what takes time is handed to
    the event loop, which does it in the order in which it was asked for.
    """

    def statuses(self) -> Sequence[ChannelStatus]:
        """Return how each channel is."""

    def clients(self, wanted: Callable[[str], bool]) -> Iterator[ClientChannelStatus]:
        """Yield the clients whose identifiers are wanted, connected ones and those that are away."""

    def client(self, client_id: str) -> ClientChannelStatus | None:
        """Return one client; None where there is no session of it."""

    def start(self, name: str) -> None:
        """Have a channel listen that is stopped."""

    def stop(self, name: str, client_id: str | None = None) -> None:
        """Have a channel listen no more, and its clients disconnected; or this client alone."""

    def purge(self, name: str, client_id: str | None = None) -> None:
        """Have the sessions of a channel's clients ended, and the channel stopped; or the session of this client alone."""

    def changed(self) -> None:
        """Have the channels be those that are defined now."""


class Definition(msgspec.Struct, frozen=True):
    """A channel that a command has defined."""

    #: as MQSC shows them
    attributes: Mapping[str, str | int]
    config: ChannelConfig


class TelemetryChannelRegister:
    """The definitions of all telemetry channels. The file's hold where a command has defined one of the same name."""

    def __init__(self) -> None:
        self.of_file: Sequence[ChannelConfig] = ()
        #: those that commands have defined, by name
        self.defined: dict[str, Definition] = {}
        #: None while there is no telemetry service
        self.running: RunningChannels | None = None

    @property
    def of_commands(self) -> list[ChannelConfig]:
        """Return the channels that are there by a command alone."""
        names = {one.name for one in self.of_file}
        return [one.config for name, one in sorted(self.defined.items()) if name not in names]

    @property
    def channels(self) -> list[ChannelConfig]:
        """Return all channels, those of the file first."""
        return [*self.of_file, *self.of_commands]

    def is_of_file(self, name: str) -> bool:
        """Return whether the file has a channel of this name."""
        return any(one.name == name for one in self.of_file)

    def use_file(self, channels: Sequence[ChannelConfig]) -> None:
        """Let these be the channels of the configuration file."""
        self.of_file = channels
        for name in self.defined:
            if self.is_of_file(name):
                log.warning(
                    "MQB1013W channel %s is in the configuration file, and defined by a command, too: the file's holds", name
                )

    def set(self, name: str, definition: Definition) -> None:
        """Let the definition of a command hold."""
        self.defined[name] = definition
        self._tell()

    def forget(self, name: str) -> None:
        """Let the definition of a command hold no more."""
        self.defined.pop(name, None)
        self._tell()

    def _tell(self) -> None:
        if self.running is not None:
            self.running.changed()
