"""The bridge's process: settings of the interpreter and the event loop, and restarts as standby."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable

import uvloop

from bridge import __version__
from bridge.config import Configuration
from bridge.service.lifecycle import STAND_BY, AdminPort, Bridge, StartError, Supervisor
from bridge.service.log import configure
from bridge.service.reload import ConfigurationSource

log = logging.getLogger(__name__)

#: The interpreter's thread switch interval in seconds. With the default of 5 ms, each short step of a commit in the recovery
#: log's thread would have to wait that long for a busy event loop.
SWITCH_INTERVAL = 0.0005


def run(
    configuration: Configuration,
    source: ConfigurationSource | None = None,
    admin_port: Callable[[Bridge], AdminPort] | None = None,
) -> int:
    """Run the bridge in the foreground until it is stopped, and return the exit status.

    `source` is the source for reloading the configuration at SIGHUP.
    """
    configure(configuration.log)
    log.info(
        "MQB0011I starting mqbridge %s: configuration %s, queue manager %s (%s), process %d",
        __version__,
        "defaults" if source is None else source.path,
        configuration.queue_manager.name,
        configuration.queue_manager.type,
        os.getpid(),
    )
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Thousands of messages are created and freed. With the default thresholds, the garbage collector would run all the time.
    gc.set_threshold(50_000, 20, 100)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            supervisor = Supervisor()
            while True:
                bridge = Bridge(configuration, source=source, admin_port=admin_port)
                status = runner.run(bridge.run(supervisor))
                if status != STAND_BY:
                    return status
    except StartError as error:
        log.critical("MQB0016S cannot start: %s", error)
        return 1
