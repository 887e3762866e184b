"""Parameters of connections to IBM MQ, and the client packages `ibmmq` and `pymqi`."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bridge.config.queue_manager import IbmQueueManagerConfig, Library, TlsConfig, key_repository_files, read_password
from bridge.config.secrets import without_secret_parts
from bridge.extras import install
from bridge.mq.mqi import MQError
from bridge.wire import cmqc


class Tls(msgspec.Struct, kw_only=True, frozen=True):
    """TLS of a client connection: fields of MQSCO and MQCD."""

    key_repository: str
    #: blank if a CCDT contains it
    cipher_spec: str = ""
    certificate_label: str = ""
    peer_name: str = ""
    #: blank if the client library uses the stash file
    password: str = ""
    fips: bool = False

    def __repr__(self) -> str:
        return f"<Tls with {self.cipher_spec or 'a CCDT'}, key repository {self.key_repository}>"


class ConnectionParameters(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters of a connection: fields of MQCNO, MQCD, MQCSP and MQSCO.

    `connections` is a list `host(port),host(port)`. If it and `ccdt_url` are blank, the bridge connects in bindings mode.
    Neither error messages nor the text of this object contain passwords or tokens.
    """

    queue_manager: str
    channel: str = ""
    connections: str = ""
    ccdt_url: str = ""
    user: str = ""
    password: str = ""
    #: path of a file with a token, instead of user and password
    token_file: str = ""
    tls: Tls | None = None
    application_name: str = "mqbridge"
    #: seconds. The channel's own interval (HBINT) applies if it is longer
    heartbeat_interval: int = 10

    @property
    def place(self) -> str:
        """A description of the queue manager, for messages."""
        how = f" at {self.connections}, channel {self.channel}" if self.connections else ""
        how = f" via {without_secret_parts(self.ccdt_url)}" if self.ccdt_url else how
        return f"queue manager {self.queue_manager}{how}"

    @property
    def is_client(self) -> bool:
        """Whether the connection is made over TCP."""
        return bool(self.connections or self.ccdt_url)

    def token(self) -> str:
        """Read the token from its file. Raises MQError if the file has no valid token."""
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a JSON Web Token"
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"token_file {self.token_file} cannot be read: {why}") from None
        if not 0 < len(token) <= cmqc.MQ_CSP_TOKEN_LENGTH:
            problem = f"has {len(token)} characters; hint: a token has 1 to {cmqc.MQ_CSP_TOKEN_LENGTH}"
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, f"token_file {self.token_file} {problem}")
        return token

    def hint(self, reason: int) -> str:
        """Return a hint for a connection that failed with this reason code, or ""."""
        tls = self.tls
        if reason == cmqc.MQRC_NOT_AUTHORIZED:
            if self.token_file:
                return (
                    f"the queue manager rejected the token of {self.token_file}: check that it has not expired, its issuer,"
                    " the AuthToken stanza of qm.ini, CHLAUTH, and the user's authority to connect"
                )
            if self.user:
                return f"check the password of user {self.user}, CONNAUTH, CHLAUTH, and the user's authority to connect"
            return "the bridge sent no credentials: check user and password_file, CONNAUTH and CHLAUTH"
        if reason == cmqc.MQRC_KEY_REPOSITORY_ERROR:
            return self._key_repository_hint()
        if reason == cmqc.MQRC_SSL_PEER_NAME_MISMATCH:
            pattern = tls.peer_name if tls is not None and tls.peer_name else "the peer name of the CCDT"
            return (
                f"the queue manager's certificate does not match {pattern}, or the bridge's certificate does not match"
                " SSLPEER of the channel: check both, and the address of the queue manager"
            )
        if reason == cmqc.MQRC_SSL_PEER_NAME_ERROR:
            return "check the distinguished name in peer_name, or certificatePeerName in the CCDT"
        if reason == cmqc.MQRC_SSL_INITIALIZATION_ERROR:
            spec = tls.cipher_spec if tls is not None and tls.cipher_spec else "the CipherSpec of the CCDT"
            return (
                f"TLS failed: check that {spec} matches SSLCIPH of the channel, that no certificate has expired, that each"
                " side trusts the other's certificate, and certificate_label if SSLCAUTH is REQUIRED; the error logs of"
                " client (AMQERR01.LOG) and queue manager name the cause"
            )
        if reason == cmqc.MQRC_SCO_ERROR and tls is not None and tls.password:
            return "install IBM's MQ client 9.3 or later, or use a stash file instead of key_repository_password_file"
        if reason in (cmqc.MQRC_CSP_ERROR, cmqc.MQRC_FUNCTION_NOT_SUPPORTED) and self.token_file:
            return "a token needs IBM's MQ client 9.3.4 or later, and a queue manager on Linux or AIX of such a version"
        if reason == cmqc.MQRC_Q_MGR_NAME_ERROR and self.ccdt_url:
            name = self.queue_manager.lstrip("*")
            return f"check that an entry of the CCDT has queueManager {name}, and which queue manager listens there"
        if reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE and self.ccdt_url:
            return "check that the CCDT can be read, and that a queue manager listens at the addresses of its entries"
        if reason == cmqc.MQRC_Q_MGR_NOT_AVAILABLE and self.connections and tls is None:
            return "if the channel has SSLCIPH, the bridge needs the section tls"
        return ""

    def _key_repository_hint(self) -> str:
        if self.tls is None:
            return "the channel needs a key repository: add the section tls"
        files = key_repository_files(Path(self.tls.key_repository), has_password=bool(self.tls.password))
        for file in files:
            if not os.access(file, os.R_OK):
                missing = "cannot be read by the user that runs the bridge" if file.exists() else "does not exist"
                stash = ", and key_repository_password_file is not set" if file.suffix == ".sth" else ""
                return f"{file} {missing}{stash}"
        return f"check the password of {files[0]}, and that it is a key repository"

    def __repr__(self) -> str:
        return f"<ConnectionParameters of {self.place}>"


