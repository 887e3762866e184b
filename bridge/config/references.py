"""What one part of the file says of another: mappings and pipelines, and the links that they use."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.config.link import LOCAL, MAPPING_PLACE, LinkConfig, broker_host
from bridge.config.problems import Clash, Location, suggestion
from bridge.config.queue_manager import DEFAULT_TRANSMISSION_QUEUE, MAPPING_STATE_QUEUE, STATE_QUEUE
from bridge.config.values import listing

_OF_MQTT_5 = ("expiry", "response_topic", "correlation_data", "content_type", "properties")


def link_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the clashes of mappings in `data` (plain values of a file) with their links.

    Like `bridge.config.models.clashes`, the function passes over what is not of the right type.
    """
    links, mappings = _sections(data, "links"), _sections(data, "mappings")
    sessions: dict[tuple[object, ...], str] = {}
    found: list[Clash] = []
    for name, mapping in mappings.items():
        for side in ("from", "to"):
            end = mapping.get(side)
            link_name = end.get("link", LOCAL) if isinstance(end, Mapping) and "mqtt" in end else LOCAL
            if link_name == LOCAL or not isinstance(link_name, str):
                continue
            place: Location = ("mappings", name, side, "link")
            link = links.get(link_name)
            if link is None:
                if not _written(data, "links", link_name):  # else its own mistakes are told
                    found.append(Clash(place, f"the name of a link ({_known(link_name, links)})"))
                continue
            session = _session(link, name)
            if sessions.setdefault(session, name) != name:
                again = f"{session[-1]!r} again, with which mapping {sessions[session]} connects to the same broker"
                expected = f"a link whose client_id is another for each mapping (write {MAPPING_PLACE} into it)"
                found.append(Clash(place, expected, again))
            found += _unfit(("mappings", name), mapping, side, link_name, link)
    return found


def record_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the channel authentication records that say the same thing of whom they are for."""
    seen: dict[tuple[str, ...], int] = {}
    found = []
    listed = data.get("channel_authentication")
    for index, record in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(record, Mapping) or not isinstance(record.get("type"), str):
            continue
        names = ("channel", "type", "address", "client_user", "ssl_peer", "ssl_cert_issuer")
        key = tuple(str(record.get(name) or ("*" if name == "channel" else "")) for name in names)
        if seen.setdefault(key, index) != index:
            again = f"{record['type']} again, as in channel_authentication[{seen[key]}]"
            expected = "a record that is for others than the one before it"
            found.append(Clash(("channel_authentication", index, "type"), expected, again))
    return found


def queue_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the clashes of mappings in `data` that name a queue which is not for them.

    The queues that the bridge keeps for itself are for no mapping; and only one enabled mapping takes from a queue, for
    the queue is opened for exclusive input. Passes over what is not of the right type, as `link_clashes`.
    """
    transmission_queue = data.get("transmission_queue", DEFAULT_TRANSMISSION_QUEUE)
    own = {
        STATE_QUEUE: "where it keeps the sessions of its clients",
        MAPPING_STATE_QUEUE: "where it keeps how far mappings have come",
        str(transmission_queue): "where messages for its own clients wait",
    }
    takers: dict[str, str] = {}
    found: list[Clash] = []
    for name, mapping in _sections(data, "mappings").items():
        ends = [(side, end) for side in ("from", "to") if isinstance(end := mapping.get(side), Mapping)]
        for side, end in ends:
            for key in ("queue", "requests_queue"):
                # A queue of that name at another queue manager is not the bridge's.
                if isinstance(end.get(key), str) and end[key] in own and "queue_manager" not in end:
                    kept = f"{end[key]!r}, {own[end[key]]}"
                    found.append(Clash(("mappings", name, side, key), "a queue that the bridge does not use itself", kept))
        queue = next((end.get("queue") for side, end in ends if side == "from"), None)
        if not isinstance(queue, str) or queue in own or mapping.get("enabled", True) is not True:
            continue
        place: Location = ("mappings", name, "from", "queue")
        if takers.setdefault(queue, name) != name:
            again = f"{queue!r} again, from which mapping {takers[queue]} takes"
            found.append(Clash(place, "a queue that no other enabled mapping takes from", again))
    return found


