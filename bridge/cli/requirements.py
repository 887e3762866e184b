"""`mqbridge check --connect`: what the queue manager of a configuration lacks."""

from __future__ import annotations

import contextlib

from bridge.cli.failures import FAILED, Failure
from bridge.cli.queue_manager import connect
from bridge.config import Configuration
from bridge.mq.ibm.requirements_check import missing, refused_connection, requirements_of
from bridge.mq.mqi import MQError


def lacking_at_queue_manager(configuration: Configuration) -> tuple[list[str], list[str]]:
    """Return what the queue manager of a configuration lacks, and notes: what the bridge can do without.

    Raises Failure or MQError if the queue manager cannot be reached.
    """
    requirements = requirements_of(configuration)
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
    return [str(one) for one in found if one.needed], [str(one) for one in found if not one.needed]
