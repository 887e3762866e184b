"""A telemetry channel in the words of MQSC, and as the bridge is configured: what a keyword of DEFINE CHANNEL becomes.

Source: IBM MQ documentation, "DEFINE CHANNEL (define a new channel) for MQTT". What has no keyword is as by default.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bridge.config.channel import ChannelConfig
from bridge.mq.embedded.attributes import AttributeRefused, Value, defaults
from bridge.mq.telemetry_channels import KIND, Definition, TelemetryChannelRegister

log = logging.getLogger(__name__)

#: Keywords whose values are those of keys of the configuration file; blank is the key's default.
_SAME: Final = {"BACKLOG": "backlog", "LOCLADDR": "address", "MCAUSER": "mcauser", "PORT": "port"}
_HTTP = "HTTP"
_OF_TLS = ("SSLCAUTH", "SSLCIPH", "SSLKEYP")


def definition_of(name: str, attributes: Mapping[str, Value]) -> Definition:
    """Return a channel that has these attributes. Raises AttributeRefused."""
    values: dict[str, Any] = {"name": name, "use_client_id": attributes["USECLTID"] == "YES"}
    values |= {key: attributes[keyword] for keyword, key in _SAME.items() if attributes[keyword] != ""}
    protocols = str(attributes["PROTOCOL"]).split(",")
    if _HTTP not in protocols:
        values["protocols"] = protocols
    elif len(protocols) == 1:
        values["websocket"] = {}
    else:
        raise AttributeRefused(
            "PROTOCOL(HTTP) stands alone here: MQTT over WebSockets has a channel, and a port, of its own"
        )
    values |= _tls(attributes)
    try:
        config = ChannelConfig.model_validate(values)
    except ValidationError as error:
        said = "; ".join(one["msg"] for one in error.errors())
        beside = "; by DEFINE CHANNEL, SSLCAUTH(REQUIRED) says how" if "'authentication: ...'" in said else ""
        raise AttributeRefused(said + beside) from None
    return Definition(dict(attributes), config)


def restore_channel(register: TelemetryChannelRegister, name: str, attributes: dict[str, Value]) -> None:
    """Have a channel back that was on disk; one that does not hold any more is told in the log."""
    try:
        register.set(name, definition_of(name, defaults(KIND) | attributes))
    except AttributeRefused as error:
        log.error("MQB3106E channel %s is not restored: %s", name, error)


def _tls(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Return what a channel has of TLS: SSLKEYR is the PEM file of certificate and key, SSLKEYP that of its password."""
    repository = str(attributes["SSLKEYR"])
    if not repository:
        for keyword in _OF_TLS:
            if attributes[keyword] != defaults(KIND)[keyword]:
                raise AttributeRefused(f"{keyword} goes with SSLKEYR, the PEM file of the channel's certificate and key")
        return {}
    tls: dict[str, Any] = {"certificate_file": repository}
    if attributes["SSLCIPH"]:
        tls["ciphers"] = attributes["SSLCIPH"]
    if password := str(attributes["SSLKEYP"]):
        if not password.startswith("/"):
            raise AttributeRefused(
                "SSLKEYP is the path of a file whose first line is the password of the key, for all who may look at the"
                " channel would see the password itself"
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
    """Return a channel of the configuration file as MQSC shows it, as far as it has keywords for that."""
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
