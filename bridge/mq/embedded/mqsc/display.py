"""DISPLAY: filters (WHERE), and the objects and status of a queue manager in MQSC terms.

Source: IBM MQ documentation, "DISPLAY QUEUE", "DISPLAY TPSTATUS" and others. Without ALL and without requested
attributes, a generic name displays only names and types, as in runmqsc. Status commands then display all attributes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bridge.mq.embedded.attributes import ATTRIBUTES, BASE_TOPIC, STAMPS, SYNONYMS, Number, Value, stamps
from bridge.mq.embedded.channels import NAME as CONNECTION_AUTHENTICATION
from bridge.mq.embedded.channels import attributes_of
from bridge.mq.embedded.handles import Handle
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.inquiries import ChannelStatus
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mq.telemetry_channels import ClientChannelStatus
from bridge.mqtt.topics import matches
from bridge.wire import cmqc

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
#: Integer attributes. Some also have words (ASPARENT, UNLIMITED), which are not ordered.
_NUMBERS = frozenset(
    keyword for kind in ATTRIBUTES.values() for keyword, attribute in kind.items() if isinstance(attribute, Number)
)

Shown = dict[str, Value]
Rows = Iterator[Shown]


def is_named(name: str, generic: str) -> bool:
    """Return whether a name matches a name that may end in `*`."""
    return name.startswith(generic[:-1]) if generic.endswith("*") else name == generic


@dataclass(frozen=True)
class WhereFilter:
    """WHERE(keyword operator value)."""

    keyword: str
    operator: str
    value: str

    @classmethod
    def read(cls, parameter: Parameter, keywords: Collection[str]) -> WhereFilter:
        """Parse a WHERE parameter, whose keyword must be in `keywords`. Raises MQSCSyntaxError."""
        words = [word for word in parameter.values or () if isinstance(word, str)]
        if parameter.values is None or len(words) != 3 or len(parameter.values) != 3:
            raise MQSCSyntaxError("WHERE requires (attribute operator value)", parameter.where, "WHERE")
        keyword, operator, value = SYNONYMS.get(words[0], words[0]), words[1], words[2]
        if keyword not in keywords:
            raise MQSCSyntaxError(f"{keyword} is not an attribute of these objects", parameter.where, "WHERE")
        if operator not in _OPERATORS and operator not in ("LK", "NL"):
            operators = ", ".join((*_OPERATORS, "LK", "NL"))
            raise MQSCSyntaxError(
                f"expected one of the operators {operators}, found {operator}", parameter.where, "WHERE"
            )
        if operator in ("LK", "NL") and not value.endswith("*"):
            raise MQSCSyntaxError(f"{operator} requires a generic value, which ends in *", parameter.where, "WHERE")
        return cls(keyword, operator, value)

    def passes(self, row: Shown) -> bool:
        """Return whether an object matches. An object without the attribute does not match."""
        actual, operand = row.get(self.keyword), self.value
        if actual is None:
            return False
        if self.operator in ("LK", "NL"):
            return is_named(str(actual), operand) == (self.operator == "LK")
        if isinstance(actual, str):
            if self.keyword in _NUMBERS and actual != operand:
                return self.operator == "NE"
            return _OPERATORS[self.operator](actual, operand)
        try:
            return _OPERATORS[self.operator](actual, int(operand))
        except ValueError:
            return self.operator == "NE"


# Objects and their status. Each function yields the objects that match a name, which may be generic. -------------------


def _changed(queue_manager: QueueManager) -> Shown:
    timestamps = stamps(queue_manager.created)
    return {"ALTDATE": timestamps["ALTDATE"], "ALTTIME": timestamps["ALTTIME"]}


def _queue_managers(queue_manager: QueueManager, _name: str) -> Rows:
    timestamps = stamps(queue_manager.created)
    identifier = f"{queue_manager.name}_{timestamps['CRDATE']}_{timestamps['CRTIME']}"
    yield {
        "QMNAME": queue_manager.name,
        "QMID": identifier[:48],
        **timestamps,
        **queue_manager.objects.attributes,
        **_CONSTANT,
    }


def _queues(queue_manager: QueueManager, name: str) -> Rows:
    objects = queue_manager.objects
    timestamps, changed = stamps(queue_manager.created), _changed(queue_manager)
    rows: list[tuple[str, str, Shown]] = [
        (own, "QLOCAL", timestamps | {"DEFTYPE": "PREDEFINED"} | queue.attributes | _counts(queue))
        for own, queue in objects.queues.items()
    ]
    for kind in ("QALIAS", "QREMOTE", "QMODEL"):
        rows += [(own, kind, changed | attributes) for own, attributes in objects.of_kind(kind).items()]
    for own, kind, attributes in sorted(rows, key=lambda row: row[0]):
        if is_named(own, name):
            yield {"QUEUE": own, "TYPE": kind, **attributes}


def _queue_status(queue_manager: QueueManager, name: str) -> Rows:
    now = time.time()
    for own, queue in sorted(queue_manager.objects.queues.items()):
        if is_named(own, name):
            firsts = [chain.first.put_time for chain in queue.chains.values() if chain.first is not None]
            available = sum(1 for _ in queue.messages())
            age = max(0, int(now - min(firsts))) if firsts else 0
            uncommitted = "YES" if queue.depth != available else "NO"
            yield {"QUEUE": own, "TYPE": "QUEUE", **_counts(queue), "MSGAGE": age, "UNCOM": uncommitted}


def _applications(queue_manager: QueueManager) -> list[Any]:
    return sorted(queue_manager.applications, key=lambda application: application.connection_id)


def _queue_handles(queue_manager: QueueManager, name: str) -> Rows:
    """Yield the open handles of queues (IBM MQ, "DISPLAY QSTATUS", handle status)."""
    for own, queue in sorted(queue_manager.objects.queues.items()):
        if not is_named(own, name):
            continue
        for application in _applications(queue_manager):
            for handle in application.handles.values():
                if handle.is_for("QLOCAL", own, queue):
                    described = _described(application) | {"APPLTYPE": "USER"}
                    yield {"QUEUE": own, "TYPE": "HANDLE", **described, **_opened(handle)}


def _described(application: Any) -> Shown:
    return {
        "EXTCONN": application.connection_id[:16].hex().upper(),
        "APPLTAG": application.name[:28],
        "APPLTYPE": "USER" if application.stop is not None else "SYSTEM",
        "CHANNEL": application.channel,
        "CONNAME": application.address,
        "PID": application.process_id,
        "UOWSTATE": "ACTIVE" if application.in_unit_of_work else "NONE",
        "USERID": application.user.decode("utf-8", "replace"),
    }


def _connections(queue_manager: QueueManager, name: str) -> Rows:
    """Yield the connections of MQ applications (IBM MQ, "DISPLAY CONN")."""
    for application in _applications(queue_manager):
        if is_named(own := connection_name(application), name):
            yield {"CONN": own, "TYPE": "CONN", **_described(application)}


def _connection_handles(queue_manager: QueueManager, name: str) -> Rows:
    """Yield the open handles of connections (IBM MQ, "DISPLAY CONN", TYPE(HANDLE))."""
    for application in _applications(queue_manager):
        if is_named(own := connection_name(application), name):
            common = {"CONN": own, "TYPE": "HANDLE", "EXTCONN": application.connection_id[:16].hex().upper()}
            for handle in application.handles.values():
                kind, object_name = handle.names
                yield {**common, "OBJNAME": object_name, "OBJTYPE": kind, **_opened(handle)}


def _defined(kind: str, head: str, typed: Shown | None = None) -> Callable[[QueueManager, str], Rows]:
    """Return a function for the objects of a kind that have only the attributes of their definition."""

    def rows(queue_manager: QueueManager, name: str) -> Rows:
        changed = _changed(queue_manager)
        for own, attributes in sorted(queue_manager.objects.of_kind(kind).items()):
            if is_named(own, name):
                yield {head: own, **(typed or {}), **changed, **attributes}

    return rows


def _namelists(queue_manager: QueueManager, name: str) -> Rows:
    for row in _defined("NAMELIST", "NAMELIST")(queue_manager, name):
        yield row | {"NAMCOUNT": len(str(row["NAMES"]).split(",")) if row["NAMES"] else 0}


def _channels(queue_manager: QueueManager, name: str) -> Rows:
    """Yield telemetry channels, those of the configuration file and those defined by commands."""
    register = queue_manager.objects.telemetry_channels
    channels = {own: channel.attributes for own, channel in register.defined.items()}
    channels |= {config.name: attributes_of(config) for config in register.of_file}
    for own in sorted(channels):
        if is_named(own, name):
            yield {"CHANNEL": own, "CHLTYPE": "MQTT", **channels[own]}


def _channel_status(queue_manager: QueueManager, name: str) -> Rows:
    statuses: Collection[ChannelStatus] = queue_manager.objects.telemetry_channels.running.statuses()
    for status in sorted(statuses, key=lambda channel: channel.name):
        if is_named(status.name, name):
            row: Shown = {"CHANNEL": status.name, "CHLTYPE": "MQTT"}
            yield row | {"CONNECTIONS": status.clients, "STATUS": status.state.upper()}


def _subscriptions(queue_manager: QueueManager, name: str) -> Rows:
    for own, subscription in sorted(queue_manager.objects.topics.subscriptions.items()):
        if is_named(own, name):
            identifier = subscription_id(queue_manager.name, own).hex().upper()
            yield _subscription(subscription) | {"SUBID": identifier}


def _topic_status(queue_manager: QueueManager, name: str) -> Rows:
    topics, retained = queue_manager.objects.topics, queue_manager.retained
    objects = {str(attributes["TOPICSTR"]): own for own, attributes in topics.objects.items()}
    counts: dict[str, int] = {}
    for subscription in topics.subscriptions.values():
        counts[subscription.topic_filter] = counts.get(subscription.topic_filter, 0) + 1
    strings = {""}
    for topic in (*objects, *counts, *retained):
        levels = topic.split("/")
        strings.update("/".join(levels[:length]) for length in range(1, len(levels) + 1))
    for topic in sorted(strings):
        if _is_topic(topic, name):
            yield {
                "TPSTATUS": topic,
                "ADMIN": objects.get(topic, ""),
                **topics.attributes(topic),
                "RETAINED": "YES" if topic in retained else "NO",
                "SUBCOUNT": counts.get(topic, 0),
            }


def _topic_subscribers(queue_manager: QueueManager, name: str) -> Rows:
    """Yield the subscriptions to a topic string (IBM MQ, "DISPLAY TPSTATUS", TYPE(SUB))."""
    for subscription in sorted(
        _subscriptions(queue_manager, "*"), key=lambda subscription: str(subscription["TOPICSTR"])
    ):
        if _is_topic(str(subscription["TOPICSTR"]), name):
            yield {**subscription, "TPSTATUS": subscription["TOPICSTR"], "TYPE": "SUB"}


def _topic_publishers(queue_manager: QueueManager, name: str) -> Rows:
    """Yield the handles of applications that publish to a topic string (IBM MQ, "DISPLAY TPSTATUS", TYPE(PUB)).

    MQTT clients of the bridge have no handles.
    """
    for application in _applications(queue_manager):
        for handle in application.handles.values():
            kind, topic = handle.names
            if kind == "TOPIC" and handle.options & cmqc.MQOO_OUTPUT and _is_topic(topic, name):
                active = application.connection_id.hex().upper()
                yield {"TPSTATUS": topic, "TYPE": "PUB", "ACTCONN": active, **_described(application)}


def _is_topic(topic: str, name: str) -> bool:
    """Return whether a topic string matches a name, which may contain wildcards."""
    # With an additional level, wildcards also match `$` topics, so administrators see the complete tree.
    return topic == name or matches(f"x/{name}", f"x/{topic}")


def connection_name(application: Any) -> str:
    """Return the connection identifier in CONN: the last 8 bytes of ConnectionId in hexadecimal."""
    connection_id: bytes = application.connection_id
    return connection_id[-8:].hex().upper()


#: MQOPEN options that are displayed as YES or NO
_OPENED = {
    "BROWSE": cmqc.MQOO_BROWSE,
    "INQUIRE": cmqc.MQOO_INQUIRE,
    "OUTPUT": cmqc.MQOO_OUTPUT,
    "SET": cmqc.MQOO_SET,
}


def _opened(handle: Handle) -> Shown:
    return {
        "INPUT": ("EXCL" if getattr(handle, "exclusive", False) else "SHARED") if handle.gets else "NO",
        **{word: "YES" if handle.options & bit else "NO" for word, bit in _OPENED.items()},
    }


def subscription_id(queue_manager: str, name: str) -> bytes:
    """Return the SUBID of a subscription, which depends on its name only."""
    own = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return b"AMQ " + queue_manager.encode()[:12].ljust(12) + own


def _counts(queue: Queue) -> Shown:
    return {"CURDEPTH": queue.depth, "IPPROCS": queue.inputs, "OPPROCS": queue.outputs}


def _subscription(subscription: Subscription) -> Shown:
    expiry: Value = "UNLIMITED"
    if subscription.expires_at:
        expiry = max(0, int((subscription.expires_at - time.time()) * 10))
    return subscription.definition | {
        "SUB": subscription.name,
        "TOPICOBJ": subscription.topic_object,
        "DESTCLAS": "MANAGED" if subscription.managed else "PROVIDED",
        "DURABLE": "YES" if subscription.durable else "NO",
        "SUBTYPE": subscription.kind,
        "EXPIRY": expiry,
        "SELECTOR": subscription.selector,
    }


# The nouns of DISPLAY ----------------------------------------------------------------------------------------------------


class _Noun(NamedTuple):
    #: attributes that are always displayed first, beginning with the name
    heads: tuple[str, ...]
    #: AMQ message, and the kind of object in error messages
    number: str
    kind: str
    keywords: Collection[str]
    rows: Callable[[QueueManager, str], Rows]
    #: displays all attributes even if the name is generic
    status: bool = False
    #: keyword -> values that restrict DISPLAY. The first value matches all objects
    selections: Mapping[str, tuple[str, ...]] = {}


#: constant attributes of the queue manager
_CONSTANT: dict[str, Value] = {
    "CHLAUTH": "ENABLED",
    "CMDLEVEL": cmqc.MQCMDL_LEVEL_940,
    "CONNAUTH": CONNECTION_AUTHENTICATION,
    "PLATFORM": "UNIX",
}
_QUEUE_STATUS = ("CURDEPTH", "DEFTYPE", "IPPROCS", "OPPROCS")
_ALTERED = ("ALTDATE", "ALTTIME")
_QUEUE, _CONN, _CHANNEL = ("QUEUE", "TYPE"), ("CONN", "TYPE"), ("CHANNEL", "CHLTYPE")
_HANDLES: dict[str, tuple[str, ...]] = {"TYPE": ("QUEUE", "HANDLE")}
_TOPIC_USERS = ("SUB", "PUB")
_CONN_TYPES: dict[str, tuple[str, ...]] = {"TYPE": ("CONN", "HANDLE")}
_SUBSCRIPTION_TYPES: dict[str, tuple[str, ...]] = {
    "DURABLE": ("ALL", "YES", "NO"),
    "SUBTYPE": ("ALL", "USER", "ADMIN", "API"),
}
_SUBSCRIPTION = (
    "DEST",
    "DESTCLAS",
    "DESTCORL",
    "DESTQMGR",
    "DURABLE",
    "EXPIRY",
    "SUBID",
    "SUBLEVEL",
    "SUBTYPE",
    "SUBUSER",
    "TOPICOBJ",
    "TOPICSTR",
    "USERDATA",
    "WSCHEMA",
)
_DETAILS = (
    "CHLSDATE",
    "CHLSTIME",
    "CLNTUSER",
    "CONNAME",
    "INDOUBTIN",
    "INDOUBTOUT",
    "KAINT",
    "LMSGDATE",
    "LMSGTIME",
    "MCAUSER",
    "MSGRCVD",
    "MSGSNT",
    "PENDING",
    "PROTOCOL",
)


def _queue_noun(kind: str, *more: str) -> _Noun:
    keywords = {*ATTRIBUTES[kind], *more, *_ALTERED}
    return _Noun(
        _QUEUE,
        "AMQ8409I",
        "Queue",
        keywords,
        lambda queue_manager, name: (row for row in _queues(queue_manager, name) if row["TYPE"] == kind),
    )


_NOUNS = {
    "QLOCAL": _queue_noun("QLOCAL", *_QUEUE_STATUS, *STAMPS),
    "QALIAS": _queue_noun("QALIAS"),
    "QREMOTE": _queue_noun("QREMOTE"),
    "QMODEL": _queue_noun("QMODEL", *STAMPS),
    "QUEUE": _Noun(
        _QUEUE, "AMQ8409I", "Queue",
        {*ATTRIBUTES["QLOCAL"], *ATTRIBUTES["QALIAS"], *ATTRIBUTES["QREMOTE"], *_QUEUE_STATUS, *STAMPS},
        _queues, selections={"TYPE": ("ALL", "QLOCAL", "QALIAS", "QREMOTE", "QMODEL")},
    ),
    "QMGR": _Noun(
        ("QMNAME",), "AMQ8408I", "Queue manager", {*ATTRIBUTES["QMGR"], *_CONSTANT, "QMID", *STAMPS}, _queue_managers, True
    ),
    "NAMELIST": _Noun(
        ("NAMELIST",), "AMQ8550I", "Namelist", {*ATTRIBUTES["NAMELIST"], "NAMCOUNT", *_ALTERED}, _namelists
    ),
    "QSTATUS": _Noun(
        _QUEUE, "AMQ8450I", "Queue", ("CURDEPTH", "IPPROCS", "OPPROCS", "MSGAGE", "UNCOM"), _queue_status, True, _HANDLES
    ),
    "QSTATUS HANDLE": _Noun(
        _QUEUE, "AMQ8450I", "Open handle of queue",
        ("APPLTAG", "APPLTYPE", "CONNAME", "USERID", *_OPENED, "INPUT"), _queue_handles, True, _HANDLES,
    ),
    "CONN": _Noun(
        _CONN, "AMQ8276I", "Connection",
        ("APPLTAG", "APPLTYPE", "CHANNEL", "CONNAME", "EXTCONN", "PID", "UOWSTATE", "USERID"),
        _connections, True, _CONN_TYPES,
    ),
    "CONN HANDLE": _Noun(
        _CONN, "AMQ8276I", "Open handle of connection", ("EXTCONN", "OBJNAME", "OBJTYPE", *_OPENED, "INPUT"),
        _connection_handles, True, _CONN_TYPES,
    ),
    "CHANNEL": _Noun(_CHANNEL, "AMQ8414I", "Channel", ATTRIBUTES["CHANNEL"], _channels),
    "SVRCONN": _Noun(
        _CHANNEL, "AMQ8414I", "Channel", {*ATTRIBUTES["SVRCONN"], *_ALTERED},
        _defined("SVRCONN", "CHANNEL", {"CHLTYPE": "SVRCONN"}),
    ),
    "CHSTATUS": _Noun((*_CHANNEL, "CONNECTIONS", "STATUS"), "AMQ8417I", "Channel", (), _channel_status),
    "SBSTATUS": _Noun(
        ("SUB",), "AMQ8099I", "Subscription", ("DURABLE", "SUBID", "SUBTYPE", "SUBUSER", "TOPICSTR"), _subscriptions, True,
        _SUBSCRIPTION_TYPES,
    ),
    "SUB": _Noun(("SUB",), "AMQ8096I", "Subscription", _SUBSCRIPTION, _subscriptions, selections=_SUBSCRIPTION_TYPES),
    "TOPIC": _Noun(
        ("TOPIC", "TYPE"), "AMQ8633I", "Topic", {*ATTRIBUTES["TOPIC"], *_ALTERED},
        _defined("TOPIC", "TOPIC", {"TYPE": "LOCAL"}), selections={"TYPE": ("ALL", "LOCAL")},
    ),
    "TPSTATUS": _Noun(
        ("TPSTATUS",), "AMQ8754I", "Topic string", {*BASE_TOPIC, "ADMIN", "RETAINED", "SUBCOUNT"}, _topic_status, True,
        {"TYPE": ("TOPIC", *_TOPIC_USERS)},
    ),
    "TPSTATUS SUB": _Noun(
        ("TPSTATUS", "TYPE"), "AMQ8754I", "Topic string", ("DURABLE", "SUBID", "SUBTYPE", "SUBUSER"), _topic_subscribers,
        True, {"TYPE": ("SUB",)},
    ),
    "TPSTATUS PUB": _Noun(
        ("TPSTATUS", "TYPE"), "AMQ8754I", "Topic string", ("ACTCONN", "APPLTAG", "CONNAME", "USERID"), _topic_publishers,
        True, {"TYPE": ("PUB",)},
    ),
}  # fmt: skip
_CLIENT_HEADS = (*_CHANNEL, "CLIENTID", "STATUS")
#: The nouns that DISPLAY supports.
NOUNS = [noun for noun in _NOUNS if " " not in noun]


def add_keywords(noun: str, keywords: Collection[str]) -> None:
    """Add attributes of a noun to DISPLAY. The tests' stand-in for IBM MQ adds attributes without an effect here."""
    noun_keywords = _NOUNS[noun].keywords
    assert isinstance(noun_keywords, set)
    noun_keywords.update(keywords)


