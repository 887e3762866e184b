"""The integration tables of IBM MQ ("Integration of MQ Telemetry with queue managers"), once, as pure functions.

`qos`: persistence and quality of service, both ways. `identity`: the user of a client. `folders`: mqtt and mqps, written
and read. `message_id`, `subscription`: names and numbers. `message` is what a publication becomes, `to_mq` and `from_mq` are
the whole ways; `to_topic` is the way of a publication that is none of a client's, `headers` what else it has. Clients,
YAML mappings, archive, replay and Spark call these. What a mapping's author may change is `bridge.mapping.rules`.
"""
