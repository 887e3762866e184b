"""MQTT 3.1, 3.1.1 and 5 without I/O: packets, codec, topics, the connection protocol, and the QoS 1 and 2 flows.

This package must not import MQ, mappings, configuration or security.
"""
