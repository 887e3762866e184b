"""How tasks of Spark on other machines come to the queue manager, and why they could not.

A queue manager at a Unix socket is not there for them: that is refused before anything starts, with the keys that mend it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from bridge.config import values
from bridge.config.models import Configuration
from bridge.config.queue_manager import EmbeddedQueueManagerConfig
from bridge.config.tls import ClientTlsConfig
from bridge.spark.tls_options import TLS_OPTIONS

_EVERYWHERE: Final = ("0.0.0.0", "::")


class OutOfReach(Exception):
    """Workers cannot come to the queue manager; the text says which keys mend it."""


def is_on_this_machine(master: str) -> bool:
    """Return whether a master listens where only programs of this machine come, so that its workers are here."""
    return values.is_loopback(urlsplit(master).hostname or "")


def queue_manager_options(configuration: Configuration, master: str, local: dict[str, str]) -> dict[str, str]:
    """Return the options of the source `mq` by which tasks of a remote master reach the queue manager. Raises OutOfReach.

    `local` are those that programs of this machine need.
    """
    settings, spark = configuration.queue_manager, configuration.spark
    if not isinstance(settings, EmbeddedQueueManagerConfig):
        if settings.mode == "bindings" and not is_on_this_machine(master):
            raise OutOfReach(
                f"{workers_of(master)} do not reach queue manager {settings.name} in mode bindings: expected"
                " queue_manager.mode: client, with channel and connections"
            )
        return local
    options = {"listener": _listener(configuration, settings, master), "queueManager": settings.name}
    if spark.tls is not None:
        options |= _tls_options(spark.tls)
    elif settings.listener is not None and settings.listener.tls is not None:
        raise OutOfReach("queue_manager.listener has TLS: expected spark.tls, with a ca_file that is on each worker")
    asks = settings.listener is not None and not settings.listener.believes
    if spark.user is not None:
        return options | {"user": spark.user, "passwordFile": str(spark.password_file)}
    if asks:
        raise OutOfReach(
            "queue_manager.listener asks for a password: expected spark.user, and spark.password_file, a file on each worker"
            " whose first line is the password of that user"
        )
    return options


def _tls_options(tls: ClientTlsConfig) -> dict[str, str]:
    options = {"tls": "true", "tlsCheckHostName": str(tls.check_host_name).lower()}
    for name, key in TLS_OPTIONS.items():
        if name not in options and (value := getattr(tls, key)) is not None:
            options[name] = str(value)
    return options


def _listener(configuration: Configuration, settings: EmbeddedQueueManagerConfig, master: str) -> str:
    """Return `host(port)` where workers reach the embedded queue manager. Raises OutOfReach."""
    if configuration.spark.listener is not None:
        return configuration.spark.listener
    listener, mend = settings.listener, "expected spark.listener: host(port), as workers reach it"
    if listener is None:
        raise OutOfReach(
            f"{workers_of(master)} reach the queue manager by TCP only, and it does not listen: expected"
            " queue_manager.listener with address, port and password_file (and spark.user, spark.password_file)"
        )
    if listener.port == 0:
        raise OutOfReach(f"queue_manager.listener takes any free port, and workers have to know it: {mend}")
    if listener.address in _EVERYWHERE:
        if is_on_this_machine(master):
            return f"{'127.0.0.1' if listener.address == '0.0.0.0' else '::1'}({listener.port})"
        raise OutOfReach(f"queue_manager.listener is at all addresses of this machine, and workers need one of them: {mend}")
    if values.is_loopback(listener.address) and not is_on_this_machine(master):
        raise OutOfReach(
            f"queue_manager.listener is at {listener.address}, where only programs of this machine come, not"
            f" {workers_of(master)}: expected another address (or, where they run here all the same, spark.listener)"
        )
    return f"{listener.address}({listener.port})"


def workers_of(master: str) -> str:
    """Return the workers of a master in words."""
    return f"workers of {master}"
