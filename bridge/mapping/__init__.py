"""YAML mappings between MQTT topics and MQ queues, as pure functions.

`rule` builds a rule from the configuration of a mapping, with `attributes`, `template` and `filter`. `check` and `loops`
validate mappings before they run. `trial` tests a mapping with one message. `message_view` builds and displays messages.
`bridge.service.mappings` runs mappings, and `bridge.telemetry` converts everything that a mapping does not specify.
"""
