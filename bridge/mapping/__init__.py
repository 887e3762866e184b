"""YAML mappings between MQTT topics and MQ queues, as pure functions.

`rules` contains templates, filters, loop detection and checks. `made_message`, `payload` and `message_view` build, convert
and display messages. Related packages: `bridge.config` (configuration), `bridge.service.mappings` (running mappings) and
`bridge.telemetry` (conversion without a mapping).
"""
