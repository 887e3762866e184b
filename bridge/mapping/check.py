"""Semantic checks of mappings: templates, filters, loops, QoS. Also of tables and the schemas of channels.

`bridge.config.document.load` takes `problems` as a parameter and reports its results with file, line and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.config.link import LOCAL, LinkConfig
from bridge.config.mapping import AnyMapping, FilterConfig, ToMqMapping, ToMqttMapping, templates_of
from bridge.config.models import Configuration, Names
from bridge.config.problems import Clash
from bridge.config.values import listing
from bridge.mapping.attributes import checked_template, located, names_of, record_of
from bridge.mapping.chosen_names import is_system
from bridge.mapping.expression import ExpressionError
from bridge.mapping.filter import Filter
from bridge.mapping.loops import Loop, loops
from bridge.mapping.rendered import BYTE_CHECKS
from bridge.mapping.rule import GUARANTEED_QOS, published_qos, rule_of
from bridge.mapping.schema import SchemaError, schema_of_channel
from bridge.mapping.table import TableError, table_of, tables_of
from bridge.mapping.template import (
    WORDS,
    FilterError,
    PatternError,
    Placeholder,
    RecordLayoutError,
    RuleError,
    TemplateError,
    template_of,
)
from bridge.mapping.topic_pattern import pattern_of
from bridge.telemetry.request import is_object_name

#: Placeholder for the queue manager's name. The result does not depend on it.
_ANY = "QM"
_EXPECTED = {
    PatternError: "a topic filter",
    TemplateError: "a template",
    FilterError: "a filter",
    ExpressionError: "an expression",
    SchemaError: "a JSON Schema",
    RecordLayoutError: "a copybook and options that fit it",
}


def problems(configuration: Configuration, wrong: Names | None = None) -> list[Clash]:
    """Return all mistakes in the templates, topic filters and filters of each mapping, in schemas, and the rejected loops.

    Loops that the hop mark stops at run time are allowed (:func:`loops_of` returns them). Two kinds of loops are rejected: a
    mapping that takes all its own output, and a loop that nothing stops, because its links do not carry the mark. `wrong`
    contains the names of invalid parts, which the configuration lacks. Mappings that may use such a table are not checked.
    """
    mappings, links = configuration.mappings, configuration.links
    conflicts: list[Clash] = []
    for index, channel in enumerate(configuration.channels):
        for topic_filter in channel.schemas:
            try:
                schema_of_channel(channel, topic_filter)
            except SchemaError as error:
                location = ("channels", index, "schemas", topic_filter)
                conflicts.append(Clash(location, f"a file with a JSON Schema: {error.sentence}"))
    invalid_tables = set((wrong or {}).get("tables", ()))
    for name, table in configuration.tables.items():
        try:
            table_of(table)
        except TableError as error:
            conflicts.append(Clash(("tables", name, "file"), f"a table: {error}"))
            invalid_tables.add(name)
    for name, pipeline in configuration.pipelines.items():
        for place, record in pipeline.records.items():
            from bridge.mapping.record_payload import checked_record

            try:
                writes = place != ("payload",)
                checked_record(record, writes=writes)
            except RecordLayoutError as error:
                why = f"{_EXPECTED[RecordLayoutError]} without this mistake: {error.sentence}"
                conflicts.append(Clash(("pipelines", name, *place, *error.location), why))
    right: dict[str, AnyMapping] = {}
    for name, mapping in mappings.items():
        if invalid_tables and invalid_tables & mapping.words():
            continue
        errors = list(_errors(name, mapping))
        conflicts += [_clash(name, error) for error in errors]
        if not errors:
            right[name] = mapping
    for loop in loops(right, links, _ANY):
        if loop.uncut or (loop.certain and len(loop.names) == 1):
            conflicts.append(_refused(loop, right[loop.names[-1]]))
    return conflicts


def loops_of(configuration: Configuration) -> list[Loop]:
    """Return the loops between the mappings of a configuration, including those that the hop mark stops at run time."""
    return loops(configuration.mappings, configuration.links, configuration.queue_manager.name)


def _errors(name: str, mapping: AnyMapping) -> Iterator[RuleError]:
    """Yield the errors of each part of a mapping, and, if there are none, those of the mapping as a whole."""
    faulty = False
    to_mq = isinstance(mapping, ToMqMapping)
    captures: tuple[str, ...] | None = ()
    for location, text in _patterns(mapping):
        try:
            captures = located(location, pattern_of, text).names
        except RuleError as error:
            faulty, captures = True, None
            yield error
    names: tuple[str, ...] | None = None
    try:
        names = None if captures is None else names_of(mapping, captures)
    except RuleError as error:
        faulty = True
        yield error
    if captures is not None and names is not None:  # otherwise the valid names are unknown
        for where, attribute, text in templates_of(mapping):
            try:
                checked_template(mapping, names, where, attribute, text, _ANY)
            except RuleError as error:
                faulty = True
                yield error
        try:
            Filter(mapping.filter, captures, of_publication=to_mq, tables=tables_of(mapping.tables))
        except RuleError as error:
            faulty = True
            yield error
    # Errors of the mappings in `otherwise` are reported there.
    if not faulty and not any(error for other, config in mapping.routes.items() for error in _errors(other, config)):
        try:
            rule_of(name, mapping, _ANY)
        except RuleError as error:
            yield error


def _patterns(mapping: AnyMapping) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(mapping, ToMqMapping):
        yield ("from", "mqtt"), mapping.source.mqtt
    elif mapping.source.topic is not None:
        yield ("from", "topic"), mapping.source.topic


def _clash(name: str, error: RuleError) -> Clash:
    expected = _EXPECTED.get(type(error), "a value")
    place = f" at its character {error.column}" if error.column is not None else ""
    return Clash(("mappings", name, *error.location), f"{expected} without this mistake{place}: {error.sentence}")


def _refused(loop: Loop, last: AnyMapping) -> Clash:
    name = loop.names[-1]
    if loop.uncut:
        around = " → ".join((*loop.names, loop.names[0]))
        why = f"no loop {around}, because its link with MQTT 3.1.1 transfers no hop mark to detect it"
    else:
        why = "a destination that the mapping does not take from itself"
    key = next(key for key in ("queue", "topic", "mqtt") if getattr(last.destination, key, None) is not None)
    return Clash(("mappings", name, "to", key), why)


#: The template filter that provides a value if the name has none.
_DEFAULT = "default"


def warnings_of(configuration: Configuration) -> Iterator[str]:
    """Yield the warnings about the mappings of a configuration, one sentence each."""
    queue_manager = configuration.queue_manager
    ignores_users = queue_manager.type == "embedded" and queue_manager.authorities != "enforced"
    for name, mapping in configuration.mappings.items():
        if ignores_users and mapping.destination.authority == "publisher":
            yield (
                f"mapping {name}: as: publisher checks publish_topics only, because the embedded queue manager ignores the"
                " authorities of users (hint: queue_manager.authorities: enforced)"
            )
        for warning in _warnings_of(mapping, configuration.links):
            yield f"mapping {name}: {warning}"
        yield from _unlike_routes(name, mapping)
    yield from _unrouted(configuration.mappings)
    for name, pipeline in configuration.pipelines.items():
        for key, sink in (("to", pipeline.destination), ("late", pipeline.late)):
            mq = None if sink is None else sink.mq
            for kind in ("queue", "topic"):
                text = None if mq is None else getattr(mq, kind)
                if text is not None and not pipeline.allow and (first := _system_prefix(text)):
                    yield f"pipeline {name}: {_only_system(f'{key}.mq.{kind}', first)}"
        to = pipeline.destination
        if to is not None and to.chooses_local_topic and not pipeline.allow and (first := _system_prefix(str(to.mqtt))):
            yield f"pipeline {name}: {_only_system('to.mqtt', first)}"


def _unlike_routes(name: str, mapping: AnyMapping) -> Iterator[str]:
    on_link = isinstance(mapping, ToMqMapping) and mapping.source.link != LOCAL
    for other, route in mapping.routes.items():
        if mapping.enabled and not route.enabled:
            yield (
                f"mapping {name}: its otherwise names mapping {other}, which is not enabled: a message that its filter"
                f" accepts waits for it, or is discarded if mapping {other} has never run"
            )
        if on_link and route.filter.qos is not None and route.guarantee != mapping.guarantee:
            yield (
                f"mapping {name}: the filter of mapping {other} looks at the QoS, which a broker lowers to that of the"
                f" guarantee (hint: guarantee: {route.guarantee} for both)"
            )


def _unrouted(mappings: Mapping[str, AnyMapping]) -> Iterator[str]:
    """Yield a warning for each topic filter that several mappings use, all of them with filters."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, mapping in mappings.items():
        if isinstance(mapping, ToMqMapping):
            key = pattern_of(mapping.source.mqtt).filter, mapping.source.link
        elif mapping.source.topic is not None:
            key = pattern_of(mapping.source.topic).filter, ""
        else:
            continue
        if mapping.enabled:
            groups.setdefault(key, []).append(name)
    covered = [set(mapping.otherwise) for mapping in mappings.values() if mapping.enabled]
    for (topic_filter, _), names in groups.items():
        if len(names) < 2 or any(mappings[name].filter == FilterConfig() for name in names):
            continue
        if not any(mappings[name].otherwise for name in names) and not any(
            set(names) <= covered_names for covered_names in covered
        ):
            yield (
                f"a message of {topic_filter} that no filter of the mappings {listing(names, 'and')} accepts is discarded"
                f" (hint: a mapping with otherwise: [{', '.join(names)}])"
            )


