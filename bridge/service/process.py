"""The process of a bridge: how its interpreter and its event loop are set, and a new bridge for each that stands by again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Callable

import uvloop

from bridge import __version__
from bridge.config import Configuration
from bridge.service.lifecycle import STAND_BY, AdminPort, Bridge, StartError, Supervisor
from bridge.service.log import configure
from bridge.service.reload import ConfigurationSource

log = logging.getLogger(__name__)

#: Seconds that the interpreter lets a thread run on while another waits for it: a commit's short steps in the recovery log's
#: thread should not each wait for the default of 5 ms while the event loop is busy.
SWITCH_INTERVAL = 0.0005


def run(
    configuration: Configuration,
    source: ConfigurationSource | None = None,
    admin_port: Callable[[Bridge], AdminPort] | None = None,
) -> int:
    """Run the bridge in the foreground until it is told to stop; returns the exit status.

    `source` is where the configuration is read from again at SIGHUP.
    """
    configure(configuration.log)
    log.debug("mqbridge %s", __version__)
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Messages are made and forgotten by the thousand; the default thresholds would look for cycles all the time.
    gc.set_threshold(50_000, 20, 100)

    def announce(line: str) -> None:
        # A bridge whose terminal was closed still stops in order.
        with contextlib.suppress(OSError):
            print(line, flush=True)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            supervisor = Supervisor()
            while True:
                bridge = Bridge(configuration, announce, source=source, admin_port=admin_port)
                status = runner.run(bridge.run(supervisor))
                if status != STAND_BY:
                    return status
    except StartError as error:
        print(f"mqbridge: {error}", file=sys.stderr)
        return 1
