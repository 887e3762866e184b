"""The options of a data source that specify its queue manager, and connections to it.

Spark's plans contain the address of the queue manager, but no password. Each process reads the password when it connects,
from the file or environment variable in the options or in the configuration file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.config.queue_manager import PASSWORD_VARIABLE, read_password
from bridge.mq.mqi import Connection, MQError
from bridge.mq.remote import RemoteConnection
from bridge.security.tls import tls_context
from bridge.spark.options import TLS_OPTIONS, OptionError, Options, checked, tls_of

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.config.queue_manager import IbmQueueManagerConfig
    from bridge.config.tls import ClientTlsConfig

APPLICATION_NAME: Final = "mqbridge spark"

#: Options for the embedded queue manager, for IBM MQ, and for TLS: names of Spark options -> keys of the YAML.
_IBM_OPTIONS: Final = {
    "library": "library",
    "mode": "mode",
    "ccdtUrl": "ccdt_url",
    "channel": "channel",
    "connections": "connections",
    "user": "user",
    "passwordFile": "password_file",
    "passwordVariable": "password_variable",
    "applicationName": "application_name",
}
#: Those of them that a listener with a password file asks for, too.
_USER_OPTIONS: Final = ("user", "passwordFile", "passwordVariable")
#: Those for the TLS of a listener.
_LISTENER_OPTIONS: Final = ("listener", "tls", *TLS_OPTIONS)
_IBM_TLS_OPTIONS: Final = {
    "keyRepository": "key_repository",
    "cipherSpec": "cipher_spec",
    "certificateLabel": "certificate_label",
    "peerName": "peer_name",
}
#: All options that say where the queue manager is.
QUEUE_MANAGER_OPTIONS: Final = (
    "config",
    "type",
    "queueManager",
    "dataDirectory",
    *_LISTENER_OPTIONS,
    *_IBM_OPTIONS,
    *_IBM_TLS_OPTIONS,
)


class QueueManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A queue manager: the embedded one by its data directory or its TCP listener, or one of IBM MQ."""

    #: of the embedded one; blank for whichever it is
    name: str = ""
    data_directory: str = ""
    listener: tuple[str, int] | None = None
    #: who connects to the listener, blank where it asks for no password; its password is in the file, else in the variable
    user: str = ""
    password_file: str = ""
    password_variable: str = PASSWORD_VARIABLE
    #: of the listener; a ClientTlsConfig
    tls: Any = None
    #: of IBM MQ; an IbmQueueManagerConfig
    ibm: Any = None

    @property
    def asynchronous_puts(self) -> bool:
        """Whether puts are asynchronous (MQPMO_ASYNC_RESPONSE), with one MQSTAT call per unit of work."""
        return self.ibm is not None and bool(self.ibm.asynchronous_puts)

    def connect(self) -> Connection:
        """Open a new connection. Raises MQError; OSError when a password file cannot be read."""
        if self.ibm is not None:
            from bridge.mq.ibm.connection import connect_ibm
            from bridge.mq.ibm.parameters import load_library, parameters

            return connect_ibm(load_library(self.ibm.library), parameters(self.ibm, os.environ))
        return RemoteConnection(
            self.listener or Path(self.data_directory),
            application=APPLICATION_NAME,
            queue_manager=self.name,
            user=self.user,
            password=self._password(),
            tls=None if self.tls is None else tls_context(self.tls),
        )

    def _password(self) -> str:
        if not self.user:
            return ""
        file = Path(self.password_file) if self.password_file else None
        return read_password(f"user {self.user}", file, self.password_variable, os.environ)

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
    """Return the queue manager that options name: by a configuration file, or one by one. Raises OptionError."""
    if (file := options.path("config")) is not None:
        beside = ("config", "listener", *((*_USER_OPTIONS, *_LISTENER_OPTIONS) if "listener" in options else ()))
        if given := [name for name in QUEUE_MANAGER_OPTIONS if name in options and name not in beside]:
            raise options.wrong(given[0], "no value, because the file in the option config specifies it")
        return _of_configuration(file, options)
    kind = options.text("type") or _implied(options)
    if kind not in ("embedded", "ibm"):
        raise options.wrong("type", "embedded or ibm")
    own = ("dataDirectory", "listener") if kind == "embedded" else (*_IBM_OPTIONS, *_IBM_TLS_OPTIONS)
    if kind == "embedded" and "listener" in options:
        own = (*own, *_USER_OPTIONS, *_LISTENER_OPTIONS)
    others = [name for name in ("dataDirectory", *_LISTENER_OPTIONS, *_IBM_OPTIONS, *_IBM_TLS_OPTIONS) if name not in own]
    if given := [name for name in others if name in options]:
        why = f"a queue manager of type {kind} has none"
        if kind == "embedded" and given[0] in _USER_OPTIONS:
            why = "the Unix socket of dataDirectory authenticates by the operating system's user, without a password"
        elif kind == "embedded" and given[0] in _LISTENER_OPTIONS:
            why = "only a listener has TLS"
        raise options.wrong(given[0], f"no value, because {why}")
    if kind == "ibm":
        return QueueManagerOptions(ibm=_ibm(options))
    directory, listener = options.path("dataDirectory"), options.address("listener")
    if directory is None and listener is None:
        raise options.wrong(
            "config", "a configuration file (or dataDirectory or listener of a bridge, or channel and connections of IBM MQ)"
        )
    return QueueManagerOptions(
        name=options.text("queueManager") or "",
        data_directory=str(directory or ""),
        listener=listener,
        tls=_tls(options),
        **_user(options),
    )