def objects(queue_manager: QueueManager, noun: str, name: str) -> Rows:
    """Return the objects that match a name, which may be generic, with all attributes."""
    return _NOUNS[noun].rows(queue_manager, name)


def show(queue_manager: QueueManager, command: Command) -> tuple[str, list[Shown]]:
    """Run a DISPLAY command, with the queue manager's lock held. Return the AMQ message and the objects.

    Raises CommandRefused or MQSCSyntaxError.
    """
    if command.noun == "QMGR" and command.name is not None:
        raise MQSCSyntaxError("QMGR takes no name", command.where, "QMGR")
    name = "*" if command.noun == "QMGR" else command.required_name()
    if command.noun == "CHSTATUS":
        return _show_channel_status(queue_manager, command, name)
    noun = _NOUNS.get(f"{command.noun} {command.value('TYPE')}", _NOUNS[command.noun])
    selected, selection, where = _request(command, noun.heads, noun.keywords, noun.selections)
    whole = (not selected and where is None and (noun.status or not name.endswith("*"))) or "ALL" in selected
    rows = [
        row
        for row in noun.rows(queue_manager, name)
        if _is_selected(row, noun, selection) and (where is None or where.passes(row))
    ]
    if not rows:
        raise CommandRefused("AMQ8147E", kind=noun.kind, name=name)
    return message(noun.number), [
        _only(row, noun.heads, sorted(noun.keywords) if whole else selected, where) for row in rows
    ]


