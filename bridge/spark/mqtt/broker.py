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
from bridge.spark.options import TLS_OPTIONS, OptionError, Options

if TYPE_CHECKING:
    from bridge.config.models import Configuration

#: Options -> keys of a link in the configuration file.
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
#: Options that may be combined with `config`. Mappings share the others.
_SESSION_OPTIONS: Final = {"clientId": "client_id", "session": "session"}
_NAMES: Final = _LINK_OPTIONS | _SESSION_OPTIONS | TLS_OPTIONS
#: All options that specify the broker.
BROKER_OPTIONS: Final = ("config", "link", *_LINK_OPTIONS, "tls", *TLS_OPTIONS, *_SESSION_OPTIONS)

#: Address of a listener or channel on all interfaces -> the address for clients on the same machine.
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, and how to connect to it."""

    link: LinkConfig

    @property
    def place(self) -> str:
        """Host and port, for display."""
        return f"{self.link.host}:{self.link.broker_port}"

    @property
    def has_own_identifiers(self) -> bool:
        """Whether each session has its own client identifier."""
        return MAPPING_PLACE in self.link.client_id

    def client_id(self, session: str) -> str:
        """Return the client identifier of a session, which replaces `{mapping}`."""
        return client_id_of(self.link.client_id, session, "")

    def connection(self, session: str, **options: Any) -> LinkConnection:
        """Return a connection, not started. `options` are those of LinkConnection. Raises OptionError without a password."""
        link, password = self.link, None
        if link.password_file is not None or link.password_variable is not None:
            try:
                password = read_password(f"broker {link.host}", link.password_file, link.password_variable, os.environ)
            except NoPassword as error:
                raise OptionError(str(error)) from error
        return LinkConnection(self.place, link, self.client_id(session), password=password, **options)


def broker_of(options: Options) -> Broker:
    """Return the broker that options specify. Raises OptionError."""
    if (configuration := options.configuration()) is not None:
        own = ("config", "link", *_SESSION_OPTIONS)
        options.allow(own, BROKER_OPTIONS, "because the file in the option config specifies it")
        link = _configured(configuration, options)
        if session := options.keys(_SESSION_OPTIONS):
            link = options.checked(LinkConfig, link.model_dump(exclude_unset=True) | session, _NAMES)
        return Broker(link=link)
    options.allow((), ("link",), "without config, the configuration file that has the link")
    options.required("host", "the host name or address of a broker (or config and link: a link of a bridge.yaml)")
    values = options.keys(_LINK_OPTIONS | _SESSION_OPTIONS)
    if (tls := options.tls()) is not None:
        values["tls"] = tls
    return Broker(link=options.checked(LinkConfig, values, _NAMES))


def _configured(configuration: Configuration, options: Options) -> LinkConfig:
    """Return a link of the configuration file, or one to the first channel that accepts MQTT 3.1.1 over plain TCP."""
    links = ", ".join([*configuration.links, f"{LOCAL} (the bridge itself)"])
    expectation = f"the name of a link in the file that config names: {links}"
    name = options.required("link", expectation)
    if name != LOCAL:
        if name not in configuration.links:
            raise options.wrong("link", expectation)
        return configuration.links[name]
    for channel in configuration.channels:
        plain = channel.tls is None and channel.websocket is None and channel.socket is None and not channel.proxies
        if plain and "MQTTV311" in channel.protocols and channel.byte_order == "big" and channel.port:
            host = EVERYWHERE.get(channel.address, channel.address)
            return LinkConfig(host=host, port=channel.port, version="3.1.1")
    raise options.wrong(
        "link", "another link, because no channel of the bridge accepts plain MQTT 3.1.1 on a fixed port"
    )
