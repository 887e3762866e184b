"""DEFINE, ALTER and DELETE of queues, topic objects, subscriptions and the queue manager itself.

Source: IBM MQ documentation, "MQSC commands reference". Each method checks the command before it changes anything. It returns
the AMQ message and the unit of work with the change, or None if nothing changes.
"""

from __future__ import annotations

import logging
import time

import msgspec

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.embedded.attributes import (
    ATTRIBUTES,
    MQ_OBJECT_NAME_LENGTH,
    STAMPS,
    SYNONYMS,
    AttributeRefused,
    Names,
    Value,
    Words,
    defaults,
    invalid_name_character,
    read,
    stamps,
)
from bridge.mq.embedded.authority import OBJECT_TYPES
from bridge.mq.embedded.handles import Handle, affected, invalidate, open_for, rerouted
from bridge.mq.embedded.objects import RETAINED_QUEUE
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.unit import Unit, whole
from bridge.mq.mqi import MQError
from bridge.mq.mqsc import FLAGS, Command, CommandRefused, MQSCSyntaxError, Parameter, message
from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH
from bridge.wire import cmqc, cmqcfc

log = logging.getLogger(__name__)

BASE_TOPIC_OBJECT = "SYSTEM.BASE.TOPIC"
QUEUE_KINDS = ("QLOCAL", "QALIAS", "QREMOTE", "QMODEL")
#: Queues that the queue manager itself uses, and their purposes.
_OWN = {
    RETAINED_QUEUE: "it contains the retained publications; hint: CLEAR TOPICSTR removes them",
    STATE_QUEUE: "it contains the state of MQTT sessions",
}
#: Parameters of DEFINE and ALTER that are not attributes.
MANNERS = ("LIKE", "NOREPLACE", "REPLACE")
_FORCE = ("FORCE", "NOFORCE")

Answer = tuple[str, Unit | None]


def settings(kind: str, command: Command, *others: str) -> dict[str, Value]:
    """Return the attributes that the parameters of a command set, except `others`. Raises MQSCSyntaxError."""
    attributes: dict[str, Value] = {}
    for parameter in command.parameters:
        if parameter.keyword in others:
            continue
        keyword, text = _setting(kind, parameter)
        try:
            value = read(kind, keyword, text)
        except AttributeRefused as error:
            raise MQSCSyntaxError(str(error), parameter.where, parameter.keyword) from error
        if keyword in attributes:
            raise MQSCSyntaxError(f"{keyword} is specified twice", parameter.where, parameter.keyword)
        attributes[keyword] = value
    return attributes


def _setting(kind: str, parameter: Parameter) -> tuple[str, str]:
    keyword = SYNONYMS.get(parameter.keyword, parameter.keyword)
    if keyword in FLAGS:
        if parameter.values is not None:
            raise MQSCSyntaxError(f"{keyword} takes no value", parameter.where, parameter.keyword)
        return FLAGS[keyword]
    if isinstance(ATTRIBUTES[kind].get(keyword), Names | Words):
        return keyword, ",".join(str(name) for name in parameter.values or ())
    if parameter.value is None and keyword in defaults(kind):
        raise MQSCSyntaxError(f"{keyword} requires one value in parentheses", parameter.where, parameter.keyword)
    return keyword, parameter.value or ""


def replace_and_like(command: Command) -> tuple[bool, str | None]:
    """Return whether DEFINE may replace an object (REPLACE), and the object name in LIKE. Raises MQSCSyntaxError."""
    model = command.parameter("LIKE")
    if model is not None and not model.value:
        raise command.wrong("LIKE requires the name of an object", "LIKE")
    return command.flag("REPLACE", "NOREPLACE"), command.value("LIKE")


