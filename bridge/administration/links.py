"""How links to other brokers are."""

from __future__ import annotations

import msgspec


class LinkConnectionStatus(msgspec.Struct, kw_only=True):
    """The connection of one mapping to a link's broker."""

    mapping: str
    connected: bool
    client_id: str
    #: seconds since the epoch: when it was connected or disconnected last; 0.0: it was never connected
    since: float = 0.0
    #: the last thing that went wrong; blank: nothing has
    last_error: str = ""
    #: seconds since the epoch; 0.0: nothing has gone wrong
    last_error_at: float = 0.0


class LinkStatus(msgspec.Struct, kw_only=True):
    """A link: a broker that somebody else runs, and who is connected to it."""

    name: str
    broker: str
    tls: bool
    version: str
    connections: list[LinkConnectionStatus]
