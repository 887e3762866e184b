"""Definitions of telemetry channels, and connection authentication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bridge.config.channel import ChannelConfig
from bridge.mq.embedded.attributes import AttributeRefused, Value, defaults
from bridge.mq.telemetry_channels import KIND, Definition, TelemetryChannelRegister

#: The only authentication information object, and the kind of the row that stores its altered attributes.
NAME: Final = "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"
AUTHINFO: Final = "AUTHINFO"
#: Values of CHCKCLNT: no check, a password must be correct if present, privileged users need one, all users need one.
NONE, OPTIONAL, REQDADM, REQUIRED = CHECKS = ("NONE", "OPTIONAL", "REQDADM", "REQUIRED")


class ConnectionAuthentication:
    """The authentication information object."""

    def __init__(self, privileged: Callable[[str], bool]) -> None:
        """Initialize with a predicate for privileged users."""
        self.is_privileged: Final = privileged
        #: whether the listener has an authentication method
        self.asks = False
        self.check_clients = REQUIRED
        self.description = ""

    @property
    def in_force(self) -> str:
        """The effective CHCKCLNT: NONE if the listener has no authentication method."""
        return self.check_clients if self.asks else NONE

    def restore(self, values: Mapping[str, str]) -> None:
        """Restore altered attributes."""
        self.check_clients, self.description = values["CHCKCLNT"], values["DESCR"]

    def allows_no_password(self, user: str) -> bool:
        """Return whether an application that claims to be this user is accepted without a password, as `nobody`."""
        if self.in_force == REQDADM:
            return not self.is_privileged(user)
        return self.in_force in (NONE, OPTIONAL)


log = logging.getLogger(__name__)

#: Keywords with the same values as keys of the configuration file. Blank means the key's default.
_SAME: Final = {"BACKLOG": "backlog", "LOCLADDR": "address", "MCAUSER": "mcauser", "PORT": "port"}
_HTTP = "HTTP"
_OF_TLS = ("SSLCAUTH", "SSLCIPH", "SSLKEYP")


def definition_of(name: str, attributes: Mapping[str, Value]) -> Definition:
    """Return the definition of a channel with these attributes. Raises AttributeRefused."""
    values: dict[str, Any] = {"name": name, "use_client_id": attributes["USECLTID"] == "YES"}
    values |= {key: attributes[keyword] for keyword, key in _SAME.items() if attributes[keyword] != ""}
    protocols = str(attributes["PROTOCOL"]).split(",")
    if _HTTP not in protocols:
        values["protocols"] = protocols
    elif len(protocols) == 1:
        values["websocket"] = {}
    else:
        raise AttributeRefused(
            "PROTOCOL(HTTP) excludes other protocols; hint: define a separate channel for MQTT over WebSockets"
        )
    values |= _tls(attributes)
    try:
        config = ChannelConfig.model_validate(values)
    except ValidationError as error:
        reasons = "; ".join(detail["msg"] for detail in error.errors())
        hint = "; hint: specify SSLCAUTH(REQUIRED)" if "'authentication: ...'" in reasons else ""
        raise AttributeRefused(reasons + hint) from None
    return Definition(dict(attributes), config)


def restore_channel(register: TelemetryChannelRegister, name: str, attributes: dict[str, Value]) -> None:
    """Restore a channel from disk. Log an error if its definition is no longer valid."""
    try:
        register.set(name, definition_of(name, defaults(KIND) | attributes))
    except AttributeRefused as error:
        log.error("MQB3106E restoring channel %s failed: %s", name, error)


def _tls(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Return the TLS settings of a channel: SSLKEYR is a PEM file with certificate and key, SSLKEYP its password file."""
    repository = str(attributes["SSLKEYR"])
    if not repository:
        for keyword in _OF_TLS:
            if attributes[keyword] != defaults(KIND)[keyword]:
                raise AttributeRefused(
                    f"{keyword} requires SSLKEYR, the PEM file with the channel's certificate and key"
                )
        return {}
    tls: dict[str, Any] = {"certificate_file": repository}
    if attributes["SSLCIPH"]:
        tls["ciphers"] = attributes["SSLCIPH"]
    if password := str(attributes["SSLKEYP"]):
        if not password.startswith("/"):
            raise AttributeRefused(
                "SSLKEYP must be the path of a file whose first line is the password of the key, because everyone who may"
                " display the channel can read SSLKEYP"
            )
        tls["key_password_file"] = password
    if attributes["SSLCAUTH"] == "NEVER":
        return {"tls": tls}
    path = Path(repository)
    tls |= {
        "client_certificates": str(attributes["SSLCAUTH"]).lower(),
        "ca_file": str(path.with_suffix(f".ca{path.suffix}")),
    }
    authentication = [{"method": "certificate"}] if attributes["SSLCAUTH"] == "REQUIRED" else []
    return {"tls": tls, "authentication": authentication}


def attributes_of(config: ChannelConfig) -> dict[str, Value]:
    """Return the MQSC attributes of a channel of the configuration file. Settings without a keyword are omitted."""
    tls = config.tls
    return {
        "BACKLOG": config.backlog,
        "DESCR": "of the bridge's configuration file",
        "LOCLADDR": config.address if config.socket is None else "",
        "MCAUSER": config.mcauser or "",
        "PORT": config.port,
        "PROTOCOL": _HTTP if config.websocket is not None else ",".join(config.protocols),
        "SSLCAUTH": "NEVER" if tls is None else tls.client_certificates.upper(),
        "SSLCIPH": "" if tls is None else tls.ciphers,
        "SSLKEYP": "" if tls is None or tls.key_password_file is None else str(tls.key_password_file),
        "SSLKEYR": "" if tls is None else str(tls.certificate_file),
        "TRPTYPE": "TCP",
        "USECLTID": "YES" if config.use_client_id else "NO",
    }
