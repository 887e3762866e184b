"""Queue managers: IBM MQ (`ibm`, via pymqi or ibmmq) and the embedded one (`embedded`).

`mqi` is the MQI in Python for both. `backend` is the interface to the telemetry service, and `host` starts and stops a queue
manager. Other processes connect to the embedded queue manager with `remote`, which also runs several calls in one round trip.
Mappings get messages with `message_consumer` and put them with `message_producer`. `database` backs up and repairs the
embedded queue manager's `data_directory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from bridge.config.models import Configuration
    from bridge.mq.host import Host


def host_of(configuration: Configuration, loop: asyncio.AbstractEventLoop, standby_delay: float = 0.0) -> Host:
    """Return the host of the configured queue manager. Raises HostError.

    `standby_delay` is the number of seconds for which a bridge that has yielded leaves the queue manager to its standby.
    """
    if configuration.queue_manager.type == "embedded":
        from bridge.mq.embedded.host import EmbeddedHost

        return EmbeddedHost(configuration, loop)
    from bridge.mq.ibm.host import IbmHost

    return IbmHost(configuration, loop, standby_delay)
