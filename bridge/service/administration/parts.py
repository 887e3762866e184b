"""The parts of a running bridge that an administrator asks about, and the refusal of what cannot be done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from bridge.administration.answers import BridgeState
from bridge.config import Configuration
from bridge.mq.host import Host
from bridge.service.activity import Watch
from bridge.service.channels import Channels
from bridge.service.mappings.registry import Mappings
from bridge.service.queue_manager_watch import QueueManagerWatch
from bridge.service.telemetry import TelemetryService

#: Rows that are looked at in one turn of the event loop.
ROWS_AT_A_TURN = 500


class Refused(Exception):
    """A request cannot be done; words for a person."""


class Done(msgspec.Struct, frozen=True):
    """A request that was done: lines that tell a person of it."""

    lines: list[str]


class Parts(msgspec.Struct, kw_only=True):
    """A running bridge, as its administration sees it."""

    #: as it was at the start, or as the last reload has left it
    configuration: Configuration
    host: Host
    service: TelemetryService
    channels: Channels
    mappings: Mappings
    watch: Watch
    queue_manager_watch: QueueManagerWatch
    reload: Callable[[], Awaitable[tuple[bool, list[str]]]]
    #: seconds since the epoch
    started_at: float
    state: BridgeState = BridgeState.STARTING
    #: why the last reload changed nothing; blank if it succeeded, or there was none
    failed_reload: str = ""
    #: a connection to a link's broker is being tried
    trying_link: bool = False
