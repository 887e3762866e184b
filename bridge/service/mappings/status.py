"""What a mapping is doing and has done, for people: counted by its thread, read by anybody."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Final

import msgspec

from bridge.archive.events import now_us
from bridge.archive.mapping_observer import Fate

#: Messages of one mapping that may wait for blocked queues while others go on.
LOOK_AHEAD: Final = 10_000


class State(StrEnum):
    """Where a mapping stands."""

    STARTING = "starting"
    RUNNING = "running"
    #: the queue manager is away, or a queue is open elsewhere
    WAITING_FOR_QUEUE_MANAGER = "waiting for the queue manager"
    WAITING_FOR_LINK = "waiting for the link"
    #: a destination rejects a message, which is tried again; messages for other queues may go on (`Status.blocked`)
    RETRYING = "retrying"
    #: not even the dead-letter queue takes a message
    STUCK = "stuck"
    DISABLED = "disabled"
    #: by an administrator, until it is resumed
    PAUSED = "paused"
    STOPPED = "stopped"


class BlockedQueue(msgspec.Struct, kw_only=True, frozen=True):
    """A destination queue that accepts no messages, while a mapping goes on with those for others."""

    queue: str
    #: ObjectQMgrName; blank for a queue of this queue manager
    queue_manager: str = ""
    #: "MQRC_Q_FULL (2053)"
    reason: str
    #: messages that wait for it, as far as the mapping has looked
    waiting: int
    #: seconds since the epoch
    since: float

    def __str__(self) -> str:
        at = f" at queue manager {self.queue_manager}" if self.queue_manager else ""
        messages = "1 message waits" if self.waiting == 1 else f"{self.waiting:,} messages wait"
        return f"queue {self.queue}{at} accepts no messages: {self.reason}; {messages}"


class Status(msgspec.Struct, kw_only=True):
    """Counts since the bridge started, and the last thing that went wrong."""

    name: str
    state: State = State.STARTING
    #: messages taken from where the mapping takes them, in units of work that were committed
    taken: int = 0
    #: of them: put or published
    moved: int = 0
    #: passed by, because of the filter or a topic that the pattern does not take
    filtered: int = 0
    #: cut, because they had come round
    cut: int = 0
    dead_lettered: int = 0
    #: units of work backed out
    backouts: int = 0
    commits: int = 0
    last_error: str = ""
    #: seconds since the epoch
    last_error_at: float | None = None
    #: destination queues that accept no messages
    blocked: list[BlockedQueue] = []
    #: while a queue is blocked: messages at the mapping's source, those that wait for other destinations included
    backlog: int = 0

    def wrong(self, why: str, state: State | None = None) -> None:
        """Note what went wrong, and then the state that the mapping is in for it: who sees the state finds the reason."""
        self.last_error = why
        self.last_error_at = time.time()
        if state is not None:
            self.state = state


class Tally(msgspec.Struct):
    """What happened in one unit of work; it counts once that is committed."""

    taken: int = 0
    moved: int = 0
    filtered: int = 0
    cut: int = 0
    dead_lettered: int = 0
    #: what became of each message, for the archive, where there is one
    fates: list[Fate] = []
    #: microseconds since the epoch
    began: int = msgspec.field(default_factory=now_us)

    def settle(self, status: Status) -> None:
        """Add the counts of a unit of work that is committed to the status."""
        status.taken += self.taken
        status.moved += self.moved
        status.filtered += self.filtered
        status.cut += self.cut
        status.dead_lettered += self.dead_lettered
        status.commits += 1
