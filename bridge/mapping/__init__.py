"""YAML mappings between MQTT topics and MQ queues, as pure functions.

`rules` contains templates, filters, loops and checks. `envelope`, `payload` and `message_view` convert and show messages. The
configuration is `bridge.config`, the mappings run in `bridge.service.mappings`, and the conversion of a publication that no
mapping changes is `bridge.telemetry`.
"""