def _request(
    command: Command, heads: tuple[str, ...], keywords: Collection[str], selections: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], dict[str, str], WhereFilter | None]:
    """Return the attributes that a DISPLAY requests, its restrictions to certain values, and its WHERE."""
    permitted = {*heads, *keywords}
    selected: list[str] = []
    selection: dict[str, str] = {}
    where: WhereFilter | None = None
    for parameter in command.parameters:
        keyword = SYNONYMS.get(parameter.keyword, parameter.keyword)
        if keyword == "WHERE":
            where = WhereFilter.read(parameter, permitted)
        elif keyword == "CHLTYPE" and "CHLTYPE" in heads:
            if parameter.value not in (None, "MQTT", "ALL"):
                raise command.wrong("CHLTYPE(MQTT) or CHLTYPE(SVRCONN) is required", "CHLTYPE")
        elif keyword in selections and parameter.values is not None:
            selection[keyword] = command.choice(keyword, selections[keyword])
        elif parameter.values is not None:
            raise command.wrong(f"{keyword} takes no value in DISPLAY", parameter.keyword)
        elif keyword == "ALL" or keyword in permitted:
            selected.append(keyword)
        else:
            raise command.wrong(f"{keyword} is not an attribute of DISPLAY {command.noun}", parameter.keyword)
    return selected, selection, where


