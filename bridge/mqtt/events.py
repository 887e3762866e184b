"""Events of one connection: what a client has sent, as `ServerProtocol` hands it to whoever owns the connection."""

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
    """Packets about messages, and PINGREQ among them, in the order they came."""

    packets: Sequence[MessagePacket]


class Disconnected(msgspec.Struct, frozen=True, gc=False):
    """Nothing more comes: the client said DISCONNECT, or broke a rule. The owner calls `disconnect`."""

    #: the rule that was broken; "" after DISCONNECT
    why: str
    #: with which MQTT 5 tells the client so
    reason_code: int = 0
    #: what the client said last
    packet: Disconnect | None = None


Event = Messages | Connect | Auth | Subscribe | Unsubscribe | Disconnected
