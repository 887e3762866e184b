"""Recommendations for valid but questionable or obsolete settings, for `mqbridge check`."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from bridge.config import values
from bridge.config.channel import ChannelConfig
from bridge.config.models import Configuration


def advice(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each setting that is valid but questionable or obsolete."""
    yield from configuration.notes
    yield from _insecure(configuration)
    if not configuration.channels:
        yield "no channel: no MQTT client can connect"
    if configuration.mappings and configuration.control_socket_path is None:
        yield "no control_socket: `mqbridge reload` and `mqbridge mapping` do not reach the bridge; SIGHUP reloads its file"
    for channel in configuration.channels:
        if may_be_nobody(channel) and (channel.authentication or _is_open(channel)):
            yield (
                f"channel {channel.name}: clients without a user act as user nobody, which MQ does not know; hint:"
                " set mcauser of the channel"
            )
    for channel in configuration.channels:
        if (part := _origin_of_user(channel)) and not is_mapped(configuration, channel):
            instead = "set use_client_id: false" if channel.use_client_id else "set mcauser of the channel"
            yield (
                f"channel {channel.name}: clients with a {part} longer than 12 bytes, the length of an MQ user, are rejected"
                f" unless a channel authentication record maps them to a user; hint: add such a record, or {instead}"
            )
    on_ibm_mq = configuration.queue_manager.type == "ibm"
    for channel in configuration.channels:
        if on_ibm_mq and any(method.method == "queue-manager" for method in channel.authentication):
            yield (
                f"channel {channel.name}: method queue-manager connects to the queue manager for each login, two at a time;"
                " each user of a client needs CONNECT authority, and CONNAUTH must check passwords"
            )


def _insecure(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each connection that others can use, read or intercept."""
    for channel in configuration.channels:
        if _is_open(channel):
            yield f"channel {channel.name}: other machines can connect without a password"
    queue_manager = configuration.queue_manager
    if queue_manager.type == "embedded":
        listener = queue_manager.listener
        if listener is not None and listener.believes and not values.is_loopback(listener.address):
            yield "queue_manager.listener: other machines can connect without a password"
    elif queue_manager.mode == "client" and queue_manager.ccdt_url is None and queue_manager.tls is None:
        yield "queue_manager: no TLS: others can read the data on the network"
    for name, link in configuration.links.items():
        if link.tls is not None and not link.tls.check_host_name:
            yield f"link {name}: the host name of the broker is not checked (tls.check_host_name)"


def _origin_of_user(channel: ChannelConfig) -> str:
    """Return which client name becomes the MQ user, or "" if the configuration guarantees that it is short enough.

    Users of password files are checked one by one.
    """
    if channel.use_client_id:
        return "client identifier"
    unknown = ("certificate", "jwt", "ldap", "plugin")
    has_name = not channel.mcauser and any(method.method in unknown for method in channel.authentication)
    return "user name" if has_name else ""


def is_mapped(configuration: Configuration, channel: ChannelConfig) -> bool:
    """Return whether a channel authentication record maps clients of `channel` to another user."""
    return any(
        record.mcauser is not None and fnmatchcase(channel.name, record.channel)
        for record in configuration.channel_authentication
    )


def may_be_nobody(channel: ChannelConfig) -> bool:
    """Return whether clients without an identity may connect to a channel that assigns none."""
    has_name = channel.use_client_id or channel.mcauser
    return not has_name and (
        not channel.authentication or any(method.method == "anonymous" for method in channel.authentication)
    )


def _is_open(channel: ChannelConfig) -> bool:
    """Return whether clients on other machines can connect without authentication."""
    return not channel.authentication and channel.socket is None and not values.is_loopback(channel.address)
