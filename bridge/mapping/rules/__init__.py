"""The YAML mappings as pure functions: templates, filters, rules to MQ and to MQTT, and the checks of them.

`rule` makes the rule of a mapping's configuration, by `attributes`, `template`, `filter` and `scope`. `check` and `loops`
look at mappings before they run; `trial` tries one on a message. What a publication is to MQ where a mapping says nothing is
in `bridge.telemetry`.
"""
