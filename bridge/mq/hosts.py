"""Selection of the host of the configured queue manager."""

from __future__ import annotations

import asyncio

from bridge.config.models import Configuration
from bridge.mq.host import Host


def host_of(configuration: Configuration, loop: asyncio.AbstractEventLoop) -> Host:
    """Return the host of the configured queue manager. Raises HostError."""
    if configuration.queue_manager.type == "embedded":
        from bridge.mq.embedded.host import EmbeddedHost

        return EmbeddedHost(configuration, loop)
    from bridge.mq.ibm.host import IbmHost

    return IbmHost(configuration, loop)
