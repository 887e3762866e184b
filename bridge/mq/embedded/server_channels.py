"""Server-connection channels at work: what they agree on with a client, and their running instances."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from bridge.mq.embedded.attributes import Value, defaults
from bridge.mq.errors import MQError
from bridge.wire import cmqc


class ChannelAgreement(NamedTuple):
    """The attributes of a client's channel, negotiated between its two ends."""

    max_message_length: int
    sharing_conversations: int
    #: seconds
    heartbeat_interval: int


def agreed(channel: dict[str, Value] | None, longest: int, client: ChannelAgreement) -> ChannelAgreement:
    """Return what a channel and a client agree on: the lower limits, and the longer heartbeat interval.

    A maximum message length of 0 is `longest`, that of the queue manager. A channel that is not defined (None) limits
    nothing. Source: IBM MQ documentation, "Maximum message length (MAXMSGL)", "Sharing conversations (SHARECNV)",
    "Heartbeat interval (HBINT)".
    """
    wanted = client.max_message_length or longest
    if channel is None:
        interval = int(defaults("SVRCONN")["HBINT"])
        return ChannelAgreement(wanted, client.sharing_conversations, max(client.heartbeat_interval, interval))
    return ChannelAgreement(
        min(wanted, int(channel["MAXMSGL"]) or longest),
        min(client.sharing_conversations, int(channel["SHARECNV"])),
        max(client.heartbeat_interval, int(channel["HBINT"])),
    )


class StoppableConversation(Protocol):
    """A conversation of a server-connection channel, as STOP CHANNEL sees it."""

    def stop(self, *, force: bool) -> None:
        """Break the connection: at once, or after the application has had time to end. Any thread may call it."""


class ChannelInstance(msgspec.Struct, eq=False):
    """A running server-connection channel: one network connection, which conversations of one client may share."""

    channel: str
    address: str
    #: the client's process and its channel definition; conversations share an instance if theirs are equal
    client: tuple[object, ...]
    conversations: list[StoppableConversation] = []


class ChannelInstances:
    """The running instances of server-connection channels, and how many there may be.

    Source: IBM MQ documentation, "Server-connection channel limits", "Using sharing conversations in a client application",
    "2537 (MQRC_CHANNEL_NOT_AVAILABLE)".
    """

    def __init__(self) -> None:
        #: MaxChannels of qm.ini; None: not limited
        self.max_channels: int | None = None
        self._running: list[ChannelInstance] = []
        #: names of channels that STOP CHANNEL has stopped
        self._stopped: set[str] = set()

    def start(self, channel: str) -> bool:
        """Let clients connect by a channel that was stopped; return whether it was."""
        stopped = channel in self._stopped
        self._stopped.discard(channel)
        return stopped

    def stop(self, channel: str, *, force: bool) -> None:
        """Let no client connect by a channel, and end its conversations (IBM MQ, "Stopping MQI channels")."""
        self._stopped.add(channel)
        for one in self._running:
            if one.channel == channel:
                for conversation in one.conversations:
                    conversation.stop(force=force)

    def join(
        self,
        conversation: StoppableConversation,
        channel: str,
        attributes: dict[str, Value] | None,
        address: str,
        client: tuple[object, ...],
        sharing: int,
    ) -> ChannelInstance:
        """Add a conversation to an instance that has room for it, or start an instance. Raises MQError."""
        if channel in self._stopped:
            raise MQError(cmqc.MQRC_CHANNEL_NOT_AVAILABLE, f"channel {channel} is stopped")
        key = channel, address, client
        for one in self._running:
            if (one.channel, one.address, one.client) == key and len(one.conversations) < sharing:
                one.conversations.append(conversation)
                return one
        of_channel = [one for one in self._running if one.channel == channel]
        limits: list[tuple[str, int, int]] = []
        if self.max_channels is not None:
            limits.append(("MaxChannels", len(self._running), self.max_channels))
        if attributes is not None:
            limits.append(("MAXINST", len(of_channel), int(attributes["MAXINST"])))
            of_address = sum(one.address == address for one in of_channel)
            limits.append(("MAXINSTC", of_address, int(attributes["MAXINSTC"])))
        for name, running, limit in limits:
            if running >= limit:
                raise MQError(cmqc.MQRC_CHANNEL_NOT_AVAILABLE, f"channel {channel}: {name} {limit} is reached")
        made = ChannelInstance(channel, address, client, [conversation])
        self._running.append(made)
        return made

    def leave(self, instance: ChannelInstance, conversation: StoppableConversation) -> None:
        """Remove a conversation; the last one ends its instance."""
        instance.conversations.remove(conversation)
        if not instance.conversations:
            self._running.remove(instance)
