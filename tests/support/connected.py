"""A connection whose CONNECT is accepted, without any network."""

from __future__ import annotations

from bridge.mqtt.protocol import ServerProtocol
from bridge.wire.mqtt import Connect, encode


def connected(now: float = 0.0, *, level: int = 4, keep_alive: int = 0) -> ServerProtocol:
    """Return a protocol that has sent CONNACK 0, which was taken."""
    protocol = ServerProtocol(now)
    name = "MQTT" if level == 4 else "MQIsdp"
    protocol.receive_data(encode(Connect("c", name, level, keep_alive=keep_alive)), now)
    protocol.accept(now, session_present=False)
    protocol.data_to_send()
    return protocol
