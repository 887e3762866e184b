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
    #: seconds since the oldest message was put; None: there is none, or the queue manager does not tell
    oldest_message_age: float | None
    input_handles: int
    output_handles: int
    #: PUT(DISABLED)
    put_inhibited: bool = False


class QueueManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has found."""

    queues: Sequence[QueueStatus]
    #: the name of the dead-letter queue; blank if there is none
    dead_letter_queue: str = ""
    #: the queue manager puts messages there without a line in the log of the bridge
    diverts_silently: bool = True
    #: local queues that are not among them, for they are too many
    left_out: int = 0
    #: of an embedded queue manager: retained publications, bytes of its files by what they hold, and whether the disk is full
    retained: int | None = None
    file_sizes: Mapping[str, int] = {}
    disk_full: bool | None = None


class QueueManagerInquiry(Protocol):
    """What looks at a queue manager; all of it is called on one thread."""

    #: seconds between looks, at least: a look costs the queue manager something
    interval: float

    def look(self, queues: Sequence[str], *, ages: bool = True) -> QueueManagerStatus:
        """Look at these queues, those left out that are not there, and at others where that is cheap. Raises MQError.

        `ages` asks for the ages of messages, too, which cost a command.
        """

    def close(self) -> None:
        """End: there are no more looks."""


@dataclass(frozen=True)
class Events:
    """What a queue manager's side has to tell the bridge; each is called on the loop, with a sentence."""

    #: it cannot go on
    failed: Callable[[str], None]
    #: another bridge has taken over: this one has to let go of everything
    fenced: Callable[[str], None]
    #: another bridge is at work; this one waits for it to end
    standing_by: Callable[[str], None]
    #: the queue manager has been unreachable for too long
    outage: Callable[[], None]


class HostError(Exception):
    """The queue manager cannot serve; the message says what is missing and what to do."""


class Host(Protocol):
    """A queue manager as the service gets it."""

    #: its name
    name: str
    #: where the bridge puts what it can deliver to nobody; "" is where the queue manager says (DEADQ)
    dead_letter_queue: str

    #: who may connect by which channel, and as whom
    channel_authentication: ChannelAuthenticationRegister

    #: the telemetry channels: of the file, and by commands
    telemetry_channels: TelemetryChannelRegister
    #: whether new messages are accepted, by the memory that this process uses
    memory: MemoryWatermark
    #: tells an administrator of its topics
    topic_inquiry: TopicInquiry

    @property
    def backend(self) -> Backend:
        """Return the backend, which runs units of work for the service."""

    async def start(self, events: Events) -> list[str]:
        """Bring it up; lines that tell a person what it is. Raises HostError."""

    async def listen(self) -> list[str]:
        """Let MQ applications in, where that is the bridge's business; lines that say where. Raises HostError."""

    def connect(self, purpose: str) -> Connection:
        """Make a connection of its own for a thread of the bridge that does `purpose`; callable on any thread.

        The thread disconnects it before `stop`. Raises MQError.
        """

    def inquiry(self) -> QueueManagerInquiry:
        """Return what looks at the queue manager, for metrics."""

    def check_password(self, user: str, password: bytes) -> None:
        """Have the queue manager check a user's password; callable on any thread, may wait.

        Raises MQError: MQRC_NOT_AUTHORIZED where it is wrong.
        """

    def use_limits(self, limits: LimitsConfig) -> None:
        """Let these limits hold from now on, as far as they are the queue manager's."""

    async def stop(self) -> None:
        """End in order, once every unit of work given to the backend has ended."""

    def hint(self, file: Path | None) -> str:
        """Return the options by which `mqbridge mq` finds the queue manager.

        `file` is the configuration file, None where there is none.
        """
