"""The states of a client's connection, and what each packet is worth in them (MQTT 3.1.1 chapters 3 and 4)."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from bridge.wire.mqtt import PacketType


class State(IntEnum):
    """How far a connection has come (MQTT 3.1.1 sections 3.1, 3.2 and 3.14)."""

    #: nothing has come, or no whole packet
    WAITING_FOR_CONNECT = 0
    #: CONNECT came, CONNACK is not sent yet
    AUTHENTICATING = 1
    #: AUTH is sent, and the client's is awaited (MQTT 5 section 4.12)
    CHALLENGED = 2
    #: CONNACK 0 is sent
    CONNECTED = 3
    #: nothing more is read; what is written is still sent
    DISCONNECTING = 4
    #: the network connection is gone
    CLOSED = 5


class Verdict(Enum):
    """What a packet is worth in a state where it breaks no rule."""

    ACCEPTED = "accepted"
    #: it is judged when CONNACK is sent
    WAITS = "waits"
    IGNORED = "ignored"


_ACCEPTED, _WAITS, _IGNORED = Verdict.ACCEPTED, Verdict.WAITS, Verdict.IGNORED
_FIRST = "MQTT-3.1.0-1: the first packet of a client is CONNECT"
_SECOND = "MQTT-3.1.0-2: a client sends CONNECT once"
_DIRECTION = "MQTT 3.1.1 section 2.2.1, table 2.1: such a packet flows from server to client"
_RESERVED = "MQTT 3.1.1 section 2.2.1, table 2.1: packet type 15 is reserved (AUTH needs an Authentication Method in CONNECT)"
_ONLY = "MQTT-3.1.2-30: before CONNACK a client with an Authentication Method sends AUTH and DISCONNECT alone"
_LATER = "MQTT 3.1.1 section 3.1.4: a client may send more before it has got CONNACK"
_TO_CLIENT = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)


def _row(connect: Verdict | str, others: Verdict | str, *, open: bool = False) -> dict[PacketType, Verdict | str]:
    row = dict.fromkeys(PacketType, others)
    row[PacketType.CONNECT] = connect
    if open:
        row |= dict.fromkeys(_TO_CLIENT, _DIRECTION)
        row[PacketType.AUTH] = _RESERVED
    return row


#: state -> packet -> what it is worth, or the statement that it breaks. `_LATER` is why packets wait in AUTHENTICATING;
#: after MQTT-3.14.4-2 and section 4.8 nothing is read that comes behind a DISCONNECT or an error.
LEGAL: Final[dict[State, dict[PacketType, Verdict | str]]] = {
    State.WAITING_FOR_CONNECT: _row(_ACCEPTED, _FIRST, open=True),
    State.AUTHENTICATING: _row(_WAITS, _WAITS),
    State.CHALLENGED: _row(_SECOND, _ONLY) | dict.fromkeys((PacketType.AUTH, PacketType.DISCONNECT), _ACCEPTED),
    State.CONNECTED: _row(_SECOND, _ACCEPTED, open=True),
    State.DISCONNECTING: _row(_IGNORED, _IGNORED),
    State.CLOSED: _row(_IGNORED, _IGNORED),
}