def object_name(command: Command, length: int = MQ_OBJECT_NAME_LENGTH) -> str:
    """Return the object name of a command. Raises CommandRefused or MQSCSyntaxError."""
    name = command.required_name()
    if not name or len(name) > length:
        raise CommandRefused("AMQ8424E", name=name, detail=f"a name has 1 to {length} characters")
    if wrong := invalid_name_character(name):
        raise CommandRefused("AMQ8424E", name=name, detail=f"{wrong!r} is not allowed in MQ object names")
    return name


class Definitions:
    """The commands that define, alter and delete objects of a queue manager."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._objects = queue_manager.objects

    def _existing(self, kind: str, name: str) -> dict[str, Value]:
        """Return the attributes of an object. Raises CommandRefused if it does not exist."""
        attributes = self._objects.of_kind(kind).get(name)
        if attributes is None:
            raise CommandRefused("AMQ8147E", kind=_word(kind), name=name)
        return attributes

    def define(self, command: Command) -> Answer:
        """Run DEFINE QLOCAL, QALIAS, QREMOTE or TOPIC."""
        kind, name = command.noun, object_name(command)
        replace, model = replace_and_like(command)
        parameters = settings(kind, command, *MANNERS)
        base = defaults(kind) if model is None else dict(self._existing(kind, model))
        if model is not None and kind == "TOPIC":
            base["TOPICSTR"] = ""
        attributes = base | parameters
        for other in QUEUE_KINDS if kind in QUEUE_KINDS else ():
            if other != kind and name in self._objects.of_kind(other):
                raise CommandRefused("AMQ8150E", kind=f"Queue of type {other}", name=name)
        old = self._objects.of_kind(kind).get(name)
        if old is not None and not replace:
            raise CommandRefused("AMQ8150E", kind=_word(kind), name=name)
        if old is not None and kind == "TOPIC" and "TOPICSTR" not in parameters:
            attributes["TOPICSTR"] = old["TOPICSTR"]
        return self._change(kind, name, old, attributes)

    def alter(self, command: Command) -> Answer:
        """Run ALTER QLOCAL, QALIAS, QREMOTE or TOPIC."""
        kind, name = command.noun, object_name(command)
        manner = _FORCE if kind in QUEUE_KINDS else ()
        forced = command.flag(*manner) if manner else False
        parameters = settings(kind, command, *manner)
        old = self._existing(kind, name)
        return self._change(kind, name, old, old | parameters, forced=forced)

    def _change(
        self, kind: str, name: str, old: dict[str, Value] | None, attributes: dict[str, Value], *, forced: bool = False
    ) -> Answer:
        """Return the unit of work for a new or altered object. FORCE invalidates all handles that are open for it."""
        if kind == "TOPIC":
            self._check_topic(name, old, attributes)
        elif kind == "QLOCAL" and old is not None:
            self._check_usage(name, old, attributes)
        handles = [] if old is None else affected(self._queue_manager, kind, name, old, attributes)
        if handles and not forced:
            raise _open("Queue", name)
        answer = message(_NUMBERS[kind][old is not None], name=name, hint="")
        timestamps = stamps(time.time())
        if old is not None:
            timestamps |= {keyword: old[keyword] for keyword in ("CRDATE", "CRTIME") if keyword in old}
            # A change of only the time of the last change is not a change.
            if all(old.get(keyword) == value for keyword, value in attributes.items() if keyword not in STAMPS):
                return answer, None
        attributes |= timestamps
        unit = Unit().define(kind, name, attributes, lambda: self.install(kind, name, attributes))
        if forced:
            handles += open_for(self._queue_manager, kind, name)
            unit.changes.effects.append(lambda: invalidate(handles))
        return answer, unit

    def install(self, kind: str, name: str, attributes: dict[str, Value]) -> None:
        """Apply checked attributes to a new or existing object."""
        queue_manager = self._queue_manager
        if kind == "QLOCAL":
            queue = queue_manager.objects.queues.get(name)
            leads_elsewhere = queue is None or queue.attributes["USAGE"] != attributes["USAGE"]
            if queue is None:
                queue_manager.objects.queues[name] = Queue(name, attributes)
            else:
                _refresh(queue, attributes)
            if leads_elsewhere:
                self.resolve_again()
        elif kind == "TOPIC":
            queue_manager.objects.topics.objects[name] = attributes
            queue_manager.objects.topics.forget_routes()
        else:
            self._queue_manager.objects.of_kind(kind)[name] = attributes
            self.resolve_again()

    def _check_topic(self, name: str, old: dict[str, Value] | None, attributes: dict[str, Value]) -> None:
        topic = attributes["TOPICSTR"]
        if old is not None and topic != old["TOPICSTR"]:
            detail = f"the topic string of topic {name} is {old['TOPICSTR']!r} and cannot be changed"
            raise CommandRefused("AMQ8101E", detail=detail, reason=cmqc.MQRC_TOPIC_NOT_ALTERABLE)
        if old is None and not topic:
            raise CommandRefused(
                "AMQ8101E", detail=f"topic {name} needs a TOPICSTR", reason=cmqc.MQRC_TOPIC_STRING_ERROR
            )
        for other, others in self._queue_manager.objects.of_kind("TOPIC").items():
            if other != name and others["TOPICSTR"] == topic:
                detail = f"topic string {topic!r} belongs to topic {other}"
                raise CommandRefused("AMQ8101E", detail=detail, reason=cmqcfc.MQRCCF_TOPICSTR_ALREADY_EXISTS)
        if name == BASE_TOPIC_OBJECT and "ASPARENT" in attributes.values():
            detail = f"{name} has no parent, so ASPARENT is not allowed"
            raise CommandRefused("AMQ8101E", detail=detail, reason=cmqcfc.MQRCCF_ATTR_VALUE_ERROR)

    def _check_usage(self, name: str, old: dict[str, Value], attributes: dict[str, Value]) -> None:
        """Reject a change of USAGE unless the queue is empty, because messages on transmission queues have an MQXQH."""
        if attributes["USAGE"] == old["USAGE"]:
            return
        queue = self._queue_manager.objects.queues[name]
        if queue.depth:
            raise CommandRefused("AMQ8143E", name=name, detail=f"USAGE cannot change with {queue.depth} messages on it")
        if name in _OWN or queue.consumer is not None:
            self.check_unused(name, queue)

    def delete(self, command: Command) -> Answer:
        """Run DELETE QLOCAL, QALIAS, QREMOTE or TOPIC. Also delete the object's authority records unless AUTHREC(NO)."""
        kind, name = command.noun, object_name(command)
        manner = ("PURGE", "NOPURGE") if kind == "QLOCAL" else ()
        command.check_keywords("AUTHREC", *manner)
        purge = command.flag(*manner) if manner else False
        records = command.choice("AUTHREC", ("YES", "NO"), "YES")
        self._existing(kind, name)
        unit = Unit()
        if kind == "TOPIC" and name == BASE_TOPIC_OBJECT:
            raise CommandRefused("AMQ8148E", kind="Topic", name=name, detail="it is the root of the topic tree")
        if kind in QUEUE_KINDS:
            self._check_queue_unused(kind, name)
        if kind == "QLOCAL":
            self._empty(unit, name, purge)
        unit.define(kind, name, None)
        if records == "YES":
            self._objects.authority_records.remove_profile(unit, OBJECT_TYPES[_word(kind).upper()], name)
        unit.changes.effects.append(lambda: self._remove(kind, name))
        return message(_NUMBERS[kind][2], name=name), unit

    def _remove(self, kind: str, name: str) -> None:
        queue_manager = self._queue_manager
        if kind == "QLOCAL":
            queue_manager.objects.queues.pop(name).end()
        else:
            self._queue_manager.objects.of_kind(kind).pop(name, None)
            queue_manager.objects.topics.forget_routes()
        self.resolve_again()

    def _check_queue_unused(self, kind: str, name: str) -> None:
        queue_manager = self._queue_manager
        if kind == "QLOCAL":
            self.check_unused(name, queue_manager.objects.queues[name])
        own = ("", queue_manager.name)
        # A durable subscription that is not open does not prevent the deletion. Its publications are lost meanwhile.
        for subscription in queue_manager.objects.topics.subscriptions.values():
            is_destination = subscription.destination == name and subscription.destination_manager in own
            if is_destination and kind == "QLOCAL" and subscription.owner is None and not subscription.managed:
                continue
            way = subscription.destination_manager == name and kind == "QREMOTE"
            if is_destination or way or subscription.queue.name == name:
                detail = f"subscription {subscription.name} puts to it"
                raise CommandRefused("AMQ8148E", kind="Queue", name=name, detail=detail)

    def check_unused(self, name: str, queue: Queue) -> None:
        """Raise CommandRefused if an application has the queue open, or the queue manager uses it."""
        detail = _OWN.get(name, "")
        if not detail and (queue.consumer is not None or queue.inputs or queue.outputs or queue.browsers):
            detail = "it is open"
        if detail:
            raise CommandRefused("AMQ8148E", kind="Queue", name=name, detail=detail)

    def _empty(self, unit: Unit, name: str, purge: bool) -> None:
        """Remove the messages of a queue that is deleted."""
        queue = self._queue_manager.objects.queues[name]
        if queue.depth and not purge:
            raise CommandRefused(
                "AMQ8143E", name=name, detail=f"{queue.depth} messages are on it; hint: PURGE deletes them"
            )
        self._take_all(unit, name, queue)

    def _take_all(self, unit: Unit, name: str, queue: Queue) -> None:
        messages = list(queue.messages())
        if len(messages) != queue.depth:
            # IBM MQ, "CLEAR QLOCAL": it fails when there are uncommitted messages.
            detail = f"{queue.depth - len(messages)} messages on it are uncommitted"
            raise CommandRefused("AMQ8148E", kind="Queue", name=name, detail=detail, reason=cmqc.MQRC_Q_NOT_EMPTY)
        for stored in messages:
            queue.take(stored)
        unit.gets += messages

    def clear(self, command: Command) -> Answer:
        """Run CLEAR QLOCAL."""
        name = object_name(command)
        command.check_keywords()
        self._existing("QLOCAL", name)
        queue = self._objects.queues[name]
        self.check_unused(name, queue)
        unit = Unit()
        self._take_all(unit, name, queue)
        return message("AMQ8022I", what=f"Queue {name}"), unit

    def move(self, command: Command) -> Answer:
        """Run MOVE QLOCAL(source) TOQLOCAL(target) TYPE(MOVE|ADD) in one unit of work.

        With TYPE(MOVE), the default, the target must be empty. Source: IBM MQ for z/OS documentation, "MOVE QLOCAL".
        """
        name = object_name(command)
        command.check_keywords("TOQLOCAL", "TYPE")
        to, kind = command.value("TOQLOCAL"), command.choice("TYPE", ("MOVE", "ADD"), "MOVE")
        if not to:
            raise command.wrong("TOQLOCAL requires the name of the target queue", "TOQLOCAL")
        for queue_name in (name, to):
            self._existing("QLOCAL", queue_name)
            self.check_unused(queue_name, self._objects.queues[queue_name])
        source, target = self._objects.queues[name], self._objects.queues[to]
        if target.depth and kind == "MOVE":
            detail = f"{target.depth} messages are on it; hint: use TYPE(ADD)"
            raise CommandRefused("AMQ8143E", name=to, detail=detail)
        if source is target:
            raise CommandRefused("AMQ8148E", kind="Queue", name=name, detail="source and target are the same queue")
        unit = Unit()
        try:
            with whole(unit):
                self._take_all(unit, name, source)
                for stored in unit.gets:
                    self._queue_manager.put_moved(unit, stored, target)
        except MQError as error:
            raise CommandRefused("AMQ8101E", detail=f"no message was moved: {error}", reason=error.reason) from error
        return message("CSQ9022I", count=len(unit.puts), name=name, target=to), unit

    def alter_queue_manager(self, command: Command) -> Answer:
        """Run ALTER QMGR. Only altered attributes are stored. Defaults and the configuration determine all others."""
        queue_manager = self._queue_manager
        forced = command.flag(*_FORCE)
        parameters = settings("QMGR", command, *_FORCE)
        handles: list[Handle] = []
        if "DEFXMITQ" in parameters:
            handles = rerouted(queue_manager, queue_manager.objects.attributes, "DEFXMITQ", parameters["DEFXMITQ"])
        if handles and not forced:
            raise _open("Queue manager", queue_manager.name)
        altered = queue_manager.altered | parameters
        answer = message("AMQ8005I", name=queue_manager.name)
        if altered == queue_manager.altered:
            return answer, None

        def effect() -> None:
            queue_manager.altered.update(parameters)
            queue_manager.objects.attributes.update(parameters)
            self.resolve_again()
            invalidate(handles)

        return answer, Unit().define("QMGR", queue_manager.name, altered, effect)

    def resolve_again(self) -> None:
        """Resolve the destinations of subscriptions again, after an alias, remote queue or DEFXMITQ may have changed.

        IBM MQ resolves them at each publication. If a destination can no longer be resolved, the subscription keeps its
        queue, and an error is logged.
        """
        queue_manager = self._queue_manager
        for subscription in queue_manager.objects.topics.subscriptions.values():
            if not subscription.managed and not subscription.queue.temporary:
                self._resolve(subscription)

    def _resolve(self, subscription: Subscription) -> None:
        try:
            target = self._queue_manager.objects.resolve(subscription.destination, subscription.destination_manager)
        except MQError as error:
            log.error("MQB3102E the destination of subscription %s cannot be resolved: %s", subscription.name, error)
            return
        if target.queue is not None:
            subscription.queue = target.queue
            subscription.remote_queue = target.remote_queue
            subscription.client_id = target.client_id


