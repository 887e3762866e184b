"""How commands reach the configuration, the queue manager and the running bridge."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.administration.control_socket import ANSWER_TIMEOUT, ask
from bridge.administration.protocol import Answer, Request, result_of
from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import settings
from bridge.cli.output import note, say

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.config.queue_manager import IbmQueueManagerConfig
    from bridge.mq.mqi import Connection

T = TypeVar("T")

#: Environment variable that names the data directory.
DATA_DIRECTORY_VARIABLE = "MQBRIDGE_DATA_DIR"
#: Environment variable that names the configuration file.
CONFIGURATION_VARIABLE = "MQBRIDGE_CONFIG"


def configuration_in(path: Path) -> Configuration:
    """Read a configuration file. Raises Failure, with a line for each mistake, or OSError."""
    from bridge.config.problems import ConfigurationError

    try:
        return read(path)
    except ConfigurationError as error:
        lines = tuple(str(error).splitlines())
        count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        raise Failure(f"{path}: {count}", WRONG_USAGE, lines=lines) from error


def read(path: Path) -> Configuration:
    """Read the configuration in a file, or raise ConfigurationError."""
    from bridge.config.document import load
    from bridge.mapping.check import problems

    return load(path, problems)


def data_directory(option: Path | None, configuration: Configuration | None) -> Path:
    """Return the data directory: from the option, the configuration file, the environment, or `data`."""
    if option is not None:
        return option
    if configuration is not None:
        embedded = configuration.queue_manager
        if embedded.type == "embedded" and "data_directory" in embedded.model_fields_set:
            return embedded.data_directory
    return Path(os.environ.get(DATA_DIRECTORY_VARIABLE) or "data")


def configured(
    file: Configuration | None, data_dir: Path | None, port: int | None, log_level: str | None
) -> Configuration:
    """Return the configuration of a file (None if there is none) with the options of `mqbridge run`. Raises Failure."""
    from bridge.config.models import clashes, default_configuration

    base = file or default_configuration()
    changes: dict[str, object] = {}
    if base.queue_manager.type == "embedded":
        directory = {"data_directory": data_directory(data_dir, file)}
        changes["queue_manager"] = base.queue_manager.model_copy(update=directory)
    elif data_dir is not None:
        raise Failure(f"--data-dir {data_dir}: a bridge on IBM MQ has no data directory", WRONG_USAGE)
    places = dict(base.places)
    if data_dir is not None:
        places["queue_manager", "data_directory"] = "--data-dir"
    elif os.environ.get(DATA_DIRECTORY_VARIABLE):
        places.setdefault(("queue_manager", "data_directory"), DATA_DIRECTORY_VARIABLE)
    if log_level is not None:
        places["log", "level"] = "--log-level"
        changes["log"] = base.log.model_copy(update={"level": log_level})
    if port is not None:
        if not base.channels:
            raise Failure("--port: the configuration file has no channel", WRONG_USAGE)
        places["channels", 0, "port"] = "--port"
        changes["channels"] = [base.channels[0].model_copy(update={"port": port}), *base.channels[1:]]
    configuration = base.model_copy(update=changes)
    configuration.locate(base.file, places, base.notes)
    if port is not None and (conflicts := clashes(configuration)):
        text = "; ".join(f"expected {clash.expected}, found {clash.found}" for clash in conflicts)
        raise Failure(f"--port {port}: {text}", WRONG_USAGE)
    return configuration


def connect(option: Path | None, configuration: Configuration | None) -> Connection:
    """Connect to the queue manager that `--data-dir` and a configuration specify. Raises MQError or Failure."""
    if configuration is not None and configuration.queue_manager.type == "ibm":
        if option is not None:
            raise Failure(
                f"--data-dir {option}: a bridge on IBM MQ has no data directory",
                WRONG_USAGE,
                hint="omit --data-dir or --config",
            )
        return _connect_ibm(configuration.queue_manager)
    from bridge.mq.remote import RemoteConnection

    return RemoteConnection(data_directory(option, configuration), application="mqbridge mq")


def _connect_ibm(ibm: IbmQueueManagerConfig) -> Connection:
    from bridge.mq.ibm.connection import connect_ibm
    from bridge.mq.ibm.parameters import load_library, parameters

    return connect_ibm(load_library(ibm.library), parameters(ibm, os.environ))


def configuration_path() -> Path:
    """Return the configuration file in `--config` or the environment. Raises Failure if there is none."""
    path = settings.config or os.environ.get(CONFIGURATION_VARIABLE)
    if not path:
        raise Failure("no configuration file", WRONG_USAGE, hint=f"use --config FILE, or set {CONFIGURATION_VARIABLE}")
    return Path(path)


def configuration() -> Configuration | None:
    """Return the configuration in `--config` or the environment, or None if no file is named. Raises Failure.

    `--data-dir` identifies an embedded queue manager completely. With it, the environment is ignored.
    """
    if settings.config is not None:
        return configuration_in(settings.config)
    variable = os.environ.get(CONFIGURATION_VARIABLE)
    if not variable or settings.data_dir is not None:
        return None
    try:
        return configuration_in(Path(variable))
    except Failure as failure:
        failure.hint = f"{CONFIGURATION_VARIABLE} names this file. With --data-dir DIR, it is not read"
        raise


def connection_settings() -> Configuration | None:
    """Return the configuration for reaching a running bridge and its queue manager, or None if no file is named.

    If the file has mistakes, it contains only the sections `queue_manager`, `control_socket` and `transmission_queue`, and a
    warning is printed. Later changes of the file do not affect a running bridge. Raises Failure.
    """
    try:
        return configuration()
    except Failure:
        # Imported only now: most commands do not need them.
        from bridge.config.document import load_connection
        from bridge.config.problems import ConfigurationError

        file = configuration_path()
        try:
            connection = load_connection(file)
        except ConfigurationError:
            connection = None
        if connection is None or not connection.model_fields_set:
            if settings.data_dir is None:
                raise
            connection = None
    note(f"warning: {file} has mistakes (`mqbridge check {file}` lists them); using only its connection settings")
    return connection


@contextlib.contextmanager
def connected() -> Iterator[Connection]:
    """Yield an MQ connection to the queue manager that the options or the environment specify.

    At the end it commits and disconnects. After an error it backs out first. After Ctrl-C, it only breaks the connection,
    because MQDISC would wait for an MQGET. The queue manager then backs out the unit of work.
    """
    with connected_to(connection_settings()) as connection:
        yield connection


@contextlib.contextmanager
def connected_to(configuration: Configuration | None) -> Iterator[Connection]:
    """Yield an MQ connection to the queue manager of a configuration, as `connected` does."""
    connection = connect(settings.data_dir, configuration)
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


# The running bridge ---------------------------------------------------------------------------------------------------


def asked(request: Request[Any], timeout: float = ANSWER_TIMEOUT) -> Answer:
    """Send a request to the running bridge, and return its answer. Raises Failure or NoBridge."""
    path = configured(connection_settings(), settings.data_dir, None, None).control_socket_path
    if path is None:
        raise Failure(
            "the configuration file has no control_socket, which is required for a bridge on IBM MQ",
            WRONG_USAGE,
            hint="add control_socket and restart the bridge. `kill -HUP` also reloads its configuration",
        )
    return ask(path, request, timeout)


def failure_of(answer: Answer) -> Failure:
    """Return the failure of a rejected request, with its exit status."""
    status = NOT_FOUND if answer.not_found else WRONG_USAGE if answer.invalid else FAILED
    return Failure("\n".join(answer.lines), status)


def shown(request: Request[T], timeout: float = ANSWER_TIMEOUT) -> T:
    """Return the result of a request. Raises Failure if the bridge rejects it, or NoBridge."""
    answer = asked(request, timeout)
    if not answer.ok:
        raise failure_of(answer)
    return result_of(request, answer)


def done(request: Request[Any]) -> None:
    """Execute a request, and print the bridge's confirmation. Raises Failure as `shown` does."""
    answer = asked(request)
    if not answer.ok:
        raise failure_of(answer)
    for line in answer.lines:
        say(line)
