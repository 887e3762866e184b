"""The contract between a transport and the owner of a connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, Self

from bridge.config import ChannelConfig
from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.events import Event
from bridge.security.authenticator import Certificate


class Peer(str):
    """An address, and a client identifier where it is known: `'dev-1' at 10.0.0.7:52311`, with both as fields."""

    __slots__ = ("address", "client_id")

    address: str
    client_id: str

    def __new__(cls, address: str, client_id: str = "") -> Self:
        made = super().__new__(cls, f"{client_id!r} at {address}" if client_id else f"at {address}")
        made.address, made.client_id = address, client_id
        return made


#: Reasons not to read from a client: packets wait for their turn; too many requests are not committed; the client does not
#: read; the bridge stops; the client exceeded its rate; bytes wait for the layers below MQTT.
TURN: Final = 1
UNCOMMITTED: Final = 2
UNREAD: Final = 4
STOPPING: Final = 8
TOO_MUCH: Final = 16
WRAPPED: Final = 32


class Transport(Protocol):
    """One network connection."""

    #: for log lines
    peer: Peer
    #: IP address of the client, as far as it is known; "" on a Unix socket
    address: str
    #: what its certificate says; None where it has shown none
    certificate: Certificate | None

    def flush(self) -> None:
        """Send what the protocol has written, and close where it says so."""

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close after what was written; `why` goes to the log (blank where it was logged already).

        The reason code goes to a client of MQTT 5, by DISCONNECT; None: it gets none.
        """

    def abort(self) -> None:
        """Close without sending what is left."""

    def hold(self, reason: int) -> None:
        """Stop reading for a reason."""

    def let_go(self, reason: int) -> None:
        """Drop a reason not to read; without any left, read again."""

    def slow_down(self, seconds: float) -> None:
        """Stop reading for a while; 0.0: go on."""

    def take_turn(self) -> None:
        """Go on with what has come and is not worked on."""

    def send_more_soon(self) -> None:
        """Have the owner go on with sending in the next turn of the event loop."""


class Owner(Protocol):
    """What a connection hands its events to: the client at its other end, as the service knows it."""

    def received(self, events: Sequence[Event]) -> None:
        """Act on what the client has sent."""

    def send_more(self) -> None:
        """Go on with sending: a turn's bytes were not enough."""

    def pause_writing(self) -> None:
        """Send no more for now: the client does not read."""

    def resume_writing(self) -> None:
        """Go on with a client that was slow and has read what was written."""

    def expire(self) -> None:
        """Close the connection where what the client has shown of itself is true no more."""

    def sweep(self, now: float) -> None:
        """Do what is due as time passes (called about every half second), but not while the client is not read."""

    def lost(self) -> None:
        """Note that the connection is gone."""


class Gateway(Protocol):
    """What a channel hands new connections to."""

    def client(self, transport: Transport, protocol: ServerProtocol, channel: ChannelConfig) -> Owner:
        """Return the owner of a connection that was just made."""
