"""Links: connections of mappings to external MQTT brokers.

paho-mqtt manages the connection, and `bridge.mqtt` encodes and decodes the messages. `client` combines both.
"""
