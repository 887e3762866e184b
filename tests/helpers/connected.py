"""A connection with an accepted CONNECT, without a network."""

from __future__ import annotations

from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import Connect
from bridge.mqtt.writer import encode


def connected(now: float = 0.0, *, level: int = 4, keep_alive: int = 0) -> ServerProtocol:
    """Return a protocol that has sent CONNACK 0, which was read."""
    protocol = ServerProtocol(now)
    name = "MQIsdp" if level == 3 else "MQTT"
    protocol.receive_data(encode(Connect("c", name, level, keep_alive=keep_alive), "big", level), now)
    protocol.accept(now, session_present=False)
    protocol.data_to_send()
    return protocol
