"""Links: connections of mappings to external MQTT brokers."""
