"""Plain-language summary of a configuration, for `mqbridge check`."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from bridge import durations
from bridge.config import mapping as mappings
from bridge.config import pipeline as pipelines
from bridge.config import values
from bridge.config.authentication import ChannelAuthenticationConfig
from bridge.config.channel import ChannelConfig
from bridge.config.link import LOCAL, LinkConfig
from bridge.config.models import Configuration
from bridge.config.operations import AdminConfig, ArchiveConfig, TracesConfig
from bridge.config.queue_manager import EmbeddedQueueManagerConfig, IbmQueueManagerConfig, TlsConfig

_NO_CONTROL = "no control socket: mappings are reloaded by SIGHUP only"


def describe(configuration: Configuration) -> list[str]:
    """Return a summary of `configuration`, one statement per line, without passwords."""
    queue_manager, limits = configuration.queue_manager, configuration.limits
    lines = _ibm(queue_manager) if isinstance(queue_manager, IbmQueueManagerConfig) else _embedded(queue_manager)
    lines += [_channel(channel) for channel in configuration.channels] or ["no channel: no MQTT client can connect"]
    lines += [_record(record) for record in configuration.channel_authentication]
    lines.append(f"messages for MQTT clients wait on {configuration.transmission_queue}")
    lines.append(
        f"each client: at most {limits.in_flight} messages in flight, {values.size_text(limits.pending_bytes)} unread,"
        f" {values.size_text(limits.pending_publication_bytes)} uncommitted; resend to MQTT 3.1 clients after"
        f" {durations.shown(limits.retry_interval)}"
    )
    lines += [describe_link(name, link) for name, link in configuration.links.items()]
    lines += [line for name, one in configuration.mappings.items() for line in describe_mapping(name, one)]
    lines += [line for name, one in configuration.pipelines.items() for line in describe_pipeline(name, one)]
    lines += describe_spark(configuration.spark)
    if configuration.mappings:
        control = configuration.control_socket_path
        lines.append(f"mqbridge reload and mqbridge mapping reach it at {control}" if control else _NO_CONTROL)
    lines += _archive(configuration.archive)
    lines += _admin(configuration.admin)
    lines += _traces(configuration.traces)
    lines.append(f"stopping takes at most {durations.shown(limits.shutdown_timeout)}")
    lines.append(f"log: {configuration.log.level} and above, as {configuration.log.format}")
    return lines


def advice(configuration: Configuration) -> Iterator[str]:
    """Yield recommendations for valid but questionable settings, for `mqbridge check`."""
    for channel in configuration.channels:
        if may_be_nobody(channel) and (channel.authentication or _is_open(channel)):
            yield (
                f"channel {channel.name}: clients without a user act as nobody, a user that MQ does not know; give the"
                " channel an mcauser"
            )
    for channel in configuration.channels:
        if (what := _origin_of_user(channel)) and not is_mapped(configuration, channel):
            instead = "set use_client_id: false" if channel.use_client_id else "give the channel an mcauser"
            yield (
                f"channel {channel.name}: clients with a {what} longer than 12 bytes, the length of an MQ user, are rejected"
                f" unless a channel authentication record maps them to a user; or {instead}"
            )
    on_ibm_mq = configuration.queue_manager.type == "ibm"
    for channel in configuration.channels:
        if on_ibm_mq and any(one.method == "queue-manager" for one in channel.authentication):
            yield (
                f"channel {channel.name}: method queue-manager connects to the queue manager for each login, two at a time;"
                " each user of a client needs CONNECT authority, and CONNAUTH must check passwords"
            )


def _origin_of_user(channel: ChannelConfig) -> str:
    """Return which client name becomes the MQ user, or "" if the configuration guarantees that it is short enough.

    Users of password files are checked one by one.
    """
    if channel.use_client_id:
        return "client identifier"
    unknown = ("certificate", "jwt", "ldap", "plugin")
    named = not channel.mcauser and any(one.method in unknown for one in channel.authentication)
    return "user name" if named else ""


def is_mapped(configuration: Configuration, channel: ChannelConfig) -> bool:
    """Return whether a channel authentication record maps clients of `channel` to another user."""
    return any(
        record.mcauser is not None and fnmatchcase(channel.name, record.channel)
        for record in configuration.channel_authentication
    )


def may_be_nobody(channel: ChannelConfig) -> bool:
    """Return whether clients without an identity may connect to a channel that assigns none."""
    named = channel.use_client_id or channel.mcauser
    return not named and (
        not channel.authentication or any(one.method == "anonymous" for one in channel.authentication)
    )


def _is_open(channel: ChannelConfig) -> bool:
    """Return whether clients on other machines can connect without authentication."""
    return not channel.authentication and channel.socket is None and not values.is_loopback(channel.address)


def _admin(admin: AdminConfig) -> list[str]:
    if admin.port is None:
        return []
    over = "https" if admin.tls is not None else "http"
    methods = ["a token", *(one.method for one in admin.authentication)]
    return [
        f"console, metrics and health at {_endpoint(admin.address, admin.port)} with {over}; the console requires"
        f" {values.listing(methods, 'or')}"
    ]


def _traces(traces: TracesConfig) -> list[str]:
    if traces.endpoint is None:
        return []
    names = "with" if traces.names else "without"
    share = "all" if traces.sample == 1 else f"{traces.sample:.4g}"
    return [
        f"{share} of the messages without a trace context start a trace, {names} the names of topics, queues and clients;"
        f" spans go to {values.without_password(traces.endpoint)}"
    ]


def _archive(archive: ArchiveConfig) -> list[str]:
    if archive.directory is None:
        return []
    kept = "without limit" if archive.retention_days is None else f"{archive.retention_days} days"
    payloads = "with" if archive.payloads else "without"
    return [
        f"messages are archived in {archive.directory}, {payloads} payloads, kept {kept};"
        f" killing the archive process loses the last {durations.shown(archive.roll.time)}"
    ]


def _embedded(queue_manager: EmbeddedQueueManagerConfig) -> list[str]:
    directory = queue_manager.data_directory
    data = str(directory) if directory.is_absolute() else f"{directory} of the working directory"
    lines = [
        f"queue manager {queue_manager.name} ({queue_manager.type}), data in {data},"
        f" messages of at most {values.size_text(queue_manager.max_message_length)}"
    ]
    if queue_manager.authorities == "enforced":
        lines.append("applications and MQTT clients need the authorities that SET AUTHREC gives")
    if queue_manager.scripts:
        lines.append(f"MQSC scripts run at start: {', '.join(map(str, queue_manager.scripts))}")
    if listener := queue_manager.listener:
        reach = ", with a password" if listener.password_file else ""
        if not reach and not values.is_loopback(listener.address):
            reach = "; OTHER MACHINES CAN CONNECT WITHOUT A PASSWORD"
        lines.append(f"MQ applications connect to {_endpoint(listener.address, listener.port)}{reach}")
    else:
        lines.append("MQ applications in other processes connect through the Unix socket only")
    return lines


def _ibm(queue_manager: IbmQueueManagerConfig) -> list[str]:
    if queue_manager.mode == "bindings":
        way = "on this machine, in bindings mode"
    elif queue_manager.ccdt_url is not None:
        way = f"as the CCDT {values.without_password(queue_manager.ccdt_url)} says"
    else:
        way = f"at {values.listing(queue_manager.connections or [], 'or')}, channel {queue_manager.channel}"
    package = "ibmmq or pymqi" if queue_manager.library == "auto" else queue_manager.library
    batch, puts = queue_manager.batch, "asynchronous" if queue_manager.asynchronous_puts else "synchronous"
    threads = "1 publisher" if queue_manager.publishers == 1 else f"{queue_manager.publishers} publishers"
    lines = [
        f"queue manager {queue_manager.name} (IBM MQ) {way}, through {package}",
        f"connects as {_user(queue_manager)}, application name {queue_manager.application_name!r}",
        f"{threads} with units of work of at most {batch.messages} publications, {values.size_text(batch.size)},"
        f" {durations.shown(batch.time)}; {puts} puts",
        f"undeliverable messages go to {queue_manager.dead_letter_queue}",
    ]
    if queue_manager.client_identifiers == "escaped":
        lines.append("client identifiers are escaped in queue manager names: dev-1 is dev%2D1")
    if queue_manager.mode == "client" and (queue_manager.ccdt_url is None or queue_manager.tls is not None):
        lines.insert(1, _tls(queue_manager.tls))
    return lines


def _user(queue_manager: IbmQueueManagerConfig) -> str:
    if queue_manager.token_file is not None:
        return f"the user of the token in {queue_manager.token_file}"
    if queue_manager.user is None:
        return "the user that the bridge runs as, without a password"
    if queue_manager.password_file is not None:
        return f"user {queue_manager.user}, password in {queue_manager.password_file}"
    return f"user {queue_manager.user}, password in the environment variable {queue_manager.password_variable}"


def _tls(tls: TlsConfig | None) -> str:
    if tls is None:
        return "no TLS: others can read the data on the network"
    certificate = f", certificate {tls.certificate_label}" if tls.certificate_label is not None else ""
    peer = f", only to {tls.peer_name}" if tls.peer_name is not None else ""
    cipher_spec = tls.cipher_spec or "the CipherSpec of the CCDT"
    fips = ", FIPS-certified cryptography only" if tls.fips else ""
    return f"TLS with {cipher_spec}, key repository {tls.key_repository}{certificate}{peer}{fips}"


def _channel(channel: ChannelConfig) -> str:
    if channel.use_client_id:
        identity = "as their client identifier"
    elif channel.mcauser:
        identity = f"as {channel.mcauser}"
    elif may_be_nobody(channel):
        identity = "as their user name, or as nobody if they have none"
    else:
        identity = "as their user name"
    order = "" if channel.byte_order == "big" else ", little-endian"
    where = str(channel.socket) if channel.socket is not None else _endpoint(channel.address, channel.port)
    manner = [word for word, one in (("TLS", channel.tls), ("WebSockets", channel.websocket)) if one is not None]
    over = f" over {' and '.join(manner)}" if manner else ""
    expiry = channel.session_expiry
    expires = "" if expiry is None else f", sessions expire after {durations.shown(expiry)}"
    return (
        f"channel {channel.name}: {values.listing(list(channel.protocols), 'and')}{order}{over}"
        f" at {where}, at most {channel.max_clients} clients, acting {identity}{expires}{_asked(channel)}"
    )


def _record(record: ChannelAuthenticationConfig) -> str:
    """Return a channel authentication record in MQSC notation."""
    whom = {"ADDRESS": record.address, "CLNTUSER": record.client_user, "SSLPEER": record.ssl_peer}
    whom |= {"SSLCERTI": record.ssl_cert_issuer, "USERLIST": ", ".join(record.user_list) or None}
    whom |= {"ADDRLIST": ", ".join(record.address_list) or None}
    if not record.type.startswith("BLOCK"):
        whom |= {"USERSRC": record.user_source, "MCAUSER": record.mcauser}
    words = " ".join(f"{name}({value})" for name, value in whom.items() if value is not None)
    return f"CHLAUTH({record.channel}) TYPE({record.type}) {words}{' WARN(YES)' if record.warn else ''}"


def _asked(channel: ChannelConfig) -> str:
    """Describe the authentication of a channel's clients."""
    if channel.authentication:
        return f"; they authenticate with {values.listing([one.method for one in channel.authentication], 'or')}"
    return "; OTHER MACHINES CAN CONNECT WITHOUT A PASSWORD" if _is_open(channel) else ""


