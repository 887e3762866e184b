"""The YAML mappings as pure functions: templates, filters, rules to MQ and to MQTT, and the checks of them.

`rule` makes the rule of a mapping's configuration; `to_mq_rule` and `to_mqtt_rule` do its work, by `template`, `filter` and
`scope`; `check`, `check_warnings` and `loops` look at mappings before they run. What a publication is to MQ where a mapping
says nothing is in `bridge.telemetry`.
"""