def _refresh(queue: Queue, attributes: dict[str, Value]) -> None:
    """Apply attributes to a queue. If MSGDLVSQ changes, link its messages again in the new order."""
    if attributes["MSGDLVSQ"] == queue.attributes["MSGDLVSQ"]:
        queue.attributes = attributes
        queue.refresh()
        if attributes["GET"] != "ENABLED":
            queue.announce()  # MQGMO_WAIT: "the wait is canceled" with MQRC_GET_INHIBITED
        return
    messages = list(queue.messages())
    for stored in messages:
        queue.take(stored)
    queue.attributes = attributes
    queue.refresh()
    for stored in sorted(messages, key=lambda stored: stored.msg_number):
        queue.append(stored)
    queue.enqueued -= len(messages)


def _open(kind: str, name: str) -> CommandRefused:
    detail = "the change affects open handles; hint: FORCE applies the change and invalidates them"
    return CommandRefused("AMQ8148E", kind=kind, name=name, detail=detail, reason=cmqcfc.MQRCCF_OBJECT_OPEN_FORCE)


def _word(kind: str) -> str:
    if kind in QUEUE_KINDS:
        return "Queue"
    return "Channel" if kind == "SVRCONN" else kind.capitalize()


#: (created, changed, deleted)
_NUMBERS = dict.fromkeys(QUEUE_KINDS, ("AMQ8006I", "AMQ8008I", "AMQ8007I")) | {
    "NAMELIST": ("AMQ8552I", "AMQ8551I", "AMQ8553I"),
    "SVRCONN": ("AMQ8014I", "AMQ8016I", "AMQ8015I"),
    "TOPIC": ("AMQ8690I", "AMQ8691I", "AMQ8692I"),
}


