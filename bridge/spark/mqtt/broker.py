"""The MQTT broker of a data source: a link of the configuration file, or separate options.

Spark's plans contain the address of the broker, but no password. Each process reads the password when it connects, from
the file or environment variable in the options or in the configuration file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.config.link import LOCAL, MAPPING_PLACE, LinkConfig, client_id_of
from bridge.config.queue_manager import NoPassword, read_password
from bridge.link.connection import LinkConnection
from bridge.spark.options import TLS_OPTIONS, OptionError, Options, checked, tls_of

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.config.models import Configuration

#: Names of Spark options -> keys of a link in the YAML.
_LINK_OPTIONS: Final = {
    "host": "host",
    "port": "port",
    "version": "version",
    "user": "user",
    "passwordFile": "password_file",
    "passwordVariable": "password_variable",
    "keepAlive": "keep_alive",
    "inFlight": "in_flight",
}
#: Options that may be combined with `config`. The other options of the link are shared with mappings.
_BESIDE_CONFIG: Final = {"clientId": "client_id", "session": "session"}
_NUMBERS: Final = ("port", "inFlight")
#: All options that say where the broker is.
BROKER_OPTIONS: Final = ("config", "link", *_LINK_OPTIONS, "tls", *TLS_OPTIONS, *_BESIDE_CONFIG)

#: What listens on all addresses of a machine -> where it is reached from there.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, and how to connect to it."""

    #: a LinkConfig
    link: Any

    @property
    def place(self) -> str:
        """Return host and port, for a person."""
        return f"{self.link.host}:{self.link.broker_port}"

    @property
    def has_own_identifiers(self) -> bool:
        """Return whether each session has a client identifier of its own."""
        return MAPPING_PLACE in self.link.client_id

    def client_id(self, session: str) -> str:
        """Return the client identifier of a session; `{mapping}` in what the options say becomes `session`."""
        return client_id_of(self.link.client_id, session, "")

    def connection(self, session: str, **options: Any) -> LinkConnection:
        """Return a connection, not yet started; `options` are those of LinkConnection.

        Raises OptionError without a password.
        """
        password = _password(self.link)
        return LinkConnection(self.place, self.link, self.client_id(session), password=password, **options)


def broker_of(options: Options) -> Broker:
    """Return the broker that options name. Raises OptionError."""
    if (file := options.path("config")) is not None:
        own = [*_LINK_OPTIONS, "tls", *TLS_OPTIONS]
        if given := [name for name in own if name in options]:
            raise options.wrong(given[0], "no value, because the file in the option config specifies it")
        link = _of_configuration(file, options)
        if any(name in options for name in _BESIDE_CONFIG):
            link = _checked(options, link.model_dump(exclude_unset=True) | _written(options, _BESIDE_CONFIG))
        return Broker(link=link)
    if "link" in options:
        raise options.wrong("link", "no value without config, the configuration file that has the link")
    options.required("host", "the host name or address of a broker (or config and link: a link of a bridge.yaml)")
    written = _written(options, _LINK_OPTIONS | _BESIDE_CONFIG)
    if (tls := tls_of(options)) is not None:
        written["tls"] = tls
    return Broker(link=_checked(options, written))


def _written(options: Options, names: dict[str, str]) -> dict[str, Any]:
    """Return the options that are given, as the YAML would have them."""
    written: dict[str, Any] = {}
    for name, key in names.items():
        if name not in options:
            continue
        if name == "passwordFile":
            written[key] = options.path(name)
        elif name in _NUMBERS:
            written[key] = options.number(name, 0, 1, 65535)
        else:
            written[key] = options.text(name)
    return written


def _checked(options: Options, written: dict[str, Any]) -> LinkConfig:
    return checked(LinkConfig, written, options, _LINK_OPTIONS | TLS_OPTIONS | _BESIDE_CONFIG)


def _of_configuration(file: Path, options: Options) -> LinkConfig:
    from bridge.config.document import load
    from bridge.config.problems import ConfigurationError

    try:
        configuration: Configuration = load(file)
    except ConfigurationError as error:
        raise OptionError(f"{options.source}: option config: {error}") from error
    name = options.required("link", f"{_listed(configuration)}")
    if name == LOCAL:
        return _own_channel(configuration, options)
    if (link := configuration.links.get(name)) is None:
        raise options.wrong("link", _listed(configuration))
    return link


def _listed(configuration: Configuration) -> str:
    links = [*configuration.links, f"{LOCAL} (the bridge itself)"]
    return f"the name of a link in the file that config names: {', '.join(links)}"


def _own_channel(configuration: Configuration, options: Options) -> LinkConfig:
    """Return a link to the first channel of the bridge that accepts MQTT 3.1.1 over plain TCP."""
    for channel in configuration.channels:
        plain = channel.tls is None and channel.websocket is None and channel.socket is None and not channel.proxies
        if plain and "MQTTV311" in channel.protocols and channel.byte_order == "big" and channel.port:
            host = _EVERYWHERE.get(channel.address, channel.address)
            return LinkConfig(host=host, port=channel.port, version="3.1.1")
    raise options.wrong("link", "another link, because no channel of the bridge accepts plain MQTT 3.1.1 on a fixed port")


def _password(link: LinkConfig) -> str | None:
    """Return the password, from where the link says it is; None for a link without. Raises OptionError."""
    if link.password_file is None and link.password_variable is None:
        return None
    try:
        return read_password(f"broker {link.host}", link.password_file, link.password_variable, os.environ)
    except NoPassword as error:
        raise OptionError(str(error)) from error