def _warnings_of(mapping: AnyMapping, links: Mapping[str, LinkConfig]) -> Iterator[str]:
    side = mapping.source if isinstance(mapping, ToMqMapping) else mapping.destination
    link = links.get(side.link)
    yield from _digits(mapping)
    yield from _rejected_names(mapping)
    yield from _of_record(mapping)
    exactly = mapping.guarantee == "exactly-once"
    if exactly and link is not None and link.failover and "failover_sessions" not in link.model_fields_set:
        yield (
            f"link {side.link} has failover addresses: exchanges begun at an address are finished there; set"
            " failover_sessions: shared if they share sessions, as the nodes of a cluster do, or else separate"
        )
    if isinstance(mapping, ToMqMapping):
        link = links.get(mapping.source.link)
        yield from _unothers(mapping, mapping.source.mqtt, mapping.destination.queue or mapping.destination.topic)
        if link is not None:
            yield from _received(mapping)
        if mapping.destination.requests_queue is not None and _old(link):
            yield "no publication requests an answer: MQTT 3.1.1 has no Response Topic, so requests_queue stays empty"
        yield from _impossible_queue(mapping.destination.queue)
        if (
            mapping.destination.requests_queue is not None
            and mapping.destination.requests_queue == mapping.destination.queue
        ):
            yield "its requests_queue is also its destination queue, and should be a separate queue"
        if link is not None and link.version == "3.1.1":
            yield from _of_mqtt_3_1_1(mapping, link)
        if mapping.filter.properties and _old(link):
            yield "its filter looks at properties, which publications of MQTT 3.1.1 do not have"
        return
    yield from _unothers(mapping, mapping.source.topic, mapping.destination.mqtt)
    if mapping.source.requests_queue is not None and mapping.source.requests_queue == mapping.source.queue:
        yield "its requests_queue is also its source queue, and should be a separate queue"
    link = links.get(mapping.destination.link)
    if link is not None:
        yield from _published(mapping, link)