def _endpoint(address: str, port: int) -> str:
    return values.endpoint(address, port) if port else f"any free port of {address}"


def describe_link(name: str, link: LinkConfig) -> str:
    """Describe a link's connection in one line, without its password."""
    path = link.path_of_websocket
    at = values.listing([values.endpoint(*address) for address in link.addresses], "or")
    over = "" if path is None else f" over WebSocket {path}"
    parts = [f"link {name}: MQTT {link.version} at {at}{over}", _link_tls(link)]
    if link.user is not None:
        parts.append(f"as user {link.user}, {_link_password(link)}")
    parts.append(f"{link.session} session {link.client_id!r}")
    parts.append(f"at most {_counted(link.in_flight, 'publication')} in flight")
    if link.bridge_bit:
        parts.append("connects as a bridge (bridge bit)")
    if not link.trusted:
        parts.append("properties of other bridges are not trusted")
    return ", ".join(parts)


def describe_mapping(name: str, mapping: mappings.AnyMapping) -> list[str]:
    """Describe what a mapping moves, and list the settings that differ from the defaults."""
    state = "" if mapping.enabled else " (not enabled: its messages wait)"
    to = _side(mapping.destination).removesuffix(",")
    lines = [f"mapping {name}{state}: from {_side(mapping.source)} to {to}, {mapping.guarantee}"]
    conditions = _conditions(mapping.filter)
    lines += [f"  only messages with {condition}" for condition in conditions]
    if conditions and isinstance(mapping, mappings.ToMqttMapping) and mapping.source.queue is not None:
        others = "go to the dead-letter queue" if mapping.filter.others == "dead-letter" else "are discarded"
        lines.append(f"  the others {others}")
    if mapping.otherwise:
        lines.append(f"  only messages that no filter of {values.listing(mapping.otherwise, 'and')} accepts")
    if mapping.destination.authority == "publisher":
        lines.append("  opens the destination with the authority of the publisher")
    if mapping.allow:
        lines.append(f"  messages may also choose {values.listing(mapping.allow, 'and')}")
    if isinstance(mapping, mappings.ToMqMapping) and mapping.order == "strict":
        lines.append("  a full destination queue holds up all its messages (order: strict)")
    if mapping.payload != mappings.TextPayload():
        lines.append(f"  {_payload(mapping.payload, isinstance(mapping, mappings.ToMqMapping))}")
    lines += [f"  {key} {shown}" for key, shown in _own_attributes(mapping.attributes)]
    if mapping.batch != mappings.MappingBatchConfig():
        batch = mapping.batch
        lines.append(
            f"  units of work of at most {_counted(batch.messages, 'message')}, {values.size_text(batch.size)},"
            f" {durations.shown(batch.time)}"
        )
    if mapping.backouts != type(mapping).model_fields["backouts"].default:
        lines.append(f"  to the dead-letter queue after {_counted(mapping.backouts, 'backout')}")
    return lines


