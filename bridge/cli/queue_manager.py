"""Where the queue manager is, and the connection to it: here alone is known what kinds of queue manager there are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.config import Configuration, IbmQueueManagerConfig
    from bridge.mq.mqi import Connection

#: Environment variable that names the data directory.
DATA_DIRECTORY_VARIABLE = "MQBRIDGE_DATA_DIR"
#: Environment variable that names the configuration file of `mqbridge mq`.
CONFIGURATION_VARIABLE = "MQBRIDGE_CONFIG"


def configuration_in(path: Path) -> Configuration:
    """Read the configuration in a file, or raise Failure, which tells its mistakes, one to a line."""
    from bridge.config import ConfigurationError

    try:
        return read(path)
    except ConfigurationError as error:
        raise Failure(str(error), WRONG_USAGE) from error


def read(path: Path) -> Configuration:
    """Read the configuration in a file, or raise ConfigurationError."""
    from bridge.config import load
    from bridge.mapping.rules.check import problems

    return load(path, problems)


def data_directory(option: Path | None, configuration: Configuration | None) -> Path:
    """Return the data directory: the option's, else what the file says in words, else the environment's, else `data`."""
    if option is not None:
        return option
    if configuration is not None:
        settings = configuration.queue_manager
        if settings.type == "embedded" and "data_directory" in settings.model_fields_set:
            return settings.data_directory
    return Path(os.environ.get(DATA_DIRECTORY_VARIABLE) or "data")


def connect(option: Path | None, configuration: Configuration | None) -> Connection:
    """Make an MQ connection to the queue manager that `--data-dir` and a configuration name, or raise MQError."""
    if configuration is not None and configuration.queue_manager.type == "ibm":
        if option is not None:
            raise Failure(
                f"--data-dir {option}: the configuration file has a queue manager of IBM MQ, which has no data"
                " directory here; leave the option out, or --config",
                WRONG_USAGE,
            )
        return _connect_ibm(configuration.queue_manager)
    from bridge.mq.remote import RemoteConnection

    return RemoteConnection(data_directory(option, configuration), application="mqbridge mq")


def _connect_ibm(settings: IbmQueueManagerConfig) -> Connection:
    from bridge.mq.ibm.connection import connect_ibm
    from bridge.mq.ibm.parameters import LibraryMissing, load_library, parameters

    try:
        library = load_library(settings.library)
    except LibraryMissing as error:
        raise Failure(str(error)) from error
    return connect_ibm(library, parameters(settings, os.environ))


def configuration_of(option: Path | None, data_directory_option: Path | None) -> Configuration | None:
    """Return the configuration that `--config` names, else the environment; None where neither does.

    `--data-dir` says all that there is to say of a queue manager: then the environment is not asked.
    """
    if option is not None:
        return configuration_in(option)
    variable = os.environ.get(CONFIGURATION_VARIABLE)
    if not variable or data_directory_option is not None:
        return None
    try:
        return configuration_in(Path(variable))
    except Failure as failure:
        # A bridge that runs may be well, whatever has been written to its file since.
        hint = f"{CONFIGURATION_VARIABLE} names this file; with --data-dir DIRECTORY nobody reads it"
        raise Failure(f"{failure.text}\n{hint}", failure.status) from failure


def connection_settings_of(option: Path | None, data_directory_option: Path | None) -> Configuration | None:
    """Return the configuration for reaching a running bridge and its queue manager, or None if no file is named.

    If the file has mistakes, it contains only the sections `queue_manager`, `control_socket` and `transmission_queue`, and a
    warning is printed. Later changes of the file do not affect a running bridge. Raises Failure.
    """
    try:
        return configuration_of(option, data_directory_option)
    except Failure:
        # Imported only now: most commands do not need them.
        from bridge.cli.output import note
        from bridge.config import ConfigurationError
        from bridge.config.document import load_connection

        file = option or Path(os.environ[CONFIGURATION_VARIABLE])
        try:
            configuration = load_connection(file)
        except ConfigurationError:
            configuration = None
        if configuration is None or not configuration.model_fields_set:
            if data_directory_option is None:
                raise
            configuration = None
    note(f"warning: {file} has mistakes (`mqbridge check {file}` lists them); using only how to reach the bridge")
    return configuration


@contextlib.contextmanager
def connected(option: Path | None, file: Path | None) -> Iterator[Connection]:
    """Yield an MQ connection to the queue manager that the options `--data-dir` and `--config`, or the environment, name.

    At the end it commits and disconnects; after an error it backs out first. Nothing of the kind happens when Ctrl-C
    ends it: an MQGET may then still be waiting, behind which MQDISC would wait too. The connection breaks, at the latest
    with the process, and the queue manager backs its unit of work out.
    """
    with connected_to(option, connection_settings_of(file, option)) as connection:
        yield connection


@contextlib.contextmanager
def connected_to(option: Path | None, configuration: Configuration | None) -> Iterator[Connection]:
    """Yield an MQ connection as `connected` does, to the queue manager of a configuration that was read."""
    connection = connect(option, configuration)
    try:
        yield connection
    except KeyboardInterrupt:
        from bridge.mq.remote import RemoteConnection

        if isinstance(connection, RemoteConnection):
            connection.abort()
        raise
    except Exception:
        from bridge.mq.mqi import MQError

        with contextlib.suppress(MQError, OSError):
            connection.backout()
            connection.disconnect()
        raise
    connection.disconnect()
