"""Conversion between MQTT publications and MQ messages, and the sessions of MQTT clients. No I/O.

Source of the conversion rules: IBM MQ documentation, "Integration of MQ Telemetry with queue managers". Clients, links, YAML
mappings, archive, replay and Spark use the same functions. Rules that mappings can change are in `bridge.mapping`.
"""
