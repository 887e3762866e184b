"""The rules of YAML mappings as pure functions: templates, filters, conversion in both directions, and checks.

`rule` builds a rule from the configuration of a mapping, using `attributes`, `template`, `filter` and `scope`. `check` and
`loops` validate mappings before they run. `trial` tests a mapping with one message. `bridge.telemetry` converts everything
that a mapping does not specify.
"""
