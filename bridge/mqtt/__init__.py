"""MQTT 3.1, 3.1.1 and 5 without I/O: packets, the codec, topics, one connection, and the QoS 1 and 2 flows.

Nothing here imports MQ, mappings, configuration or security.
"""
