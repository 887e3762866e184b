"""How to connect to IBM MQ: what the configuration says of it, and the password from where that says."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from bridge.config import IbmQueueManagerConfig
from bridge.config.password import read_password
from bridge.config.values import without_password


class Tls(msgspec.Struct, kw_only=True, frozen=True):
    """TLS of a client connection: fields of MQSCO and MQCD."""

    key_repository: str
    cipher_spec: str
    certificate_label: str = ""
    peer_name: str = ""


class ConnectionParameters(msgspec.Struct, kw_only=True, frozen=True):
    """How to connect: MQCNO, MQCD, MQCSP and MQSCO.

    `connections` is a list `host(port),host(port)`; blank with a blank `ccdt_url` connects in bindings mode. `user` and
    `password` are never part of an error message, nor of the text of this object.
    """

    queue_manager: str
    channel: str = ""
    connections: str = ""
    ccdt_url: str = ""
    user: str = ""
    password: str = ""
    tls: Tls | None = None
    application_name: str = "mqbridge"
    #: seconds; the channel's own (HBINT) counts where it is longer
    heartbeat_interval: int = 10

    @property
    def place(self) -> str:
        """Return the queue manager in words, for messages."""
        how = f" at {self.connections}, channel {self.channel}" if self.connections else ""
        how = f" by way of {without_password(self.ccdt_url)}" if self.ccdt_url else how
        return f"queue manager {self.queue_manager}{how}"

    def __repr__(self) -> str:
        return f"<ConnectionParameters of {self.place}>"


def parameters(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> ConnectionParameters:
    """Return the parameters to connect as `config` says, with the password read.

    Raises NoPassword.
    """
    tls = None
    if config.tls is not None:
        tls = Tls(
            key_repository=str(config.tls.key_repository),
            cipher_spec=config.tls.cipher_spec,
            certificate_label=config.tls.certificate_label or "",
            peer_name=config.tls.peer_name or "",
        )
    return ConnectionParameters(
        queue_manager=config.name,
        channel=config.channel or "",
        connections=config.connection_list,
        ccdt_url=config.ccdt_url or "",
        user=config.user or "",
        password=_password(config, environment),
        tls=tls,
        application_name=config.application_name,
        heartbeat_interval=math.ceil(config.probe_interval),
    )


def _password(config: IbmQueueManagerConfig, environment: Mapping[str, str]) -> str:
    if config.user is None:
        return ""
    return read_password(f"user {config.user}", config.password_file, config.password_variable, environment)
