"""DISPLAY: filters (WHERE), and the objects and status of a queue manager in MQSC terms.

Source: IBM MQ documentation, "DISPLAY QUEUE", "DISPLAY TPSTATUS" and others. Without ALL and without requested
attributes, a generic name shows only names and types, as in runmqsc. Status commands then show everything.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from bridge.mq.embedded.attributes import ATTRIBUTES, BASE_TOPIC, STAMPS, SYNONYMS, Number, Value, stamps
from bridge.mq.embedded.channels import NAME as CONNECTION_AUTHENTICATION
from bridge.mq.embedded.handles import Handle
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.mqsc import Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mqtt.topics import matches
from bridge.wire import cmqc

_OPERATORS: dict[str, Callable[[int], bool]] = {
    "EQ": lambda order: order == 0,
    "NE": lambda order: order != 0,
    "LT": lambda order: order < 0,
    "LE": lambda order: order <= 0,
    "GT": lambda order: order > 0,
    "GE": lambda order: order >= 0,
}
#: Integer attributes. Some also have words (ASPARENT, UNLIMITED), which are not ordered.
_NUMBERS = frozenset(
    keyword for kind in ATTRIBUTES.values() for keyword, attribute in kind.items() if isinstance(attribute, Number)
)


def is_named(name: str, generic: str) -> bool:
    """Return whether a name matches a name that may end in `*`."""
    return name.startswith(generic[:-1]) if generic.endswith("*") else name == generic


@dataclass(frozen=True)
class Filter:
    """WHERE(keyword operator value)."""

    keyword: str
    operator: str
    value: str

    @classmethod
    def read(cls, parameter: Parameter, known: Collection[str]) -> Filter:
        """Parse a WHERE parameter, whose keyword must be in `known`. Raises MQSCSyntaxError."""
        words = [item for item in parameter.values or () if isinstance(item, str)]
        if parameter.values is None or len(words) != 3 or len(parameter.values) != 3:
            raise MQSCSyntaxError("WHERE takes (attribute operator value)", parameter.where, "WHERE")
        keyword, operator, value = SYNONYMS.get(words[0], words[0]), words[1], words[2]
        if keyword not in known:
            raise MQSCSyntaxError(f"{keyword} is no attribute to look for here", parameter.where, "WHERE")
        if operator not in _OPERATORS and operator not in ("LK", "NL"):
            expected = ", ".join((*_OPERATORS, "LK", "NL"))
            raise MQSCSyntaxError(f"the operator is one of {expected}, not {operator}", parameter.where, "WHERE")
        if operator in ("LK", "NL") and not value.endswith("*"):
            raise MQSCSyntaxError(f"{operator} takes a generic value, with * at its end", parameter.where, "WHERE")
        return cls(keyword, operator, value)

    def passes(self, shown: dict[str, Value]) -> bool:
        """Return whether an object matches. An object without the attribute does not match."""
        held = shown.get(self.keyword)
        if held is None:
            return False
        if self.operator in ("LK", "NL"):
            return is_named(str(held), self.value) == (self.operator == "LK")
        if isinstance(held, str) and self.keyword in _NUMBERS and held != self.value:
            return self.operator == "NE"
        order = _order(held, self.value)
        return _OPERATORS[self.operator](order) if order is not None else self.operator == "NE"


def _order(held: Value, given: str) -> int | None:
    """Return -1, 0 or 1 if `held` is less than, equal to or greater than `given`; None for a number and a word."""
    if isinstance(held, int):
        try:
            number = int(given)
        except ValueError:
            return None
        return (held > number) - (held < number)
    return (held > given) - (held < given)


Shown = dict[str, Value]

_QUEUE_STATUS = ("CURDEPTH", "DEFTYPE", "IPPROCS", "OPPROCS")
_ALTERED = ("ALTDATE", "ALTTIME")
_SUBSCRIPTION = (
    "DEST", "DESTCLAS", "DESTCORL", "DESTQMGR", "DURABLE", "EXPIRY", "SUBID", "SUBLEVEL", "SUBTYPE", "SUBUSER",
    "TOPICOBJ", "TOPICSTR", "USERDATA", "WSCHEMA",
)  # fmt: skip
#: constant attributes of the queue manager
_SECURITY = {"CHLAUTH": "ENABLED", "CONNAUTH": CONNECTION_AUTHENTICATION}
#: represents DISPLAY QSTATUS with TYPE(HANDLE), which has different attributes
_HANDLES = "QSTATUS HANDLE"
#: represents DISPLAY CONN with TYPE(HANDLE)
_OBJECTS = "CONN HANDLE"
#: noun -> the name in the tables below if TYPE(HANDLE) is specified
_HANDLE_NOUNS = {"QSTATUS": _HANDLES, "CONN": _OBJECTS}
#: MQOPEN options that are displayed as YES or NO
_OPENED = {
    "BROWSE": cmqc.MQOO_BROWSE, "INQUIRE": cmqc.MQOO_INQUIRE, "OUTPUT": cmqc.MQOO_OUTPUT, "SET": cmqc.MQOO_SET,
}  # fmt: skip
#: noun -> attributes in addition to the name and TYPE
_KEYWORDS: dict[str, frozenset[str]] = {
    "QLOCAL": frozenset((*ATTRIBUTES["QLOCAL"], *_QUEUE_STATUS, *STAMPS)),
    "QALIAS": frozenset((*ATTRIBUTES["QALIAS"], *_ALTERED)),
    "QREMOTE": frozenset((*ATTRIBUTES["QREMOTE"], *_ALTERED)),
    "QMODEL": frozenset((*ATTRIBUTES["QMODEL"], *STAMPS)),
    "QUEUE": frozenset((*ATTRIBUTES["QLOCAL"], *ATTRIBUTES["QALIAS"], *ATTRIBUTES["QREMOTE"], *_QUEUE_STATUS, *STAMPS)),
    "QMGR": frozenset((*ATTRIBUTES["QMGR"], *_SECURITY, "QMID", *STAMPS)),
    "NAMELIST": frozenset((*ATTRIBUTES["NAMELIST"], "NAMCOUNT", *_ALTERED)),
    "QSTATUS": frozenset(("CURDEPTH", "IPPROCS", "OPPROCS", "MSGAGE", "UNCOM")),
    "CONN": frozenset(("APPLTAG", "APPLTYPE", "CHANNEL", "CONNAME", "EXTCONN", "PID", "UOWSTATE", "USERID")),
    _OBJECTS: frozenset(("EXTCONN", "OBJNAME", "OBJTYPE", *_OPENED, "INPUT")),
    _HANDLES: frozenset(("APPLTAG", "APPLTYPE", "CONNAME", *_OPENED, "INPUT", "USERID")),
    "SVRCONN": frozenset((*ATTRIBUTES["SVRCONN"], "CHLTYPE", *_ALTERED)),
    "SBSTATUS": frozenset(("DURABLE", "SUBID", "SUBTYPE", "SUBUSER", "TOPICSTR")),
    "SUB": frozenset(_SUBSCRIPTION),
    "TOPIC": frozenset((*ATTRIBUTES["TOPIC"], *_ALTERED)),
    "TPSTATUS": frozenset((*BASE_TOPIC, "ADMIN", "RETAINED", "SUBCOUNT")),
}
#: noun -> (keyword of the name, AMQ message, kind of object)
_HEADS = {
    "QLOCAL": ("QUEUE", "AMQ8409I", "Queue"),
    "QALIAS": ("QUEUE", "AMQ8409I", "Queue"),
    "QREMOTE": ("QUEUE", "AMQ8409I", "Queue"),
    "QMODEL": ("QUEUE", "AMQ8409I", "Queue"),
    "QUEUE": ("QUEUE", "AMQ8409I", "Queue"),
    "QMGR": ("QMNAME", "AMQ8408I", "Queue manager"),
    "NAMELIST": ("NAMELIST", "AMQ8550I", "Namelist"),
    "QSTATUS": ("QUEUE", "AMQ8450I", "Queue"),
    _HANDLES: ("QUEUE", "AMQ8450I", "Open handle of queue"),
    "CONN": ("CONN", "AMQ8276I", "Connection"),
    _OBJECTS: ("CONN", "AMQ8276I", "Open handle of connection"),
    "SVRCONN": ("CHANNEL", "AMQ8414I", "Channel"),
    "SBSTATUS": ("SUB", "AMQ8099I", "Subscription"),
    "SUB": ("SUB", "AMQ8096I", "Subscription"),
    "TOPIC": ("TOPIC", "AMQ8633I", "Topic"),
    "TPSTATUS": ("TPSTATUS", "AMQ8754I", "Topic string"),
}
_TYPED = ("QLOCAL", "QALIAS", "QREMOTE", "QMODEL", "QUEUE", "QSTATUS", _HANDLES, "CONN", _OBJECTS, "TOPIC")
_ALWAYS_WHOLE = ("QMGR", "QSTATUS", _HANDLES, "CONN", _OBJECTS, "SBSTATUS", "TPSTATUS")
#: noun -> keyword -> values that restrict DISPLAY; the first value matches all objects
_SELECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "QUEUE": {"TYPE": ("ALL", "QLOCAL", "QALIAS", "QREMOTE", "QMODEL")},
    "QSTATUS": {"TYPE": ("QUEUE", "HANDLE")},
    _HANDLES: {"TYPE": ("QUEUE", "HANDLE")},
    "CONN": {"TYPE": ("CONN", "HANDLE")},
    _OBJECTS: {"TYPE": ("CONN", "HANDLE")},
    "SBSTATUS": {"DURABLE": ("ALL", "YES", "NO"), "SUBTYPE": ("ALL", "USER", "ADMIN", "API")},
    "SUB": {"DURABLE": ("ALL", "YES", "NO"), "SUBTYPE": ("ALL", "USER", "ADMIN", "API")},
    "TOPIC": {"TYPE": ("ALL", "LOCAL")},
    "TPSTATUS": {"TYPE": ("TOPIC",)},
}


class Display:
    """Shows the objects of a queue manager. Call it with the queue manager's lock held."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._sources: dict[str, Callable[[str], Iterator[Shown]]] = {
            "QLOCAL": self._queues,
            "QALIAS": self._queues,
            "QREMOTE": self._queues,
            "QMODEL": self._queues,
            "QUEUE": self._queues,
            "QMGR": self._queue_managers,
            "NAMELIST": self._namelists,
            "QSTATUS": self._queue_status,
            _HANDLES: self._queue_handles,
            "CONN": self._connections,
            _OBJECTS: self._connection_handles,
            "SBSTATUS": self._subscriptions,
            "SVRCONN": self._server_channels,
            "SUB": self._subscriptions,
            "TOPIC": self._topics,
            "TPSTATUS": self._topic_status,
        }

    @property
    def nouns(self) -> Collection[str]:
        """The nouns that DISPLAY supports."""
        return [noun for noun in self._sources if noun not in _HANDLE_NOUNS.values()]

    def knows(self, noun: str) -> bool:
        """Return whether DISPLAY supports a noun."""
        return noun in self._sources

    def objects(self, noun: str, name: str) -> Iterator[Shown]:
        """Return the objects that match a name, which may be generic, with all attributes."""
        return self._sources[noun](name)

    def show(self, command: Command) -> tuple[str, list[Shown]]:
        """Run a DISPLAY command. Return the AMQ message and the objects.

        Raises CommandRefused or MQSCSyntaxError.
        """
        noun = command.noun
        if any((parameter.keyword, parameter.value) == ("TYPE", "HANDLE") for parameter in command.parameters):
            noun = _HANDLE_NOUNS.get(noun, noun)
        head, number, kind = _HEADS[noun]
        name = "*" if noun == "QMGR" else command.name
        if name is None:
            raise MQSCSyntaxError(f"{noun} takes a name in parentheses", command.where, noun)
        if noun == "QMGR" and command.name is not None:
            raise MQSCSyntaxError("QMGR takes no name", command.where, noun)
        wanted, selection, where = _request(command, noun)
        whole = (not wanted and where is None and (noun in _ALWAYS_WHOLE or not name.endswith("*"))) or "ALL" in wanted
        if where is not None and where.keyword not in (*wanted, head, "TYPE"):
            wanted.append(where.keyword)
        shown = []
        for row in self._sources[noun](name):
            if _is_selected(row, noun, selection) and (where is None or where.passes(row)):
                shown.append(_ordered(row, noun) if whole else _only(row, head, wanted))
        if not shown:
            raise CommandRefused("AMQ8147E", kind=kind, name=name)
        return message(number), shown

    def _queue_managers(self, _name: str) -> Iterator[Shown]:
        queue_manager = self._queue_manager
        made = stamps(queue_manager.created)
        identifier = f"{queue_manager.name}_{made['CRDATE']}_{made['CRTIME']}"
        yield {"QMNAME": queue_manager.name, "QMID": identifier[:48], **made, **queue_manager.objects.attributes, **_SECURITY}

    def _queues(self, name: str) -> Iterator[Shown]:
        queue_manager = self._queue_manager
        made = stamps(queue_manager.created)
        shown: list[tuple[str, str, Shown]] = []
        for own, queue in queue_manager.objects.queues.items():
            shown.append((own, "QLOCAL", {"DEFTYPE": "PREDEFINED"} | queue.attributes | _counts(queue)))
        shown += [(own, "QALIAS", attributes) for own, attributes in queue_manager.objects.aliases.items()]
        shown += [(own, "QREMOTE", attributes) for own, attributes in queue_manager.objects.remotes.items()]
        shown += [(own, "QMODEL", attributes) for own, attributes in queue_manager.objects.models.items()]
        for own, kind, attributes in sorted(shown, key=lambda one: one[0]):
            if is_named(own, name):
                shown_stamps = made if kind == "QLOCAL" else {keyword: made[keyword] for keyword in _ALTERED}
                yield {"QUEUE": own, "TYPE": kind, **shown_stamps, **attributes}

    def _queue_status(self, name: str) -> Iterator[Shown]:
        now = time.time()
        for own, queue in sorted(self._queue_manager.objects.queues.items()):
            if is_named(own, name):
                firsts = [chain.first.put_time for chain in queue.chains.values() if chain.first is not None]
                available = sum(1 for _ in queue.messages())
                yield {
                    "QUEUE": own,
                    "TYPE": "QUEUE",
                    **_counts(queue),
                    "MSGAGE": max(0, int(now - min(firsts))) if firsts else 0,
                    "UNCOM": "YES" if queue.depth != available else "NO",
                }

    def _applications(self) -> list[Any]:
        return sorted(self._queue_manager.applications, key=lambda application: application.connection_id)

    def _queue_handles(self, name: str) -> Iterator[Shown]:
        """Yield the open handles of queues (IBM MQ, "DISPLAY QSTATUS", handle status)."""
        applications = self._applications()
        for own, queue in sorted(self._queue_manager.objects.queues.items()):
            if not is_named(own, name):
                continue
            for application in applications:
                for handle in application.handles.values():
                    if handle.is_for("QLOCAL", own, queue):
                        yield {
                            "QUEUE": own,
                            "TYPE": "HANDLE",
                            "APPLTAG": application.name[:28],
                            "APPLTYPE": "USER",
                            "CONNAME": application.address,
                            "USERID": application.user.decode("utf-8", "replace"),
                            **_opened(handle),
                        }

    def _connections(self, name: str) -> Iterator[Shown]:
        """Yield the connections of MQ applications (IBM MQ, "DISPLAY CONN")."""
        for application in self._applications():
            if is_named(own := connection_name(application), name):
                yield {
                    "CONN": own,
                    "TYPE": "CONN",
                    "EXTCONN": application.connection_id[:16].hex().upper(),
                    "APPLTAG": application.name[:28],
                    "APPLTYPE": "USER" if application.stop is not None else "SYSTEM",
                    "CHANNEL": application.channel,
                    "CONNAME": application.address,
                    "PID": application.process_id,
                    "UOWSTATE": "ACTIVE" if application.in_unit_of_work else "NONE",
                    "USERID": application.user.decode("utf-8", "replace"),
                }

    def _connection_handles(self, name: str) -> Iterator[Shown]:
        """Yield the open handles of connections (IBM MQ, "DISPLAY CONN", TYPE(HANDLE))."""
        for application in self._applications():
            if is_named(own := connection_name(application), name):
                extended = application.connection_id[:16].hex().upper()
                for handle in application.handles.values():
                    kind, opened = handle.names
                    yield {
                        "CONN": own,
                        "TYPE": "HANDLE",
                        "EXTCONN": extended,
                        "OBJNAME": opened,
                        "OBJTYPE": kind,
                        **_opened(handle),
                    }

    def _namelists(self, name: str) -> Iterator[Shown]:
        made = stamps(self._queue_manager.created)
        for own, attributes in sorted(self._queue_manager.objects.namelists.items()):
            if is_named(own, name):
                count = len(str(attributes["NAMES"]).split(",")) if attributes["NAMES"] else 0
                yield {"NAMELIST": own, **made, **attributes, "NAMCOUNT": count}

    def _server_channels(self, name: str) -> Iterator[Shown]:
        made = stamps(self._queue_manager.created)
        shown_stamps = {keyword: made[keyword] for keyword in _ALTERED}
        for own, attributes in sorted(self._queue_manager.objects.server_channels.items()):
            if is_named(own, name):
                yield {"CHANNEL": own, "CHLTYPE": "SVRCONN", **shown_stamps, **attributes}

    def _topics(self, name: str) -> Iterator[Shown]:
        made = stamps(self._queue_manager.created)
        for own, attributes in sorted(self._queue_manager.objects.topics.objects.items()):
            if is_named(own, name):
                yield {"TOPIC": own, "TYPE": "LOCAL", **made, **attributes}

    def _subscriptions(self, name: str) -> Iterator[Shown]:
        for own, subscription in sorted(self._queue_manager.objects.topics.subscriptions.items()):
            if is_named(own, name):
                yield _subscription(subscription) | {
                    "SUBID": subscription_id(self._queue_manager.name, own).hex().upper()
                }

    def _topic_status(self, name: str) -> Iterator[Shown]:
        topics, retained = self._queue_manager.objects.topics, self._queue_manager.retained
        objects = {str(attributes["TOPICSTR"]): own for own, attributes in topics.objects.items()}
        counts: dict[str, int] = {}
        for subscription in topics.subscriptions.values():
            counts[subscription.topic_filter] = counts.get(subscription.topic_filter, 0) + 1
        known = {""}
        for topic in (*objects, *counts, *retained):
            levels = topic.split("/")
            known.update("/".join(levels[:length]) for length in range(1, len(levels) + 1))
        for topic in sorted(known):
            # With the additional level, wildcards also match `$` topics, so that administrators see the complete tree.
            if topic == name or matches(f"x/{name}", f"x/{topic}"):
                yield {
                    "TPSTATUS": topic,
                    "ADMIN": objects.get(topic, ""),
                    **topics.attributes(topic),
                    "RETAINED": "YES" if topic in retained else "NO",
                    "SUBCOUNT": counts.get(topic, 0),
                }