def _side(side: mappings.MqttSource | mappings.MqSource | mappings.MqttDestination | mappings.MqDestination) -> str:
    if isinstance(side, mappings.MqttSource | mappings.MqttDestination):
        where = "the bridge's own clients" if side.link == LOCAL else f"link {side.link}"
        return f"MQTT topic {side.mqtt} of {where}"
    if side.topic is not None:
        return f"MQ topic {side.topic}"
    puts = isinstance(side, mappings.MqDestination)
    manager = getattr(side, "queue_manager", None)
    at = f" at queue manager {manager}" if manager is not None else ""
    kept = "whose requests are kept on" if puts else "with answers to the requests kept on"
    requests = f", {kept} queue {side.requests_queue}," if side.requests_queue is not None else ""
    return f"queue {side.queue}{at}{requests}"


def _conditions(wanted: mappings.FilterConfig) -> list[str]:
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


def _property(name: str, value: mappings.FilterValue) -> str:
    if value is None:
        return f"no property {name}"
    listed = value if isinstance(value, list) else [value]
    return f"property {name} = {values.listing([_shown(one) for one in listed], 'or')}"


def _payload(payload: mappings.TextPayload, to_mq: bool) -> str:
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


def _own_attributes(attributes: mappings.MessageAttributes | mappings.PublicationAttributes) -> list[tuple[str, str]]:
    """Return the attributes that differ from the standard profile."""
    standard = type(attributes)()
    names = [name for name in type(attributes).model_fields if getattr(attributes, name) != getattr(standard, name)]
    return [(name, _attribute(name, getattr(attributes, name))) for name in names]