def _is_selected(row: Shown, noun: _Noun, selection: dict[str, str]) -> bool:
    """Return whether an object has the requested TYPE, DURABLE or SUBTYPE. USER matches all: proxies do not exist."""
    return all(
        value in (noun.selections[keyword][0], "USER") or row[keyword] == value for keyword, value in selection.items()
    )


def _only(row: Shown, heads: tuple[str, ...], selected: list[str], where: WhereFilter | None) -> Shown:
    """Return the identifying attributes of a row, the requested attributes, and the attribute of WHERE."""
    keywords = (*heads, *selected, *([] if where is None else [where.keyword]))
    return {keyword: row[keyword] for keyword in dict.fromkeys(keywords) if keyword in row}


# Status of channels and clients -----------------------------------------------------------------------------------------

#: The maximum number of clients that one command examines.
MAX_EXAMINED = 20_000
#: The model queue whose MAXDEPTH limits the rows of one command, as in IBM MQ.
_REPLY_QUEUE = "SYSTEM.MQSC.REPLY.QUEUE"
_PROTOCOLS = {3: "MQTTV3", 4: "MQTTV311", 5: "MQTTV5"}


def _show_channel_status(queue_manager: QueueManager, command: Command, name: str) -> tuple[str, list[Shown]]:
    client_id = command.parameter("CLIENTID")
    if client_id is not None and not client_id.value:
        raise command.wrong("CLIENTID requires a client identifier, or the beginning of one with *", "CLIENTID")
    if client_id is not None and command.parameter("SUMMARY") is not None:
        raise command.wrong("CLIENTID and SUMMARY exclude each other", "CLIENTID")
    heads, keywords = (_NOUNS["CHSTATUS"].heads, ()) if client_id is None else (_CLIENT_HEADS, _DETAILS)
    parameters = [parameter for parameter in command.parameters if parameter.keyword not in ("CLIENTID", "SUMMARY")]
    selected, _, where = _request(dataclasses.replace(command, parameters=tuple(parameters)), heads, keywords, {})
    more = False
    if client_id is None:
        rows = [row for row in _channel_status(queue_manager, name) if where is None or where.passes(row)]
    else:
        rows, more = clients(queue_manager, name, client_id.value or "", where)
    if not rows:
        raise CommandRefused("AMQ8420I")
    answer = message("AMQ8492W", examined=MAX_EXAMINED) if more else message("AMQ8417I")
    return answer, [_only(row, heads, sorted(keywords) if "ALL" in selected else selected, where) for row in rows]


