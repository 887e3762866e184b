"""The options of a data source that specify its queue manager, and connections to it.

Spark's plans contain the address of the queue manager, but no password. Each process reads the password when it connects,
from the file or environment variable in the options or in the configuration file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.config.queue_manager import PASSWORD_VARIABLE, IbmQueueManagerConfig, read_password
from bridge.config.tls import ClientTlsConfig
from bridge.mq.mqi import Connection, MQError
from bridge.mq.remote import RemoteConnection
from bridge.security.tls import tls_context
from bridge.spark.options import TLS_OPTIONS, Options

APPLICATION_NAME: Final = "mqbridge spark"

_USER_OPTIONS: Final = {"user": "user", "passwordFile": "password_file", "passwordVariable": "password_variable"}
#: Options for IBM MQ and its TLS -> keys of the configuration file.
_IBM_OPTIONS: Final = {
    "queueManager": "name",
    "library": "library",
    "mode": "mode",
    "ccdtUrl": "ccdt_url",
    "channel": "channel",
    "connections": "connections",
    **_USER_OPTIONS,
    "applicationName": "application_name",
}
_IBM_TLS_OPTIONS: Final = {
    "keyRepository": "key_repository",
    "cipherSpec": "cipher_spec",
    "certificateLabel": "certificate_label",
    "peerName": "peer_name",
}
_LISTENER_OPTIONS: Final = ("listener", *_USER_OPTIONS, "tls", *TLS_OPTIONS)
#: All options that specify the queue manager.
QUEUE_MANAGER_OPTIONS: Final = (
    *dict.fromkeys(("config", "dataDirectory", *_LISTENER_OPTIONS, *_IBM_OPTIONS, *_IBM_TLS_OPTIONS)),
)


class QueueManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A queue manager: the embedded one by its data directory or its TCP listener, or one of IBM MQ."""

    #: name of the embedded queue manager; blank: any
    name: str = ""
    data_directory: str = ""
    listener: tuple[str, int] | None = None
    #: user at the listener; blank: no password
    user: str = ""
    password_file: str = ""
    password_variable: str = PASSWORD_VARIABLE
    #: of the listener
    tls: ClientTlsConfig | None = None
    ibm: IbmQueueManagerConfig | None = None

    @property
    def asynchronous_puts(self) -> bool:
        """Whether puts are asynchronous (MQPMO_ASYNC_RESPONSE), with one MQSTAT call per unit of work."""
        return self.ibm is not None and bool(self.ibm.asynchronous_puts)

    def connect(self) -> Connection:
        """Open a new connection. Raises MQError, and OSError if a password file cannot be read."""
        if self.ibm is not None:
            from bridge.mq.ibm.connection import connect_ibm
            from bridge.mq.ibm.parameters import load_library, parameters

            return connect_ibm(load_library(self.ibm.library), parameters(self.ibm, os.environ))
        password = ""
        if self.user:
            file = Path(self.password_file) if self.password_file else None
            password = read_password(f"user {self.user}", file, self.password_variable, os.environ)
        return RemoteConnection(
            self.listener or Path(self.data_directory),
            application=APPLICATION_NAME,
            queue_manager=self.name,
            user=self.user,
            password=password,
            tls=None if self.tls is None else tls_context(self.tls),
        )

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        """Open a connection for a block. Back out if the block raises, otherwise commit by disconnecting."""
        connection = self.connect()
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(MQError, OSError):
                connection.backout()
                connection.disconnect()
            raise
        connection.disconnect()


def queue_manager_options_of(options: Options) -> QueueManagerOptions:
    """Return the queue manager that options specify, with a configuration file or individually. Raises OptionError."""
    listener = _LISTENER_OPTIONS if "listener" in options else ()
    if "config" in options:
        options.allow(
            ("config", *listener), QUEUE_MANAGER_OPTIONS, "because the file in the option config specifies it"
        )
        configuration = options.configuration()
        assert configuration is not None
        settings = configuration.queue_manager
        if settings.type == "ibm":
            return QueueManagerOptions(ibm=settings)
        return QueueManagerOptions(
            name=settings.name, data_directory=str(settings.data_directory.absolute()), **_listener(options)
        )
    if listener or "dataDirectory" in options:
        why = (
            "with listener" if listener else "with dataDirectory, a Unix socket (or add listener, to connect over TCP)"
        )
        options.allow(("dataDirectory", "queueManager", *listener), QUEUE_MANAGER_OPTIONS, why)
        directory = options.path("dataDirectory")
        name = options.text("queueManager") or ""
        return QueueManagerOptions(name=name, data_directory=str(directory or ""), **_listener(options))
    tls = options.keys(_IBM_TLS_OPTIONS)
    values = options.keys(_IBM_OPTIONS) | ({"tls": tls} if tls else {})
    options.allow((*_IBM_OPTIONS, *_IBM_TLS_OPTIONS), QUEUE_MANAGER_OPTIONS, "without listener")
    if not values:
        raise options.wrong(
            "config",
            "a configuration file (or dataDirectory or listener of a bridge, or channel and connections of IBM MQ)",
        )
    return QueueManagerOptions(ibm=options.checked(IbmQueueManagerConfig, values, _IBM_OPTIONS | _IBM_TLS_OPTIONS))


def _listener(options: Options) -> dict[str, Any]:
    """Return the fields of QueueManagerOptions for a TCP listener."""
    if "user" not in options:
        options.allow((), _USER_OPTIONS, "without user, whose password it is")
    user = {key: str(value) for key, value in options.keys(_USER_OPTIONS).items()}
    tls = options.tls()
    checked = None if tls is None else options.checked(ClientTlsConfig, tls, TLS_OPTIONS)
    return {"listener": options.address("listener"), "tls": checked, **user}
