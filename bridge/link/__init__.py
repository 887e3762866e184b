"""Links: connections of mappings to external MQTT brokers.

paho-mqtt manages the connection, and `bridge.mqtt` encodes and decodes the messages. `client` combines both.
"""

from __future__ import annotations

from bridge.link.connection import LinkConnection
from bridge.link.state import LinkCounters, LinkLost, LinkPhase, LinkState, Refusal

__all__ = ["LinkConnection", "LinkCounters", "LinkLost", "LinkPhase", "LinkState", "Refusal"]
