"""How a bridge is, as a whole."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class BridgeState(StrEnum):
    """Where a bridge stands between its start and its end."""

    STARTING = "starting"
    #: another bridge has the transmission queue
    STANDING_BY = "standing by"
    RUNNING = "running"
    STOPPING = "stopping"


class ProblemKind(StrEnum):
    """What a problem is about."""

    QUEUE_MANAGER = "queue_manager"
    DISK = "disk"
    MEMORY = "memory"
    CHANNEL = "channel"
    CERTIFICATE = "certificate"
    MAPPING = "mapping"
    #: a queue that is full or PUT(DISABLED)
    QUEUE = "queue"
    DEAD_LETTERS = "dead_letters"
    BACKLOG = "backlog"
    #: clients that acknowledge nothing
    CLIENT = "client"
    #: units of work that fail though the queue manager answers
    COMMITS = "commits"
    RELOAD = "reload"


class Problem(msgspec.Struct, frozen=True):
    """A current problem of a bridge."""

    #: `critical` if clients are not served, `error` if messages are not delivered, otherwise `warning`
    severity: Literal["critical", "error", "warning"]
    kind: ProblemKind
    #: a description
    what: str
    #: the command that shows or fixes it
    command: str


class BridgeStatus(msgspec.Struct, kw_only=True):
    """The bridge at a glance."""

    state: BridgeState
    version: str
    #: seconds since the epoch
    started_at: float
    process_id: int
    queue_manager: str
    #: embedded or ibm
    queue_manager_type: str
    #: the queue manager answers, and takes what is persistent
    queue_manager_available: bool
    #: that in words
    queue_manager_state: str
    channels: int
    channels_running: int
    clients: int
    sessions: int
    #: units of work under way
    units_of_work: int
    mappings: int
    log_level: str
    problems: list[Problem] = []