def _tls(options: Options) -> ClientTlsConfig | None:
    from bridge.config.tls import ClientTlsConfig

    written = tls_of(options)
    return None if written is None else checked(ClientTlsConfig, written, options, TLS_OPTIONS)


def _user(options: Options) -> dict[str, str]:
    """Return who connects to a listener, and where the password is: fields of QueueManagerOptions."""
    if "user" not in options:
        if given := [name for name in _USER_OPTIONS if name in options]:
            raise options.wrong(given[0], "no value without user, whose password it is")
        return {}
    file = options.path("passwordFile")
    return {
        "user": options.text("user") or "",
        "password_file": str(file or ""),
        "password_variable": options.text("passwordVariable") or PASSWORD_VARIABLE,
    }


def _implied(options: Options) -> str:
    """Return the kind of queue manager that options are of. Who connects to a listener may have a user of either kind."""
    names = (*_IBM_OPTIONS, *_IBM_TLS_OPTIONS)
    if "listener" in options or "dataDirectory" in options:
        names = tuple(name for name in names if name not in _USER_OPTIONS)
    return "ibm" if any(name in options for name in names) else "embedded"


def _of_configuration(file: Path, options: Options) -> QueueManagerOptions:
    from bridge.config.document import load
    from bridge.config.problems import ConfigurationError

    try:
        configuration: Configuration = load(file)
    except ConfigurationError as error:
        raise OptionError(f"{options.source}: option config: {error}") from error
    settings = configuration.queue_manager
    if settings.type == "ibm":
        return QueueManagerOptions(ibm=settings)
    return QueueManagerOptions(
        name=settings.name,
        data_directory=str(settings.data_directory.absolute()),
        listener=options.address("listener"),
        tls=_tls(options),
        **_user(options),
    )


def _ibm(options: Options) -> IbmQueueManagerConfig:
    from bridge.config.queue_manager import IbmQueueManagerConfig

    written: dict[str, Any] = {"name": options.text("queueManager")}
    written |= {key: options.text(name) for name, key in _IBM_OPTIONS.items() if name in options}
    if (password_file := options.path("passwordFile")) is not None:
        written["password_file"] = password_file
    if any(name in options for name in _IBM_TLS_OPTIONS):
        written["tls"] = {key: options.text(name) for name, key in _IBM_TLS_OPTIONS.items() if name in options}
    return checked(IbmQueueManagerConfig, written, options, {"queueManager": "name"} | _IBM_OPTIONS | _IBM_TLS_OPTIONS)
