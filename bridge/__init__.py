"""A bridge between MQTT clients and IBM MQ queue managers."""

__version__ = "0.1.0"
