"""Events of a connection, which `ServerProtocol` passes to the owner of the connection."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bridge.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)

MessagePacket = Publish | Puback | Pubrec | Pubrel | Pubcomp | Pingreq


class Messages(msgspec.Struct, frozen=True, gc=False):
    """PUBLISH, acknowledgement and PINGREQ packets, in the order received."""

    packets: Sequence[MessagePacket]


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """The client sent DISCONNECT or violated the protocol. This is the last event. The owner calls `disconnect`."""

    #: the violated rule, or "" after DISCONNECT
    why: str
    #: reason code for the DISCONNECT to an MQTT 5 client
    reason_code: int = 0
    #: the client's DISCONNECT, if it sent one
    packet: Disconnect | None = None


Event = Messages | Connect | Auth | Subscribe | Unsubscribe | Disconnected
