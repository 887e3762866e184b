"""Running server-connection channels, and the MQSC commands that start and stop them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.mqsc.commands import Commands
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, message
from tests.ibm_standin import cmqc, cmqcfc

if TYPE_CHECKING:
    from tests.ibm_standin.conversation import MqiConversation as Conversation


@dataclass(eq=False)
class ChannelInstance:
    """A running server-connection channel: one network connection, which conversations of one client may share."""

    channel: str
    address: str
    #: the client's process and its channel definition. Conversations for which both are equal share an instance
    client: tuple[object, ...]
    conversations: list[Conversation]


class Heartbeats:
    """Ends the conversations of clients that have sent nothing for twice the heartbeat interval of their channel.

    IBM's client sends a heartbeat on each of its channels. Here, a request on any channel counts as one on all channels of
    its process. Source: IBM MQ documentation, "Heartbeat interval (HBINT)".
    """

    #: seconds between checks
    INTERVAL = 0.5

    def __init__(self) -> None:
        #: conversations by client: its address and its process
        self._conversations: dict[tuple[str, int], dict[Conversation, float]] = {}
        #: time.monotonic() of the last request of each client, and of the last check
        self._heard: dict[tuple[str, int], float] = {}
        self._looked = 0.0

    def expect(self, conversation: Conversation, client: tuple[str, int], interval: int) -> None:
        """Watch a conversation with this negotiated heartbeat interval in seconds."""
        self._conversations.setdefault(client, {})[conversation] = 2.0 * interval
        if not self._looked:
            self._look()

    def heard(self, client: tuple[str, int]) -> None:
        """Note a request of a client."""
        self._heard[client] = time.monotonic()

    def forget(self, conversation: Conversation, client: tuple[str, int]) -> None:
        """Stop watching a conversation."""
        conversations = self._conversations[client]
        del conversations[conversation]
        if not conversations:
            del self._conversations[client], self._heard[client]

    def _look(self) -> None:
        now = time.monotonic()
        # Data that arrived while this process was busy or suspended has not been read yet.
        late = self._looked and now - self._looked > 3 * self.INTERVAL
        for client, conversations in self._conversations.items():
            if late:
                self._heard[client] = now
            silent = now - self._heard[client]
            for conversation, limit in list(conversations.items()):
                if silent > limit:
                    conversation.abort()
        self._looked = now if self._conversations else 0.0
        if self._conversations:
            asyncio.get_running_loop().call_later(self.INTERVAL, self._look)


class ChannelInstances:
    """The running instances of server-connection channels, and their limits.

    Source: IBM MQ documentation, "Server-connection channel limits", "Using sharing conversations in a client application",
    "2537 (MQRC_CHANNEL_NOT_AVAILABLE)".
    """

    def __init__(self) -> None:
        #: MaxChannels of qm.ini, or None for no limit
        self.max_channels: int | None = None
        self._running: list[ChannelInstance] = []
        self.heartbeats = Heartbeats()
        #: names of channels that STOP CHANNEL has stopped
        self._stopped: set[str] = set()

    def start(self, channel: str) -> bool:
        """Start a channel. Return whether it was stopped."""
        stopped = channel in self._stopped
        self._stopped.discard(channel)
        return stopped

    def stop(self, channel: str, *, force: bool) -> None:
        """Stop a channel and its conversations (IBM MQ documentation, "Stopping MQI channels")."""
        self._stopped.add(channel)
        for instance in self._running:
            if instance.channel == channel:
                for conversation in instance.conversations:
                    conversation.stop(force=force)

    def join(
        self,
        conversation: Conversation,
        channel: str,
        attributes: dict[str, Value] | None,
        address: str,
        client: tuple[object, ...],
        sharing: int,
    ) -> ChannelInstance:
        """Add a conversation to an instance below its limit, or start a new instance. Raises MQError."""
        if channel in self._stopped:
            raise MQError(cmqc.MQRC_CHANNEL_NOT_AVAILABLE, f"channel {channel} is stopped")
        key = channel, address, client
        for instance in self._running:
            if (instance.channel, instance.address, instance.client) == key and len(instance.conversations) < sharing:
                instance.conversations.append(conversation)
                return instance
        of_channel = [instance for instance in self._running if instance.channel == channel]
        limits: list[tuple[str, int, int]] = []
        if self.max_channels is not None:
            limits.append(("MaxChannels", len(self._running), self.max_channels))
        if attributes is not None:
            limits.append(("MAXINST", len(of_channel), int(attributes["MAXINST"])))
            of_address = sum(instance.address == address for instance in of_channel)
            limits.append(("MAXINSTC", of_address, int(attributes["MAXINSTC"])))
        for name, running, limit in limits:
            if running >= limit:
                raise MQError(cmqc.MQRC_CHANNEL_NOT_AVAILABLE, f"channel {channel}: {name} {limit} is reached")
        instance = ChannelInstance(channel, address, client, [conversation])
        self._running.append(instance)
        return instance

    def leave(self, instance: ChannelInstance, conversation: Conversation) -> None:
        """Remove a conversation. The last conversation ends the instance."""
        instance.conversations.remove(conversation)
        if not instance.conversations:
            self._running.remove(instance)


_instances: dict[QueueManager, ChannelInstances] = {}


def instances_of(queue_manager: QueueManager) -> ChannelInstances:
    """Return the running channels of a queue manager."""
    if queue_manager not in _instances:
        _instances[queue_manager] = ChannelInstances()
        queue_manager.on_close.append(lambda: _instances.__delitem__(queue_manager))
    return _instances[queue_manager]


def _start(queue_manager: QueueManager, command: Command) -> tuple[str, Unit | None]:
    name = _existing(queue_manager, command)
    _check_keywords(command)
    if not instances_of(queue_manager).start(name):
        raise CommandRefused("AMQ9514E", name=name, detail="it is running already")
    return message("AMQ8018I", name=name, hint=""), None


def _stop(queue_manager: QueueManager, command: Command) -> tuple[str, Unit | None]:
    """Stop a channel, with MODE QUIESCE (default), FORCE or TERMINATE."""
    name = _existing(queue_manager, command)
    _check_keywords(command, "MODE")
    mode = command.parameter("MODE")
    if mode is not None and mode.value not in ("QUIESCE", "FORCE", "TERMINATE"):
        raise MQSCSyntaxError("MODE must be one of QUIESCE, FORCE, TERMINATE", mode.where, "MODE")
    instances_of(queue_manager).stop(name, force=mode is not None and mode.value != "QUIESCE")
    return message("AMQ8019I", verb="Stop", name=name), None


def _existing(queue_manager: QueueManager, command: Command) -> str:
    if command.name not in queue_manager.objects.server_channels:
        raise CommandRefused("AMQ8147E", kind="Channel", name=command.name, reason=cmqcfc.MQRCCF_CHANNEL_NOT_FOUND)
    return command.name


def _check_keywords(command: Command, *known: str) -> None:
    for parameter in command.parameters:
        if parameter.keyword not in ("CHLTYPE", *known):
            detail = f"{command.verb} CHANNEL does not support {parameter.keyword} here"
            raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)


Commands.ADDED |= {("START", "SVRCONN"): _start, ("STOP", "SVRCONN"): _stop}