def _attribute(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return values.listing([f"{key}: {_shown(one)}" for key, one in value.items()], "and")
    return durations.shown(value) if name == "expiry" and isinstance(value, float) else _shown(value)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _link_tls(link: LinkConfig) -> str:
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


def _link_password(link: LinkConfig) -> str:
    if link.password_file is not None:
        return f"password in {link.password_file}"
    if link.password_variable is not None:
        return f"password in the environment variable {link.password_variable}"
    return "no password"


_PERSISTENCE = {"not-persistent": "not persistent", "as-queue": "as persistent as the queue specifies"}


def describe_pipeline(name: str, pipeline: pipelines.PipelineConfig) -> list[str]:
    """Describe the source, destinations and trigger of a pipeline, and list the settings that differ from the defaults."""
    state = "" if pipeline.enabled else " (not enabled)"
    if pipeline.destination is None:
        to = f"by mapping {pipeline.mapping}"
    else:
        to = f"to {' and '.join(_destinations(pipeline.destination))}"
    lines = [f"pipeline {name}{state}: from {_source(pipeline.source)} {to}, {_trigger(pipeline.trigger)}"]
    mq = None if pipeline.destination is None else pipeline.destination.mq
    if mq is not None and mq.persistence != "persistent":
        lines.append(f"  messages are {_PERSISTENCE[mq.persistence]}")
    if pipeline.payload != "json":
        lines.append(f"  payloads are {pipeline.payload}")
    lines += [f"  table {table} is {path}" for table, path in pipeline.tables.items()]
    if pipeline.changes is not None:
        what = values.listing(pipeline.changes.of, "and") if pipeline.changes.of else "rows"
        lines.append(f"  only changes of {what} by {values.listing(pipeline.changes.key, 'and')}")
    if pipeline.late is not None:
        late = pipeline.late
        lines.append(f"  late messages go to {f'archive {late.archive}' if late.mq is None else _sink(late.mq)}")
    if pipeline.allow:
        lines.append(f"  rows may also choose {values.listing(pipeline.allow, 'and')}")
    letters = pipeline.dead_letters
    if letters.queue or letters.archive:
        lines.append(f"  bad payloads go to {letters.queue or f'archive {letters.archive}'}")
    return lines


def describe_spark(spark: pipelines.SparkConfig) -> list[str]:
    """Describe the Spark settings. Empty if all have their defaults."""
    if spark == pipelines.SparkConfig():
        return []
    lines = [f"pipelines run on Spark at {spark.master or 'this machine'}"]
    if spark.listener is not None:
        lines.append(f"  they reach the queue manager at {spark.listener}")
    if spark.user is not None:
        lines.append(f"  as user {spark.user}, password in {spark.password_file}")
    if spark.conf:
        lines.append(f"  with {', '.join(f'{name}={value}' for name, value in spark.conf.items())}")
    if brought := [*spark.packages, *map(str, spark.jars)]:
        lines.append(f"  with {values.listing(brought, 'and')}")
    if spark.shared:
        lines.append(f"  workers have {values.listing(list(map(str, spark.shared)), 'and')}, too")
    return lines


def _source(source: pipelines.PipelineSource) -> str:
    if source.mq is not None:
        return _flow(source.mq)
    return f"archive {source.archive}" if source.archive is not None else f"MQTT {source.mqtt}{_at(source.link)}"


def _flow(mq: pipelines.MqFlow) -> str:
    return f"queue {mq.queue}" if mq.queue is not None else f"topic {mq.topic}"


def _destinations(to: pipelines.PipelineDestination) -> Iterator[str]:
    if to.mq is not None:
        yield _sink(to.mq)
    if to.mqtt is not None:
        yield f"MQTT {to.mqtt}{_at(to.link)} (at least once)"
    if to.archive is not None:
        yield f"archive {to.archive}"
    if to.format is not None:
        repeats = "" if to.writes_format_once else " (at least once)"
        yield f"{to.format}{f' {to.path}' if to.path else ''}{repeats}"


def _sink(mq: pipelines.MqSink) -> str:
    name = mq.queue or mq.topic
    return f"{'queue' if mq.queue else 'topic'} {name}" if name else "the queue or topic that a column names"


def _at(link: str) -> str:
    return "" if link == LOCAL else f" at link {link}"


def _trigger(trigger: float | str) -> str:
    if trigger == pipelines.AVAILABLE_NOW:
        return "until all available messages are processed"
    return f"every {durations.shown(float(trigger))}" if trigger else "batch after batch"
