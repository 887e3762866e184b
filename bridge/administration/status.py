"""How a bridge is, as a whole."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class BridgeState(StrEnum):
    """Where a bridge stands between its start and its end."""

    STARTING = "starting"
    #: another bridge has the transmission queue
    STANDING_BY = "standing by"
    RUNNING = "running"
    STOPPING = "stopping"


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
    #: what is not as it should be, in words
    problems: list[str] = []
