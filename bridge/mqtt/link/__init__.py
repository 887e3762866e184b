"""Links: connections of mappings to MQTT brokers that somebody else runs.

paho-mqtt makes and keeps the connection, `bridge.wire.mqtt` reads and writes the messages; `client` holds both.
"""

from .connection import LinkConnection
from .state import LinkCounters, LinkLost, LinkPhase, LinkState, Refusal

__all__ = ["LinkConnection", "LinkCounters", "LinkLost", "LinkPhase", "LinkState", "Refusal"]
