"""The interface of a queue manager to the service: starting the embedded one or connecting to IBM MQ, and its status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from bridge.config import LimitsConfig
from bridge.mq.backend import Backend
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import Connection
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mq.topic_inquiry import TopicInquiry
from bridge.security.channel_authentication import ChannelAuthenticationRegister


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A local queue."""

    name: str
    #: USAGE(XMITQ)
    transmission: bool
    depth: int
    max_depth: int
    #: seconds since the oldest message was put; None if the queue is empty or the queue manager does not report it
    oldest_message_age: float | None
    input_handles: int
    output_handles: int
    #: PUT(DISABLED)
    put_inhibited: bool = False


class QueueManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a queue manager and its local queues."""

    queues: Sequence[QueueStatus]
    #: the name of the dead-letter queue; blank if there is none
    dead_letter_queue: str = ""
    #: the queue manager dead-letters messages without an entry in the bridge's log
    diverts_silently: bool = True
    #: number of local queues omitted from `queues`
    left_out: int = 0
    #: embedded queue manager only: retained publications, file sizes in bytes by kind, whether the disk is full, and the free
    #: space and size of its file system in bytes
    retained: int | None = None
    file_sizes: Mapping[str, int] = {}
    disk_full: bool | None = None
    disk_free: int | None = None
    disk_size: int | None = None


class QueueManagerInquiry(Protocol):
    """Inquires the status of a queue manager. All methods are called on one thread."""

    #: minimum interval between calls of `look`, in seconds, to limit the load on the queue manager
    interval: float

    def look(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        """Return the status of these queues, except missing ones, and of others if that is cheap. Raises MQError.

        `ages` includes the ages of the oldest messages, which needs a command.
        """

    def close(self) -> None:
        """Release the resources of the inquiry."""


@dataclass(frozen=True)
class Events:
    """Callbacks from the queue manager to the bridge, called on the event loop. The argument is a description."""

    #: fatal error
    failed: Callable[[str], None]
    #: another bridge has taken over: this one must release everything
    fenced: Callable[[str], None]
    #: another bridge is active: this one is a standby
    standing_by: Callable[[str], None]
    #: the queue manager has been unreachable for too long
    outage: Callable[[], None]


class HostError(Exception):
    """The queue manager cannot be used. The message contains the cause and a remedy."""


class Host(Protocol):
    """An embedded queue manager, or the connections to IBM MQ."""

    name: str
    #: the queue for messages that cannot be delivered; "" is the queue manager's dead-letter queue (DEADQ)
    dead_letter_queue: str

    #: channel authentication records
    channel_authentication: ChannelAuthenticationRegister

    #: telemetry channels, from the configuration file and from commands
    telemetry_channels: TelemetryChannelRegister
    memory: MemoryWatermark
    topic_inquiry: TopicInquiry

    @property
    def backend(self) -> Backend:
        """The backend, which runs units of work for the service."""

    async def start(self, events: Events) -> list[str]:
        """Start or connect. Return lines that describe the queue manager for the log. Raises HostError."""

    async def listen(self) -> list[str]:
        """Accept connections of MQ applications, if configured. Return lines with the addresses. Raises HostError."""

    def connect(self, purpose: str) -> Connection:
        """Return a new connection for a thread of the bridge with this purpose. Callable on any thread.

        The thread must disconnect before `stop`. Raises MQError.
        """

    def inquiry(self) -> QueueManagerInquiry:
        """Return a new inquiry, for metrics."""

    def check_password(self, user: str, password: bytes) -> None:
        """Check a user's password with the queue manager. Callable on any thread. May block.

        Raises MQError, with MQRC_NOT_AUTHORIZED if the password is wrong.
        """

    def use_limits(self, limits: LimitsConfig) -> None:
        """Apply the limits that concern the queue manager."""

    async def stop(self) -> None:
        """Stop in order, after all units of work submitted to the backend have completed."""

    def hint(self, file: Path | None) -> str:
        """Return the options with which `mqbridge mq` connects to this queue manager. `file` is the configuration file."""
