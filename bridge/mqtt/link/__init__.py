"""Links: connections of mappings to MQTT brokers that somebody else runs, through paho-mqtt."""

from .connection import LinkConnection
from .state import LinkCounters, LinkLost, LinkPhase, LinkState, Received, Refusal

__all__ = ["LinkConnection", "LinkCounters", "LinkLost", "LinkPhase", "LinkState", "Received", "Refusal"]
