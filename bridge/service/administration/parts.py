"""The parts of a running bridge that administration requests need, and the results of requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from bridge.administration.answers import BridgeState, Problem
from bridge.config.models import Configuration
from bridge.mq.host import Host
from bridge.service.activity import HistoryRecorder, Watch
from bridge.service.administration.queue_manager_connection import QueueManagerConnection
from bridge.service.channels import Channels
from bridge.service.log import LogTail
from bridge.service.mappings.registry import Mappings
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.telemetry import TelemetryService

if TYPE_CHECKING:
    from bridge.service.recorder import Recorder

#: Number of rows processed per turn of the event loop.
ROWS_AT_A_TURN = 500


class Done(msgspec.Struct, frozen=True):
    """A request was performed; `lines` are for display."""

    lines: list[str]


class Parts(msgspec.Struct, kw_only=True):
    """The parts of a running bridge."""

    #: from the start or the last reload
    configuration: Configuration
    host: Host
    service: TelemetryService
    channels: Channels
    mappings: Mappings
    watch: Watch
    queue_manager_watch: QueueManagerWatch
    queue_manager_connection: QueueManagerConnection
    #: None without an archive
    archive: Recorder | None
    reload: Callable[[], Awaitable[tuple[bool, list[str]]]]
    #: returns the current problems
    problems: Callable[[], Awaitable[list[Problem]]]
    #: seconds since the epoch
    started_at: float
    #: None without an admin port
    history: HistoryRecorder | None = None
    log_tail: LogTail | None = None
    state: BridgeState = BridgeState.STARTING
    #: why the last reload failed, or blank if it succeeded, or there was none
    failed_reload: str = ""
    #: a link test is running
    trying_link: bool = False
