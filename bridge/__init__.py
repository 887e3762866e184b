"""A bridge between MQTT clients and IBM MQ queue managers."""

__version__ = "0.3.0"

# Before any other module of the bridge, so that those that are compiled are found.
from bridge import compilation as compilation
