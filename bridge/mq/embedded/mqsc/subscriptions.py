"""DEFINE, ALTER and DELETE of subscriptions.

An administrative subscription is durable; its publications go to the queue that DEST names, or to one made for it (IBM
MQ documentation, "DEFINE SUB"). ALTER and DELETE also work on subscriptions of applications and MQTT clients.
"""

from __future__ import annotations

import time

import msgspec

from bridge.mq.embedded.attributes import Value, defaults
from bridge.mq.embedded.mqsc.amq import CommandRefused, message
from bridge.mq.embedded.mqsc.definitions import Answer, attribute_parameters, like, replaces, settings
from bridge.mq.embedded.mqsc.language import Command, MQSCSyntaxError, Parameter
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH
from bridge.wire import cmqc, cmqcfc

#: IBM MQ documentation, "ALTER SUB": what stays as it was defined.
UNALTERABLE = ("TOPICOBJ", "TOPICSTR", "WSCHEMA", "DESTCLAS", "SUBLEVEL")
SUB_NAME_LENGTH = 10_240


def subscription_name(command: Command) -> str:
    """Return the name of a subscription: any characters. Raises CommandRefused or MQSCSyntaxError."""
    name = command.name
    if name is None:
        raise MQSCSyntaxError("SUB takes a name in parentheses", command.where, "SUB")
    if not name or len(name) > SUB_NAME_LENGTH:
        raise CommandRefused("AMQ8424E", name=name[:60], detail=f"a name has 1 to {SUB_NAME_LENGTH} characters")
    return name


