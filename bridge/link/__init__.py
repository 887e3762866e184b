"""Links: connections of mappings to MQTT brokers that others run.

paho-mqtt makes and keeps the connection, `bridge.mqtt` reads and writes the messages; `client` holds both.
"""

from __future__ import annotations

from bridge.link.connection import LinkConnection
from bridge.link.state import LinkCounters, LinkLost, LinkPhase, LinkState, Refusal

__all__ = ["LinkConnection", "LinkCounters", "LinkLost", "LinkPhase", "LinkState", "Refusal"]