def clients(
    queue_manager: QueueManager, name: str, client_id: str, where: WhereFilter | None = None
) -> tuple[list[Shown], bool]:
    """Return a row for each client that matches the names, which may be generic, and whether there are more."""
    rows: list[Shown] = []
    most = int(queue_manager.objects.models[_REPLY_QUEUE]["MAXDEPTH"])
    running = queue_manager.objects.telemetry_channels.running
    for number, client in enumerate(running.clients(lambda own: is_named(own, client_id))):
        if number == MAX_EXAMINED or len(rows) == most:
            return rows, True
        row = _details(client)
        if is_named(client.status.channel, name) and (where is None or where.passes(row)):
            rows.append(row)
    return rows, False


def _details(client: ClientChannelStatus) -> Shown:
    status = client.status
    return {
        "CHANNEL": status.channel,
        "CHLTYPE": "MQTT",
        "CLIENTID": status.client_id,
        "STATUS": "RUNNING" if status.connected else "DISCONNECTED",
        "CHLSDATE": _formatted("%Y-%m-%d", status.since),
        "CHLSTIME": _formatted("%H.%M.%S", status.since),
        "CLNTUSER": client.user_name,
        "CONNAME": status.address,
        "INDOUBTIN": client.unreleased,
        "INDOUBTOUT": status.in_flight,
        "KAINT": client.keep_alive,
        "LMSGDATE": _formatted("%Y-%m-%d", client.last_message_at),
        "LMSGTIME": _formatted("%H.%M.%S", client.last_message_at),
        "MCAUSER": status.user,
        "MSGRCVD": client.messages_received,
        "MSGSNT": client.messages_sent,
        "PENDING": status.waiting,
        "PROTOCOL": _PROTOCOLS.get(status.protocol_level, ""),
    }


def _formatted(form: str, seconds: float) -> str:
    return time.strftime(form, time.localtime(seconds)) if seconds else ""
