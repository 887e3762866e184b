"""The telemetry application as pure code: publications as MQ messages, and the sessions of MQTT clients. No I/O.

Source of the mapping rules: IBM MQ documentation, "Integration of MQ Telemetry with queue managers". Clients, links, YAML
mappings, archive, replay and Spark use the same functions. Rules that the author of a mapping can change are in
`bridge.mapping`.
"""