def otherwise_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the names below `otherwise` of mappings in `data` that are not names of mappings of the same source."""
    mappings = _sections(data, "mappings")
    found: list[Clash] = []
    for name, mapping in mappings.items():
        listed = mapping.get("otherwise")
        for index, other in enumerate(listed if isinstance(listed, list) else []):
            place: Location = ("mappings", name, "otherwise", index)
            named = mappings.get(other) if isinstance(other, str) else None
            if named is None:
                if isinstance(other, str) and not _written(data, "mappings", other):
                    known = suggestion(other, mappings) or listing([one for one in mappings if one != name], "or")
                    found.append(Clash(place, f"the name of a mapping ({known})"))
            elif other == name or named.get("otherwise"):
                found.append(Clash(place, "a mapping without otherwise", f"{other!r}"))
            elif _source_kind(named) != _source_kind(mapping):
                sentence = "a mapping of the same source (mqtt: of the same link, or topic:)"
                found.append(Clash(place, sentence, f"{other!r}"))
    return found


def _source_kind(mapping: Mapping[str, Any]) -> tuple[object, ...]:
    source = mapping.get("from")
    if not isinstance(source, Mapping):
        return ()
    if "mqtt" in source:
        return "mqtt", source.get("link", LOCAL)
    return ("topic",) if "topic" in source else ("queue", source.get("queue"))


def pipeline_clashes(data: Mapping[str, Any]) -> list[Clash]:
    """Return the clashes of pipelines in `data` with the rest of the file.

    Such a pipeline names a link or mapping that does not exist or does not fit, shares a directory, or has none for its
    checkpoint.
    """
    links, queue_manager = _sections(data, "links"), data.get("queue_manager")
    on_ibm = isinstance(queue_manager, Mapping) and queue_manager.get("type") == "ibm"
    directories: dict[str, str] = {}
    sessions: dict[tuple[object, ...], str] = {}
    found: list[Clash] = []
    for name, pipeline in _sections(data, "pipelines").items():
        for side in ("from", "to", "late", "dead_letters"):
            end = pipeline.get(side)
            link_name = end.get("link", LOCAL) if isinstance(end, Mapping) and "mqtt" in end else LOCAL
            if link_name == LOCAL or not isinstance(link_name, str):
                continue
            place: Location = ("pipelines", name, side, "link")
            if link_name not in links:
                if not _written(data, "links", link_name):
                    found.append(Clash(place, f"the name of a link ({_known(link_name, links)})"))
            elif MAPPING_PLACE not in str(links[link_name].get("client_id", MAPPING_PLACE)):
                sentence = f"a link whose client_id has {MAPPING_PLACE} in it, because each task of Spark connects by itself"
                found.append(Clash(place, sentence))
        found += _mapping_clashes(data, name, pipeline)
        found += _session_clashes(links, name, pipeline, sessions)
        checkpoint = pipeline.get("checkpoint")
        if checkpoint is None and on_ibm:
            found.append(Clash(("pipelines", name, "checkpoint"), "a directory, because IBM MQ has no data directory here"))
        elif checkpoint is not None and directories.setdefault(str(checkpoint), name) != name:
            again = f"{str(checkpoint)!r} again, which is that of pipeline {directories[str(checkpoint)]}"
            found.append(Clash(("pipelines", name, "checkpoint"), "a directory that no other pipeline has", again))
    return found


def _session_clashes(
    links: Mapping[str, Any], name: str, pipeline: Mapping[str, Any], sessions: dict[tuple[object, ...], str]
) -> Iterator[Clash]:
    """Yield a clash where another pipeline has the session at the broker that this one names; `sessions` grows."""
    source = pipeline.get("from")
    options = source.get("options") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or not isinstance(options, Mapping) or source.get("mqtt") is None:
        return
    key = next((key for key in options if str(key).replace("_", "").lower() == "clientid"), None)
    client_id, link = options.get(key), links.get(str(source.get("link", LOCAL)), {})
    if key is None or not isinstance(client_id, str | int) or MAPPING_PLACE in str(client_id):
        return
    session = _session({**link, "client_id": str(client_id)}, name)
    if sessions.setdefault(session, name) != name:
        again = f"{client_id!r} again, with which pipeline {sessions[session]} connects to the same broker"
        yield Clash(("pipelines", name, "from", "options", str(key)), "a client identifier that no other pipeline has", again)


def _mapping_clashes(data: Mapping[str, Any], name: str, pipeline: Mapping[str, Any]) -> Iterator[Clash]:
    """Yield a clash for each thing that is wrong with the mapping that a pipeline uses."""
    used, mappings = pipeline.get("mapping"), _sections(data, "mappings")
    if not isinstance(used, str):
        return
    place: Location = ("pipelines", name, "mapping")
    mapping = mappings.get(used)
    if mapping is None:
        if not _written(data, "mappings", used):
            known = (suggestion(used, mappings) or listing(list(mappings), "or")) if mappings else "there is none"
            yield Clash(place, f"the name of a mapping ({known})")
        return
    source = mapping.get("from")
    source = source if isinstance(source, Mapping) else {}
    to_mq, of_mapping = "mqtt" in source, mapping.get("filter")
    origin = pipeline.get("from")
    origin = origin if isinstance(origin, Mapping) else {}
    if origin.get("mqtt") is not None and not to_mq:
        yield Clash(place, "a mapping from MQTT to MQ, because the pipeline reads mqtt:", f"{used!r}, which is to MQTT")
    elif origin.get("mq") is not None and to_mq:
        yield Clash(place, "a mapping from MQ to MQTT, because the pipeline reads mq:", f"{used!r}, which is to MQ")
    elif source.get("requests_queue") is not None:
        sentence = "a mapping without from.requests_queue, because pipelines do not look up the requests of answers"
        yield Clash(place, sentence, f"{used!r}")
    elif (
        source.get("queue") is not None
        and isinstance(of_mapping, Mapping)
        and of_mapping.get("others", "dead-letter") != "discard"
        and any(value not in (None, {}) for key, value in of_mapping.items() if key != "others")
    ):
        sentence = "a mapping whose filter has others: discard, because a pipeline leaves out what a filter does not take"
        yield Clash(place, sentence, f"{used!r}")
    if mapping.get("enabled", True) is True:
        sentence = f"false, because pipeline {name} uses the mapping, and the service would move the same messages"
        yield Clash(("mappings", used, "enabled"), sentence)


def _unfit(place: Location, mapping: Mapping[str, Any], side: str, name: str, link: Mapping[str, Any]) -> Iterator[Clash]:
    """Yield a clash for each thing that a mapping asks for and its link cannot do."""
    attributes = mapping.get("attributes")
    attributes = attributes if side == "to" and isinstance(attributes, Mapping) else {}
    if mapping.get("guarantee") == "exactly-once":
        if link.get("session", "durable") != "durable":
            sentence = f"at-least-once or at-most-once, because link {name} has no durable session"
            yield Clash((*place, "guarantee"), sentence)
        qos, where = attributes.get("qos"), (*place, "attributes", "qos")
        if isinstance(qos, Mapping):
            qos, where = qos.get("persistent"), (*where, "persistent")
        if qos in (0, 1) and not isinstance(qos, bool):
            yield Clash(where, f"2, because guarantee exactly-once needs QoS 2 on link {name}")
    if link.get("version") == "3.1.1":
        for key in _OF_MQTT_5:
            if attributes.get(key) not in (None, {}, "as-published", "unlimited"):
                yield Clash((*place, "attributes", key), f"none, because link {name} is MQTT 3.1.1, which has no such thing")


def _session(link: Mapping[str, Any], mapping: str) -> tuple[object, ...]:
    """Return the key by which a broker tells sessions apart: the broker itself, and the client identifier."""
    host, client_id = link.get("host"), link.get("client_id", LinkConfig.model_fields["client_id"].default)
    port = link.get("port") or (8883 if "tls" in link else 1883)  # `tls:` with nothing below it is TLS
    identifier = client_id.replace(MAPPING_PLACE, mapping) if isinstance(client_id, str) else client_id
    return broker_host(str(host)), str(port), str(identifier)


def _known(name: str, links: Mapping[str, Any]) -> str:
    if not links:
        return "there is none under links:, and local are the bridge's own clients"
    return suggestion(name, links) or f"{listing([*links, LOCAL], 'or')}"


def _sections(data: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    """Return the sections by name below `key`, of those that are sections at all."""
    listed = data.get(key)
    found = listed if isinstance(listed, Mapping) else {}
    return {str(name): section for name, section in found.items() if isinstance(section, Mapping)}


def _written(data: Mapping[str, Any], key: str, name: str) -> bool:
    listed = data.get(key)
    return isinstance(listed, Mapping) and name in listed