def parameters(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> ConnectionParameters:
    """Return the parameters from the configuration, and read the password. Raises NoPassword."""
    return ConnectionParameters(
        queue_manager=config.name,
        channel=config.channel or "",
        connections=config.connection_list,
        ccdt_url=config.ccdt_url or "",
        user=config.user or "",
        password=_password(config, environment),
        token_file=str(config.token_file or ""),
        tls=None if config.tls is None else _tls(config.tls, environment),
        application_name=config.application_name,
        heartbeat_interval=math.ceil(config.probe_interval),
    )


def _tls(config: TlsConfig, environment: Mapping[str, str]) -> Tls:
    file, variable = config.key_repository_password_file, config.key_repository_password_variable
    password = ""
    if file is not None or variable is not None:
        password = read_password(f"key repository {config.key_repository}", file, variable, environment)
    return Tls(
        key_repository=str(config.key_repository),
        cipher_spec=config.cipher_spec or "",
        certificate_label=config.certificate_label or "",
        peer_name=config.peer_name or "",
        password=password,
        fips=config.fips,
    )


def _password(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> str:
    if config.user is None:
        return ""
    return read_password(f"user {config.user}", config.password_file, config.password_variable, environment)


class LibraryMissing(Exception):
    """No client package can be imported. The message contains a hint."""


def load_library(choice: Library) -> Any:
    """Import pymqi or ibmmq. `auto` tries ibmmq first. Raises LibraryMissing."""
    # If OpenTelemetry is installed, ibmmq would add its own trace context to each put. The bridge adds one itself
    # (bridge/service/tracing), and ibmmq could not read the bridge's structures.
    os.environ["MQIPY_NOOTEL"] = "1"
    # Use UTF-8 in every locale. The client library reads its code page from this variable ("MQCCSID").
    os.environ.setdefault("MQCCSID", "1208")
    names = ("ibmmq", "pymqi") if choice == "auto" else (choice,)
    failures = []
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            failures.append(f"{name}: {error}")
    reason = f"IBM MQ is reached through {' or '.join(names)} and IBM's client library, which cannot be loaded"
    if installed := [name for name in names if importlib.util.find_spec(name) is not None]:
        # If IBM's client library is missing, ibmmq reports that one of its own modules is missing.
        advice = (
            f"{' and '.join(installed)} is installed, and does not find the library (libmqm_r.so, libmqic_r.so): install"
            " IBM's MQ client, and name its directory in LD_LIBRARY_PATH (/opt/mqm/lib64)"
        )
    else:
        advice = f"install IBM's MQ client, then: {install(names[0])}"
    raise LibraryMissing(f"{reason} ({'; '.join(failures)}); {advice}")