#: Attributes that ALTER SUB cannot change (IBM MQ documentation, "ALTER SUB").
UNALTERABLE = ("TOPICOBJ", "TOPICSTR", "WSCHEMA", "DESTCLAS", "SUBLEVEL")
SUB_NAME_LENGTH = 10_240


def subscription_name(command: Command) -> str:
    """Return the name of a subscription, which may contain any characters. Raises CommandRefused or MQSCSyntaxError."""
    name = command.required_name()
    if not name or len(name) > SUB_NAME_LENGTH:
        raise CommandRefused("AMQ8424E", name=name[:60], detail=f"a name has 1 to {SUB_NAME_LENGTH} characters")
    return name


class Subscriptions:
    """The commands that define, alter and delete subscriptions of a queue manager."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    def _existing(self, name: str) -> Subscription:
        subscription = self._queue_manager.objects.topics.subscriptions.get(name)
        if subscription is None:
            raise CommandRefused("AMQ8147E", kind="Subscription", name=name, reason=cmqc.MQRC_NO_SUBSCRIPTION)
        return subscription

    def define(self, command: Command) -> Answer:
        """Run DEFINE SUB."""
        name = subscription_name(command)
        replace, model = replace_and_like(command)
        managed = command.choice("DESTCLAS", ("PROVIDED", "MANAGED")) == "MANAGED"
        parameters = settings("SUB", command, *MANNERS, "DESTCLAS")
        base = defaults("SUB") if model is None else _attributes(self._existing(model))
        if model is not None and self._existing(model).managed:
            base |= {"DEST": "", "DESTQMGR": ""}
        attributes = base | parameters
        _check(attributes, command)
        old = self._queue_manager.objects.topics.subscriptions.get(name)
        if old is not None and not replace:
            raise CommandRefused("AMQ8150E", kind="Subscription", name=name, reason=cmqcfc.MQRCCF_SUB_ALREADY_EXISTS)
        if managed and "DEST" in parameters:
            raise MQSCSyntaxError("DEST is not allowed with DESTCLAS(MANAGED)", command.where)
        if not managed and not attributes["DEST"]:
            raise MQSCSyntaxError("DEFINE SUB requires DEST, the queue for its publications", command.where)
        if old is not None and old.managed != managed:
            raise CommandRefused("AMQ8469E", name=name, detail="its destination class cannot be changed")
        self._check_topic(attributes)
        unit = Unit()
        queue = (old.queue if old is not None else self._managed_queue(unit)) if managed else None
        subscription = self._make(name, attributes | {"SUBTYPE": "ADMIN"}, queue)
        self._queue_manager.add_subscription(unit, subscription)
        # A new subscription gets the retained publication immediately (IBM MQ, "Subscriptions and message retention").
        if old is None or old.topic_filter != subscription.topic_filter:
            self._queue_manager.put_retained(unit, subscription)
        return message("AMQ8094I" if old is None else "AMQ8095I", name=name), unit

    def _check_topic(self, attributes: dict[str, Value]) -> None:
        queue_manager = self._queue_manager
        topic_filter = queue_manager.objects.topic_string(str(attributes["TOPICOBJ"]), str(attributes["TOPICSTR"]))
        if len(topic_filter) > MQ_TOPIC_STR_LENGTH:
            detail = f"the topic string has {len(topic_filter)} characters, the maximum is {MQ_TOPIC_STR_LENGTH}"
            raise CommandRefused("AMQ8101E", detail=detail)
        effective = queue_manager.objects.topics.attributes(topic_filter)
        if effective["SUB"] != "ENABLED":
            raise MQError(cmqc.MQRC_SUB_INHIBITED, f"topic {topic_filter!r} has SUB(DISABLED)")
        if effective["DURSUB"] != "YES":
            raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, f"topic {topic_filter!r} has DURSUB(NO)")

    def _managed_queue(self, unit: Unit) -> Queue:
        """Create a queue for a managed destination in a unit of work."""
        queue_manager = self._queue_manager
        queue = queue_manager.managed_queue(unit, durable=True)
        del queue_manager.objects.queues[queue.name]
        unit.changes.effects.append(lambda: queue_manager.objects.queues.update({queue.name: queue}))
        return queue

    def _make(self, name: str, attributes: dict[str, Value], managed: Queue | None) -> Subscription:
        """Return a subscription with checked attributes. `managed` is the queue of a managed destination."""
        expiry = attributes["EXPIRY"]
        expires = 0.0 if isinstance(expiry, str) else time.time() + expiry / 10
        queue_manager = self._queue_manager
        if managed is None:
            return queue_manager.objects.make_subscription(name, attributes | {"EXPIRES": expires})
        exists = managed.name in queue_manager.objects.queues
        queue_manager.objects.queues[managed.name] = managed
        try:
            own = {"DEST": managed.name, "DESTQMGR": "", "EXPIRES": expires, "MANAGED": True}
            return queue_manager.objects.make_subscription(name, attributes | own)
        finally:
            if not exists:
                del queue_manager.objects.queues[managed.name]

    def alter(self, command: Command) -> Answer:
        """Run ALTER SUB. A non-durable subscription changes in memory only."""
        old = self._existing(subscription_name(command))
        for keyword in UNALTERABLE:
            if command.parameter(keyword) is not None:
                raise command.wrong(f"{keyword} of a subscription cannot be altered", keyword)
        parameters = settings("SUB", command)
        attributes = _attributes(old) | parameters
        _check(attributes, command)
        if old.managed and ("DEST" in parameters or "DESTQMGR" in parameters):
            raise CommandRefused("AMQ8469E", name=old.name, detail="its destination is managed")
        replacement = self._make(old.name, attributes | {"SUBTYPE": old.kind}, old.queue if old.managed else None)
        altered = msgspec.structs.replace(
            replacement,
            durable=old.durable,
            topic_object=old.topic_object,
            selector=old.selector,
            selection=old.selection,
            priority=old.priority,
            grouped=old.grouped,
            any_user=old.any_user,
            on_request=old.on_request,
            identity=old.identity,
            retain_as_published=old.retain_as_published,
            owner=old.owner,
            ephemeral=replacement.queue.temporary,
            expires_at=replacement.expires_at if "EXPIRY" in parameters else old.expires_at,
            correl_id=replacement.correl_id if "DESTCORL" in parameters else old.correl_id,
        )
        unit = Unit()
        self._queue_manager.add_subscription(unit, altered)
        return message("AMQ8095I", name=old.name), unit

    def delete(self, command: Command) -> Answer:
        """Run DELETE SUB."""
        subscription = self._existing(subscription_name(command))
        command.check_keywords()
        queue = subscription.queue
        if subscription.managed and (queue.inputs or queue.browsers or queue.outputs):
            raise CommandRefused("AMQ8469E", name=subscription.name, detail="an application has its queue open")
        unit = Unit()
        self._queue_manager.remove_subscription(unit, subscription.name)
        return message("AMQ8097I", name=subscription.name), unit


def _check(attributes: dict[str, Value], command: Command) -> None:
    if not attributes["TOPICSTR"] and not attributes["TOPICOBJ"]:
        raise MQSCSyntaxError("DEFINE SUB requires TOPICSTR or TOPICOBJ", command.where)
    try:
        bytes.fromhex(str(attributes["DESTCORL"]))
    except ValueError:
        raise command.wrong("DESTCORL must be up to 48 hexadecimal digits", "DESTCORL") from None


def _attributes(subscription: Subscription) -> dict[str, Value]:
    """Return the attributes for a DEFINE SUB of a subscription, with its complete topic string."""
    return subscription.definition | {"TOPICOBJ": "", "EXPIRY": "UNLIMITED"}
