"""`mqbridge check --connect`: a look at the queue manager, told on the terminal."""

from __future__ import annotations

import contextlib

import msgspec

from bridge.cli.failures import FAILED, Failure
from bridge.cli.output import note, write
from bridge.cli.queue_manager import connect
from bridge.config import Configuration
from bridge.mq.errors import MQError
from bridge.mq.needs import mapping_queues_of
from bridge.mq.requirements import missing, refused_connection, requirements_of


def check_queue_manager(configuration: Configuration) -> None:
    """Say on standard error what the queue manager of a configuration lacks. Raises Failure when that is something.

    What only clients with certain topics need is told as a note, and is no failure.
    """
    requirements = msgspec.structs.replace(
        requirements_of(configuration), mapping_queues=tuple(mapping_queues_of(configuration))
    )
    name = configuration.queue_manager.name
    try:
        connection = connect(None, configuration)
    except MQError as error:
        if configuration.queue_manager.type == "embedded":
            raise
        raise Failure(str(refused_connection(error, name, requirements.user)), FAILED) from error
    try:
        found = missing(connection, requirements)
    finally:
        with contextlib.suppress(MQError, OSError):
            connection.disconnect()
    for one in found:
        if not one.needed:
            note(f"note: {one}")
    lacking = [str(one) for one in found if one.needed]
    if lacking:
        raise Failure("\n".join(lacking), FAILED)
    write(f"queue manager {name} has all that the bridge needs")
