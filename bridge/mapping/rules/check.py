"""What is wrong with the mappings of a configuration that only their meaning shows: templates, filters, loops.

`bridge.config.load` takes `problems` to tell them with file, line and column; it cannot see what mappings mean itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.config import AnyMapping, Clash, Configuration, LinkConfig, ToMqMapping
from bridge.mapping.rules.attribute import Attribute, located
from bridge.mapping.rules.errors import FilterError, PatternError, RuleError, TemplateError
from bridge.mapping.rules.filter import Filter
from bridge.mapping.rules.loops import Loop, loops
from bridge.mapping.rules.rule import rule_of
from bridge.mapping.rules.topic_pattern import TopicPattern

#: A queue manager's name, which the checks of a file do not depend on.
_ANY = "QM"
_EXPECTED = {PatternError: "a topic filter", TemplateError: "a template", FilterError: "a filter"}
#: Keys below which stand names that the writer of the file chose; they may have dots.
_FREE_KEYS = ("properties", "object")


def problems(mappings: Mapping[str, AnyMapping], links: Mapping[str, LinkConfig]) -> list[Clash]:
    """Return all mistakes in templates, topic filters and filters of each mapping, and the loops to refuse.

    A loop that the hop mark cuts is not refused (:func:`loops_of` tells those loops), except for a mapping that takes all
    that it makes itself, and for a loop through a link of MQTT 3.1.1, which carries no mark.
    """
    found: list[Clash] = []
    right: dict[str, AnyMapping] = {}
    for name, mapping in mappings.items():
        errors = list(_errors(name, mapping))
        found += [_clash(name, error) for error in errors]
        if not errors:
            right[name] = mapping
    for loop in loops(right, links, _ANY):
        if loop.uncut or (loop.certain and len(loop.names) == 1):
            found.append(_refused(loop, right[loop.names[-1]]))
    return found


def loops_of(configuration: Configuration) -> list[Loop]:
    """Return the loops between the mappings of a configuration, which the hop mark cuts at run time."""
    return loops(configuration.mappings, configuration.links, configuration.queue_manager.name)


def _errors(name: str, mapping: AnyMapping) -> Iterator[RuleError]:
    """Yield the errors of a mapping: part by part, so that all of them are told; then those that only the whole shows."""
    faulty = False
    to_mq = isinstance(mapping, ToMqMapping)
    captures: tuple[str, ...] | None = ()
    for where, text in _patterns(mapping):
        try:
            captures = located(where, TopicPattern, text).names
        except RuleError as error:
            faulty, captures = True, None
            yield error
    if captures is not None:  # else there is no telling which names there are
        for where, text in _templates(mapping):
            try:
                Attribute(where, text, str, captures, of_publication=to_mq)
            except RuleError as error:
                faulty = True
                yield error
        try:
            Filter(mapping.filter, captures, of_publication=to_mq)
        except RuleError as error:
            faulty = True
            yield error
    # Errors of the mappings below otherwise are reported for those.
    if not faulty and not any(error for other, config in mapping.routes.items() for error in _errors(other, config)):
        try:
            rule_of(name, mapping, _ANY)
        except RuleError as error:
            yield error


def _patterns(mapping: AnyMapping) -> Iterator[tuple[str, str]]:
    if isinstance(mapping, ToMqMapping):
        yield "from.mqtt", mapping.source.mqtt
    elif mapping.source.topic is not None:
        yield "from.topic", mapping.source.topic


def _templates(mapping: AnyMapping) -> Iterator[tuple[str, str]]:
    """Yield the place of each template in a mapping, and its text."""
    attributes = mapping.attributes
    keys: tuple[str, ...]
    if isinstance(mapping, ToMqMapping):
        to: tuple[str, ...] = ("queue", "queue_manager", "topic")
        keys = ("msg_id", "correl_id", "reply_to_queue", "reply_to_queue_manager", "user_identifier")
    else:
        to = ("mqtt",)
        keys = ("response_topic", "correlation_data", "content_type")
    for section, owner, names in (("to", mapping.destination, to), ("attributes", attributes, keys)):
        for key in names:
            if (text := getattr(owner, key)) is not None:
                yield f"{section}.{key}", text
    for name, text in attributes.properties.items():
        yield f"attributes.properties.{name}", text
    for name, text in mapping.payload.object.items():
        yield f"payload.object.{name}", text


def _clash(name: str, error: RuleError) -> Clash:
    expected = _EXPECTED.get(type(error), "what goes with the rest of the mapping")
    place = f" at its character {error.column}" if error.column is not None else ""
    return Clash(("mappings", name, *_steps(error.where)), f"{expected} without this mistake{place}: {error.sentence}")


def _steps(where: str) -> tuple[str, ...]:
    """Return the keys in a dotted place of a mapping."""
    steps = where.split(".") if where else []
    for key in _FREE_KEYS:
        if key in steps[:2] and len(steps) > 3:
            return (*steps[:2], ".".join(steps[2:]))
    return tuple(steps)


def _refused(loop: Loop, last: AnyMapping) -> Clash:
    name = loop.names[-1]
    if loop.uncut:
        around = " → ".join((*loop.names, loop.names[0]))
        why = f"what the loop {around} does not bring round, because its link of MQTT 3.1.1 carries no hop mark to cut it"
    else:
        why = "a destination that the mapping does not take from itself"
    key = next(key for key in ("queue", "topic", "mqtt") if getattr(last.destination, key, None) is not None)
    return Clash(("mappings", name, "to", key), why)
