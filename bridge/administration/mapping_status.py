"""The status of a mapping, written by its thread and readable by any thread."""

from __future__ import annotations

import time
from enum import StrEnum

import msgspec

from bridge.administration.answers import counted


class RunnerState(StrEnum):
    """The state of a mapping."""

    STARTING = "starting"
    RUNNING = "running"
    #: the queue manager is unreachable, or a queue is opened exclusively elsewhere
    WAITING_FOR_QUEUE_MANAGER = "waiting for the queue manager"
    WAITING_FOR_LINK = "waiting for the link"
    #: a destination rejects a message, which is retried. Messages for other queues may continue (`MappingStatus.blocked`)
    RETRYING = "retrying"
    #: the mapping cannot continue: for example, even the dead-letter queue rejects messages
    STUCK = "stuck"
    DISABLED = "disabled"
    #: an administrator has paused the mapping, until it is resumed
    PAUSED = "paused"
    STOPPED = "stopped"
    #: the mapping is not in the configuration any longer, but one of its former sessions is unfinished
    REMOVED = "removed"


class BlockedQueue(msgspec.Struct, kw_only=True, frozen=True):
    """A destination queue that rejects messages while those for other destinations continue."""

    queue: str
    #: ObjectQMgrName, or blank for a queue of this queue manager
    queue_manager: str = ""
    #: "MQRC_Q_FULL (2053)"
    reason: str
    #: number of messages waiting for it, as far as the mapping has looked ahead
    waiting: int
    #: seconds since the epoch
    since: float

    def __str__(self) -> str:
        at = f" at queue manager {self.queue_manager}" if self.queue_manager else ""
        messages = "1 message waits" if self.waiting == 1 else f"{self.waiting:,} messages wait"
        return f"queue {self.queue}{at} accepts no messages: {self.reason}; {messages}"


class UnfinishedSession(msgspec.Struct, kw_only=True, frozen=True):
    """A session at a broker that its mapping no longer uses, in which something is unfinished."""

    mapping: str
    client_id: str
    #: host and port of the broker
    address: str
    #: seconds since the epoch: when the mapping left the session
    since: float
    #: messages that the broker may have received, and that were removed from their queue
    messages: int = 0
    #: publications from the broker that are on their queue, and that the broker has not released
    received: int = 0
    #: the session is to be ended at the broker
    ending: bool = False
    #: the bridge knows how to connect to the broker
    reachable: bool = True

    def __str__(self) -> str:
        tasks = []
        if self.messages:
            tasks.append(f"{counted(self.messages, 'message')} that the broker may have, kept until it is reachable")
        if self.received:
            tasks.append(f"{counted(self.received, 'publication')} received and not released")
        if self.ending:
            tasks.append("it has to be ended at the broker")
        if not self.reachable:
            tasks.append("its link was removed")
        return f"former session {self.client_id} at {self.address}: {'; '.join(tasks) or 'nothing is unfinished'}"


class MappingStatus(msgspec.Struct, kw_only=True):
    """Counters since the start of the bridge, and the last error."""

    name: str
    state: RunnerState = RunnerState.STARTING
    #: messages taken from the source in committed units of work
    taken: int = 0
    #: of these: put or published
    moved: int = 0
    #: of these: skipped because of the filter or the topic pattern
    filtered: int = 0
    #: of these: discarded to cut a loop
    cut: int = 0
    dead_lettered: int = 0
    #: number of parts into which `split` has divided the moved messages
    parts: int = 0
    #: messages that the mapping takes and leaves out: by `limit`, because they are `unchanged`, or with `no parts`
    left_out: dict[str, int] = {}
    #: messages that could not be processed and were discarded, because the dead-letter queue was full, by MQRC
    discarded: dict[str, int] = {}
    #: units of work backed out
    backouts: int = 0
    commits: int = 0
    last_error: str = ""
    #: seconds since the epoch
    last_error_at: float | None = None
    #: destination queues that reject messages
    blocked: list[BlockedQueue] = []
    #: sessions that the mapping no longer uses, in which something is unfinished
    unfinished: list[UnfinishedSession] = []
    #: while a queue is blocked: all messages at the source, including those for other destinations
    backlog: int = 0

    def wrong(self, error: str, state: RunnerState | None = None) -> None:
        """Record an error, then set the state, so that readers who see the state also find its reason."""
        self.last_error = error
        self.last_error_at = time.time()
        if state is not None:
            self.state = state