class Subscriptions:
    """The subscriptions of a queue manager, as MQSC defines, alters and deletes them."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    def _existing(self, name: str) -> Subscription:
        subscription = self._queue_manager.topics.subscriptions.get(name)
        if subscription is None:
            raise CommandRefused("AMQ8147E", kind="Subscription", name=name, reason=cmqc.MQRC_NO_SUBSCRIPTION)
        return subscription

    def define(self, command: Command) -> Answer:
        """Do DEFINE SUB."""
        name = subscription_name(command)
        replace, model = replaces(command), like(command)
        managed, parameters = _destination_class(attribute_parameters(command))
        given = settings("SUB", parameters)
        base = defaults("SUB") if model is None else _attributes(self._existing(model))
        if model is not None and self._existing(model).managed:
            base |= {"DEST": "", "DESTQMGR": ""}
        attributes = base | given
        _check(attributes, command)
        old = self._queue_manager.topics.subscriptions.get(name)
        if old is not None and not replace:
            raise CommandRefused("AMQ8150E", kind="Subscription", name=name, reason=cmqcfc.MQRCCF_SUB_ALREADY_EXISTS)
        if managed and "DEST" in given:
            raise MQSCSyntaxError("DESTCLAS(MANAGED) chooses its own queue: leave DEST out", command.where)
        if not managed and not attributes["DEST"]:
            raise MQSCSyntaxError("DEFINE SUB needs DEST, the queue for its publications", command.where)
        if old is not None and old.managed != managed:
            detail = "its destination class cannot be changed"
            raise CommandRefused("AMQ8469E", name=name, detail=detail)
        self._check_topic(attributes)
        unit = Unit()
        queue = (old.queue if old is not None else self._managed_queue(unit)) if managed else None
        subscription = self._make(name, attributes | {"SUBTYPE": "ADMIN"}, queue)
        self._queue_manager.add_subscription(unit, subscription)
        # "Subscriptions and message retention" (IBM MQ): a new subscription gets the retained publication at once.
        if old is None or old.topic_filter != subscription.topic_filter:
            self._queue_manager.put_retained(unit, subscription)
        return message("AMQ8094I" if old is None else "AMQ8095I", name=name), unit

    def _check_topic(self, attributes: dict[str, Value]) -> None:
        queue_manager = self._queue_manager
        topic_filter = queue_manager.topic_string(str(attributes["TOPICOBJ"]), str(attributes["TOPICSTR"]))
        if len(topic_filter) > MQ_TOPIC_STR_LENGTH:
            detail = f"the topic string has {len(topic_filter)} characters, at most {MQ_TOPIC_STR_LENGTH} are allowed"
            raise CommandRefused("AMQ8101E", detail=detail)
        effective = queue_manager.topics.attributes(topic_filter)
        if effective["SUB"] != "ENABLED":
            raise MQError(cmqc.MQRC_SUB_INHIBITED, f"topic {topic_filter!r} has SUB(DISABLED)")
        if effective["DURSUB"] != "YES":
            raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, f"topic {topic_filter!r} has DURSUB(NO)")

    def _managed_queue(self, unit: Unit) -> Queue:
        """Make a queue for a managed destination, there when the unit of work ends."""
        queue_manager = self._queue_manager
        queue = queue_manager.managed_queue(unit, durable=True)
        del queue_manager.queues[queue.name]
        unit.changes.effects.append(lambda: queue_manager.queues.update({queue.name: queue}))
        return queue

    def _make(self, name: str, attributes: dict[str, Value], managed: Queue | None) -> Subscription:
        """Make a subscription from checked attributes; `managed` is the queue of a managed destination."""
        expiry = attributes["EXPIRY"]
        expires = 0.0 if isinstance(expiry, str) else time.time() + expiry / 10
        queue_manager = self._queue_manager
        if managed is None:
            return queue_manager.make_subscription(name, attributes | {"EXPIRES": expires})
        known = managed.name in queue_manager.queues
        queue_manager.queues[managed.name] = managed
        try:
            own = {"DEST": managed.name, "DESTQMGR": "", "EXPIRES": expires, "MANAGED": True}
            return queue_manager.make_subscription(name, attributes | own)
        finally:
            if not known:
                del queue_manager.queues[managed.name]

    def alter(self, command: Command) -> Answer:
        """Do ALTER SUB. A subscription that is not durable changes in memory only."""
        old = self._existing(subscription_name(command))
        for parameter in command.parameters:
            if parameter.keyword in UNALTERABLE:
                detail = f"{parameter.keyword} of a subscription cannot be altered"
                raise MQSCSyntaxError(detail, parameter.where, parameter.keyword)
        given = settings("SUB", command.parameters)
        attributes = _attributes(old) | given
        _check(attributes, command)
        if old.managed and ("DEST" in given or "DESTQMGR" in given):
            raise CommandRefused("AMQ8469E", name=old.name, detail="its destination is managed")
        made = self._make(old.name, attributes | {"SUBTYPE": old.kind}, old.queue if old.managed else None)
        altered = msgspec.structs.replace(
            made,
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
            ephemeral=made.queue.temporary,
            expires_at=made.expires_at if "EXPIRY" in given else old.expires_at,
            correl_id=made.correl_id if "DESTCORL" in given else old.correl_id,
        )
        unit = Unit()
        self._queue_manager.add_subscription(unit, altered)
        return message("AMQ8095I", name=old.name), unit

    def delete(self, command: Command) -> Answer:
        """Do DELETE SUB."""
        subscription = self._existing(subscription_name(command))
        if command.parameters:
            first = command.parameters[0]
            raise MQSCSyntaxError(f"DELETE SUB knows no {first.keyword}", first.where, first.keyword)
        queue = subscription.queue
        if subscription.managed and (queue.inputs or queue.browsers or queue.outputs):
            raise CommandRefused("AMQ8469E", name=subscription.name, detail="an application has its queue open")
        unit = Unit()
        self._queue_manager.remove_subscription(unit, subscription.name)
        return message("AMQ8097I", name=subscription.name), unit


def _destination_class(parameters: list[Parameter]) -> tuple[bool, list[Parameter]]:
    """Return whether DESTCLAS says MANAGED, and the parameters without DESTCLAS."""
    managed = False
    for parameter in parameters:
        if parameter.keyword == "DESTCLAS":
            if parameter.value not in ("PROVIDED", "MANAGED"):
                raise MQSCSyntaxError("DESTCLAS is PROVIDED or MANAGED", parameter.where, "DESTCLAS")
            managed = parameter.value == "MANAGED"
    return managed, [one for one in parameters if one.keyword != "DESTCLAS"]


def _check(attributes: dict[str, Value], command: Command) -> None:
    if not attributes["TOPICSTR"] and not attributes["TOPICOBJ"]:
        raise MQSCSyntaxError("DEFINE SUB needs TOPICSTR or TOPICOBJ", command.where)
    correl_id = str(attributes["DESTCORL"])
    try:
        bytes.fromhex(correl_id)
    except ValueError:
        parameter = command.parameter("DESTCORL")
        where = parameter.where if parameter is not None else command.where
        raise MQSCSyntaxError("DESTCORL is up to 48 hexadecimal digits", where, "DESTCORL") from None


def _attributes(subscription: Subscription) -> dict[str, Value]:
    """Return the attributes that DEFINE SUB would give for a subscription; its topic string is whole."""
    return {
        "TOPICSTR": subscription.topic_filter,
        "TOPICOBJ": "",
        "DEST": subscription.destination,
        "DESTQMGR": subscription.destination_manager,
        "DESTCORL": subscription.correl_id.hex().upper() if subscription.correl_id is not None else "",
        "USERDATA": subscription.user_data or "",
        "SUBLEVEL": subscription.level,
        "EXPIRY": "UNLIMITED",
        "WSCHEMA": "CHAR" if subscription.characters else "TOPIC",
        "SUBUSER": subscription.user,
    }