def connection_name(application: Any) -> str:
    """Return the connection identifier in CONN: the last 8 bytes of ConnectionId in hexadecimal."""
    connection_id: bytes = application.connection_id
    return connection_id[-8:].hex().upper()


def _opened(handle: Handle) -> Shown:
    options = getattr(handle, "options", 0)
    return {
        "INPUT": ("EXCL" if getattr(handle, "exclusive", False) else "SHARED") if handle.gets else "NO",
        **{word: "YES" if options & bit else "NO" for word, bit in _OPENED.items()},
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
    return {
        "SUB": subscription.name,
        "TOPICSTR": subscription.topic_filter,
        "TOPICOBJ": subscription.topic_object,
        "DEST": subscription.destination,
        "DESTQMGR": subscription.destination_manager,
        "DESTCORL": subscription.correl_id.hex().upper() if subscription.correl_id is not None else "",
        "DESTCLAS": "MANAGED" if subscription.managed else "PROVIDED",
        "DURABLE": "YES" if subscription.durable else "NO",
        "SUBTYPE": subscription.kind,
        "USERDATA": subscription.user_data or "",
        "SUBLEVEL": subscription.level,
        "SUBUSER": subscription.user,
        "EXPIRY": expiry,
        "WSCHEMA": "CHAR" if subscription.characters else "TOPIC",
        "SELECTOR": subscription.selector,
    }


def _request(command: Command, noun: str) -> tuple[list[str], dict[str, str], Filter | None]:
    """Return the attributes that a DISPLAY requests, its restrictions to certain values, and its WHERE."""
    head = _HEADS[noun][0]
    known = _KEYWORDS[noun] | ({head, "TYPE"} if noun in _TYPED else {head})
    selections = _SELECTIONS.get(noun, {})
    wanted: list[str] = []
    selection: dict[str, str] = {}
    where: Filter | None = None
    for parameter in command.parameters:
        keyword = SYNONYMS.get(parameter.keyword, parameter.keyword)
        if keyword == "WHERE":
            where = Filter.read(parameter, known)
        elif keyword in selections and parameter.values is not None:
            if parameter.value not in selections[keyword]:
                words = ", ".join(selections[keyword])
                raise MQSCSyntaxError(f"{keyword} is one of {words}", parameter.where, keyword)
            selection[keyword] = parameter.value or ""
        elif parameter.values is not None:
            raise MQSCSyntaxError(f"{keyword} takes no value in DISPLAY", parameter.where, keyword)
        elif keyword == "ALL" or keyword in known:
            wanted.append(keyword)
        else:
            raise MQSCSyntaxError(f"{keyword} is no attribute that DISPLAY {noun} shows", parameter.where, keyword)
    if noun in ("QLOCAL", "QALIAS", "QREMOTE", "QMODEL"):
        selection["TYPE"] = noun
    return wanted, selection, where


def _is_selected(shown: Shown, noun: str, selection: dict[str, str]) -> bool:
    """Return whether an object has the requested TYPE, DURABLE or SUBTYPE. USER matches all, because there are no proxies."""
    everything = {keyword: (words[0], "USER") for keyword, words in _SELECTIONS.get(noun, {}).items()}
    return all(value in everything.get(keyword, ()) or shown[keyword] == value for keyword, value in selection.items())


def _ordered(shown: Shown, noun: str) -> Shown:
    """Return all attributes of a noun: name, type, and the others in alphabetical order."""
    first = {keyword: shown[keyword] for keyword in (_HEADS[noun][0], "TYPE") if keyword in shown}
    return first | {keyword: shown[keyword] for keyword in sorted(shown) if keyword in _KEYWORDS[noun]}


def _only(shown: Shown, head: str, wanted: list[str]) -> Shown:
    """Return name and type of an object, and the requested attributes."""
    return {keyword: shown[keyword] for keyword in dict.fromkeys((head, "TYPE", *wanted)) if keyword in shown}