def _of_record(mapping: AnyMapping) -> Iterator[str]:
    """Yield warnings about the copybook of a mapping."""
    record = record_of(mapping)
    if record is None:
        return
    for redefinition in record.layout.redefinitions:
        if not redefinition.is_chosen:
            titles = [item.title for item in redefinition.items.values()]
            yield (
                f"{listing(titles, 'and')} share their bytes, and {titles[0]} is always used (hint: payload.redefines chooses"
                " another one)"
            )
    if isinstance(mapping, ToMqMapping) and mapping.attributes.format == "string":
        for _, item in record.layout.items():
            if item.usage != "DISPLAY" and not item.is_group:
                yield (
                    f"attributes.format is string, and {item.title} ({item.usage}) is not text: a conversion by the queue"
                    " manager (MQGMO_CONVERT) would change it"
                )
                return


#: Kinds of names that can be those of SYSTEM objects, and of queue managers.
_NAMED = frozenset(("queue", "reply queue", "topic string", "topic name"))
_QUEUE_MANAGERS = frozenset(("queue manager", "reply queue manager"))
#: Names of bytes of any number, in hexadecimal.
_CORRELATION_DATA = frozenset(("correlationData", "mqtt.correlationData"))


def _digits(mapping: AnyMapping) -> Iterator[str]:
    """Yield a warning for each field of bytes that gets hexadecimal digits of Correlation Data as text."""
    for location, attribute, text in templates_of(mapping):
        placeholder = template_of(text).pieces[0] if attribute.target.check in BYTE_CHECKS and text else None
        if not isinstance(placeholder, Placeholder) or placeholder.name not in _CORRELATION_DATA:
            continue
        if not any(name in ("bytes", "text") for name, _ in placeholder.written):
            yield (
                f"{'.'.join(location)} gets the bytes of {{{placeholder.name}}} only if there are 24 of them, otherwise their"
                f" hexadecimal digits as text (hint: {{{placeholder.name}|bytes}})"
            )


def _rejected_names(mapping: AnyMapping) -> Iterator[str]:
    """Yield a warning for each template whose names are rejected, all or most of them, because `allow` does not list them."""
    for location, attribute, text in templates_of(mapping):
        key = ".".join(location)
        at_broker = isinstance(mapping, ToMqttMapping) and mapping.destination.link != LOCAL
        if attribute.target.check in _NAMED and not mapping.allow and not at_broker and (first := _system_prefix(text)):
            yield _only_system(key, first)
        if template_of(text).names and attribute.target.check in _QUEUE_MANAGERS and not mapping.allow:
            yield (
                f"{key} comes from the message, and names that the configuration does not contain are rejected (hint: allow:"
                ' ["client:*"] for all clients, or the names of queue managers)'
            )


