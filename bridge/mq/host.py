"""What brings a queue manager to the service: an embedded one is run, IBM MQ is connected to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bridge.config import LimitsConfig
from bridge.mq.backend import Backend
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import Connection
from bridge.mq.queue_manager_status import QueueManagerInquiry
from bridge.mq.telemetry_channels import TelemetryChannelRegister
from bridge.mq.topic_inquiry import TopicInquiry
from bridge.security.channel_authentication import ChannelAuthenticationRegister


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
