"""A mapping as a pure function: what comes in, what goes out, and nothing else touched.

The bridge runs rules, and so do Spark's workers; both make them of (name, configuration, queue manager's name).
"""

from __future__ import annotations

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.to_mq_rule import ToMqRule
from bridge.mapping.rules.to_mqtt_rule import ToMqttRule

__all__ = ["Rule", "ToMqRule", "ToMqttRule", "rule_of"]

Rule = ToMqRule | ToMqttRule


def rule_of(name: str, config: ToMqMapping | ToMqttMapping, origin: str) -> Rule:
    """Make the rule of a mapping, or raise RuleError; `origin` is the name of the queue manager."""
    return ToMqRule(name, config, origin) if isinstance(config, ToMqMapping) else ToMqttRule(name, config, origin)
