"""Mappings and links in plain words, for `mqbridge check`."""

from typing import Any

from bridge.config import values
from bridge.config.link import LOCAL, LinkConfig
from bridge.config.mapping import (
    AnyMapping,
    FilterConfig,
    FilterValue,
    MappingBatchConfig,
    MessageAttributes,
    MqDestination,
    MqSource,
    MqttDestination,
    MqttSource,
    PublicationAttributes,
    TextPayload,
    ToMqMapping,
    ToMqttMapping,
)


def describe_link(name: str, link: LinkConfig) -> str:
    """Return a line on what a link connects to, and how; never a password."""
    path = link.path_of_websocket
    at = values.listing([values.endpoint(*address) for address in link.addresses], "or")
    over = "" if path is None else f" over WebSocket {path}"
    parts = [f"link {name}: MQTT {link.version} at {at}{over}", _tls(link)]
    if link.user is not None:
        parts.append(f"as user {link.user}, {_password(link)}")
    parts.append(f"{link.session} session {link.client_id!r}")
    parts.append(f"at most {_counted(link.in_flight, 'publication')} in flight")
    if not link.trusted:
        parts.append("properties of other bridges not believed")
    return ", ".join(parts)


def describe_mapping(name: str, mapping: AnyMapping) -> list[str]:
    """Return a line on what a mapping moves from where to where, and below it what is not as by default."""
    state = "" if mapping.enabled else " (not enabled: what comes for it waits)"
    to = _side(mapping.destination).removesuffix(",")
    lines = [f"mapping {name}{state}: from {_side(mapping.source)} to {to}, {mapping.guarantee}"]
    conditions = _conditions(mapping.filter)
    lines += [f"  only messages with {condition}" for condition in conditions]
    if conditions and isinstance(mapping, ToMqttMapping) and mapping.source.queue is not None:
        others = "go to the dead-letter queue" if mapping.filter.others == "dead-letter" else "are discarded"
        lines.append(f"  the others {others}")
    if mapping.otherwise:
        lines.append(f"  only messages that no filter of {values.listing(mapping.otherwise, 'and')} accepts")
    if isinstance(mapping, ToMqMapping) and mapping.order == "strict":
        lines.append("  a full destination queue holds up all its messages (order: strict)")
    if mapping.payload != TextPayload():
        lines.append(f"  {_payload(mapping.payload, isinstance(mapping, ToMqMapping))}")
    lines += [f"  {key} {shown}" for key, shown in _own_attributes(mapping.attributes)]
    if mapping.batch != MappingBatchConfig():
        batch = mapping.batch
        lines.append(
            f"  units of work of at most {_counted(batch.messages, 'message')}, {values.size_text(batch.size)},"
            f" {values.duration_text(batch.time)}"
        )
    if mapping.backouts != type(mapping).model_fields["backouts"].default:
        lines.append(f"  to the dead-letter queue after {_counted(mapping.backouts, 'backout')}")
    return lines


def _side(side: MqttSource | MqSource | MqttDestination | MqDestination) -> str:
    if isinstance(side, MqttSource | MqttDestination):
        where = "the bridge's own clients" if side.link == LOCAL else f"link {side.link}"
        return f"MQTT topic {side.mqtt} of {where}"
    if side.topic is not None:
        return f"MQ topic {side.topic}"
    manager = side.queue_manager if isinstance(side, MqDestination) else None
    at = f" at queue manager {manager}" if manager is not None else ""
    kept = "whose requests are kept on" if isinstance(side, MqDestination) else "with answers to the requests kept on"
    requests = f", {kept} queue {side.requests_queue}," if side.requests_queue is not None else ""
    return f"queue {side.queue}{at}{requests}"


def _conditions(wanted: FilterConfig) -> list[str]:
    conditions = []
    if wanted.qos is not None:
        conditions.append(f"QoS {values.listing([str(one) for one in wanted.qos], 'or')}")
    if wanted.retained is not None:
        conditions.append("the retained flag" if wanted.retained else "no retained flag")
    if wanted.min_size is not None:
        conditions.append(f"a payload of at least {values.size_text(wanted.min_size)}")
    if wanted.max_size is not None:
        conditions.append(f"a payload of at most {values.size_text(wanted.max_size)}")
    conditions += [_property(name, value) for name, value in wanted.properties.items()]
    if wanted.json_path is not None:
        conditions.append(f"a JSON payload where {wanted.json_path}")
    return conditions


def _property(name: str, value: FilterValue) -> str:
    if value is None:
        return f"no property {name}"
    listed = value if isinstance(value, list) else [value]
    return f"property {name} = {values.listing([_shown(one) for one in listed], 'or')}"


def _payload(payload: TextPayload, to_mq: bool) -> str:
    if payload.object:
        members = values.listing([f"{name}: {template}" for name, template in payload.object.items()], "and")
        return f"payload: a JSON object with {members}"
    if payload.type == "bytes":
        return "payload: bytes as they are"
    if payload.ccsid is not None:
        mq = f"CCSID {payload.ccsid}"
    else:
        mq = "UTF-8 (CCSID 1208)" if to_mq else "the CCSID that the message has"
    what = "text" if payload.type == "text" else "JSON"
    return f"payload: {what}, from UTF-8 to {mq}" if to_mq else f"payload: {what}, from {mq} to UTF-8"


def _own_attributes(attributes: MessageAttributes | PublicationAttributes) -> list[tuple[str, str]]:
    """Return the attributes that are not as in the standard profile."""
    standard = type(attributes)()
    names = [name for name in type(attributes).model_fields if getattr(attributes, name) != getattr(standard, name)]
    return [(name, _attribute(name, getattr(attributes, name))) for name in names]


def _attribute(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return values.listing([f"{key}: {_shown(one)}" for key, one in value.items()], "and")
    return values.duration_text(value) if name == "expiry" and isinstance(value, float) else _shown(value)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tls(link: LinkConfig) -> str:
    if link.tls is None:
        return "no TLS"
    trust = str(link.tls.ca_file) if link.tls.ca_file is not None else "what this machine trusts"
    parts = [f"TLS that trusts {trust}"]
    if link.tls.certificate_file is not None:
        parts.append(f"certificate {link.tls.certificate_file}")
    if link.tls.alpn:
        parts.append(f"ALPN {' '.join(link.tls.alpn)}")
    if not link.tls.check_host_name:
        parts.append("WHOSE HOST NAME IS NOT CHECKED")
    return ", ".join(parts)


def _password(link: LinkConfig) -> str:
    if link.password_file is not None:
        return f"password in {link.password_file}"
    if link.password_variable is not None:
        return f"password in the environment variable {link.password_variable}"
    return "no password"
