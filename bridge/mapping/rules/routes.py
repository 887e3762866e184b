"""The other routes of messages: the mappings whose filters a mapping with `otherwise` asks first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.filter import Filter, Filterable
from bridge.mapping.rules.topic_pattern import TopicPattern
from bridge.telemetry.message import Unmappable


class Routes:
    """The mappings that `otherwise` names. Raises RuleError."""

    def __init__(self, mappings: Mapping[str, ToMqMapping | ToMqttMapping]) -> None:
        self._routes = []
        for name, config in mappings.items():
            to_mq = isinstance(config, ToMqMapping)
            pattern = TopicPattern((config.source.mqtt if isinstance(config, ToMqMapping) else config.source.topic) or "")
            filter_ = Filter(config.filter, pattern.names, of_publication=to_mq)
            self._routes.append((name, pattern, filter_, config.payload.ccsid))

    def __bool__(self) -> bool:
        return bool(self._routes)

    def accepting(self, topic: str, scope_of: Callable[[dict[str, str], int | None], Filterable]) -> str | None:
        """Return the name of the first mapping that accepts a message; None if none does.

        `scope_of` makes what a filter looks at, of the captures and the CCSID of that mapping. A mapping accepts also what
        it dead-letters.
        """
        for name, pattern, filter_, ccsid in self._routes:
            captures = pattern.captures(topic)
            if captures is None:
                continue
            try:
                if filter_.takes(scope_of(captures, ccsid)):
                    return name
            except Unmappable:
                return name
        return None
