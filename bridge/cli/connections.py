"""Connections of `mqbridge check --connect` to the queue manager and to brokers, which may hang."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from bridge.background import in_background
from bridge.cli.failures import FAILED, Failure
from bridge.config.values import endpoint

if TYPE_CHECKING:
    from bridge.config.link import LinkConfig
    from bridge.config.models import Configuration
    from bridge.mq.mqi import Connection

#: Seconds without an answer after which the check gives up, and seconds to find out whether an address is reachable. The
#: command ends within 15 seconds.
TIMEOUT: Final = 8.0
PROBE_TIMEOUT: Final = 3.0
#: Time that the command server has to answer, in milliseconds.
REPLY_WAIT: Final = 5_000


# Brokers ---------------------------------------------------------------------------------------------------------------


def unreachable(links: Iterable[tuple[str, LinkConfig]]) -> Callable[[], list[str]]:
    """Connect to the brokers of links. Return a function that waits, and returns a line for each that cannot be reached.

    No CONNECT packet is sent, because it would end the session of a running bridge. User and password are not checked.
    """
    until = time.monotonic() + TIMEOUT + PROBE_TIMEOUT
    attempts = [(name, link, in_background(partial(_reach, link), name)) for name, link in links]

    def lines() -> list[str]:
        lines = []
        for name, link, attempt in attempts:
            wait([attempt], until - time.monotonic())
            addresses = ", ".join(endpoint(*address) for address in link.addresses)
            error = attempt.result() if attempt.done() else f"the broker at {addresses} did not answer in time"
            lines += [f"link {name}: {error}"] if error else []
        return lines

    return lines


def _reach(link: LinkConfig) -> str:
    """Return why a broker cannot be reached, or ""."""
    from bridge.link.trial import TrialFailed, reach

    try:
        for _ in reach(link):
            pass
    except TrialFailed as error:
        return str(error)
    return ""


# The queue manager -----------------------------------------------------------------------------------------------------


class _Progress:
    """Notes whether a queue manager accepted a connection, and when it last answered, by time.monotonic()."""

    def __init__(self) -> None:
        self.connected = False
        self.answered_at = time.monotonic()

    def answered(self) -> None:
        """Note an answer."""
        self.connected, self.answered_at = True, time.monotonic()


class _Observed:
    """A connection that notes each answer."""

    def __init__(self, connection: Connection, progress: _Progress) -> None:
        self._connection = connection
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._connection, name)

        def observed(*arguments: Any, **options: Any) -> Any:
            try:
                return call(*arguments, **options)
            finally:
                self._progress.answered()

        return observed


def lacking_at_queue_manager(configuration: Configuration) -> tuple[list[str], list[str]]:
    """Return the missing requirements at the queue manager of a configuration, and notes about optional ones.

    Raises Failure or MQError if the queue manager cannot be reached, or does not answer.
    """
    progress = _Progress()
    examination = in_background(partial(_examine, configuration, progress), "examination")
    while not examination.done() and (seconds := progress.answered_at + TIMEOUT - time.monotonic()) > 0:
        wait([examination], seconds)
    if not examination.done():
        raise Failure(_no_answer(configuration, progress.connected), FAILED)
    return examination.result()


def _examine(configuration: Configuration, progress: _Progress) -> tuple[list[str], list[str]]:
    from bridge.cli.queue_manager import connect
    from bridge.mq.ibm.requirements_check import missing, refused_connection, requirements_of
    from bridge.mq.mqi import MQError

    embedded = configuration.queue_manager.type == "embedded"
    requirements = msgspec.structs.replace(requirements_of(configuration), commands=not embedded)
    name = configuration.queue_manager.name
    try:
        connection = connect(None, configuration)
    except MQError as error:
        if embedded:
            raise
        raise Failure(str(refused_connection(error, name, requirements.user)), FAILED) from error
    progress.answered()
    try:
        shortcomings = missing(cast("Connection", _Observed(connection, progress)), requirements, REPLY_WAIT)
    finally:
        with contextlib.suppress(MQError, OSError):
            connection.disconnect()
    return [str(shortcoming) for shortcoming in shortcomings if shortcoming.needed], [
        str(shortcoming) for shortcoming in shortcomings if not shortcoming.needed
    ]


def _no_answer(configuration: Configuration, connected: bool) -> str:
    """Describe a queue manager that did not answer in time: it cannot be reached, or it is connected and hangs."""
    settings = configuration.queue_manager
    problem = f"no answer from queue manager {settings.name} within {TIMEOUT:g} s"
    if settings.type == "embedded":
        return f"connected, but {problem}: the bridge hangs"
    hangs = "the queue manager, its machine or the network hangs"
    if connected:
        return f"connected, but {problem}: {hangs}"
    failures, attempts = (
        [],
        [(address, in_background(partial(_probe, address), address)) for address in settings.connections or ()],
    )
    wait([attempt for _, attempt in attempts], PROBE_TIMEOUT)
    for address, attempt in attempts:
        error = attempt.result() if attempt.done() else "timed out"
        if not error:
            return f"connected to {address}, but {problem}: {hangs}"
        failures.append(f"{address}: {error}")
    return f"cannot connect to queue manager {settings.name} within {TIMEOUT:g} s: {', '.join(failures) or hangs}"


def _probe(address: str) -> str:
    """Return why the address `host(port)` cannot be reached, or ""."""
    host, _, port = address.rstrip(")").partition("(")
    try:
        socket.create_connection((host, int(port or 1414)), PROBE_TIMEOUT).close()
    except (OSError, UnicodeError) as error:
        return str(error)
    return ""
