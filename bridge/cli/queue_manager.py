"""Where the queue manager is, and the connection to it: here alone is known what kinds of queue manager there are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.config import Configuration
    from bridge.mq.interface import Connection

#: Environment variable that names the data directory.
DATA_DIRECTORY_VARIABLE = "MQBRIDGE_DATA_DIR"


def configuration_in(path: Path) -> Configuration:
    """The configuration in a file; a Failure that tells its mistakes, one to a line, when there are any."""
    from bridge.config import ConfigurationError, load

    try:
        return load(path)
    except ConfigurationError as error:
        raise Failure(str(error), WRONG_USAGE) from error


def data_directory(option: Path | None, configuration: Configuration | None) -> Path:
    """The data directory: the option's, else what the file says in words, else the environment's, else `data`."""
    if option is not None:
        return option
    if configuration is not None and "data_directory" in configuration.queue_manager.model_fields_set:
        return configuration.queue_manager.data_directory
    return Path(os.environ.get(DATA_DIRECTORY_VARIABLE) or "data")


def connect(directory: Path) -> Connection:
    """An MQ connection to the queue manager whose data is in `directory`. Raises MQError."""
    from bridge.mq.local.client import RemoteConnection

    return RemoteConnection(directory, application="mqbridge mq")


@contextlib.contextmanager
def connected(option: Path | None, file: Path | None) -> Iterator[Connection]:
    """An MQ connection to the queue manager that the options `--data-dir` and `--config` name.

    At the end it commits and disconnects; after an error it backs out first. Nothing of the kind happens when Ctrl-C
    ends it: an MQGET may then still be waiting, behind which MQDISC would wait too. The connection breaks with the
    process, and the queue manager backs its unit of work out.
    """
    connection = connect(data_directory(option, configuration_in(file) if file is not None else None))
    try:
        yield connection
    except Exception:
        from bridge.mq.errors import MQError

        with contextlib.suppress(MQError, OSError):
            connection.backout()
            connection.disconnect()
        raise
    connection.disconnect()