def _system_prefix(text: str) -> str:
    """Return the literal beginning of a template if all its results are SYSTEM names, otherwise ""."""
    template = template_of(text)
    first = template.pieces[0] if template.names else None
    return first if isinstance(first, str) and is_system(first) else ""


def _only_system(key: str, first: str) -> str:
    return f'{key} results in SYSTEM names only, which are rejected (hint: allow: ["{first}*"])'


def _old(link: LinkConfig | None) -> bool:
    return link is not None and link.version == "3.1.1"


def _impossible_queue(text: str | None) -> Iterator[str]:
    """Yield a warning if no result of the template can be a queue name."""
    literal = "".join(piece for piece in template_of(text or "").pieces if isinstance(piece, str))
    if literal and not is_object_name(literal):
        yield (
            f"to.queue always contains {literal!r}, and no queue has such a name (1 to 48 of the characters A-Z a-z 0-9 . _"
            " / %): all its messages go to the dead-letter queue"
        )


def _of_mqtt_3_1_1(mapping: ToMqMapping, link: LinkConfig) -> Iterator[str]:
    """Yield warnings about features of publications that a link of MQTT 3.1.1 does not provide."""
    texts = (mapping.destination.queue, mapping.destination.queue_manager, mapping.destination.topic)
    for name in sorted({name for text in texts for name in _names_without_default(text) if name.startswith("usr.")}):
        yield (
            f"{{{name}}} is a User Property, and publications of MQTT 3.1.1 have none: all its messages go to the dead-letter"
            " queue"
        )
    if link.bridge_bit:
        return
    hint = f"(hint: bridge_bit: true for link {mapping.source.link}, if its broker supports it)"
    if mapping.filter.retained:
        yield (
            "its filter accepts retained publications only: a broker of MQTT 3.1.1 sends them with RETAIN when the mapping"
            f" subscribes, and later ones without {hint}"
        )
    elif mapping.attributes.retained == "as-published":
        yield (
            "a broker of MQTT 3.1.1 sends publications with RETAIN when the mapping subscribes, and later ones without: these"
            f" do not become retained messages {hint}"
        )


def _names_without_default(text: str | None) -> Iterator[str]:
    for piece in template_of(text or "").pieces:
        if isinstance(piece, Placeholder) and all(name != _DEFAULT for name, _ in piece.written):
            yield piece.name


def _unothers(mapping: AnyMapping, source: str | None, destination: str | None) -> Iterator[str]:
    """Yield a warning for each name that can only be a message property. Messages without it are dead-lettered."""
    captures = names_of(mapping, pattern_of(source).names if source is not None else ())
    texts = {"its destination": destination}
    for section in ("limit", "changes"):
        if (options := getattr(mapping, section)) is not None:
            texts |= {f"{section}.{key}": getattr(options, key, None) for key in ("per", "of")}
    for place, text in texts.items():
        for name in _names_without_default(text):
            if "." not in name and not name.startswith(("$", "@")) and name not in WORDS and name not in captures:
                others = f" (captures: {', '.join(captures)})" if captures else ""
                yield (
                    f"{{{name}}} in {place} is not a capture{others}, so it is a message property: a message without it goes"
                    " to the dead-letter queue"
                )


def _received(mapping: ToMqMapping) -> Iterator[str]:
    """Yield warnings about the QoS of a link's subscription, which follows from the guarantee."""
    most = GUARANTEED_QOS[mapping.guarantee]
    levels = mapping.filter.qos
    if levels is not None and min(levels) > most:
        yield f"its filter accepts nothing: {mapping.guarantee} subscribes with QoS {most}, and no message has a higher QoS"
    elif mapping.guarantee == "exactly-once" and (levels is None or min(levels) < most):
        yield "exactly-once applies to QoS 2 only: a broker may repeat publications with QoS 1, and lose those with QoS 0"


def _published(mapping: ToMqttMapping, link: LinkConfig) -> Iterator[str]:
    """Yield warnings about the guarantee that the link cannot give, and the QoS that it overrides."""
    if _old(link) and mapping.guarantee != "at-most-once":
        yield (
            "a broker of MQTT 3.1.1 may acknowledge a publication that its ACL rejects: the mapping counts the message as"
            " moved, but no subscriber gets it (hint: version: 5, with which the broker reports it)"
        )
    qos = mapping.attributes.qos
    needed = GUARANTEED_QOS[mapping.guarantee]
    if needed > link.maximum_qos:
        yield f"{mapping.guarantee} needs QoS {needed}, but its link supports at most {link.maximum_qos}"
    elif isinstance(qos, int) and (effective_qos := published_qos(mapping.guarantee, qos, link.maximum_qos)) != qos:
        why = f"link {mapping.destination.link}" if qos > link.maximum_qos else mapping.guarantee
        yield f"attributes.qos is {qos}, and it publishes with QoS {effective_qos}, because of {why}"
